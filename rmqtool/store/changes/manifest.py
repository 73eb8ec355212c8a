"""``manifest.json`` of a run: its store, its state, what it assumes about the log, and its actions, one per line.

This is format 2. Format 1 of earlier versions can be read too: it has absolute paths and no fingerprints of files, so
changes are detected by modification times. All fields are validated when read, and no path is trusted: see
:mod:`rmqtool.store.changes.places`.
"""

import json
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.store.changes.places import NotNamed, Places, checked_relative
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.files import File, open_file

_BLOCK = 64 << 10
_PIECE = struct.Struct(">QQ")
_SMALL = 8 << 20  # files up to this size on disk are hashed; larger ones are compared by length and time
_SECOND = 1_000_000_000


class Print(NamedTuple):
    """The fingerprint of a file or symbolic link."""

    size: int
    mtime_ns: int
    digest: str | None = None
    link: str | None = None


def digest_of(file: File, start: int, stop: int) -> str:
    """Digest of bytes [start, stop) of an open file."""
    digest, done = blake2b(digest_size=16), start
    for first, end in file.extents(start, stop):
        at = max(start + (first - start) // _BLOCK * _BLOCK, done)
        while at < end:
            data = file.read(at, min(_BLOCK, stop - at))
            if not data:
                break
            if content := data.rstrip(b"\0"):
                digest.update(_PIECE.pack(at - start, len(content)))
                digest.update(content)
            at += len(data)
        done = max(at, done)
    return digest.hexdigest()


def digest_before(file: File, at: int) -> str:
    """Digest of the bytes before a position; it identifies a file that only changes after it."""
    return digest_of(file, max(at - _BLOCK, 0), at)


def print_of(path: str) -> Print | None:
    """The fingerprint of what is at a path; None if nothing is. Other than files and links have size -1."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        return Print(0, 0, None, os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return Print(-1, 0)
    digest = None
    if status.st_blocks * 512 <= _SMALL:
        with open_file(path, link=False) as file:
            digest = digest_of(file, 0, status.st_size)
    return Print(status.st_size, status.st_mtime_ns, digest)


def same(actual: Print | None, wanted: Print | None) -> bool:
    """Whether two fingerprints match: by content if both have a digest, else by length and time."""
    if actual is None or wanted is None:
        return actual is wanted
    if (actual.size, actual.link) != (wanted.size, wanted.link) or actual.size < 0:
        return False
    if actual.digest is not None and wanted.digest is not None:
        return actual.digest == wanted.digest
    return _same_time(actual.mtime_ns, wanted.mtime_ns)


def is_still(path: str, wanted: Print | None) -> bool:
    """Whether the file at a path matches a fingerprint."""
    return same(print_of(path), wanted)


def _same_time(left: int, right: int) -> bool:
    """Whether two times match; some file systems, and therefore copies, keep whole seconds only."""
    whole = not left % _SECOND or not right % _SECOND
    return left == right or (whole and left // _SECOND == right // _SECOND)


FORMAT = 2
NAME = "manifest.json"
STATES = ("committed", "done", "undoing", "undone", "forgotten")
_MOST = 1 << 28  # bytes of a manifest; each action takes a few hundred
_BIG = 1 << 63
_SECOND = 1_000_000_000  # ns; some file systems have times after 2262, which take more than 63 bits in ns
_LINE = 1 << 16
_HEAD = {"format", "run", "number", "command", "state", "store", "beside", "log"}
_FIELDS = {
    "put": {"do", "path", "staged", "bytes", "mtime_ns", "digest", "was", "kept", "made"},
    "remove": {"do", "path", "was", "kept"},
    "zero": {"do", "path", "start", "stop", "was", "digest", "kept", "mtime_ns"},
}


@dataclass(slots=True)
class Action:
    """One operation on one file. Paths are absolute; ``kept`` and ``staged`` are relative to the run's folder.

    Attributes:
        was: the file before; None if there was none.
        put: the file afterwards.
        digest: of the range that is zeroed.
        mtime_ns: modification time that the file keeps when bytes in it are zeroed.
        made: directories created for it, innermost first.
        known: whether ``was`` and ``digest`` were recorded; not in format 1.
    """

    do: str
    path: str
    staged: str | None = None
    kept: str | None = None
    start: int = 0
    stop: int = 0
    was: Print | None = None
    put: Print | None = None
    digest: str | None = None
    mtime_ns: int = 0
    made: list[str] = field(default_factory=list)
    known: bool = True


@dataclass(slots=True)
class LogEnd:
    """What a change assumes about the commit log.

    Attributes:
        files: path and length of each file, before the change.
        file: the file in which the log ends; None for an empty log.
        at: position of the end in that file.
        behind: digest of the bytes from there to the end of the file.
        before: digest of some bytes before it, to recognize the log; None in runs of earlier versions.
    """

    files: list[tuple[str, int]]
    file: str | None
    at: int
    behind: str | None
    before: str | None = None


@dataclass(slots=True)
class Head:
    """The manifest without log and actions.

    Attributes:
        store: real path, device and inode of the store.
        beside: whether the run is in the default place beside its store, and so moves with it.
    """

    format: int
    run: str
    number: int
    command: str
    state: str
    store: dict[str, Any]
    beside: bool


@dataclass(slots=True)
class Manifest:
    """A complete manifest."""

    head: Head
    log: LogEnd | None
    actions: list[Action]
    written_ns: int = 0  # modification time of the file


def build(manifest: Manifest, places: Places) -> str:
    """The text of the file."""
    head = {name: getattr(manifest.head, name) for name in Head.__slots__}
    if (log := manifest.log) is not None:
        head["log"] = {
            "files": [[places.name_of(path), size] for path, size in log.files],
            "file": None if log.file is None else places.name_of(log.file),
            "at": log.at,
            "behind": log.behind,
            "before": log.before,
        }
    actions = ",\n  ".join(json.dumps(_to_dict(action, places)) for action in manifest.actions)
    return f'{json.dumps(head)[:-1]}, "actions": [\n  {actions}\n]}}\n'


def _to_dict(action: Action, places: Places) -> dict[str, Any]:
    row: dict[str, Any] = {"do": action.do, "path": places.name_of(action.path)}
    if action.do == "zero":
        row |= {"start": action.start, "stop": action.stop, "digest": action.digest, "mtime_ns": action.mtime_ns}
    if action.do == "put":
        assert action.put is not None
        row |= {"staged": action.staged, "bytes": action.put.size, "mtime_ns": action.put.mtime_ns}
        row |= {"digest": action.put.digest, "made": [_made_name(path, action, places) for path in action.made]}
    row["was"] = None if action.was is None else dict(zip(Print._fields, action.was, strict=True))
    return row | ({"kept": action.kept} if action.kept is not None else {})


def _made_name(path: str, action: Action, places: Places) -> Any:
    return {"named": path} if action.path in places.named else places.name_of(path, above=True)


def read_head(folder: str) -> Head:
    """Read only the first line, which contains the store and the state.

    Raises:
        CorruptFile: not a manifest.
        UnreadableStore: it cannot be read.
    """
    path = os.path.join(folder, NAME)
    try:
        with open_file(path, link=False, wait=False) as file:
            line = file.line(_MOST if file.about().st_size < _MOST else _LINE)
    except OSError as err:
        raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
    with _field_errors(path):
        text = line.decode("utf-8", "surrogateescape").rstrip()
        value = json.loads(text + "]}" if text.endswith('"actions": [') else text)
        return _head(value)


def read(folder: str, places: Places) -> Manifest:
    """Read and validate a manifest.

    Raises:
        CorruptFile: not a manifest of this store; the error names the field.
        Refused: it refers to a file outside the store that must be named in the command.
    """
    path = os.path.join(folder, NAME)
    if os.path.islink(path):
        raise CorruptFile(path, None, "is a symbolic link")
    data = read_small(path, _MOST)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    with _field_errors(path):
        value = json.loads(data.decode("utf-8", "surrogateescape"))
        head = _head(value)
        if not isinstance(value["actions"], list):
            raise ValueError("actions: no list")
        seen: set[str] = set()
        actions = []
        for number, row in enumerate(value["actions"]):
            try:
                action = _action(row, head, places)
                for name in (action.path, action.staged, action.kept):
                    if name in seen:
                        raise ValueError(f"{name}: twice")
                    if name is not None:
                        seen.add(name)
            except (ValueError, TypeError, KeyError) as err:
                raise ValueError(f"actions[{number}]: {_describe(err)}") from err
            actions.append(action)
        log = _log(value["log"], places) if value.get("log") is not None else None
        return Manifest(head, log, actions, os.stat(path).st_mtime_ns)


class _field_errors:
    """Converts errors about fields into ones that name the file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        cause = error
        while cause is not None:
            if isinstance(cause, NotNamed):
                raise Refused(f"{self._path}: {cause}") from error
            cause = cause.__cause__
        if isinstance(error, (ValueError, KeyError, TypeError, RecursionError)):
            raise CorruptFile(self._path, None, f"not a manifest of this store: {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    return f"no {error.args[0]}" if isinstance(error, KeyError) else f"{error}"[:500]


def _head(value: Any) -> Head:
    if not isinstance(value, dict):
        raise ValueError("no object")
    version = _of(value, "format", int)
    if version not in (1, FORMAT):
        raise ValueError(f"format: {version} is not known to this version")
    state = _of(value, "state", str)
    if state not in STATES:
        raise ValueError(f"state: {state[:80]!r} is none")
    if version == 1:
        _only(value, {"format", "state", "store", "actions"})
        return Head(1, "", 0, "", state, {"path": _of(value, "store", str)}, beside=True)
    _only(value, _HEAD | {"actions"})
    store = _of(value, "store", dict)
    _only(store, {"path", "device", "inode"})
    store = {"path": _of(store, "path", str), "device": _of(store, "device", int), "inode": _of(store, "inode", int)}
    run, command = _of(value, "run", str), _of(value, "command", str)
    if len(run) > 64 or len(command) > 64:
        raise ValueError("run, command: too long")
    return Head(FORMAT, run, _of(value, "number", int), command, state, store, beside=_of(value, "beside", bool))


def _action(value: Any, head: Head, places: Places) -> Action:
    if not isinstance(value, dict):
        raise ValueError("no object")
    do = value.get("do")
    if do not in _FIELDS:
        raise ValueError("do: no action")
    _only(value, _FIELDS[do])
    name = _legacy_name(value["path"], head, places) if head.format == 1 else value["path"]
    path = _name_errors("path", lambda: places.path_of(name, follow=do == "zero"))
    action = Action(do, path, known=head.format != 1)
    if "kept" in value:
        action.kept = _inside(value, "kept", "before")
    elif do != "put":
        raise ValueError("no kept")
    if action.known:
        action.was = _print("was", value["was"])
        if (action.was is None) != (action.kept is None):
            raise ValueError("was, kept: one without the other")
    if do == "put":
        action.staged = _inside(value, "staged", "after")
        digest = value.get("digest")
        action.put = _print(
            "put", {"size": value["bytes"], "mtime_ns": value["mtime_ns"], "digest": digest, "link": None}
        )
        for made in _of(value, "made", list) if "made" in value else ():
            folder = _legacy_name(made, head, places) if head.format == 1 else made
            if path in places.named and isinstance(folder, dict):
                folder = _of(folder, "named", str)  # above a file that was named
            else:
                folder = _name_errors("made", lambda name=folder: places.path_of(name, above=True))  # type: ignore[misc]
            if not path.startswith(folder + "/"):
                raise ValueError("made: not above the file")
            action.made.append(folder)
    elif do == "zero":
        action.start, action.stop = _number(value, "start"), _number(value, "stop")
        action.mtime_ns = _time(value)
        action.digest = _of(value, "digest", str) if action.known else None
        if action.start >= action.stop:
            raise ValueError("start, stop: no range")
    return action


def _legacy_name(path: Any, head: Head, places: Places) -> Any:
    """Convert an absolute path of format 1 to a name of this format."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError("path: not absolute")
    root = head.store["path"].rstrip("/") + "/"
    if path.startswith(root):
        return path[len(root) :]
    for number, log in enumerate(places.logs):
        if path.startswith(log + "/"):
            return [number, path[len(log) + 1 :]]
    return {"named": path}


def _log(value: Any, places: Places) -> LogEnd:
    try:
        _only(value, {"files", "file", "at", "behind", "before"})
        files = [(places.path_of(name), size) for name, size in _of(value, "files", list)]
        if any(type(size) is not int or not 0 <= size < _BIG for _path, size in files):
            raise ValueError("files: no length")
        file = None if value["file"] is None else places.path_of(value["file"])
        behind = None if value["behind"] is None else _of(value, "behind", str)
        before = None if value.get("before") is None else _of(value, "before", str)
        return LogEnd(files, file, _number(value, "at"), behind, before)
    except (ValueError, TypeError, KeyError, AttributeError) as err:
        raise ValueError(f"log: {_describe(err)}") from err


def _inside(value: dict[str, Any], name: str, folder: str) -> str:
    """A relative path in the run's own folder."""
    path = _name_errors(name, lambda: checked_relative(value[name]))
    if not path.startswith(folder + "/"):
        raise ValueError(f"{name}: not in {folder}/")
    return path


def _print(name: str, value: Any) -> Print | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{name}: no object")
    _only(value, set(Print._fields))
    texts = [value[field_name] for field_name in ("digest", "link")]
    if any(text is not None and (not isinstance(text, str) or len(text) > 4096) for text in texts):
        raise ValueError(f"{name}: no text")
    return Print(_number(value, "size"), _time(value), *texts)


def _name_errors(name: str, make: Callable[[], str]) -> str:
    try:
        return make()
    except ValueError as err:
        raise ValueError(f"{name}: {err}") from err


def _number(value: dict[str, Any], name: str) -> int:
    number: int = _of(value, name, int)
    if not 0 <= number < _BIG:
        raise ValueError(f"{name}: out of range")
    return number


def _time(value: dict[str, Any]) -> int:
    number: int = _of(value, "mtime_ns", int)
    if abs(number) >= _BIG * _SECOND:
        raise ValueError("mtime_ns: out of range")
    return number


def _of(value: dict[str, Any], name: str, kind: type) -> Any:
    if name not in value:
        raise KeyError(name)
    if type(value[name]) is not kind:
        raise ValueError(f"{name}: no {kind.__name__}")
    return value[name]


def _only(value: dict[str, Any], known: set[str]) -> None:
    for name in _find_unknown(value, known):
        raise ValueError(f"{name[:80]}: not known")


def _find_unknown(value: dict[str, Any], known: set[str]) -> Iterator[str]:
    yield from sorted(name for name in value if name not in known)
