"""A config file with a table by name that changes often: only entries that changed are built anew."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from formats.config.file import ConfigFile
from formats.primitives import java_hash
from rmqtool.rules.releases import Release
from rmqtool.services.offsets.java_order import JavaOrder

T = TypeVar("T", bound=ConfigFile)
_SLOTS = 2048  # of the broker's maps of topics and of groups (ConcurrentHashMap of 1024)


class TableFile(Generic[T]):
    """``topics.json`` or ``subscriptionGroup.json``.

    Args:
        names: of the entries, as the file has them.
        attribute: of the model, which has the table.
        member: its name in the file.
        release: whose form the file has.
    """

    def __init__(self, names: Iterable[str], attribute: str, member: str, release: Release) -> None:
        self._order = JavaOrder(names, java_hash, _SLOTS)
        self._attribute, self._release = attribute, release
        self._mark = f'"{member}":{{}}'.encode()
        self._entries: dict[str, tuple[Any, bytes]] = {}  # what it was built of, and how it stands in the file

    def build(self, file: T) -> bytes:
        """The bytes that a broker would write."""
        table: dict[str, Any] = getattr(file, self._attribute)
        self._order.become(table)
        head, mark, tail = self._with(file, {}).partition(self._mark)
        if not table or not mark or self._mark in tail:
            return self._with(file, {name: table[name] for name in self._order})
        head, tail = head + mark[:-1], mark[-1:] + tail
        for name, config in table.items():
            if (known := self._entries.get(name)) is None or known[0] is not config:
                one = self._with(file, {name: config})[len(head) : -len(tail)]
                self._entries[name] = config, one.rstrip(b"\n\t")
        entries = self._entries
        parts = b",".join([entries[name][1] for name in self._order])
        if len(self._entries) > len(table):
            self._entries = {name: self._entries[name] for name in table}
        return b"".join((head, parts, b"\n\t", tail))

    def _with(self, file: T, table: dict[str, Any]) -> bytes:
        return replace(file, **{self._attribute: table}).build(self._release.version)
