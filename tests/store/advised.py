"""Follow the advice of ``check`` literally, on copies of a store, and count what can be read afterwards."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from formats.message.properties import UNIQ_KEY, parse
from formats.message.read import Record
from rmqtool.errors import Refused, RmqError
from rmqtool.services.popping.in_flight import MessagesInFlight
from rmqtool.services.timers.timers import Timers
from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.advice.steps import Step
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.reading.reading import Interpretation, Interpreter
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.batch import every_queue
from rmqtool.store.queues.compaction import compaction_queues_of
from rmqtool.store.queues.timer.files import TimerFiles
from rmqtool.store.recovery.command import plan
from tests.cli.running import rmqtool
from tests.store.findings import check_store
from tests.store.helpers import key_hits
from tests.timers import NOW

Way = tuple[tuple[str, ...], ...]  # commands, one after the other
ASKING = {"recover", "rebuild", "undo"}
PLACES = {"STORE", "NEWSTORE", "FILE"}


def way_of(finding: Finding) -> Way:
    """The commands that a finding advises, without those with placeholders."""
    return commands_of(finding.steps)


def commands_of(steps: Iterable[Step]) -> Way:
    """The commands of steps, without those with placeholders."""
    commands = (step.command for step in steps if step.command)
    return tuple(args for args in commands if not {w for w in args if w.isupper()} - PLACES)


def identity(record: Record) -> Any:
    """The identity of a message independent of its position, which salvage may change."""
    return record.topic, record.queue_id, record.born_timestamp, record.flag, record.body, record.properties


@dataclass(frozen=True)
class Readable:
    """Intact messages of one or more stores: in the log, through queues and index, in the timer, in compaction logs,
    and in flight by POP.
    """

    log: set[Any]
    queues: set[Any]
    index: set[Any]
    timer: set[Any]
    compacted: set[Any]
    popped: set[Any]

    def __or__(self, other: "Readable") -> "Readable":
        return Readable(*(ours | theirs for ours, theirs in zip(self.sets, other.sets, strict=True)))

    @property
    def sets(self) -> tuple[set[Any], ...]:
        return self.log, self.queues, self.index, self.timer, self.compacted, self.popped

    def parts(self) -> dict[str, set[Any]]:
        return dict(zip([part.name for part in fields(self)], self.sets, strict=True))


def readable(store: Path, conf: BrokerConf | None = None) -> Readable:
    """Everything that can be read from a store."""
    result = Readable(*(set() for _ in fields(Readable)))
    layout = StoreLayout(str(store), conf)
    log = CommitLog(layout)
    # where the file is gone that says what the timer has delivered, what was due before the last message counts as that
    point = TimerFiles(layout).checkpoint
    last = 0
    for item in log.walk():
        if isinstance(item, LocatedRecord):
            result.log.add(identity(item.record))
            if not (point and point.last_read_time):
                last = max(last, item.record.store_timestamp)
    try:
        for queue in every_queue(layout):
            for entry in queue.entries(queue.min_offset(log.min_offset)):
                item = log.read(entry.physical_offset)
                if item is None or item.record.total_size != entry.size:
                    continue
                if (item.record.topic.decode("utf-8", "replace"), item.record.queue_id) == (
                    queue.topic,
                    queue.queue_id,
                ):
                    result.queues.add(identity(item.record))
    except RmqError:
        pass  # a broker does not read such queues either
    try:
        for name in result.log:
            key = parse(name[5]).get(UNIQ_KEY)
            hits = key_hits(layout, name[0].decode("utf-8", "replace"), key) if key else []
            if any((item := log.read(hit)) is not None and identity(item.record) == name for hit in hits):
                result.index.add(name)
    except (RmqError, ValueError):
        pass
    with suppress(RmqError):
        timers = Timers(log, NOW, lambda _words: None)
        pending = (timer for timer in timers.pending() if timers.present and timer.deliverTimestamp > last)
        result.timer.update((timer.msgId, timer.deliverTimestamp) for timer in pending)
    with suppress(RmqError):
        for compacted in compaction_queues_of(layout):
            result.compacted.update(identity(located.record) for located in compacted.read())
    with suppress(RmqError):
        for held in MessagesInFlight(log, NOW, lambda _words: None).in_flight():
            if held.msgId is not None and held.visibleTimestamp > last:
                result.popped.add((held.group, held.originTopic or held.topic, held.msgId))
    return result


@dataclass(frozen=True)
class Outcome:
    """The result of following advice."""

    codes: list[int]
    words: str
    kept: Readable
    left: set[tuple[str, str]]  # codes and files of check afterwards, in the store that is to be used from then on


def follow(store: Path, way: Way, room: Path, conf: BrokerConf | None = None) -> Outcome:
    """Run the commands on a copy, as a user would, up to the first that refuses."""
    copy, new = room / "store", room / "new"
    shutil.copytree(store, copy, symlinks=True)
    kept_aside = Path(f"{store}.rmqtool")
    if kept_aside.is_dir():
        shutil.copytree(kept_aside, f"{copy}.rmqtool")
    places = {"STORE": copy, "NEWSTORE": new, "FILE": room / "out"}
    options = ["--broker-conf", str(conf_file(conf, room))] if conf else []
    codes, sentence = [], ""
    for command in way:
        asked = [str(places.get(word, word)) for word in command[1:]]
        result = rmqtool(*asked, *options, *(["--yes"] if asked[0] in ASKING else []))
        codes.append(result.code)
        sentence += result.err
        if result.code > 1:
            break
    stores = [path for path in (copy, new) if path.is_dir()]
    kept = readable(stores[0], conf)
    for path in stores[1:]:
        kept |= readable(path, conf)
    left = {(finding.code, finding.file) for finding in check_store(StoreLayout(str(stores[-1]), conf))}
    return Outcome(codes, sentence, kept, left)


def conf_file(conf: BrokerConf, room: Path) -> Path:
    """A broker's properties file with this configuration."""
    path = room / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in (conf.values | conf.sizes).items()))
    return path


