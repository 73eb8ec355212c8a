"""What a store must contain after all steps, and the checks for it."""

import json
import os
import re
import resource
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from formats.fastjson.write import dumps
from rmqtool.errors import RmqError
from rmqtool.store.disk.segments import name_of
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.reader import queues_of
from tests.model.commands import Done, run

SIZES = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 17,
    "maxIndexNum": 60,
    "mappedFileSizeTimerLog": 1040,
}
TOPICS = ("A", "B", "topic-with-a-longer-name")
MARKER = ".rmqtool-pending"
_BODY = re.compile(rb"<([mw])(\d+)>")
_WAITING = re.compile(rb"SCHEDULE_TOPIC_XXXX|rmq_sys_wheel_timer|%DLQ%.*")
_LARGEST = 1 << 20  # bytes of a file with messages; a timer wheel is a hole of 38 MB


class Wrong(AssertionError):
    """A broken promise."""


class Place(NamedTuple):
    """The position of an acknowledged message."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass
class Run:
    """A change that keeps what it removes.

    Attributes:
        cuts: messages that it removes.
        state: state in its manifest.
    """

    cuts: set[int]
    state: str = ""

    @property
    def half_done(self) -> bool:
        """Whether the next command continues or refuses."""
        return self.state in ("committed", "undoing")


@dataclass
class World:
    """A store and its expected content.

    Attributes:
        must: acknowledged messages in the log. A message waiting for its time, or as a dead letter, counts as it waits.
        copies: waiting messages that were delivered or requeued → physical offset of a copy in the log.
        once: messages with a copy that a command has cut since.
        limbo: acknowledged messages that an interrupted change would cut or restore, possibly only some of them.
        cut: acknowledged messages cut on request; their bytes are kept.
        deleted: messages deleted on request.
        runs: runs by the identity in their manifests.
        pending: a change is half done.
        met: a real engine stored messages meanwhile. It forgets what it cuts of a queue at its next start, and queue
            offsets then have gaps: ``rebuild`` refuses such a queue, and advises ``salvage``.
        limits: resource limits of commands.
        offsets: offsets of the consumer group, by ``topic@queue``.
        offsets_ahead: a truncate has left offsets beyond the end of their queues, as reported; ``rebuild config`` fixes
            it.
        passed_over: messages that may never be delivered because of that.
        begins_at: physical offset of the log's first byte, as if everything before had expired.
        timers: the store is a 5.x store with a timer.
        random_kills: signals also arrive at random times, which a seed does not reproduce.
        own_disk: the store is on a file system that can be filled up.
        counts: signals by name, full disks, and real brokers in between.
        generation: number of mirrored topics.
        journals: number of replays begun.
        stored: approximate store time of waiting messages, ms.
        brokers: neighbouring brokers by name.
        neighbours: processes that live as long as the world.
    """

    home: Path
    places: dict[int, Place] = field(default_factory=dict)
    must: set[int] = field(default_factory=set)
    limbo: set[int] = field(default_factory=set)
    cut: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    runs: dict[str, Run] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    once: set[int] = field(default_factory=set)
    offsets: dict[str, int] = field(default_factory=dict)
    next_id: int = 0
    offsets_ahead: bool = False
    passed_over: set[int] = field(default_factory=set)
    begins_at: int = 0
    timers: bool = False
    random_kills: bool = False
    own_disk: bool = False
    generation: int = 0
    journals: int = 0
    stored: dict[int, int] = field(default_factory=dict)
    brokers: dict[str, object] = field(default_factory=dict)
    neighbours: ExitStack = field(default_factory=ExitStack)
    pending: bool = False
    met: bool = False
    limits: dict[int, int] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    limit_names: ClassVar = {resource.RLIMIT_FSIZE: "longest file", resource.RLIMIT_NOFILE: "open files"}

    @property
    def store(self) -> Path:
        """The store directory."""
        return self.home / "store"

    @property
    def elsewhere(self) -> Path:
        """A backup directory elsewhere; on another file system if the store has its own."""
        return Path(f"{self.home.parent}.elsewhere")

    @property
    def others(self) -> tuple[str, ...]:
        """Directories of other stores, which have nothing of this one."""
        return str(self.home / "origin"), str(self.home / "target")

    @property
    def conf_file(self) -> Path:
        """The broker's properties file."""
        return self.home / "broker.conf"

    @property
    def layout(self) -> StoreLayout:
        """The store's layout."""
        return StoreLayout(str(self.store), BrokerConf({name: str(value) for name, value in SIZES.items()}))

    def begin(self) -> None:
        """Create the store."""
        self.home.mkdir(parents=True)
        self.conf_file.write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()))
        done = run("init", self.store, "--broker-conf", self.conf_file, "--engine", "4.9")
        if done.code:
            raise Wrong(str(done))
        (first,) = (self.store / "commitlog").iterdir()
        first.rename(first.with_name(name_of(self.begins_at)))
        if self.timers:
            (self.store / "timerlog").mkdir()  # as a broker of 5.x makes it at once
        table = {f"{topic}@G": dict.fromkeys(range(3), 0) for topic in TOPICS}
        text = dumps({"offsetTable": table})  # type: ignore[dict-item]
        (self.store / "config" / "consumerOffset.json").write_bytes(text)
        self.offsets = {f"{topic}@{queue_id}": 0 for topic in TOPICS for queue_id in range(3)}

    @staticmethod
    def now() -> int:
        """ms since the epoch."""
        return int(time.time() * 1000)

    def refused(self, done: Done) -> bool:
        """Whether a damaged store was not exported, or a queue was not rebuilt because an engine had started during a
        half-done change.
        """
        if done.code == 5 and "nothing is exported; rmqtool salvage keeps" in done.err:  # of a damaged store
            return True
        return self.met and done.code == 5 and "do not follow the one before: salvage" in done.err

    def note(self, done: Done) -> None:
        """Record a step, and check how it ended."""
        self.history.append(str(done))
        if "Traceback" in done.err or done.code == 70:
            raise Wrong(f"traceback: {done}\n{done.err}")
        if self.refused(done):
            return
        if done.code not in (0, 1, 3, 4, 130, 143, 129, -9, -15, -2, -1):
            raise Wrong(f"exit code {done.code}: {done}")

    # -- what must hold -----------------------------------------------------------------------------------------------

    def in_log(self) -> Counter[int]:
        """Number of copies of each message in the log; of a waiting one, as it waits."""
        return self.found()[0]

    def found(self) -> tuple[Counter[int], dict[int, list[int]]]:
        """Number of copies of each message in the log, and positions of the copies of waiting ones."""
        counts, copies = Counter[int](), dict[int, list[int]]()
        for item in CommitLog(self.layout).walk():
            if isinstance(item, LocatedRecord) and (body := _BODY.match(item.record.body)):
                if body[1] == b"w" and not _WAITING.fullmatch(item.record.topic):
                    copies.setdefault(int(body[2]), []).append(item.physical_offset)
                else:
                    counts[int(body[2])] += 1
        return counts, copies

    def anywhere(self) -> set[int]:
        """Messages whose bytes are in any file of the store or its backups."""
        result: set[int] = set()
        for folder, _folders, names in (*os.walk(self.home), *os.walk(self.elsewhere)):
            for name in names if not folder.startswith(self.others) else ():
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink() and path.stat().st_size < _LARGEST:
                    result.update(int(number) for _kind, number in _BODY.findall(path.read_bytes()))
        return result

    def look(self, *, everywhere: bool = True) -> None:
        """Check that no acknowledged message is lost, in any state.

        Args:
            everywhere: also search the backups for the bytes of cut messages.

        Raises:
            Wrong: a message is lost.
        """
        try:
            there, copies = self.found()
        except RmqError as err:
            raise Wrong(f"the log cannot be read: {err}") from err
        if lost := self.copies.keys() - copies:
            raise Wrong(f"what was delivered is not in the log: {sorted(lost)[:10]} ({len(lost)})")
        if lost := self.must - set(there):
            raise Wrong(f"acknowledged messages are not in the log: {sorted(lost)[:10]} ({len(lost)})")
        if twice := {number for number, times in there.items() if times > 1}:
            raise Wrong(f"messages are in the log twice: {sorted(twice)[:10]}")
        if everywhere and (lost := (self.limbo | self.cut | self.must) - self.deleted - self.anywhere()):
            raise Wrong(f"bytes of messages are kept nowhere: {sorted(lost)[:10]} ({len(lost)})")

    def cut_copies(self, low: int, high: int) -> None:
        """Record that copies outside this part of the log may be removed."""
        gone = {number for number, at in self.copies.items() if not low <= at < high}
        self.once |= gone
        for number in gone:
            del self.copies[number]

    def learn(self, cuts: set[int] | frozenset[int] = frozenset(), *, undoing: bool = False) -> None:
        """Update the expected messages from a command's runs: half done ones are in limbo, others are in the log or
        cut.

        Args:
            cuts: messages that the command may have cut.
            undoing: it may restore some.

        Raises:
            Wrong: a run was undone but its messages are missing, or messages are back without an undo.
        """
        there = set(self.in_log())
        open_before = set[int]().union(*(run.cuts for run in self.runs.values() if run.half_done))
        seen = {run: state for run, state in self._states() if run not in self.runs or self.runs[run].state != state}
        for name, state in seen.items():
            run = self.runs.setdefault(name, Run(set(cuts) - open_before))
            if state == "undone" and run.state != "undone" and (missing := run.cuts - there - self.deleted):
                raise Wrong(f"undone, but not there: {sorted(missing)[:10]} ({len(missing)}): {self.history[-1]}")
            run.state = state
            if state == "done":
                run.cuts -= there
        visible = [self.runs[name] for name, state in self._states() if self.runs[name].half_done]
        marked = (self.store / MARKER).exists()
        self.pending = bool(visible) or marked
        doubtful = (self.limbo | cuts) & self.places.keys()
        if marked and not visible:
            self.limbo = doubtful  # what is kept is out of sight
        else:
            self.limbo = set().union(*(run.cuts for run in visible)) - self.deleted
        if not undoing and (again := (self.cut - doubtful - self.limbo) & there):
            raise Wrong(f"messages that were cut are there again: {sorted(again)[:10]}: {self.history[-1]}")
        self.must = (self.must - doubtful | (doubtful | self.cut) & there) - self.limbo
        self.cut = (self.cut | doubtful - there) - self.must - self.limbo

    def _states(self) -> list[tuple[str, str]]:
        """Identity and state of every visible run."""
        result = []
        homes = (Path(f"{self.store}.rmqtool"), self.elsewhere)
        for path in sorted(path for home in homes for path in home.glob("*/manifest.json")):
            with open(path, encoding="utf-8") as file:
                line = file.readline().rstrip()
            head = json.loads(line + "]}" if line.endswith('"actions": [') else line)
            result.append((head["run"], head["state"]))
        return result

    def look_closely(self) -> None:
        """Check that queues lead to all messages, in a store that is in order.

        Raises:
            Wrong: a message is missing.
        """
        self.look()
        low = CommitLog(self.layout).min_offset
        entries: dict[tuple[str, int, int], int] = {}
        for queue in queues_of(self.layout):
            for entry in queue.entries():
                if entry.physical_offset >= low:
                    entries[queue.topic, queue.queue_id, entry.queue_offset] = entry.physical_offset
        for number in sorted(self.must):
            place = self.places[number]
            answer = entries.get((place.topic, place.queue_id, place.queue_offset))
            if answer != place.physical_offset:
                raise Wrong(f"message {number} is not where its queue leads: {place}, the queue says {answer}")
        if (said_offsets := self.offsets_said()) != self.offsets:
            raise Wrong(f"offsets are {said_offsets}, not {self.offsets}")

    def offsets_said(self, group: str = "G") -> dict[str, int]:
        """The group's offsets in the file.

        Raises:
            Wrong: it cannot be read.
        """
        done = run("offsets", self.store, "--group", group, "--output", "json", "--broker-conf", self.conf_file)
        if done.code:
            raise Wrong(f"offsets cannot be read: {done}")
        return {f"{row['topic']}@{row['queueId']}": row["consumerOffset"] for row in json.loads(done.out)}
