"""The bytes at a finding, by field: those that show damage, and no byte of a message's content."""

import os
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from formats.layouts.codes import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rmqtool.services.evidence.masking import Mask
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.layout.paths import BATCH_QUEUES, BATCH_UNIT, UNIT, StoreLayout
from rmqtool.store.log.commit_log import CommitLog

if TYPE_CHECKING:
    from formats.explain.spans import Span

_AROUND = 4  # units of a queue before and after
_LOG_BYTES = 4096  # shown of the log
_MAGICS = {"commitlog": (MAGIC_V1, MAGIC_V2, MAGIC_BLANK), "dledger": (1, -1, MAGIC_V1, MAGIC_V2)}
# fields that hold nothing of a message's content, and nothing computed from it, such as a checksum or a hash of tags
_SHOWN = frozenset(
    {
        "total_size", "magic", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp",
        "store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_length", "size",
        "base_queue_offset", "batch_size", "compacted_offset", "physic_msg_timestamp", "logics_msg_timestamp",
        "index_msg_timestamp", "master_flushed_offset", "confirm_phy_offset", "logics_physical_offset", "index", "term",
        "position", "body_size", "bytes_left",
    }
)  # fmt: skip


class FindingPlaces:
    """Shows the bytes at findings.

    Args:
        layout: the store.
        mask: what replaces everything else.
    """

    def __init__(self, layout: StoreLayout, mask: Mask) -> None:
        self._layout, self._mask = layout, mask
        log = CommitLog(layout)
        self._log = {os.path.realpath(file.path): file for file in log.segments}

    def show(self, finding: Finding) -> list[str]:
        """Lines for one finding; empty if there is nothing to show of such a file."""
        if finding.offset is None:
            return []
        path = os.path.join(self._layout.root, finding.file)
        file = self._log.get(os.path.realpath(path))
        first = finding.file.partition("/")[0]
        if file is not None:
            return list(self._lines("dledger" if file.entries else "commitlog", file, finding.offset, _LOG_BYTES))
        unit = {"consumequeue": UNIT, BATCH_QUEUES: BATCH_UNIT}.get(first)
        if unit is not None:
            begin = max(finding.offset // unit - _AROUND, 0) * unit
            segment = self._segment(path)
            return [] if segment is None else list(self._lines(first, segment, begin, (2 * _AROUND + 1) * unit))
        if first == "checkpoint" and (data := self._layout.checkpoint()) is not None:
            return list(self._fields("checkpoint", data, 0, 0))
        return []

    def _segment(self, path: str) -> Segment | None:
        files = Segments.of([os.path.dirname(path)])
        return next((file for file in files if file.path == path), None)

    def _lines(self, kind: str, file: Segment, at: int, size: int) -> Iterator[str]:
        part = file.read(at, max(min(size, file.size - at), 0))
        yield from self._fields(kind, part, at, file.base + at)

    def _fields(self, kind: str, part: bytes, at: int, base: int) -> Iterator[str]:
        from formats.explain.kinds import explain

        magics = _MAGICS.get(kind)
        for _unit, group in groupby(explain(kind, part, base), key=lambda span: span.path.partition(".")[0]):
            fields = list(group)
            # bytes where no record begins may belong to a body
            is_head = magics is None or any(span.path.endswith(".magic") and span.value in magics for span in fields)
            for span in fields:
                yield f"{at + span.start:08x}  {self._label(span)}: {self._content(span, part, shown=is_head)}"

    def _label(self, span: "Span") -> str:
        """The path of a field; names of properties are not shown, since of damaged ones they may be anything."""
        head, properties, _name = span.path.partition(".properties.")
        return head + (properties and ".properties")

    def _content(self, span: "Span", part: bytes, *, shown: bool) -> str:
        raw = part[span.start : span.end]
        name = span.path.rpartition(".")[2]
        if not raw.strip(b"\0") and len(raw) > 8:
            return f"{len(raw)} zero bytes"
        if shown and name in _SHOWN and isinstance(span.value, int):
            return f"{raw.hex(' ')} = {span.value}" + (f" ({span.note})" if span.note else "")
        if shown and name == "topic" and (text := raw.decode("utf-8", "replace")) in self._mask.known:
            return self._mask.name(text)
        return self._mask.value(raw, "bytes at findings")
