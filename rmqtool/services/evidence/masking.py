"""Replace what a bundle must not contain by its length and a keyed hash."""

import os
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from formats.config.files import OffsetTable
from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS
from rmqtool.errors import UnreadableStore
from rmqtool.services.lookup.configs import known_offsets
from rmqtool.services.lookup.info import StoreInfo
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.layout.paths import StoreLayout

_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
_HASH_SIZE = 6  # bytes; enough to see which values are equal
_PATH = re.compile(r"(?<![\w/<.])/(?:[^\s/:,;'\"]+/)*([^\s/:,;'\"]+)")
_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])(?::\d+)?")
_IPV6 = re.compile(r"(?<![\w:])(?=[\w:]*:[\w:]*:[\w:]*:|[\w:]*::)[0-9a-fA-F:]{3,}(?![\w:])")
_ID = re.compile(r"(?<![0-9A-Za-z])(?=[0-9]*[A-Fa-f])[0-9A-Fa-f]{16,}(?![0-9A-Za-z])|(?<!\d)\d{24,}(?!\d)")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
_NAME = re.compile(r"[\w%|+-]+")
# strings of config files that are not the user's data
_WORDS = frozenset(
    {
        "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "SINGLE_TAG", "MULTI_TAG", "SQL92", "TAG", "POP", "PULL",
        "CQ", "BatchCQ", "SimpleCQ", "RocksDBCQ", "DELETE", "COMPACTION", "true", "false",
    }
)  # fmt: skip
_NAMED = frozenset({"topicName", "groupName", "topic", "group", "consumerGroup"})  # fields whose values are names


class Mask:
    """Masks values with a random key that is stored nowhere: hashes cannot be guessed by trying, and equal values look
    equal.

    Args:
        root: the store's directory, shown as ``STORE``.
        names: of topics and groups.
        hide_names: mask these names, too; those of system topics are kept.

    Attributes:
        replaced: how many values were masked, by what they were.
    """

    def __init__(self, root: str, names: Collection[str], *, hide_names: bool = False) -> None:
        self._root, self._salt = root.rstrip("/"), os.urandom(32)
        self.replaced: dict[str, int] = {}
        self.known = {*names} | {prefix + name for name in names for prefix in _PREFIXES}
        bare = {name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX) for name in names}
        self._hidden = {name for name in bare if name and not _is_system(name)} if hide_names else set()
        self._odd = sorted((name for name in self._hidden if not _NAME.fullmatch(name)), key=len, reverse=True)

    def value(self, data: bytes | str, what: str) -> str:
        """The length in bytes and the hash of a value.

        Args:
            what: what it is, for the manifest.
        """
        data = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
        self.replaced[what] = self.replaced.get(what, 0) + 1
        digest = blake2b(data, key=self._salt, digest_size=_HASH_SIZE).hexdigest()
        return f"<{len(data)} bytes, hash {digest}>"

    def text(self, text: str) -> str:
        """A sentence or a path without hosts, ids, quoted values and directories outside the store."""
        text = text.replace(self._root, "STORE")
        text = _QUOTED.sub(self._quote, text)
        text = _PATH.sub(lambda match: f"<directory>/{match[1]}", text)
        for pattern, what in ((_IPV6, "hosts"), (_IPV4, "hosts"), (_ID, "ids")):
            text = pattern.sub(self._of_kind(what), text)
        return self.name(text)

    def name(self, text: str) -> str:
        """A text without the names to be hidden."""
        if not self._hidden:
            return text
        for name in self._odd:
            if name in text:
                text = text.replace(name, self.value(name, "names"))
        return _NAME.sub(lambda match: self._name(match[0]), text)

    def plain(self, value: Any) -> Any:
        """Facts that the program states itself: lists and dictionaries with texts in them."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.plain(item) for key, item in value.items()}
        return [self.plain(item) for item in value] if isinstance(value, list | tuple) else value

    def config(self, value: Any, field: str = "") -> Any:
        """The content of a config file: keys, numbers, and strings that are names or words of the broker's."""
        if isinstance(value, dict):
            return {self._key(str(key)): self.config(item, str(key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.config(item, field) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        text = value if isinstance(value, str | bytes) else str(value)
        if text in _WORDS:
            return text
        if isinstance(text, str) and field in _NAMED:
            return self.text(text)
        return self.value(text, "values of config files")

    def _key(self, key: str) -> str:
        return "@".join(map(self.text, key.split("@")))

    def _quote(self, match: re.Match[str]) -> str:
        inner = match[1] or match[2]
        return match[0] if inner in self.known or inner.isdigit() else self.value(inner, "quoted values")

    def _of_kind(self, what: str) -> Callable[[re.Match[str]], str]:
        return lambda match: match[0] if match[0].strip(":") == "" else self.value(match[0], what)

    def _name(self, token: str) -> str:
        if token in self._hidden:
            return self.value(token, "names")
        for prefix in _PREFIXES:
            if token.startswith(prefix):
                return prefix + self._name(token[len(prefix) :])
        for at, char in enumerate(token):  # a group and a topic in one name
            if char in "_+" and (token[:at] in self._hidden or token[at + 1 :] in self._hidden):
                return self._name(token[:at]) + char + self._name(token[at + 1 :])
        return token


def _is_system(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.lower().startswith(SYSTEM_PREFIX)


def names_in(layout: StoreLayout, info: StoreInfo, findings: Iterable[Finding]) -> set[str]:
    """The names of topics and groups that are known in a store."""
    tables: list[OffsetTable] = []
    with suppress(UnreadableStore):  # which check reports
        tables += known_offsets(layout, lambda _text: None)
    queues = {topic for kind in ("consumequeue", "batchconsumequeue") for topic, _id, _path in layout.queue_dirs(kind)}
    damaged = {finding.topic for finding in findings if finding.topic}
    named = {topic.topic for topic in info.topics} | {*info.groups}
    return named | queues | damaged | {table.topic for table in tables} | {table.group for table in tables}
