"""The command ``replay``: messages of a store, to a live cluster."""

import asyncio
import errno
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from formats.remoting.shapes import MessageQueue
from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.choice import say_empty
from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.framework.lines import Lines
from rmqtool.cli.framework.opening import need_messages
from rmqtool.cli.framework.options import (
    ANY_MESSAGE,
    NAMESRV,
    AclOption,
    BrokerConfOption,
    DryRunOption,
    JavaClientOption,
    LimitOption,
    MessageOptions,
    NamesrvOption,
    Output,
    OutputOption,
    ProducerGroupOption,
    TlsOption,
    option,
)
from rmqtool.cli.live.common import client_options
from rmqtool.cli.live.copying.journal import FileJournal
from rmqtool.cli.live.copying.sources import MessageSource, Passed, RowSource, StoreSource, name_of
from rmqtool.cli.read.run_files import selection
from rmqtool.cli.render.output import Column, write_all, writer
from rmqtool.cli.render.text import note
from rmqtool.cli.serve.running import StopEvent, until_stopped
from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.copying.replay import CannotGoOn, Gone, Lost, Replay, ReplayOptions, RoundResult
from rmqtool.client.copying.steps import CopyStep, InputPlace, OriginQueue
from rmqtool.client.producing.producer import Producer
from rmqtool.contract import REPLAY_FIELDS
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.progress import Stage, stage
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.sending import check_group, check_topic
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.sending.fields import Fields
from rmqtool.words import counted

_ROUND, _ROUND_BYTES = 1000, 8 << 20
_MOST_NAMED = 100  # messages named on stderr
_NDJSON = (".ndjson", ".jsonl", ".json")
_COLUMNS = (
    Column("topic"), Column("queueId", right=True), Column("status"), Column("messages", right=True), Column("toTopic"),
    Column("brokerName"), Column("toQueueId", right=True), Column("reason", wide=True),
)  # fmt: skip


