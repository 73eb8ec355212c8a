"""What a store must hold after everything that was done to it, and the look whether it does."""

import json
import os
import re
import resource
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from formats.config.json import dumps
from rmqtool.errors import RmqError
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Found
from rmqtool.store.queues.reader import queues_of
from tests.model.commands import Done, run

SIZES = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 17,
    "maxIndexNum": 60,
}
TOPICS = ("A", "B", "topic-with-a-longer-name")
MARKER = ".rmqtool-pending"
_BODY = re.compile(rb"<m(\d+)>")


class Wrong(AssertionError):
    """A promise that was not kept."""


class Place(NamedTuple):
    """Where an acknowledged message lies."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass
class Run:
    """A change that keeps what it takes away.

    Attributes:
        cuts: messages that go by it.
        state: as its manifest has it.
    """

    cuts: set[int]
    state: str = ""

    @property
    def half_done(self) -> bool:
        """The next command goes on with it, or refuses."""
        return self.state in ("committed", "undoing")


@dataclass
class World:
    """A store and what is known of it.

    Attributes:
        must: acknowledged messages that are in the log.
        limbo: acknowledged messages that a change, which was interrupted, would cut, or bring back; or some of them.
        cut: acknowledged messages that a change cut on demand; their bytes are kept.
        deleted: those that a command was told to delete for good.
        runs: by the identity in their manifests.
        pending: a change is half done.
        met: a real engine took messages meanwhile. It forgets what it cuts of a queue at its next start, and queue
            offsets then have gaps: ``rebuild`` refuses such a queue, and names ``salvage``.
        limits: that commands run under.
        offsets: of the consumer group, by ``topic@queue``.
    """

    home: Path
    places: dict[int, Place] = field(default_factory=dict)
    must: set[int] = field(default_factory=set)
    limbo: set[int] = field(default_factory=set)
    cut: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    runs: dict[str, Run] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    next_id: int = 0
    pending: bool = False
    met: bool = False
    limits: dict[int, int] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)

    limit_names: ClassVar = {resource.RLIMIT_FSIZE: "longest file", resource.RLIMIT_NOFILE: "open files"}

    @property
    def store(self) -> Path:
        """The store directory."""
        return self.home / "store"

    @property
    def elsewhere(self) -> Path:
        """Another place for backups than that beside the store."""
        return self.home / "elsewhere"

    @property
    def conf_file(self) -> Path:
        """The broker's properties."""
        return self.home / "broker.conf"

    @property
    def layout(self) -> StoreLayout:
        """As the reader takes it."""
        return StoreLayout(str(self.store), BrokerConf({name: str(value) for name, value in SIZES.items()}))

    def begin(self) -> None:
        """Make the store."""
        self.home.mkdir(parents=True)
        self.conf_file.write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()))
        done = run("init", self.store, "--broker-conf", self.conf_file)
        if done.code:
            raise Wrong(str(done))
        table = {f"{topic}@G": dict.fromkeys(range(3), 0) for topic in TOPICS}
        text = dumps({"offsetTable": table})  # type: ignore[dict-item]
        (self.store / "config" / "consumerOffset.json").write_bytes(text)
        self.offsets = {f"{topic}@{queue_id}": 0 for topic in TOPICS for queue_id in range(3)}

    def refused(self, done: Done) -> bool:
        """Whether a queue was not rebuilt because an engine had met a half-done change."""
        return self.met and done.code == 5 and "do not follow the one before: salvage" in done.err

    def note(self, done: Done) -> None:
        """Remember what was done, and look at how it ended."""
        self.history.append(str(done))
        if "Traceback" in done.err or done.code == 70:
            raise Wrong(f"traceback: {done}\n{done.err}")
        if self.refused(done):
            return
        if done.code not in (0, 1, 3, 4, 130, 143, 129, -9, -15, -2, -1):
            raise Wrong(f"exit code {done.code}: {done}")

    # -- what must hold -----------------------------------------------------------------------------------------------

    def in_log(self) -> Counter[int]:
        """How often each message is in the log."""
        found: Counter[int] = Counter()
        for item in CommitLog(self.layout).walk():
            if isinstance(item, Found) and (body := _BODY.match(item.record.body)):
                found[int(body[1])] += 1
        return found

    def anywhere(self) -> set[int]:
        """Messages whose bytes are in any file of the store or of what is kept."""
        found: set[int] = set()
        for folder, _folders, names in os.walk(self.home):
            for name in names:
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    found.update(map(int, _BODY.findall(path.read_bytes())))
        return found

    def look(self) -> None:
        """Whatever is going on: no acknowledged message is lost.

        Raises:
            Wrong: one is.
        """
        try:
            there = self.in_log()
        except RmqError as err:
            raise Wrong(f"the log cannot be read: {err}") from err
        if lost := self.must - set(there):
            raise Wrong(f"acknowledged messages are not in the log: {sorted(lost)[:10]} ({len(lost)})")
        if twice := {number for number, times in there.items() if times > 1}:
            raise Wrong(f"messages are in the log twice: {sorted(twice)[:10]}")
        if lost := (self.limbo | self.cut | self.must) - self.deleted - self.anywhere():
            raise Wrong(f"bytes of messages are kept nowhere: {sorted(lost)[:10]} ({len(lost)})")

    def learn(self, cuts: set[int] | frozenset[int] = frozenset(), *, undoing: bool = False) -> None:
        """What a command has made of the messages, which its runs tell: what is half done is in limbo, and all else is
        in the log, or it is cut.

        Args:
            cuts: messages that the command may have cut.
            undoing: it may bring some back.

        Raises:
            Wrong: a run was undone, and its messages are not there; or messages are there again without an undo.
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
        """Identity and state of every run that is kept in sight."""
        found = []
        homes = (Path(f"{self.store}.rmqtool"), self.elsewhere)
        for path in sorted(path for home in homes for path in home.glob("*/manifest.json")):
            with open(path, encoding="utf-8") as file:
                line = file.readline().rstrip()
            head = json.loads(line + "]}" if line.endswith('"actions": [') else line)
            found.append((head["run"], head["state"]))
        return found

    def look_closely(self) -> None:
        """In a store that is in order queues lead to all messages.

        Raises:
            Wrong: one does not.
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
            said = entries.get((place.topic, place.queue_id, place.queue_offset))
            if said != place.physical_offset:
                raise Wrong(f"message {number} is not where its queue leads: {place}, the queue says {said}")
        if (said_offsets := self.offsets_said()) != self.offsets:
            raise Wrong(f"offsets are {said_offsets}, not {self.offsets}")

    def offsets_said(self) -> dict[str, int]:
        """The group's offsets as the file has them.

        Raises:
            Wrong: it cannot be read.
        """
        done = run("offsets", self.store, "--group", "G", "--output", "json", "--broker-conf", self.conf_file)
        if done.code:
            raise Wrong(f"offsets cannot be read: {done}")
        return {f"{row['topic']}@{row['queueId']}": row["consumerOffset"] for row in json.loads(done.out)}
