"""Send messages to a cluster, each once and in the order of their queues, despite kills and lost answers.

Messages are sent in rounds. Before the first message of a round is sent, the journal records its content and, for each
queue, an offset below which none of its messages can be. After a kill or a lost answer, the queues are read from there:
the marks in the messages show which of them arrived. The message before that offset, or the last one that was sent,
proves that the queue is still the same; a queue that was created again may have the messages below the offset, or none
of them.

If one queue is not the same, nothing more is sent to any: all of it has to be sent again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.attempts import try_often
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.client.cluster.errors import BadAnswer, BrokerError, ClientError, NoRoute, NotThere
from rmqtool.client.consumer.proof import Last, MadeAgain, last_at, last_of, prove
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.copying.steps import ORIGIN, REPLAY, CopyJournal, CopyRound, CopyStep, InputPlace, OriginQueue
from rmqtool.client.producing.message import Message, NotSent, SendResult
from rmqtool.client.producing.producer import Producer
from rmqtool.remoting.errors import RemotingError

log = logging.getLogger(__name__)

_BATCH_BYTES = 1_000_000  # per request
_ILLEGAL = {ResponseCode.MESSAGE_ILLEGAL}  # the message itself is refused: sending it again is useless
_PAUSES = (1.0, 2.0, 4.0, 8.0)  # s before further attempts


class Pace:
    """Limits messages per second.

    Args:
        stop: ends a wait when set.
    """

    def __init__(self, rate: float | None, stop: asyncio.Event) -> None:
        self._rate, self._stop, self._next = rate, stop, 0.0

    def most(self, batch: int) -> int:
        """Batch size that keeps a slow rate from becoming a series of bursts."""
        return batch if self._rate is None else max(1, min(batch, int(self._rate / 10)))

    async def wait(self, count: int) -> None:
        """Wait until ``count`` messages may be sent."""
        if self._rate is None:
            return
        now = asyncio.get_running_loop().time()
        due = max(now, self._next)
        self._next = due + count / self._rate
        if due > now:
            try:
                async with asyncio.timeout(due - now):
                    await self._stop.wait()
            except TimeoutError:
                pass


class CannotGoOn(ClientError):
    """Messages could not be sent, or it is unknown whether they were; the text says why."""


class Lost(CannotGoOn):
    """It is unknown whether messages arrived: their queue is no longer the one that they were sent to."""


class Gone(CannotGoOn):
    """Messages sent before are gone: the topic was created again, or its broker has another store."""


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """How messages are sent.

    Attributes:
        name: name of the origin, in the mark of every message.
        to: target topic of all messages; by default each message's own.
        batch: messages per request.
        rate: maximum number of messages per second.
        settle: seconds that a request may still be in transit after its sender has ended.
    """

    name: str
    to: str | None = None
    batch: int = 32
    rate: float | None = None
    settle: float = 5.0


@dataclass
class RoundResult:
    """The result of a round.

    Attributes:
        arrived: places of stored messages.
        refused: place → why the message was refused.
        uncertain: queues that may have more of the messages.
        error: the last error.
    """

    arrived: dict[InputPlace, MessageQueue] = field(default_factory=dict)
    refused: dict[InputPlace, str] = field(default_factory=dict)
    uncertain: set[MessageQueue] = field(default_factory=set)
    error: Exception | None = None


class Replay:
    """Sends rounds of messages.

    Args:
        producer: a producer of the target cluster.
        stop: set to end early.
        warn: called with the error of each failed attempt.
    """

    def __init__(
        self,
        producer: Producer,
        journal: CopyJournal,
        options: ReplayOptions,
        stop: asyncio.Event,
        warn: Callable[[str], None] = log.warning,
    ) -> None:
        self._producer, self._journal, self._options = producer, journal, options
        self._stop, self._warn = stop, warn
        self._cluster: Cluster = producer.cluster
        self._puller = Puller(self._cluster, masters=True)
        self._floors: dict[MessageQueue, int] = {}  # offsets below which no further message can be
        self._stored: dict[MessageQueue, tuple[int, str]] = {}  # offset and mark of the last message, by the answers
        self._all_proved = False
        self._pace = Pace(options.rate, stop)

    async def target(self, origin: OriginQueue) -> MessageQueue:
        """The target of an original queue: the queue with the same number, or the number modulo the number of queues.

        Raises:
            NoRoute: the topic does not exist, and no broker creates it.
            RemotingError: no name server answers.
        """
        target = self._journal.targets.get(origin)
        if target is not None:
            return target
        queues = sorted(await self._producer.queues(self._options.to or origin.topic), key=_by_broker)
        return queues[origin.queue_id % len(queues)]

    async def send(self, steps: Sequence[CopyStep]) -> RoundResult:
        """Send a round. When this returns, all of it is stored or refused, unless ``stop`` was set.

        Raises:
            CannotGoOn: attempts have failed, or the journal cannot be written; a later run continues from here.
        """
        queues = await self._targets(steps)
        with _no_way_on():
            floors = await try_often(partial(self._find_floors, set(queues.values())), self._stop, self._warn)
            before = await try_often(partial(self._before, floors), self._stop, self._warn)
        begun = CopyRound(steps[-1].place, steps[-1].digest, len(steps), floors, set(), before)
        self._journal.begin(begun)
        return await self._finish(begun, steps, queues)

    async def resume(self, begun: CopyRound, steps: Sequence[CopyStep]) -> RoundResult:
        """Send the missing messages of a round that an earlier process began.

        Raises:
            CannotGoOn: see :meth:`send`.
        """
        queues = await self._targets(steps)
        sent = RoundResult()
        before = self._journal.before
        others = {
            queue: last for queue, last in before.items() if begun.arrived is not None or queue not in begun.floors
        }
        with _no_way_on():
            await try_often(partial(self._prove, others), self._stop, self._warn)
        if begun.arrived is None:
            await self._wait(self._options.settle)
            if self._stop.is_set():
                return sent
            sent.uncertain = set(begun.floors)
        else:
            sent.arrived = {step.place: queues[step.origin] for step in steps if step.place in begun.arrived}
            self._journal.begin(begun)  # from here on, more messages may be stored than the journal says
        return await self._finish(begun, steps, queues, sent)

    async def _targets(self, steps: Sequence[CopyStep]) -> dict[OriginQueue, MessageQueue]:
        targets = {origin: await self._find_target(origin) for origin in dict.fromkeys(step.origin for step in steps)}
        new = {origin: queue for origin, queue in targets.items() if origin not in self._journal.targets}
        if new:
            self._journal.aim(new)
        return targets

    async def _find_target(self, origin: OriginQueue) -> MessageQueue:
        with _no_way_on():
            return await self.target(origin)

    async def _find_floors(self, queues: set[MessageQueue]) -> dict[MessageQueue, int]:
        await self._prove(self._proofs_for(queues))
        self._all_proved = True
        for queue in queues:
            if queue not in self._floors:
                self._floors[queue] = (await self._offsets(queue))[1]
            elif queue in self._stored:
                await self._find_stored(queue)
        return {queue: self._floors[queue] for queue in queues}

    def _proofs_for(self, queues: set[MessageQueue]) -> dict[MessageQueue, Last]:
        """The messages that prove these queues, and one queue of each topic and broker that was sent to; at first all
        that are known.
        """
        before = self._journal.before
        if not self._all_proved:
            return dict(before)
        proofs = {queue: last for queue, last in before.items() if queue in queues}
        proved = {(queue.topic, queue.broker_name) for queue in proofs}
        for queue, last in before.items():
            if (place := (queue.topic, queue.broker_name)) not in proved:
                proofs[queue] = last
                proved.add(place)
        return proofs

    async def _find_stored(self, queue: MessageQueue) -> Last | None:
        """The last message that an answer has named, if it is there: an offset that is too high would hide others."""
        offset, mark = self._stored[queue]
        try:
            pulled = await self._puller.pull(queue, offset, most=1)
        except NotThere:
            pulled = None
        del self._stored[queue]
        for message in pulled.messages if pulled is not None else ():
            if message.queue_offset == offset and message.properties.get(REPLAY) == mark:
                self._floors[queue] = offset + 1  # else the floor stays: lower is always safe
                return last_of(message.record, offset)
        return None

    async def _last_stored(self) -> dict[MessageQueue, Last]:
        """The last message stored in each queue; those of which a broker does not tell now are looked for later."""
        last_stored = {}
        try:
            for queue in list(self._stored):
                if (last := await self._find_stored(queue)) is not None:
                    last_stored[queue] = last
        except (ClientError, RemotingError) as err:
            log.info("%s", err)
        return last_stored

    async def _before(self, floors: Mapping[MessageQueue, int]) -> dict[MessageQueue, Last]:
        """The message before an offset of each queue, unless there is none or it has expired."""
        before: dict[MessageQueue, Last] = {}
        for queue, floor in floors.items():
            last = self._journal.before.get(queue)
            if floor > 0 and (last is None or last.offset != floor - 1):
                last = await last_at(self._puller, queue, floor - 1)
            if floor > 0 and last is not None:
                before[queue] = last
        return before

    async def _prove(self, before: Mapping[MessageQueue, Last]) -> None:
        """Verify that queues are those that messages were sent to.

        Raises:
            MadeAgain: a queue is a different one.
            NoRoute, RemotingError, BrokerError: it is unknown.
        """
        for queue, last in before.items():
            try:
                await prove(self._puller, queue, last)
            except BrokerError as err:
                if err.code == ResponseCode.TOPIC_NOT_EXIST:
                    raise MadeAgain(f"{queue}: its broker does not know the topic any more") from err
                raise

    async def _finish(
        self,
        begun: CopyRound,
        steps: Sequence[CopyStep],
        queues: Mapping[OriginQueue, MessageQueue],
        sent: RoundResult | None = None,
    ) -> RoundResult:
        sent = sent or RoundResult()
        for pause in (*_PAUSES, None):
            if sent.uncertain:
                await self._ask(begun, {step.place for step in steps}, sent)
            if not sent.uncertain:
                sent.error = None
                await self._attempt(steps, queues, sent)
            if len(sent.arrived) + len(sent.refused) == len(steps):
                self._journal.end_round(begun, len(sent.arrived), list(sent.refused), await self._last_stored())
                return sent
            if self._stop.is_set() or pause is None:
                break
            self._warn(f"{sent.error}; it is tried again")
            await self._wait(max(pause, self._options.settle if sent.uncertain else 0))
            if self._stop.is_set():
                break
        if not sent.uncertain:  # otherwise the next run must look
            self._journal.stop_round(list(sent.arrived), await self._last_stored())
        if self._stop.is_set():
            return sent
        raise CannotGoOn(str(sent.error))

    async def _attempt(
        self, steps: Sequence[CopyStep], queues: Mapping[OriginQueue, MessageQueue], sent: RoundResult
    ) -> None:
        """Send messages that are neither stored nor refused, in order within each queue."""
        waiting: dict[MessageQueue, list[CopyStep]] = {}
        for step in steps:
            if step.place not in sent.arrived and step.place not in sent.refused:
                waiting.setdefault(queues[step.origin], []).append(step)
        async with asyncio.TaskGroup() as group:
            for queue, part in waiting.items():
                group.create_task(self._send(queue, part, sent))

    async def _send(self, queue: MessageQueue, steps: Sequence[CopyStep], sent: RoundResult) -> None:
        at = 0
        while at < len(steps):
            part = self._part(steps, at)
            await self._pace.wait(len(part))
            if self._stop.is_set():
                return
            at += len(part)
            try:
                await self._send_part(queue, part, sent)
            except NotSent as err:
                sent.error = err
                if err.maybe_stored:
                    sent.uncertain.add(queue)
                return

    def _part(self, steps: Sequence[CopyStep], at: int) -> Sequence[CopyStep]:
        """The next messages for one request."""
        size, count = 0, 0
        for step in steps[at : at + self._pace.most(self._options.batch)]:
            size += len(step.message.body)
            if count and size > _BATCH_BYTES:
                break
            count += 1
        return steps[at : at + count]

    async def _send_part(self, queue: MessageQueue, steps: Sequence[CopyStep], sent: RoundResult) -> None:
        messages = [self._mark(step, queue) for step in steps]
        try:
            if len(messages) == 1:
                results = [await self._producer.send(messages[0], queue=queue)]
            else:
                results = await self._producer.send_batch(messages, queue=queue)
        except NotSent as err:
            self._note_stored(steps, err.sent, sent)
            unsent = steps[len(err.sent) :]
            if err.code not in _ILLEGAL or err.maybe_stored:
                raise
            await self._one_by_one(queue, unsent, sent, str(err))
        except ValueError as err:
            await self._one_by_one(queue, steps, sent, str(err))
        else:
            self._note_stored(steps, results, sent)

    async def _one_by_one(self, queue: MessageQueue, steps: Sequence[CopyStep], sent: RoundResult, reason: str) -> None:
        """Send messages that were refused as a batch one by one."""
        if len(steps) == 1:
            sent.refused[steps[0].place] = reason
            return
        for step in steps:
            await self._send_part(queue, [step], sent)

    def _note_stored(self, steps: Sequence[CopyStep], results: Sequence[SendResult], sent: RoundResult) -> None:
        for step, result in zip(steps, results, strict=False):
            sent.arrived[step.place] = result.queue
            last = self._stored.get(result.queue, (-1, ""))
            self._stored[result.queue] = max(last, (result.queue_offset, f"{self._journal.run}:{step.place}"))

    def _mark(self, step: CopyStep, queue: MessageQueue) -> Message:
        marks = {ORIGIN: f"{self._options.name}:{step.place}", REPLAY: f"{self._journal.run}:{step.place}"}
        return replace(step.message, topic=queue.topic, properties={**step.message.properties, **marks})

    async def _ask(self, begun: CopyRound, places: Set[InputPlace], sent: RoundResult) -> None:
        """Find out which messages of a round are in the uncertain queues."""
        prefix = f"{self._journal.run}:"
        for queue in sorted(sent.uncertain):
            try:
                await self._prove({queue: begun.before[queue]} if queue in begun.before else {})
                marks = await self._marks(queue, begun.floors[queue], prefix)
            except MadeAgain as err:
                raise Lost(str(err)) from err
            except NoRoute as err:  # says nothing about what its broker has
                sent.error = CannotGoOn(f"{err}; only its master can tell which of the last messages it has stored")
                return
            except (ClientError, RemotingError) as err:
                if isinstance(err, CannotGoOn):
                    raise
                sent.error = err
                return
            sent.arrived.update((place, queue) for place in marks if place in places)
            sent.uncertain.discard(queue)

    async def _marks(self, queue: MessageQueue, offset: int, prefix: str) -> list[InputPlace]:
        """Places of this replay's messages in a queue from an offset on; fails unless every message can be read.

        Raises:
            NoRoute: its master is unavailable now.
            Lost: messages at or after the offset are gone.
            BrokerError, RemotingError: its master does not answer, or skips messages.
        """
        low, high = await self._offsets(queue)
        if high < offset:
            raise Lost(
                f"{queue}: ends at offset {high} by now, and messages may have been stored from {offset} on: its topic "
                "was made again, or its broker has lost messages"
            )
        if low > offset:
            raise Lost(
                f"{queue}: begins at offset {low} by now, and messages that may have been stored from {offset} on "
                "are gone"
            )
        marks = []
        while offset < high:
            pulled = await self._puller.pull(queue, offset)
            at = offset
            for message in pulled.messages:
                if message.queue_offset != at:
                    break
                mark = message.properties.get(REPLAY, "")
                if mark.startswith(prefix) and (place := InputPlace.of(mark.removeprefix(prefix))) is not None:
                    marks.append(place)
                    self._stored[queue] = at, mark
                at += 1
            if at == offset:
                raise BadAnswer(f"{queue}: its broker gives no message at offset {offset}, and {high} is its end")
            offset = at
        return marks

    async def _offsets(self, queue: MessageQueue) -> tuple[int, int]:
        """First offset and end of a queue according to its master; zeros if it does not know the topic.

        Raises:
            NoRoute: no name server knows the master now, which proves nothing about the queue.
            BrokerError, RemotingError: the master does not answer.
        """
        try:
            return await self._puller.offsets(queue)
        except BrokerError as err:
            if err.code == ResponseCode.TOPIC_NOT_EXIST:
                return 0, 0
            raise

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass


@contextmanager
def _no_way_on() -> Iterator[None]:
    """Context for requests made while no message is in transit: errors become :class:`CannotGoOn`."""
    try:
        yield
    except MadeAgain as err:
        raise Gone(str(err)) from err
    except (ClientError, RemotingError) as err:
        raise CannotGoOn(str(err)) from err


def _by_broker(queue: MessageQueue) -> tuple[str, int]:
    return queue.broker_name, queue.queue_id