@command("replay", "rmqtool replay store --namesrv 127.0.0.1:9876 --topic Orders --since -1h --rate 500", progress=True)
def replay(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="Store directory; or Parquet, NDJSON, or - for NDJSON on stdin.")
    ],
    namesrv: NamesrvOption = NAMESRV,
    messages: MessageOptions = ANY_MESSAGE,
    limit: LimitOption = None,
    to: Annotated[str | None, option("--to", "TOPIC", "Send all messages to this topic.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="At most this many messages per second.")
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, max=1000, help="At most this many messages in one request.")
    ] = 32,
    journal: Annotated[
        str | None,
        option("--journal", "FILE", "Record of what was sent, by default STORE.replay; a later run continues it."),
    ] = None,
    group: ProducerGroupOption = "rmqtool-replay",
    engine: JavaClientOption = "auto",
    tls_config: TlsOption = None,
    acl: AclOption = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Send stored messages to a live cluster, each once, in the order of their queues.

    STORE may also be a Parquet file or a directory of them, or NDJSON as written by --output ndjson. Messages go to the
    queue with the same id; if the topic has fewer queues, each queue is mapped to one of them. Body, flag, keys, tags,
    unique id and the application's properties are kept; RMQTOOL_ORIGIN has the original's place. Delays are not applied
    again. Half messages, messages waiting in a schedule and the brokers' own topics are left out; retries and dead
    letters too, unless --to is given.

    The same command continues an earlier run, however that ended, from its journal: where a message may or may not have
    arrived, it asks the broker, and sends none twice. Exit code 1: messages were refused, or parts of the input are
    damaged.
    """
    try:
        check_group(group)
        if to is not None:
            check_topic(to)
    except ValueError as err:
        raise BadValue(str(err)) from None
    plan = ReplayPlan(
        source=store, to=to, rate=rate, batch=batch, limit=limit, journal=journal, group=group, dry_run=dry_run,
        broker_conf=broker_conf, messages=messages,
    )  # fmt: skip
    options = client_options(namesrv, engine, tls_config, acl)
    chosen = plan.selection()
    say_empty(offset=chosen.physical, queue_offset=chosen.queue_offsets, time=(chosen.since, chosen.until))
    with ExitStack() as stack:
        path, ending = plan.journal_path(), StopSignal()
        source = _source(plan, chosen, stack, ending)
        sent_before = stack.enter_context(
            FileJournal(path, plan.subject(), (chosen.since, chosen.until), read_only=plan.dry_run)
        )
        since, until = sent_before.times
        source.chosen = chosen._replace(since=since, until=until)
        running, before = _Running(plan, source, sent_before, ending), sent_before.position.sent
        tally = running.tally
        try:
            code = asyncio.run(running.go(options))
        finally:
            if tally.counts or sys.exception() is None:  # an error before anything was sent stands alone
                write_all(writer(output.value, REPLAY_FIELDS, _COLUMNS), tally.rows())
        earlier = f"; {before} were sent before" if before else ""
        if plan.dry_run:
            note(f"{tally.words.replace('messages sent', 'messages to be sent')}{earlier}; nothing was sent")
        else:
            goes_on = "; the same command continues from there" if running.asked_to_end else ""
            note(f"{tally.words}{earlier}; journal {path}{goes_on}")
        return code


@dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """What is to be sent; see the options of the command."""

    source: str
    to: str | None
    rate: float | None
    batch: int
    limit: int | None
    journal: str | None
    group: str
    dry_run: bool
    broker_conf: str | None
    messages: MessageOptions

    def subject(self) -> dict[str, Any]:
        """The subject of the journal, from the command line."""
        source = "-" if self.source == "-" else os.path.realpath(self.source)
        names = {"topic": "topics", "queue": "queues", "tag": "tags", "key": "keys"}
        chosen = {names.get(name, name): value for name, value in vars(self.messages).items()}
        for name in ("property", "where"):  # journals of the time before these options do not have them
            if chosen[name] is None:
                del chosen[name]
        return {"source": source, **chosen, "to": self.to}

    def selection(self) -> Selection:
        """The selection."""
        return selection(self.messages)

    def journal_path(self) -> str:
        """Where the journal is.

        Raises:
            BadValue: stdin, which has no place for a journal.
        """
        if self.journal is None and self.source == "-":
            raise BadValue("--journal: name a file, because stdin has no name to derive it from")
        return self.journal or os.path.realpath(self.source) + ".replay"


class ReplayTally:
    """What became of messages, by queue, and how fast."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[OriginQueue, str, MessageQueue | None, str]] = Counter()
        self.sent = self.refused = self.passed = 0

    def count_stored(self, origin: OriginQueue, queue: MessageQueue, status: str = "SENT") -> None:
        """Count a message that is stored."""
        self.sent += 1
        self.counts[origin, status, queue, ""] += 1

    def passed_over(self, item: Passed) -> None:
        """Count a message that is not to be sent."""
        if item.refused:
            self.not_taken(item.place, item.origin, item.reason)
        else:
            self.passed += 1
            self.counts[item.origin, "PASSED_OVER", None, item.reason] += 1

    def not_taken(self, place: InputPlace, origin: OriginQueue, reason: str) -> None:
        """Count a message that cannot be sent, and name it."""
        self.refused += 1
        self.counts[origin, "REFUSED", None, reason[:200]] += 1
        if self.refused <= _MOST_NAMED:
            note(f"{place}: {origin.topic} queue {origin.queue_id}: {reason}")
        elif self.refused == _MOST_NAMED + 1:
            note("more are not named here")

    def rows(self) -> Iterator[dict[str, Any]]:
        """By queue."""
        for (origin, status, queue, reason), count in sorted(self.counts.items(), key=lambda item: str(item[0])):
            to = (None, None, None) if queue is None else (queue.topic, queue.broker_name, queue.queue_id)
            values = (origin.topic, origin.queue_id, status, count, *to, reason or None)
            yield dict(zip(REPLAY_FIELDS, values, strict=True))

    @property
    def words(self) -> str:
        """In a line."""
        more = f", {self.refused} refused" if self.refused else ""
        return f"{counted(self.sent, 'message')} sent{more}{f', {self.passed} passed over' if self.passed else ''}"


def _source(plan: ReplayPlan, chosen: Selection, stack: ExitStack, ending: StopSignal) -> MessageSource:
    if plan.source != "-" and os.path.isdir(plan.source) and not _holds_parquet(plan.source):
        return StoreSource(need_messages(plan.source, plan.broker_conf), chosen, plan.to)
    if plan.source == "-" or plan.source.endswith(_NDJSON):
        lines = stack.enter_context(Lines(plan.source))
        parts = lines.rows(ending)
        return RowSource((row for _numbers, rows in parts for row in rows), chosen, plan.to)
    if not os.path.exists(plan.source):
        raise UnreadableStore(f"{plan.source}: {os.strerror(errno.ENOENT)}")
    from rmqtool.analytics.load.rows import parquet_files, rows

    return RowSource(rows(parquet_files(plan.source), fields=Fields(tell=note)), chosen, plan.to)


def _holds_parquet(folder: str) -> bool:
    if os.path.isdir(os.path.join(folder, "commitlog")):
        return False
    from rmqtool.analytics.load.rows import parquet_files

    try:
        return bool(parquet_files(folder))
    except UnreadableStore:
        return False


