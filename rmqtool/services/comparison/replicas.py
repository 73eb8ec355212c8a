"""Compare several copies of one store: the last place where all agree, what each has that others lack, what a copy
loses when it follows another one, and which one to start.

Logs are compared pair by pair, as for two stores (:mod:`rmqtool.store.log.comparison`).

Source: io.openmessaging.storage.dledger (DLedgerLeaderElector, DLedgerEntryPusher), store.ha.autoswitch
(EpochFileCache, AutoSwitchHAClient), store.ha.DefaultHAClient, controller.elect.impl.DefaultElectPolicy.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations

import numpy as np

from formats.message.properties import WAIT, parse
from rmqtool.services.comparison.histories import Histories
from rmqtool.services.comparison.replica import AckRule, Period, Replica, Warn
from rmqtool.services.comparison.report import (
    Acknowledged,
    Advice,
    Contradiction,
    CopyFacts,
    FollowOutcome,
    Follows,
    MessageRun,
    PeriodFacts,
    ReplicasReport,
    SettingDifference,
)
from rmqtool.services.comparison.start import BrokerStart
from rmqtool.services.comparison.stores import config_rows, offset_rows
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import Damage, LocatedRecord
from rmqtool.store.log.comparison import LogComparison, Numbers, compare_logs, look_at
from rmqtool.store.salvage.records import torn_properties
from rmqtool.words import command_line, counted

_EVERYWHERE = 1 << 62
_DAMAGED = ("rotten", "torn")  # a message is there, but not as it was
_NONE: Numbers = np.zeros(0, np.int64)
QueueKey = tuple[bytes, int]  # topic, queue id


def compare_replicas(layouts: Sequence[StoreLayout], warn: Warn) -> ReplicasReport:
    """Compare copies of one store, without changing them.

    Args:
        layouts: at least two.
        warn: called with what cannot be read, and so is not compared.

    Raises:
        UnreadableStore: a log cannot be read.
    """
    return _Comparison([Replica(layout, warn) for layout in layouts], warn).report()


def rank_copies(layouts: Sequence[StoreLayout], warn: Warn) -> list[StoreLayout]:
    """The copies of a store, the one to start first; the others in their order.

    Args:
        layouts, warn: see :func:`compare_replicas`.
    """
    comparison = _Comparison([Replica(layout.passing_over(), warn) for layout in layouts], warn)
    best = comparison.find_best()
    return [layouts[best], *(layout for number, layout in enumerate(layouts) if number != best)]


class _Pair:
    """The comparison of one copy (``first``) with another one."""

    def __init__(self, compared: LogComparison, *, swapped: bool) -> None:
        self.compared, self.swapped = compared, swapped

    def runs(self, kind: str) -> Iterator[tuple[QueueKey, range, Numbers, Numbers]]:
        """(queue, queue offsets, their places here, their places there) of ``onlyFirst``, ... as seen from here."""
        names = {"onlyFirst": "onlySecond", "onlySecond": "onlyFirst"} if self.swapped else {}
        for run in self.compared.runs:
            if run.kind == names.get(kind, kind):
                places = (run.second_at, run.first_at) if self.swapped else (run.first_at, run.second_at)
                yield (run.topic, run.queue_id), range(run.start, run.stop), *places


class _Comparison:
    def __init__(self, replicas: list[Replica], warn: Warn) -> None:
        self.replicas, self._warn = replicas, warn
        self._numbers = range(len(replicas))
        self.pairs: dict[tuple[int, int], _Pair] = {}
        for this, other in combinations(self._numbers, 2):
            compared = compare_logs(replicas[this].log, replicas[other].log)
            self.pairs[this, other] = _Pair(compared, swapped=False)
            self.pairs[other, this] = _Pair(compared, swapped=True)
        self._histories = Histories(replicas, self._common)
        self._contradictions = [*self._contradict()]
        self._starts: dict[int, BrokerStart] = {}
        self._messages = [*self._runs()]

    def report(self) -> ReplicasReport:
        best = self.find_best()
        agreed = self._agreed_end()
        settings, problems = [*self._settings(best)], [*self._histories.problems()]
        copies = [*map(self._facts, self._numbers)]
        differ = (
            self._messages or self._contradictions or settings or problems or any(copy.tornBytes for copy in copies)
        )
        damaged = any(any(pair.compared.damaged) for pair in self.pairs.values())
        return ReplicasReport(
            equal=not differ and not damaged and len({(copy.beginOffset, copy.endOffset) for copy in copies}) == 1,
            agreedFrom=agreed[0] if agreed is not None else None,
            agreedTo=agreed[1] if agreed is not None else None,
            copies=copies,
            messages=self._messages,
            contradictions=self._contradictions,
            following=[self._follow(this, other) for this, other in permutations(self._numbers, 2)],
            history=[*self._history()],
            problems=problems,
            settings=settings,
            advice=self._advise(best, settings),
        )

    # -- where they agree -----------------------------------------------------------------------------------------

    def _agreed_end(self) -> tuple[int, int] | None:
        """Physical offsets up to which all agree that have anything."""
        first, *rest = [number for number in self._numbers if not self._is_empty(number)] or [0]
        ranges = [self.pairs[first, other].compared.agreed for other in rest]
        if not all(ranges) or (not rest and len(self.replicas) > 1):
            return None
        start, stop = max((low for low, _high in filter(None, ranges)), default=0), self._common(first, first)
        return start, max(start, min([stop, *(self._common(first, other) for other in rest)]))

    def _is_empty(self, number: int) -> bool:
        """Whether a log has nothing, as that of a new replica."""
        end = self.replicas[number].end
        return end.whole <= 0 and not end.torn

    def _common(self, this: int, other: int) -> int:
        """Physical offset up to which two copies agree; -1 without a common history."""
        end = min(self.replicas[this].end.whole, self.replicas[other].end.whole)
        if this == other:
            return end
        agreed = self.pairs[this, other].compared.agreed
        return min(agreed[1], end) if agreed is not None else -1

    # -- what was acknowledged ------------------------------------------------------------------------------------

    def _proved_end(self, replica: int) -> int:
        """Physical offset in a copy up to which everything was acknowledged: any copy may know it."""
        return max(
            min(self.replicas[other].standing.confirmed, self._common(replica, other)) for other in self._numbers
        )

    def _possible(self, replica: int) -> int:
        """Physical offset in a copy from which on nothing was acknowledged, as a majority cannot have had it."""
        group = self._group_of(replica)
        ends = sorted((self._common(replica, other) for other in self._numbers), reverse=True)
        absent = max(group.members - len(self.replicas), 0)  # these may have had it
        counted_out = ends[group.needed - absent - 1] if group.needed > absent else _EVERYWHERE
        return min(counted_out, self._replaced_from(replica))

    def _group_of(self, replica: int) -> AckRule:
        """How many replicas must have a message before it is acknowledged, and how many there are."""
        alike = self.replicas[replica].is_dledger
        rules = [copy.ack_rule() for copy in self.replicas if copy.is_dledger is alike]
        stated = [rule for rule in rules if rule.needed]
        members = max((rule.members for rule in stated), default=0)
        return AckRule(members, min((rule.needed for rule in stated), default=0) if members else 0)

    def _replaced_from(self, replica: int) -> int:
        """Physical offset in a DLedger log from which on its group has committed other entries."""
        if not self.replicas[replica].is_dledger:
            return _EVERYWHERE
        common = {other: self._common(replica, other) for other in self._numbers if other != replica}
        return min(
            (at for other, at in common.items() if at < self.replicas[other].standing.confirmed and at >= 0
             and self._parts(replica, other)),
            default=_EVERYWHERE,
        )  # fmt: skip

    def _parts(self, this: int, other: int) -> bool:
        """Whether two copies have different messages behind their common history."""
        common = self._common(this, other)
        return common < self.replicas[this].end.whole and common < self.replicas[other].end.whole

    def _split(self, replica: int, places: Numbers) -> Iterator[tuple[Acknowledged, slice]]:
        """The parts of a run of messages that were, may have been, and were not acknowledged."""
        proved, possible = self._proved_end(replica), self._possible(replica)
        states = np.where(places < proved, 0, np.where(places < possible, 1, 2))
        if not self.replicas[replica].is_dledger:
            for row in np.flatnonzero(states == 2):
                if self._is_answered_at_once(replica, int(places[row])):
                    states[row] = 1
        edges = [0, *(np.flatnonzero(np.diff(states)) + 1).tolist(), len(places)]
        names = Acknowledged.YES, Acknowledged.UNKNOWN, Acknowledged.NO
        for start, stop in pairwise(edges):
            if start < stop:
                yield names[states[start]], slice(start, stop)

    def _is_answered_at_once(self, replica: int, place: int) -> bool:
        """Whether a master acknowledges a message without its replicas (``CommitLog.needHandleHA``)."""
        item = look_at(self.replicas[replica].log, place)
        return isinstance(item, LocatedRecord) and parse(item.record.properties).get(WAIT) == "false"

    # -- messages -------------------------------------------------------------------------------------------------

    def _runs(self) -> Iterator[MessageRun]:
        for replica in self._numbers:
            yield from self._alone(replica)
            for what, kind in (("lacks", "onlySecond"), ("different", "different")):
                seen: dict[QueueKey, Numbers] = defaultdict(lambda: _NONE)
                for other in self._numbers:
                    if other != replica:
                        yield from self._against(replica, other, what, kind, seen)

    def _alone(self, replica: int) -> Iterator[MessageRun]:
        """The messages that no other copy has under their queue offset."""
        parts: dict[QueueKey, list[tuple[Numbers, Numbers]]] = defaultdict(list)
        others = [other for other in self._numbers if other != replica]
        for other in others:
            for kind in ("onlyFirst", "different"):
                for key, run, here, _there in self.pairs[replica, other].runs(kind):
                    parts[key].append((np.arange(run.start, run.stop), here))
        for key, runs in sorted(parts.items()):
            numbers, places = (np.concatenate(columns) for columns in zip(*runs, strict=True))
            offsets, rows, counts = np.unique(numbers, return_index=True, return_counts=True)
            chosen = counts == len(others)
            yield from self._rows(replica, replica, "alone", key, offsets[chosen], places[rows[chosen]], None)

    def _against(
        self, this: int, other: int, what: str, kind: str, seen: dict[QueueKey, Numbers]
    ) -> Iterator[MessageRun]:
        """Rows against another copy, without the queue offsets in ``seen``, which takes them."""
        for key, run, here, there in self.pairs[this, other].runs(kind):
            offsets = np.arange(run.start, run.stop)
            fresh = ~np.isin(offsets, seen[key])
            seen[key] = np.concatenate([seen[key], offsets[fresh]])
            owner, places = (other, there) if what == "lacks" else (this, here)
            yield from self._rows(this, owner, what, key, offsets[fresh], places[fresh], self.replicas[other].path)

    def _rows(
        self, replica: int, owner: int, what: str, key: QueueKey, offsets: Numbers, places: Numbers, other: str | None
    ) -> Iterator[MessageRun]:
        """Rows of messages of one queue, ascending; ``owner`` is the copy that has them."""
        for rows in np.split(np.arange(len(offsets)), np.flatnonzero(np.diff(offsets) != 1) + 1):
            for acknowledged, part in self._split(owner, places[rows]):
                chosen = rows[part]
                yield MessageRun(
                    store=self.replicas[replica].path,
                    what=what,
                    topic=key[0].decode("utf-8", "replace"),
                    queueId=key[1],
                    fromOffset=int(offsets[chosen[0]]),
                    toOffset=int(offsets[chosen[-1]]) + 1,
                    messages=len(chosen),
                    acknowledged=acknowledged.value,
                    physicalOffset=int(places[chosen[0]]),
                    other=other,
                )

    # -- contradictions -------------------------------------------------------------------------------------------

    def _contradict(self) -> Iterator[Contradiction]:
        """What each copy has at every place where any two differ."""
        places = {differing.start: differing for pair in self.pairs.values() for differing in pair.compared.differing}
        for start in sorted(places):
            items = [look_at(replica.log, start) for replica in self.replicas]
            states = [
                _state(item, look_at(replica.log, start, crc=True))
                for replica, item in zip(self.replicas, items, strict=True)
            ]
            intact = next((item for item, (has, _why) in zip(items, states, strict=True) if has == "intact"), None)
            for replica, item, (has, reason) in zip(self.replicas, items, states, strict=True):
                if start >= replica.end.whole + replica.end.torn:
                    continue  # it has nothing there yet
                record = item.record if isinstance(item, LocatedRecord) else None
                fields = None
                if record is not None and isinstance(intact, LocatedRecord):
                    both = zip(record._fields, record, intact.record, strict=True)
                    fields = " ".join(name for name, here, there in both if here != there) or None
                yield Contradiction(
                    store=replica.path,
                    physicalOffset=item.physical_offset,
                    has=has,
                    topic=record.topic.decode("utf-8", "replace") if record is not None else None,
                    queueId=record.queue_id if record is not None else None,
                    queueOffset=record.queue_offset if record is not None else None,
                    fields=fields,
                    reason=reason,
                )

    # -- what follows -----------------------------------------------------------------------------------------------

    def _follow(self, slave: int, master: int) -> FollowOutcome:
        replica, leader = self.replicas[slave], self.replicas[master]
        end, leader_end = self._started_end(slave), self._started_end(master)
        common = min(self._common(slave, master), end, leader_end)
        at: int | None = common
        alike = (replica.is_dledger, replica.is_controlled) == (leader.is_dledger, leader.is_controlled)
        if alike and self._is_empty(slave):
            files, whole = leader.log.segments.files, leader.is_dledger or leader.is_controlled
            at, what = files[0 if whole else -1].base if files else 0, Follows.GOES_ON
            why = "it has nothing, and is filled from there" + ("" if whole else ", the last file of the master's log")
        elif replica.is_dledger and leader.is_dledger:
            what, why = (Follows.CUT, "entries behind the last common one are replaced") if common < end else (
                Follows.GOES_ON, "its entries are the leader's",
            )  # fmt: skip
        elif replica.is_controlled and leader.is_controlled:
            at = self._consistent_point(_ranges(replica, end), _ranges(leader, leader_end))
            if at is None:
                what, why = Follows.REFUSES, "no epoch begins at the same place in both"
            elif at < end:
                what, why = Follows.CUT, "the epochs agree up to there"
            else:
                what, why = Follows.GOES_ON, "the epochs agree up to its end"
            if at is not None and common < min(at, end):
                what, why = Follows.KEEPS_DAMAGE, f"the epochs agree up to {at}, the logs only up to {common}"
                at = common
        elif replica.is_dledger or leader.is_dledger or replica.is_controlled or leader.is_controlled:
            what, why, at = Follows.REFUSES, "the two are no replicas of one kind", None
        else:
            what, why, at = self._follow_classic(slave, master, (end, leader_end))
        if what is Follows.GOES_ON and self._is_damaged(replica, end):
            what, why = Follows.KEEPS_DAMAGE, "nothing compares the records that it has already, and some are damaged"
        elif what is Follows.GOES_ON and end < replica.end.whole:
            what, why = Follows.CUT, "its broker's start ends the log there, at damage"
        cut = max(replica.end.whole - at, 0) if what is Follows.CUT and at is not None else 0
        return FollowOutcome(
            store=replica.path,
            master=leader.path,
            what=what.value,
            at=at,
            bytes=cut,
            messages=self._behind(slave, master, at) if cut and at is not None else 0,
            why=why,
        )

    def _follow_classic(self, replica: int, master: int, ends: tuple[int, int]) -> tuple[Follows, str, int | None]:
        """A slave copies its master's bytes from its own end on, and looks at nothing before it.

        Args:
            ends: physical offsets at which the logs of both end after their start.
        """
        end, common = ends[0], min(self._common(replica, master), *ends)
        if common >= end:
            return Follows.GOES_ON, "its log is the beginning of the master's", end
        if common >= ends[1]:
            return (
                Follows.BREAKS,
                f"it is longer than the master's log: what that writes at {common} is not here",
                common,
            )
        compared = self.pairs[replica, master].compared
        if compared.common is not None and compared.common[1] >= end:
            return Follows.KEEPS_DAMAGE, "the master's log goes on at its end, but records before it differ", end
        if common < 0:
            return Follows.BREAKS, "its log has no common history with the master's", None
        return Follows.BREAKS, f"its end is no place in the master's log: they are the same only up to {common}", common

    @staticmethod
    def _consistent_point(here: dict[int, tuple[int, int]], there: dict[int, tuple[int, int]]) -> int | None:
        """The greatest epoch that begins at the same place in both, up to the smaller of its two ends.

        Args:
            here, there: physical offsets of each epoch of the replica and its master, by number.
        """
        if not here:
            return 0
        for number in sorted(here, reverse=True):
            if number in there and here[number][0] == there[number][0]:
                return min(here[number][1], there[number][1])
        return None

    def _is_damaged(self, replica: Replica, end: int) -> bool:
        """Whether there is damage in a copy before a physical offset."""
        return any(
            row.store == replica.path and row.has != "intact" and row.physicalOffset < end
            for row in self._contradictions
        )

    def _started_end(self, number: int) -> int:
        """Where the log of a copy ends after the start of its broker."""
        whole = self.replicas[number].end.whole
        end = self._start(number).end if self._may_be_cut(number) else None
        return whole if end is None else min(end, whole)

    def _start(self, number: int) -> BrokerStart:
        """What the start of a copy's broker does to it."""
        if number not in self._starts:
            self._starts[number] = BrokerStart.of(self.replicas[number], damaged=self._may_be_cut(number))
        return self._starts[number]

    def _may_be_cut(self, number: int) -> bool:
        """Whether there is damage in a copy, at which the start of its broker may end the log, or does not happen."""
        replica = self.replicas[number]
        return (
            replica.refusal is not None
            or self._is_damaged(replica, replica.end.whole)
            or any(pair.compared.damaged[pair.swapped] for (this, _other), pair in self.pairs.items() if this == number)
        )

    def _behind(self, this: int, other: int, at: int) -> int:
        """Number of messages of a copy behind a physical offset that another one does not have."""
        runs = [run for kind in ("onlyFirst", "different") for run in self.pairs[this, other].runs(kind)]
        return sum(int((here >= at).sum()) for _key, _offsets, here, _there in runs)

    # -- facts, settings, advice ------------------------------------------------------------------------------------

    def _facts(self, number: int) -> CopyFacts:
        replica = self.replicas[number]
        end, standing = replica.end, replica.standing
        own = [row for row in self._contradictions if row.store == replica.path]
        start = self._start(number) if self._may_be_cut(number) else None
        period, index = (start.last_entry if start is not None else None) or (None, None)

        def known(value: int) -> int | None:
            return value if value >= 0 else None

        return CopyFacts(
            store=replica.path,
            role=replica.role.role.value,
            reason=replica.role.reason,
            forms=", ".join(fact.role.value for fact in replica.roles[1:]) or None,
            release=replica.release[0],
            releaseReason=replica.release[1],
            clean=not replica.layout.aborted,
            beginOffset=replica.log.min_offset,
            endOffset=end.whole,
            tornBytes=end.torn,
            tornReason=end.reason or None,
            tornProperties=end.torn_properties,
            lastStoreTimestamp=end.last_time,
            lastPeriod=known(standing.last_period),
            lastIndex=known(standing.last_index),
            currentTerm=known(standing.current_term),
            committedIndex=known(standing.committed_index),
            confirmedOffset=known(standing.confirmed),
            alone=self._count(number, "alone"),
            lacks=self._count(number, "lacks"),
            contradicts=len(own),
            damaged=sum(row.has != "intact" for row in own),
            tierOnly=replica.in_tier,
            startEndOffset=start.end if start is not None else None,
            startPeriod=period,
            startIndex=index,
        )

    def _count(self, number: int, what: str, acknowledged: Acknowledged | None = None) -> int:
        path = self.replicas[number].path
        return sum(
            row.messages
            for row in self._messages
            if row.store == path and row.what == what and acknowledged in (None, row.acknowledged)
        )

    def _history(self) -> Iterator[PeriodFacts]:
        for replica in self.replicas:
            for period, end in _periods(replica):
                yield PeriodFacts(
                    store=replica.path,
                    kind="term" if replica.is_dledger else "epoch",
                    number=period.number,
                    fromIndex=period.first_index,
                    fromOffset=period.start,
                    toOffset=end,
                )

    def _settings(self, best: int) -> Iterator[SettingDifference]:
        started = self.replicas[best]
        for replica in self.replicas:
            if replica is started:
                continue
            for rows in (offset_rows, config_rows):
                for row in rows(started.layout, replica.layout, self._warn):
                    yield SettingDifference(
                        store=replica.path,
                        part=row.part,
                        what=row.what,
                        name=row.name,
                        topic=row.topic,
                        queueId=row.queueId,
                        group=row.group,
                        started=row.first,
                        here=row.second,
                    )

    def find_best(self) -> int:
        """The copy that its group would make the master; of classic copies, the one that lacks the fewest messages."""

        def rank(number: int) -> tuple[int, ...]:
            replica = self.replicas[number]
            damaged = sum(row.has != "intact" for row in self._contradictions if row.store == replica.path)
            standing = replica.standing
            start, end = self._start(number) if self._may_be_cut(number) else None, self._started_end(number)
            if replica.is_dledger:
                return *self._last_entry(number), -damaged, -number
            if replica.is_controlled:
                reached = [period.number for period in standing.periods if period.start <= end]
                return max(reached, default=-1), min(end, self._histories.end(number)), -damaged, -number
            rotten = sum(row.has in _DAMAGED for row in self._contradictions if row.store == replica.path)
            lacks = self._count(number, "lacks") + rotten + (start.cuts if start is not None else 0)
            return -lacks, int(replica.role.role.value == "master"), replica.end.whole, -number

        return max(self._numbers, key=rank)

    def _advise(self, best: int, settings: list[SettingDifference]) -> Advice:
        replica = self.replicas[best]
        role, why = "master", "it lacks the fewest messages"
        if replica.is_dledger:
            role = "leader"
            why = (
                f"its last entry has the greatest term and index ({replica.standing.last_period}, "
                f"{replica.standing.last_index}): its group elects it, and it has all that was acknowledged"
            )
        elif replica.is_controlled:
            why = f"of the copies in the last epoch ({replica.standing.last_period}) it has the longest log"
        replaced = self._replaced_by(best)
        cut = self._start(best).lost if replica.is_dledger or self._may_be_cut(best) else 0

        def lost(*states: Acknowledged) -> int:
            return sum(replaced[state] + self._count(best, "lacks", state) for state in states)

        intact = {row.physicalOffset for row in self._contradictions if row.has == "intact"}
        damaged = sum(
            row.has in _DAMAGED and row.physicalOffset in intact
            for row in self._contradictions
            if row.store == replica.path
        )
        return Advice(
            store=replica.path,
            role=role,
            why=why,
            lost=lost(*Acknowledged),
            lostAcknowledged=lost(Acknowledged.YES),
            lostUnknown=lost(Acknowledged.UNKNOWN),
            damaged=damaged,
            cut=cut,
            steps=[*self._steps(best, lost(*Acknowledged) + damaged + cut, settings)],
        )

    def _replaced_by(self, best: int) -> Counter[Acknowledged]:
        """Number of messages of other copies at whose queue offsets one has other messages."""
        counts: Counter[Acknowledged] = Counter()
        replaced: dict[int, dict[QueueKey, Numbers]] = {}
        for other in (number for number in self._numbers if number != best):
            replaced[other] = self._offsets(other, best)
            for key, run, here, _there in self.pairs[other, best].runs("different"):
                offsets = np.arange(run.start, run.stop)
                fresh = np.ones(len(offsets), bool)
                for earlier in (number for number in replaced if number != other):  # which may have the same messages
                    same = ~np.isin(offsets, self._offsets(other, earlier).get(key, _NONE))
                    fresh &= ~(np.isin(offsets, replaced[earlier].get(key, _NONE)) & same)
                for acknowledged, part in self._split(other, here[fresh]):
                    counts[acknowledged] += part.stop - part.start
        return counts

    def _offsets(self, this: int, other: int) -> dict[QueueKey, Numbers]:
        """Queue offsets at which two copies have different messages."""
        parts: dict[QueueKey, list[Numbers]] = defaultdict(list)
        for key, run, _here, _there in self.pairs[this, other].runs("different"):
            parts[key].append(np.arange(run.start, run.stop))
        return {key: np.concatenate(offsets) for key, offsets in parts.items()}

    def _steps(self, best: int, missing: int, settings: list[SettingDifference]) -> Iterator[str]:
        """What to do, in this order."""
        replica, path = self.replicas[best], self.replicas[best].path
        if missing:
            salvage = command_line("salvage", *(copy.path for copy in self.replicas), "NEWSTORE")
            yield f"{salvage}: makes one store with every message of all copies, before any broker starts"
        classic = not (replica.is_dledger or replica.is_controlled)
        others = {other: self._follow(other, best) for other in self._numbers if other != best}
        prepared = False
        for number in (best, *others):  # what is copied is prepared before
            copy, follows = self.replicas[number], others.get(number)
            if follows is not None and follows.what not in (Follows.GOES_ON, Follows.CUT):
                if (apart := self._why_apart(number, best)) is not None:
                    yield f"Leave the directory {copy.path} as it is: it is no copy of {path}, as {apart}"
                    continue
                stale_from = self._histories.stale_from(number)
                yield from self._step_of(follows, stale_from, copy.layout.conf.options, classic=classic)
                continue
            damaged = self._may_be_cut(number)
            unsafe, may_be_emptied = copy.layout.aborted or damaged, damaged and number != best
            if unsafe and (step := self._start(number).preparation(may_be_emptied=may_be_emptied)) is not None:
                yield step
                prepared |= number == best
        if classic and not prepared and (replica.end.torn or replica.layout.aborted):
            shown = command_line("recover", path, "--dry-run", *replica.layout.conf.options)
            yield f"{shown}: shows what its broker's start cuts"
        if replica.is_dledger:
            yield self._start_group(best)
        elif replica.is_controlled:
            yield f"Start the controller, and then the broker of {path} first: it becomes the master"
        else:
            yield f"Start the broker of {path} as the master (brokerId=0)"
        for follows in others.values():
            if follows.what == Follows.CUT:
                yield from self._step_of(follows, None, (), classic=classic)
        names = sorted({
            row.name.partition(".")[2]
            for row in settings
            if row.what == "topics.json" and row.started is None and row.name is not None
        })  # fmt: skip
        if names:
            yield f"Create the topics that {path} does not know: {', '.join(names)}"

    def _why_apart(self, this: int, other: int) -> str | None:
        """Why two directories are no replicas of each other, whatever is done with them; None if they may be."""
        kinds = [(copy.is_dledger, copy.is_controlled) for copy in (self.replicas[this], self.replicas[other])]
        if kinds[0] != kinds[1]:
            return "the two are no replicas of one kind"
        if self._common(this, other) < 0 and not (self._is_empty(this) or self._is_empty(other)):
            return "the two have no message in common"
        return None

    def _start_group(self, best: int) -> str:
        """How to start a DLedger group, so that its best member becomes the leader."""
        path = self.replicas[best].path
        peers = max((copy.peers() or 0 for copy in self.replicas), default=0)
        last = {number: self._last_entry(number) for number in self._numbers}
        votes = {number: sum(other <= last[number] for other in last.values()) for number in self._numbers}
        needed = (peers or len(self.replicas)) // 2 + 1
        rivals = [number for number in self._numbers if last[number] < last[best] and votes[number] >= needed]
        if not rivals:
            how_many = f"at least {needed} of {peers}" if peers else "at least a majority"
            return (
                f"Start the brokers of its group together, {how_many}: {path} becomes the leader, and the others are "
                "filled up from it"
            )
        behind = sorted((number for number in self._numbers if number != best), key=lambda number: last[number])
        first = [self.replicas[number].path for number in (best, *behind[: needed - 1])]
        return (
            f"Start the brokers of {' and '.join(first)} first, and the others after {path} has become the leader: "
            f"started together, they may elect {' or '.join(self.replicas[number].path for number in rivals)}, and "
            "what that lacks is cut from the others"
        )

    def _last_entry(self, number: int) -> tuple[int, int]:
        """Term and index of a member's last entry when it votes."""
        if self._may_be_cut(number):
            return self._start(number).last_entry or (-1, -1)
        standing = self.replicas[number].standing
        return standing.last_period, standing.last_index

    @staticmethod
    def _step_of(
        follows: FollowOutcome, stale_from: int | None, options: tuple[str, ...], *, classic: bool
    ) -> Iterator[str]:
        """What to do with a copy that is to follow the one that is started.

        Args:
            stale_from: physical offset from which on it has messages that its group has truncated.
            options: those of commands on it, for its settings.
            classic: it is a slave that looks at nothing before its own end.
        """
        if follows.what == Follows.CUT:
            loss = f", and loses {counted(follows.messages, 'message')}" if follows.messages else ""
            yield f"{follows.store} is cut at {follows.at} when it follows{loss}: {follows.why}"
        elif follows.what == Follows.KEEPS_DAMAGE and stale_from is not None and stale_from == follows.at:
            cut = command_line("truncate", follows.store, str(stale_from), *options)
            yield f"{cut}, before it follows: its group has truncated what comes after that, and it would keep it"
        elif follows.what != Follows.GOES_ON and classic:
            keeps = follows.what == Follows.KEEPS_DAMAGE
            verb = "it keeps its damage" if keeps else "it does not become a copy of it again"
            yield (
                f"Replace the directory {follows.store} by a copy of {follows.master} before it follows: otherwise "
                f"{verb}, as {follows.why}. An empty slave only gets the last file of its master's log"
            )
        elif follows.what != Follows.GOES_ON:
            verb = "keeps its damage" if follows.what == Follows.KEEPS_DAMAGE else "does not become a copy of it again"
            yield f"Empty the directory {follows.store} before it follows: otherwise it {verb}, as {follows.why}"


def _state(item: LocatedRecord | Damage, checked: LocatedRecord | Damage) -> tuple[str, str | None]:
    """(``has`` of :class:`Contradiction`, the reason) of what lies at an offset.

    Args:
        checked: the same, with the checksum of its body verified.
    """
    if isinstance(item, Damage):
        return "nothing", item.reason
    if isinstance(checked, Damage):
        return "rotten", checked.reason
    if (torn := torn_properties(item.record)) is not None:
        return "torn", torn
    return "intact", None


def _periods(copy: Replica) -> Iterator[tuple[Period, int]]:
    """(term or epoch, physical offset of its end); the last one ends with the log."""
    periods = copy.standing.periods
    starts = [period.start for period in periods]
    yield from zip(periods, [*starts[1:], copy.end.whole], strict=False)


def _ranges(copy: Replica, end: int) -> dict[int, tuple[int, int]]:
    """Physical offsets of each epoch of a copy whose log ends at ``end``, by number."""
    return {period.number: (period.start, min(to, end)) for period, to in _periods(copy) if period.start <= end}
