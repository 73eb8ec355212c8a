"""The command ``send``: messages to a live cluster."""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from formats.remoting.shapes import MessageQueue
from formats.variants.timer import DELAY_MS
from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.ending import StopSignal
from rmqtool.cli.framework.lines import Lines
from rmqtool.cli.framework.options import (
    NAMESRV,
    AclOption,
    JavaClientOption,
    NamesrvOption,
    Output,
    OutputOption,
    ProducerGroupOption,
    TlsOption,
    option,
)
from rmqtool.cli.live.common import client_options
from rmqtool.cli.live.undecided import Undecided
from rmqtool.cli.render.output import Column, writer
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import parse_time
from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.producing.message import Message, NotSent, SendResult
from rmqtool.client.producing.transactions import NotEnded, State
from rmqtool.client.sync import Producer, TransactionProducer
from rmqtool.contract import SEND_FIELDS, message_fields
from rmqtool.errors import BadValue, OutputLost, RmqError
from rmqtool.progress import stage
from rmqtool.rules.resending import own_properties
from rmqtool.rules.sending import check_group, check_message, check_topic
from rmqtool.words import counted

_MOST_NAMED = 100  # lines named on stderr
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_COLUMNS = (
    Column("line", right=True),
    Column("status"),
    Column("msgId"),
    Column("brokerName"),
    Column("queueId", right=True),
    Column("queueOffset", right=True),
    Column("maybeStored", lambda row: " ".join(row["maybeStored"] or ())),
    Column("reason", wide=True),
)


class TransactionOutcome(StrEnum):
    """How a transaction ends."""

    commit = "commit"
    rollback = "rollback"


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


