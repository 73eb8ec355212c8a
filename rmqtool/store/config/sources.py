"""Select the bytes of a config file to use: the file, its ``.bak`` or ``.tmp``, or what can be salvaged from them.

After common.ConfigManager: a broker reads the file, else the ``.bak``, else it starts empty; it does not start if the
``.bak`` exists and is broken. Brokers up to 5.0 write ``.tmp`` completely before they delete the file and rename.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from formats.config.files import NAMES, kind_of
from formats.config.salvage import merge, salvage, tables_of
from formats.errors import FormatError
from formats.fastjson.read import loads, loads_prefix, loads_torn
from rmqtool.errors import CorruptFile, UnreadableStore
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.mapping import read_at
from rmqtool.store.layout.paths import StoreLayout

FILE, TMP, BAK, BEGINNING, SAVED, EMPTY, ABSENT = "file", "tmp", "bak", "beginning", "saved", "empty", "absent"


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The future contents of a config file, before they are compared with queues and log.

    Attributes:
        kind: ``file``: unchanged; ``tmp``, ``bak``: an intact generation; ``beginning``: the file without stale bytes
            after its end; ``saved``: entries salvaged from broken files; ``empty``: nothing could be salvaged;
            ``absent``: the file does not exist and is not needed.
        value: plain values; None for ``absent``.
        data: the bytes of an intact generation; None if the value was put together.
    """

    kind: str
    reason: str
    value: Any = None
    data: bytes | None = None


def choose(layout: StoreLayout, name: str) -> ConfigSource:
    """Choose the best generation of a file."""
    model = kind_of(name)
    assert model is not None
    path = layout.path("config", name)
    if (data := _content(layout, path)) is not None and _find_fault(name, data) is None:
        return _whole(FILE, "in order", data)
    contents = {"": data, **{suffix: _content(layout, path + suffix) for suffix in (".tmp", ".bak")}}
    broken = {suffix: why for suffix, data in contents.items() if data is not None and (why := _find_fault(name, data))}
    good = {suffix: data for suffix, data in contents.items() if data is not None and suffix not in broken}
    why = f"{name}: {broken['']}" if "" in broken else f"there is no {name}"
    if (data := contents[""]) is not None and (beginning := _read_intact_start(name, data)) is not None:
        return ConfigSource(BEGINNING, f"{why}; what comes before is whole", *beginning)
    # an intact .tmp was written after the .bak, unless it is a leftover from long ago
    if ".tmp" in good and _mtime(path + ".tmp") >= _mtime(path + ".bak"):
        return _whole(TMP, f"{why}; {name}.tmp is whole and newer than the .bak", good[".tmp"])
    if ".bak" in good:
        return _whole(BAK, f"{why}; {name}.bak is whole", good[".bak"])
    if ".tmp" in good:
        return _whole(TMP, f"{why}; {name}.tmp is whole", good[".tmp"])
    if not broken:
        return ConfigSource(ABSENT, why)
    why = "; ".join(f"{name}{suffix}: {reason}" for suffix, reason in sorted(broken.items()))
    value: dict[Any, Any] = {}
    for suffix in (".bak", "", ".tmp"):
        if (data := contents[suffix]) is not None:
            value = merge(model, value, salvage(model, data))
    value.pop("groupTopicMap", None)  # derived from the offsets, and never read
    entries = sum(len(value[table]) for table in tables_of(model) if table in value)
    if not entries:
        return ConfigSource(EMPTY, f"{why}; no entry can be saved", value)
    return ConfigSource(SAVED, f"{why}; {entries} whole entries in them", value)


def find_broken(layout: StoreLayout) -> list[str]:
    """Names of config files that are broken, or missing beside a ``.bak`` or ``.tmp``."""
    return [name for name in NAMES if is_broken(layout, name)]


def is_broken(layout: StoreLayout, name: str) -> bool:
    """Whether a config file is broken, or missing beside a ``.bak`` or ``.tmp``."""
    path = layout.path("config", name)
    if (data := _content(layout, path)) is not None:
        return _find_fault(name, data) is not None
    return any(_content(layout, path + suffix) is not None for suffix in (".bak", ".tmp"))


def _mtime(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _content(layout: StoreLayout, path: str) -> bytes | None:
    try:
        return read_small(path)
    except CorruptFile as err:  # far larger than any config file, but its beginning may be one
        return read_at(path, 0, err.at or 0)
    except UnreadableStore as err:
        layout.pass_over(path, err)
        return None


@lru_cache(maxsize=16)
def _find_fault(name: str, data: bytes) -> str | None:
    model = kind_of(name)
    assert model is not None
    if not data.strip():
        return "empty"
    try:
        model.parse(data)
    except FormatError as err:
        return f"byte {err.at}: {err.reason}"
    return None


def _whole(kind: str, reason: str, data: bytes) -> ConfigSource:
    return ConfigSource(kind, reason, loads(data, cycles=False), data)


def _read_intact_start(name: str, data: bytes) -> tuple[Any, bytes] | None:
    """(value, its bytes) of a file that is intact except for stale bytes after its end (apache/rocketmq#9328)."""
    try:
        _value, end = loads_prefix(data)
        torn = loads_torn(data)
        part = data[:end]
        if torn is None or torn.value is None or _find_fault(name, part) is not None:
            return None
    except FormatError:
        return None
    # an empty object says nothing about what it lost
    return (torn.value, part) if torn.value else None
