"""Check tags codes of entries: tag hash, deliver time in the delay topic, or address of an extension unit."""

from collections import Counter
from typing import Any

from formats.arrays import Column
from formats.message.properties import TAGS, parse
from formats.message.read import SCHEDULE_TOPIC
from formats.primitives import java_hash
from formats.queues.consume import is_ext_address, real_offset
from formats.queues.extension import ExtensionUnit, read
from rmqtool.errors import UnreadableStore
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.queues.state import CheckedQueue, FileSummary
from rmqtool.store.disk.segments import Segments
from rmqtool.store.layout.paths import UNIT

_AT_TAGS = 12  # byte of the tags code in an entry
_DELAY_TOPIC = SCHEDULE_TOPIC.decode()
_DELTAS = 64


class _Delays:
    """Deliver times of one level that do not agree with the level's delay."""

    def __init__(self) -> None:
        self.agreed = 0
        self.deltas: Counter[int] = Counter()
        self.places: list[tuple[str, dict[str, Any]]] = []


class TagCheck:
    """Checks tags codes that differ from the expected ones."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self._ext: dict[tuple[str, int], Segments] = {}
        self._delays: dict[int, _Delays] = {}

    def count(self, queue: CheckedQueue, agreed: int) -> None:
        """Count entries of a queue with the expected code."""
        if queue.topic == _DELAY_TOPIC:
            self._delays.setdefault(queue.queue_id, _Delays()).agreed += agreed

    def differ(
        self,
        queue: CheckedQueue,
        file: FileSummary,
        at: Column,
        actual: Column,
        expected: Column,
        times: Column,
        position: Column,
    ) -> None:
        """Check entries (numbers in the file) whose code is not the expected one."""
        name = self.ctx.name(file.segment.path)
        for row in range(len(at)):
            code, wanted = int(actual[row]), int(expected[row])
            about = {
                "offset": int(at[row]) * UNIT + _AT_TAGS,
                "queueOffset": file.first + int(at[row]),
                **queue.about,
            }
            if is_ext_address(code):
                self._address(queue, name, code, wanted, about)
            elif queue.topic == _DELAY_TOPIC:
                self._deliver_time(queue, name, code, wanted, int(times[row]), int(position[row]), about)
            else:
                self.ctx.found.add("cq-tags", name, expected=wanted, actual=code, **about)

    def _address(self, queue: CheckedQueue, name: str, code: int, wanted: int, about: dict[str, Any]) -> None:
        key = queue.topic, queue.queue_id
        if key not in self._ext:
            self._ext[key] = self.ctx.layout.files_in(self.ctx.layout.queue_path(*key, kind="consumequeue_ext"))
        offset = real_offset(code)
        unit, why = None, f"no file of the extension holds byte {offset}"
        segment = self._ext[key].find(offset)
        if segment is not None:
            try:
                unit = read(segment.view(), offset - segment.base, segment.size)
            except UnreadableStore as err:
                why = str(err)
            if unit is not None and not isinstance(unit, ExtensionUnit):
                why = f"byte {offset} of the extension: {unit.reason}"
        if not isinstance(unit, ExtensionUnit):
            self.ctx.found.add("ext-missing", name, expected="a unit of the extension", actual=why, **about)
        elif unit.tags_code != wanted:
            actual = f"{unit.tags_code}, in the extension at byte {offset}"
            self.ctx.found.add("cq-tags", name, expected=wanted, actual=actual, **about)

    def _deliver_time(
        self, queue: CheckedQueue, name: str, code: int, wanted: int, time: int, position: int, about: dict[str, Any]
    ) -> None:
        message = self.ctx.log.read(position, crc=False)
        tags = parse(message.record.properties).get(TAGS) if message else None
        if code == (java_hash(tags) if tags else 0):
            self.ctx.found.add("cq-delay-hash", name, expected=wanted, actual=code, **about)
            return
        delays = self._delays.setdefault(queue.queue_id, _Delays())
        if len(delays.deltas) < _DELTAS:
            delays.deltas[code - time] += 1
            delays.places.append((name, {"expected": wanted, "actual": code, **about}))
            del delays.places[1000:]
        else:
            self.ctx.found.add("cq-deliver-time", name, expected=wanted, actual=code, **about)

    def finish(self, queue: CheckedQueue) -> None:
        """Report deliver times, unless all of a level differ by the same amount, because of another delay table."""
        if queue.topic != _DELAY_TOPIC:
            return
        delays = self._delays.pop(queue.queue_id, None)
        configured = self.ctx.layout.conf.text("messageDelayLevel")
        if delays is None:
            return
        one_table = not delays.agreed and len(delays.deltas) == 1 and min(delays.deltas) >= 0
        if one_table and not configured:
            return
        for name, about in delays.places:
            self.ctx.found.add("cq-deliver-time", name, **about)