class _Running:
    """One run."""

    def __init__(self, plan: ReplayPlan, source: MessageSource, journal: FileJournal, ending: StopSignal) -> None:
        self._plan, self._source, self._journal, self._ending = plan, source, journal, ending
        self.tally = ReplayTally()
        self.asked_to_end = False
        self._left = plan.limit
        self._sending: Stage | None = None

    async def go(self, client: ClientOptions) -> int:
        async with until_stopped() as stop, Producer(client, self._plan.group) as producer:
            options = ReplayOptions(
                name=name_of(self._plan.source) if self._plan.source != "-" else "stdin",
                to=self._plan.to, batch=self._plan.batch, rate=self._plan.rate,
            )  # fmt: skip
            replay = Replay(producer, self._journal, options, stop, note)
            reading = asyncio.create_task(self._wake(stop))
            size = self._source.size()
            try:
                with stage("sending messages", size, "messages" if size is None else "bytes") as self._sending:
                    return await self._go(replay, stop)
            except Lost as err:
                raise CannotGoOn(
                    f"{err}: it is not known which of them arrived; {self.tally.words}. To go on, name another "
                    "--journal, and begin with --offset or --since behind the last one that is there"
                ) from err
            except Gone as err:
                raise CannotGoOn(
                    f"{err}: what was sent to it before is gone, at least in part; {self.tally.words}. To send all of "
                    "it again, also what may still be there, name another --journal"
                ) from err
            except CannotGoOn as err:
                if stop.is_set() and isinstance(err.__cause__, RemotingError):  # the last request was not answered
                    note(str(err))
                    self.asked_to_end = True
                    return stop.exit_code
                raise CannotGoOn(f"{err}; {self.tally.words}; the same command continues from there") from err
            finally:
                reading.cancel()

    async def _wake(self, stop: StopEvent) -> None:
        """A signal also ends waiting for stdin."""
        await stop.wait()
        self._ending.ask()

    async def _go(self, replay: Replay, stop: StopEvent) -> int:
        position = self._journal.position
        items = self._source.steps(position.last, position.digest)
        if position.begun is not None:
            begun = position.begun
            steps = await self._next(items, begun.count, resumed=True)
            if len(steps) < begun.count or steps[-1].place != begun.last or steps[-1].digest != begun.digest:
                raise CannotGoOn(f"some of what the last run was about to send is gone, up to {begun.last}")
            if self._plan.dry_run:
                await self._plan_steps(replay, steps)
            else:
                self._count(steps, await replay.resume(begun, steps))
        while not stop.is_set() and (steps := await self._next(items, _ROUND)):
            if self._plan.dry_run:
                await self._plan_steps(replay, steps)
            else:
                self._count(steps, await replay.send(steps))
        if stop.is_set():
            self.asked_to_end = True
            return stop.exit_code
        return 1 if self.tally.refused or self._source.damaged else 0

    async def _next(self, items: Iterator[CopyStep | Passed], most: int, *, resumed: bool = False) -> list[CopyStep]:
        if isinstance(self._source, StoreSource):
            return self._steps(items, most, resumed=resumed)
        return await asyncio.to_thread(self._steps, items, most, resumed=resumed)  # stdin may be slow

    def _steps(self, items: Iterator[CopyStep | Passed], most: int, *, resumed: bool = False) -> list[CopyStep]:
        """The next messages, at most one round."""
        steps: list[CopyStep] = []
        size = 0
        if self._left is not None and not resumed:
            most = min(most, self._left)
        while len(steps) < most and (resumed or size < _ROUND_BYTES):
            item = next(items, None)
            if item is None:
                break
            if isinstance(item, Passed):
                self.tally.passed_over(item)
                continue
            steps.append(item)
            size += len(item.message.body)
        if self._left is not None:
            self._left = max(self._left - len(steps), 0)
        return steps

    def _count(self, steps: list[CopyStep], sent: RoundResult) -> None:
        for step in steps:
            if (queue := sent.arrived.get(step.place)) is not None:
                self.tally.count_stored(step.origin, queue)
            elif (reason := sent.refused.get(step.place)) is not None:
                self.tally.not_taken(step.place, step.origin, reason)
        self._report_progress(steps)

    def _report_progress(self, steps: list[CopyStep]) -> None:
        """The progress: in bytes if places are offsets, else in messages."""
        if self._sending is not None and steps:
            self._sending.done = (
                self.tally.sent if self._sending.total is None else self._source.amount_at(steps[-1].place)
            )

    async def _plan_steps(self, replay: Replay, steps: list[CopyStep]) -> None:
        for step in steps:
            try:
                self.tally.count_stored(step.origin, await replay.target(step.origin), "TO_SEND")
            except (ClientError, RemotingError) as err:
                if not isinstance(err, ClientError):
                    raise
                self.tally.not_taken(step.place, step.origin, str(err))
        self._report_progress(steps)