def lost_by_advice(store: Path, room: Path, conf: BrokerConf | None = None) -> list[str]:
    """Faults in the advice of a report.

    No advice may lose a message that was readable before and that other advice keeps, and the finding must be gone
    afterwards, or the commands must have said why not.
    """
    before = readable(store, conf)
    reader, situation = Interpreter(), Situation()
    findings = list(check_store(StoreLayout(str(store), conf), situation=situation))
    for finding in findings:
        reader.take(finding)
    reading = reader.reading(situation)
    ways = {way: sorted({f.code for f in findings if way_of(f) == way}) for way in map(way_of, findings) if way}
    ways.setdefault(commands_of(reading.steps), ["all"])
    ways.pop((), None)
    outcomes = {}
    for number, way in enumerate(ways):
        (place := room / str(number)).mkdir(parents=True)
        outcomes[way] = follow(store, way, place, conf)
    wrong = untrue(reading, StoreLayout(str(store), conf))
    for way, codes in ways.items():
        done = outcomes[way]
        for part, had in before.parts().items():
            lost = had - done.kept.parts()[part]
            for other, outcome in outcomes.items():
                if saved := lost & outcome.kept.parts()[part]:
                    wrong.append(f"{codes}: {way} loses {len(saved)} messages ({part}) that {other} keeps")
        about = {(f.code, f.file) for f in findings if way_of(f) == way and f.code not in WITH_HAND}
        if still := done.left & about:
            if max(done.codes) <= 1 and "warning: " not in done.words:
                wrong.append(f"{codes}: {way} leaves {sorted(still)}")
            elif not done.words:
                wrong.append(f"{codes}: {way} was refused without a word")
    return wrong


def untrue(reading: Interpretation, layout: StoreLayout) -> list[str]:
    """Contradictions between the summary of a report and what a start would do."""
    try:
        start = plan(layout)
    except Refused:
        return []
    harmless = start.loadOk and not start.destroys
    return [] if reading.start <= harmless else [f"says that a broker may start: {start.destroys or start.refusals}"]


WITH_HAND = {"ext-damage"}  # a step that no command carries out follows
