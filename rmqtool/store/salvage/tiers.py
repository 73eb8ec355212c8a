"""The tiers of salvaged stores, each a copy of its own: what the logs lack or have torn comes from there."""

import os
from collections.abc import Callable, Iterator, Sequence
from heapq import merge

from formats.message.read import Record
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import Damage, LocatedRecord
from rmqtool.store.salvage.copies import CopyTaken, digest_of
from rmqtool.store.salvage.records import torn_properties
from rmqtool.store.tier.only_tiered import alone_in
from rmqtool.store.tier.tier import Key, Tier

_SEARCHED = 64  # queue offsets among which a message with a wrong one is looked for


class TierCopy:
    """One tier, and what was taken from it.

    Attributes:
        known: messages that a log gave already.
        damaged: queue offsets without an intact message.
        contradicting: messages that are not the ones in a log.
    """

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.taken = self.known = self.damaged = self.contradicting = 0

    @property
    def folder(self) -> str:
        """Directory of its segments."""
        return self.tier.folder or ""


class Tiers:
    """The tiers of all copies whose segments are local files.

    Raises:
        UnreadableStore: a tier cannot be read.
    """

    def __init__(self, layouts: Sequence[StoreLayout]) -> None:
        self.copies: list[TierCopy] = []
        self._layouts: list[StoreLayout] = []
        for layout in layouts:
            tier = Tier.of(layout)
            if tier is None or tier.folder is None:
                continue
            folder = os.path.realpath(tier.folder)
            if folder not in {os.path.realpath(copy.folder) for copy in self.copies}:  # master and slave may share it
                self.copies.append(TierCopy(tier))
                self._layouts.append(layout)

    def alone(self, first_of: Callable[[Key], int | None]) -> dict[Key, range]:
        """Queue offsets below the first one in the log.

        Args:
            first_of: returns the lowest queue offset in the log, or None.
        """
        alone: dict[Key, range] = {}
        for copy, layout in zip(self.copies, self._layouts, strict=True):
            for key, offsets in alone_in(layout, copy.tier, first_of).items():
                known = alone.get(key, offsets)
                alone[key] = range(min(known.start, offsets.start), max(known.stop, offsets.stop))
        return alone

    def by_time(self, alone: dict[Key, range]) -> Iterator[tuple[LocatedRecord, TierCopy] | Damage]:
        """Messages of queue offsets, by store time as far as each queue's own order allows."""

        def timed(key: Key, offsets: range) -> Iterator[tuple[int, tuple[LocatedRecord, TierCopy] | Damage]]:
            time = 0
            for item in self.between(key, offsets):
                time = max(time, item[0].record.store_timestamp) if isinstance(item[0], LocatedRecord) else time
                yield time, item

        return (item for _time, item in merge(*(timed(*queue) for queue in alone.items()), key=lambda item: item[0]))

    def between(self, key: Key, offsets: range) -> Iterator[tuple[LocatedRecord, TierCopy] | Damage]:
        """The message of each queue offset that any tier has, and the damage where none has it intact."""
        copies = [copy for copy in self.copies if key in copy.tier.queues]
        stop = min(offsets.stop, max((self._end(copy, key) for copy in copies), default=0))
        for offset in range(offsets.start, stop):
            damage: Damage | None = None
            torn: tuple[LocatedRecord, TierCopy] | None = None
            for copy in copies:
                item = copy.tier.look(*key, offset)
                if isinstance(item, LocatedRecord):
                    torn = item, copy
                    if torn_properties(item.record) is None:
                        break
                elif item is not None:
                    copy.damaged += 1
                    damage = damage or item
            if torn is not None:
                torn[1].taken += 1
                yield torn
            elif damage is not None:
                yield damage

    @staticmethod
    def _end(copy: TierCopy, key: Key) -> int:
        return copy.tier.queues[key].max_offset

    def offset_of(self, key: Key, record: Record, offsets: range) -> int | None:
        """The queue offset under which a tier has the message of a record; None if it has it under none of these."""
        digest = digest_of(record._replace(queue_offset=0))
        for copy in self.copies:
            for offset in offsets[:_SEARCHED]:
                item = copy.tier.look(*key, offset)
                if isinstance(item, LocatedRecord) and digest_of(item.record._replace(queue_offset=0)) == digest:
                    return offset
        return None

    def compare(self, key: Key, record: Record) -> tuple[LocatedRecord | None, list[tuple[TierCopy, LocatedRecord]]]:
        """The message under a record's queue offset in the tiers.

        Returns:
            (a better record: the same message, whose properties are not torn), (intact records that contradict it).
        """
        better: LocatedRecord | None = None
        others: list[tuple[TierCopy, LocatedRecord]] = []
        torn = torn_properties(record) is not None
        for copy in self.copies:
            item = copy.tier.look(*key, record.queue_offset)
            if item is None:
                continue
            if isinstance(item, Damage):
                copy.damaged += 1
            elif item.record._replace(physical_offset=record.physical_offset) == record:
                copy.known += 1
            elif torn and torn_properties(item.record) is None and digest_of(item.record) == digest_of(record):
                better = item
                copy.taken += 1
            elif torn_properties(item.record) is None:
                others.append((copy, item))
                copy.contradicting += 1
        return better, others

    def report(self) -> list[CopyTaken]:
        """What was taken from each."""
        return [
            CopyTaken(
                store=copy.folder,
                taken=copy.taken,
                known=copy.known,
                damaged=copy.damaged,
                contradicting=copy.contradicting,
            )
            for copy in self.copies
        ]