@command("send", "rmqtool send --namesrv 127.0.0.1:9876 Orders messages.ndjson")
def send(
    topic: TopicArgument,
    namesrv: NamesrvOption = NAMESRV,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="NDJSON, one message per line; - is stdin.")] = "-",
    lines: Annotated[bool, typer.Option("--lines", help="Each input line is the body of a message.")] = False,
    key: Annotated[list[str] | None, option("--key", "KEY", "Key of every message; may be repeated.")] = None,
    tag: Annotated[str | None, option("--tag", "TAG", "Tag of every message.")] = None,
    properties: Annotated[
        list[str] | None, option("--property", "PROPERTY", "Property NAME=VALUE of every message; may be repeated.")
    ] = None,
    delay: Annotated[
        str | None, option("--delay", "DELAY", "A delay level, or for brokers of 5.x a delay (30s, 2h) or a time.")
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", "-q", metavar="QUEUE", help="Send to this queue, ID or BROKER:ID; by default queues take turns."
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, help="At most this many messages in one request.")
    ] = 1,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="At most this many messages per second.")
    ] = None,
    oneway: Annotated[bool, typer.Option("--oneway", help="Do not wait for answers; losses go unnoticed.")] = False,
    transaction: Annotated[
        TransactionOutcome | None, option("--transaction", "END", "Send transactions, and commit or roll back each.")
    ] = None,
    group: ProducerGroupOption = "rmqtool-send",
    engine: JavaClientOption = "auto",
    tls_config: TlsOption = None,
    acl: AclOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Send messages to a live cluster, given as lines or as NDJSON in the form that this tool prints.

    All messages go to TOPIC, whatever topic their rows have; body, bodyEncoding, properties, tags, keys and flag are
    used, other fields are ignored. If a row says where its message was stored, its delay is not applied again.

    Messages are sent one after the other, and each line gets a result: status, message id, broker, queue and queue
    offset. A refused line is reported on stderr, and the exit code is 1. If no broker answers any more, the command
    ends with exit code 3. UNKNOWN marks a message that may have been stored although no answer arrived. After a signal
    the command waits for the pending answer and reads no further line.

    --transaction sends each message as a half message, and ends the transaction once that is stored. The status is
    COMMITTED or ROLLED_BACK when the broker has confirmed it, otherwise UNDECIDED: the command then waits at its end
    for the broker's check, for at most two and a half minutes. Checks for transactions of other runs are not answered.
    """
    plan = SendPlan(
        topic=topic, lines=lines, keys=tuple(key or ()), tag=tag, properties=tuple(properties or ()), delay=delay,
        queue=queue, batch=batch, rate=rate, oneway=oneway,
        transaction=None if transaction is None else transaction.value,
    )  # fmt: skip
    messages = _check(plan, group)
    options = client_options(namesrv, engine, tls_config, acl)
    return _send_all(options, file, messages, group, output.value)


@dataclass(frozen=True, kw_only=True)
class SendPlan:
    """What is to be done with the rows; see the options of the command."""

    topic: str
    lines: bool = False
    keys: Sequence[str] = ()
    tag: str | None = None
    properties: Sequence[str] = ()
    delay: str | None = None
    queue: str | None = None
    batch: int = 1
    rate: float | None = None
    oneway: bool = False
    transaction: str | None = None


class Unsent(RmqError):
    """No broker answers any more; the message says how far it went."""


class _Messages:
    """Makes messages of rows.

    Raises:
        BadValue: options that cannot be understood.
    """

    def __init__(self, plan: SendPlan) -> None:
        self.plan = plan
        self._level, self._time, delay = _delay(plan.delay)
        # by the broker's clock, as Message.setDelayTimeMs
        self._properties = ({} if delay is None else {DELAY_MS: str(delay)}) | dict(map(_pair, plan.properties))

    def make(self, row: Mapping[str, Any]) -> Message:
        """The message of a row.

        Raises:
            ValueError: it is not a message, or not one that a broker accepts.
        """
        fields = message_fields({**row, "topic": self.plan.topic})
        properties = fields["properties"]
        if fields["was_stored"]:
            properties = own_properties(properties)
        elif properties.get("TRAN_MSG", "").lower() == "true":
            raise ValueError("TRAN_MSG: half of a transaction, which nobody would commit or roll back")
        message = Message(
            self.plan.topic,
            fields["body"],
            self.plan.tag,
            self.plan.keys,
            {**properties, **self._properties},
            fields.get("flag", 0),
            self._level,
            self._time,
        )
        check_message(message.topic, message.body)
        return message


def _delay(text: str | None) -> tuple[int, int | None, int | None]:
    """(level, delivery time in ms since the epoch, delay in ms)."""
    if text is None:
        return 0, None, None
    if re.fullmatch("[0-9]{1,2}", text):
        return int(text), None, None
    if match := re.fullmatch("([0-9]{1,9})(ms|s|m|h|d)", text):
        return 0, None, int(match[1]) * _UNITS[match[2]]
    return 0, parse_time(text), None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise BadValue(f"--property {text}: give NAME=VALUE")
    return name, value


def _queue(text: str | None, queues: Sequence[MessageQueue]) -> MessageQueue | None:
    """The queue that is meant.

    Raises:
        BadValue: the topic has no such queue for writing.
    """
    if text is None:
        return None
    broker, _, number = text.rpartition(":")
    matching = [q for q in queues if str(q.queue_id) == number and (not broker or q.broker_name == broker)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(f"{q.broker_name}:{q.queue_id}" for q in matching)
        raise BadValue(f"--queue {text}: several brokers have this queue: {names}")
    raise BadValue(f"--queue {text}: the topic has no such queue to write to")


class _Tally:
    """Answers, and how many there were."""

    def __init__(self, output: str, topic: str) -> None:
        self.sent = self.refused = self.twice = self.last = 0
        self._topic = topic
        try:
            self._writer = writer(output, SEND_FIELDS, _COLUMNS)
        except OSError as err:
            raise OutputLost(f"stdout: {os.strerror(err.errno or 0)}: nothing was read") from err

    def write_stored(self, line: int, result: SendResult, status: str | None = None) -> None:
        """A message was acknowledged."""
        queue = result.queue
        self.sent += 1
        self.twice += bool(result.maybe_in)
        self._row(
            line, status or result.status, brokerName=queue.broker_name, queueId=queue.queue_id,
            queueOffset=result.queue_offset, msgId=result.message_id, offsetMsgId=result.offset_message_id,
            maybeStored=_places(result.maybe_in),
        )  # fmt: skip

    def write_sent(self, line: int, message_id: str) -> None:
        """A message was sent that nobody acknowledges."""
        self.sent += 1
        self._row(line, "SENT", msgId=message_id)

    def write_undecided(self, line: int, result: SendResult, reason: str) -> None:
        """A half message was stored, but its broker has not confirmed the outcome."""
        self.write_stored(line, result, "UNDECIDED")
        self.sent, self.refused = self.sent - 1, self.refused + 1
        note(f"line {line}: {reason}")

    def not_sent(self, line: int, status: str, reason: str, maybe_in: Sequence[MessageQueue] = ()) -> None:
        """A message was not acknowledged."""
        self.refused += 1
        if self.refused <= _MOST_NAMED:
            note(f"line {line}: {reason}")
        elif self.refused == _MOST_NAMED + 1:
            note("more are not named here (see --output ndjson)")
        self._row(line, status, reason=reason, maybeStored=_places(maybe_in))

    def _row(self, line: int, status: str, **more: Any) -> None:
        self.last = line
        try:
            row = {"line": line, "status": status, "topic": self._topic}
            self._writer.row({**dict.fromkeys(SEND_FIELDS), **row, **more})
        except OSError as err:
            raise self._output_lost(err) from err

    def flush(self) -> None:
        """Flush the rows written so far."""
        try:
            sys.stdout.flush()
        except OSError as err:
            raise self._output_lost(err) from err

    def close(self) -> None:
        """End the output."""
        try:
            self._writer.close()
            sys.stdout.flush()
        except OSError as err:
            raise self._output_lost(err) from err
        if self.twice:
            note(
                f"{counted(self.twice, 'message')} may be stored twice: an earlier attempt was not answered, and its "
                "message may be in the queues of maybeStored too, with the same msgId"
            )

    @property
    def words(self) -> str:
        """How many messages there were."""
        more = f", {self.refused} not sent" if self.refused else ""
        upto = f"; up to line {self.last}" if self.last else ""
        return f"{counted(self.sent, 'message')} sent{more}{upto}"

    def _output_lost(self, err: OSError) -> OutputLost:
        return OutputLost(f"stdout: {os.strerror(err.errno or 0)}: {self.words}; what follows was not read")


def _places(queues: Sequence[MessageQueue]) -> list[str] | None:
    """Queues as ``--queue`` takes them; None where there are none."""
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues] or None


class _Sender:
    """Sends messages in groups."""

    def __init__(
        self,
        producer: Producer,
        plan: SendPlan,
        queue: MessageQueue | None,
        tally: _Tally,
        ending: StopSignal,
        undecided: Undecided | None,
    ) -> None:
        self._undecided = undecided
        self._producer, self._plan, self._queue, self._tally, self._ending = producer, plan, queue, tally, ending
        self._next = time.monotonic()

    def take(self, numbers: Sequence[int], rows: Sequence[Message | str]) -> None:
        """Send the messages and answer every row, until a signal comes.

        Raises:
            Unsent: no broker answers any more.
        """
        for group in self._groups(list(zip(numbers, rows, strict=True))):
            self._pace(len(group))
            if self._ending.asked:
                return
            line, first = group[0]
            if isinstance(first, str):
                self._tally.not_sent(line, "NOT_A_MESSAGE", first)
            else:
                self._send(
                    [line for line, _ in group], [message for _, message in group if isinstance(message, Message)]
                )
            self._tally.flush()

    def _groups(self, rows: Sequence[tuple[int, Message | str]]) -> Iterator[list[tuple[int, Message | str]]]:
        """Split messages, in order, into groups that may go in one request."""
        group: list[tuple[int, Message | str]] = []
        for line, row in rows:
            alone = isinstance(row, str) or row.delay_level > 0 or "DELAY" in row.properties
            if group and (alone or len(group) == self._plan.batch):
                yield group
                group = []
            group.append((line, row))
            if alone:
                yield group
                group = []
        if group:
            yield group

    def _pace(self, count: int) -> None:
        if self._plan.rate is None:
            return
        now = time.monotonic()
        if self._next > now:
            self._ending.wait(round((self._next - now) * 1000))
        self._next = max(now, self._next) + count / self._plan.rate

    def _send(self, lines: Sequence[int], messages: Sequence[Message]) -> None:
        try:
            if self._plan.oneway:
                for line, message in zip(lines, messages, strict=True):
                    self._tally.write_sent(line, self._producer.send_oneway(message, queue=self._queue))
                return
            if isinstance(self._producer, TransactionProducer) and self._undecided is not None:
                self._send_half(self._producer, self._undecided, lines[0], messages[0])
                return
            if len(messages) == 1:
                results = [self._producer.send(messages[0], queue=self._queue)]
            else:
                results = self._producer.send_batch(messages, queue=self._queue)
        except NotSent as err:
            self._write_failed(lines, err)
        except ValueError as err:
            for line in lines:
                self._tally.not_sent(line, "NOT_A_MESSAGE", str(err))
        else:
            for line, result in zip(lines, results, strict=True):
                self._tally.write_stored(line, result)

    def _send_half(self, producer: TransactionProducer, undecided: Undecided, line: int, message: Message) -> None:
        def ends(*_: object) -> State:
            return undecided.state

        try:
            sent, ended = producer.send_in_transaction(message, ends, queue=self._queue, confirm=True)
        except NotEnded as err:
            undecided.add(err.sent.message_id, line)
            self._tally.write_undecided(line, err.sent, str(err))
        else:  # a message that is not stored safely is rolled back
            self._tally.write_stored(line, sent, "COMMITTED" if ended == State.COMMIT else "ROLLED_BACK")

    def _write_failed(self, lines: Sequence[int], err: NotSent) -> None:
        for line, result in zip(lines, err.sent, strict=False):
            self._tally.write_stored(line, result)
        rest = lines[len(err.sent) :] if not self._plan.oneway else [line for line in lines if line > self._tally.last]
        for at, line in enumerate(rest):
            maybe_in = err.maybe_in if at < err.tried else ()
            self._tally.not_sent(line, "UNKNOWN" if maybe_in else "NOT_SENT", str(err), maybe_in)
        if err.maybe_stored or err.code is None:
            raise Unsent(f"{err}; {self._tally.words}; what follows was not read")


def _check(plan: SendPlan, group: str) -> _Messages:
    """What makes the messages.

    Raises:
        BadValue: the options do not go together, or cannot be understood.
    """
    try:
        check_group(group)
        check_topic(plan.topic)
    except ValueError as err:
        raise BadValue(str(err)) from None
    messages = _Messages(plan)
    if plan.batch > 1 and (plan.delay is not None or plan.oneway):
        raise BadValue("--batch: delayed and one-way messages go alone")
    if plan.transaction is not None and (plan.batch > 1 or plan.oneway or plan.delay is not None):
        raise BadValue("--transaction: goes without --batch, --oneway and --delay")
    return messages


def _send_all(options: ClientOptions, file: str, messages: _Messages, group: str, output: str) -> int:
    """Send all lines of a file or of stdin; 1 when one was refused."""
    plan, undecided = messages.plan, None
    ending = StopSignal()
    if plan.transaction is not None:
        undecided = Undecided(State.COMMIT if plan.transaction == "commit" else State.ROLLBACK)
    with Lines(file) as lines, ending.watch(), _producer(options, group, undecided) as producer:
        queue = _queue(plan.queue, producer.queues(plan.topic))
        tally = _Tally(output, plan.topic)
        sender = _Sender(producer, plan, queue, tally, ending, undecided)
        try:
            with stage("sending", lines.size, "messages" if lines.size is None else "bytes") as progress:
                for numbers, rows in lines.rows(ending, _line if plan.lines else None):
                    sender.take(numbers, [_make(messages, row) for row in rows])
                    progress.done = tally.sent if lines.size is None else min(lines.done, lines.size)
        except RmqError:
            tally.close()
            _await_questions(undecided, ending)
            raise
        tally.close()
        _await_questions(undecided, ending)
        if ending.signal is not None:
            note(f"{ending.signal.name}: {tally.words}; what follows was not read")
            return ending.exit_code
        note(tally.words)
        return 1 if tally.refused else 0


def _producer(options: ClientOptions, group: str, undecided: Undecided | None) -> Producer:
    return Producer(options, group) if undecided is None else TransactionProducer(options, group, undecided.answer)


def _await_questions(undecided: Undecided | None, ending: StopSignal) -> None:
    if undecided is not None and (lines := undecided.lines()):
        note(f"{len(lines)} not confirmed: waiting until their brokers ask about them")
        undecided.wait(ending)
        left = undecided.lines()
        more = f"; not about those of lines {', '.join(map(str, left[:20]))}" if left else ""
        note(f"brokers have asked about {len(lines) - len(left)} of them, and got the answer{more}")


def _line(line: bytes) -> Mapping[str, Any]:
    return {"body": line}


def _make(messages: _Messages, row: Mapping[str, Any] | ValueError) -> Message | str:
    try:
        if isinstance(row, ValueError):
            raise row
        return messages.make(row)
    except ValueError as err:
        return str(err)
