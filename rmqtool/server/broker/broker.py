"""A broker on a store: requests in, answers out, and the services that go on meanwhile.

Source: broker.BrokerController (4.9.8, 5.3.3).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from formats.message.properties import TAGS
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.topics import OFFSET_MOVED, REPLY_SUFFIX, SCHEDULE
from rmqtool.errors import RmqError
from rmqtool.remoting.connection import Answer, Connection
from rmqtool.server.broker.admin.absent import Absent
from rmqtool.server.broker.admin.access import AccessRequests
from rmqtool.server.broker.admin.control import Control
from rmqtool.server.broker.admin.status import Status
from rmqtool.server.broker.admin.tables import Tables
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.clients import Clients
from rmqtool.server.broker.context.counts import SAMPLE, Counts
from rmqtool.server.broker.context.locks import QueueLocks
from rmqtool.server.broker.context.settings import Settings
from rmqtool.server.broker.context.throttled_log import ThrottledLog
from rmqtool.server.broker.requests.consuming import Consuming
from rmqtool.server.broker.requests.lookups import Lookups
from rmqtool.server.broker.requests.pop_answers import PopAnswers
from rmqtool.server.broker.requests.popping import Pops
from rmqtool.server.broker.requests.positions import Positions
from rmqtool.server.broker.requests.pulling import Pulling
from rmqtool.server.broker.requests.recalling import Recalling
from rmqtool.server.broker.requests.replying import Replying
from rmqtool.server.broker.requests.sending import Sending
from rmqtool.server.broker.requests.transactions import Transactions
from rmqtool.services.opened.broker_state import BrokerState
from rmqtool.services.opened.engine import Store
from rmqtool.services.popping import service as pop
from rmqtool.services.popping.assigning import RequestModes
from rmqtool.services.popping.settings import PopSettings
from rmqtool.services.sending.back import SendBack
from rmqtool.services.serving.drained_state import DrainedState, FollowedState
from rmqtool.services.serving.following import Following
from rmqtool.services.serving.reading import Reading
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.waiting.transaction_check import TransactionService
from rmqtool.services.waiting.transaction_rules import CheckRequest, Decision
from rmqtool.store.append.outgoing import Message
from rmqtool.store.disk.durable import is_lacking
from rmqtool.store.disk.lock import Disturbed
from rmqtool.words import counted

if TYPE_CHECKING:
    from rmqtool.server.access.control import AccessControl

log = logging.getLogger(__name__)

_TICK = 0.1  # s between two looks at what is due
_SLICE = 0.05  # s that the services may take before requests are served again
_FLUSH = 1.0  # s until what was stored is durable
_LOOK = 1.0
_EXPIRE = 10.0
_AFTER_AN_ERROR = 1.0

Handle = Callable[[Connection, Command], Answer]


class Broker:
    """A broker on a store.

    Args:
        store: open for writing, unless ``state`` is that of a store that is only read. It is closed by whoever opened
            it.
        state: the tables of a store that is only read; nothing is stored then. Those of one that is followed have it
            followed.
        topics_changed: told when name servers must hear of it.
        random: chooses queues.
        accounts: the file that says who may do what, plain_acl.yml; None lets everybody do everything.

    Raises:
        CorruptFile: the accounts are not what a broker takes.
        UnreadableStore: they cannot be read.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        state: DrainedState | None = None,
        topics_changed: Callable[[], None] = lambda: None,
        random: Random | None = None,
        accounts: str | None = None,
    ) -> None:
        self._services: RunLoop | None = None
        tables: BrokerState
        throttled = ThrottledLog(log)
        if state is None:
            self._services = RunLoop(store, throttled.warn, self._ask, check_at_once=False)
            tables = self._services.state
            tables.at_once = True
        else:
            tables = state
        self.context = context = BrokerContext(
            settings=settings,
            store=store,
            state=tables,
            reading=Following(store) if isinstance(state, FollowedState) else Reading(store),
            clients=Clients(),
            locks=QueueLocks(time.monotonic),
            clock=tables.clock,
            now=time.monotonic,
            counts=Counts(),
            log=throttled,
            arrived=self._arrived,
            topics_changed=topics_changed,
        )
        for topic in context.system_topics():
            context.state.suppose_topic(topic)
        if shown := context.topics_of_queues():
            for topic in shown:
                context.state.suppose_topic(topic)
            log.warning(
                "%s has no topics.json: %s served as the queues show; %s writes one",
                store.layout.root, counted(len(shown), "topic is", "topics are"),
                store.layout.command("rebuild", "config"),
            )  # fmt: skip
        random = random or Random()
        back = SendBack(store, context.state, random)
        services = self._services
        halves = TransactionService(store, context.state, throttled.warn) if services is None else services.transactions
        self._sending = Sending(context, back, halves, random)
        self._pulling = Pulling(context, self._moved)
        self._consuming = Consuming(context, back)
        self._transactions = Transactions(context, halves)
        self._positions = Positions(context)
        self.status = Status(context)
        lookups, replying = Lookups(context), Replying(context, self._sending)
        self._version = settings.release.mq_version
        self._access = None if accounts is None else _access_control(context, accounts)
        self._handlers: dict[int, Handle] = {
            C.SEND_MESSAGE: self._sending.handle,
            C.SEND_MESSAGE_V2: self._sending.handle,
            C.SEND_BATCH_MESSAGE: self._sending.handle,
            C.SEND_REPLY_MESSAGE: replying.handle,
            C.SEND_REPLY_MESSAGE_V2: replying.handle,
            C.PULL_MESSAGE: self._pulling.handle,
            C.LITE_PULL_MESSAGE: self._pulling.handle,
            C.HEART_BEAT: self._consuming.heartbeat,
            C.UNREGISTER_CLIENT: self._consuming.unregister,
            C.CHECK_CLIENT_CONFIG: self._consuming.check_client,
            C.GET_CONSUMER_LIST_BY_GROUP: self._consuming.members,
            C.LOCK_BATCH_MQ: self._consuming.lock,
            C.UNLOCK_BATCH_MQ: self._consuming.unlock,
            C.CONSUMER_SEND_MSG_BACK: self._consuming.give_back,
            C.END_TRANSACTION: self._transactions.end,
            C.QUERY_CONSUMER_OFFSET: self._positions.consumer_offset,
            C.UPDATE_CONSUMER_OFFSET: self._positions.commit,
            C.GET_MAX_OFFSET: self._positions.highest,
            C.GET_MIN_OFFSET: self._positions.lowest,
            C.SEARCH_OFFSET_BY_TIMESTAMP: self._positions.by_time,
            C.GET_EARLIEST_MSG_STORETIME: self._positions.earliest_time,
            C.GET_ALL_CONSUMER_OFFSET: self._positions.all_offsets,
            C.GET_ALL_DELAY_OFFSET: self._positions.delay_offsets,
            C.QUERY_MESSAGE: lookups.by_key,
            C.VIEW_MESSAGE_BY_ID: lookups.by_id,
            C.QUERY_CONSUME_QUEUE: lookups.entries,
            **Tables(context).handlers(),
            **self.status.handlers(),
            **Control(context, self._positions).handlers(),
            **AccessRequests(context, self._access).handlers(),
        }
        self._pop: pop.PopService | None = None
        self._pops = Pops(context, None)
        if context.release.is_5:
            self._handlers |= self._popping(random) | Recalling(context).handlers() | Absent(context).handlers()
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self.failure: Exception | None = None

    def _popping(self, random: Random) -> dict[int, Handle]:
        """The requests of POP, which 5.x has. From a store that is only read nothing is popped: clients pull."""
        context = self.context
        if self._services is None:
            settings = PopSettings.of(context.store.layout.conf)
            answers = PopAnswers(context, None, RequestModes(context.state, settings, pull_only=True), settings)
            return self._pops.handlers() | answers.handlers()
        broker = pop.Broker(
            name=context.settings.name,
            cluster=context.settings.cluster,
            address=context.settings.address,
            arrived=context.arrived,
            freed=lambda *place: self._pops.freed(*place),
            topic_made=lambda: context.topics_changed(),
            in_time=self._timer_in_time,
        )
        self._pop = made = pop.PopService(
            context.store,
            context.reading,
            context.state,
            broker,
            context.log.warn,
            resets=context.resets,
            random=random,
        )
        self._pops = Pops(context, made.popping)
        answers = PopAnswers(context, made.finishing, made.modes, made.settings)
        return self._pops.handlers() | answers.handlers()

    def _timer_in_time(self) -> bool:
        """Whether the timer has delivered all that is due."""
        timer = None if self._services is None else self._services.timer
        if timer is None or timer.stuck:
            return timer is None
        return (due := timer.next_time) is None or due > self.context.clock()

    # -- requests -----------------------------------------------------------------------------------------------------

    def handle(self, connection: Connection, request: Command) -> Answer:
        """Answer one request."""
        if self._access is not None:
            try:
                self._access.check(connection.peer, request)
            except Failed as err:
                refused = err.answer(request)
                refused.version = self._version
                return refused
        handler = self._handlers.get(request.code)
        if handler is None:
            words = f" request type {request.code} not supported"
            response: Answer = request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, words)
        else:
            try:
                response = handler(connection, request)
            except Failed as err:
                response = err.answer(request)
            except (OSError, RmqError) as err:
                response = self._unable(request, err)
        if response is None:
            return None
        if isinstance(response, Command):
            response.version = self._version
            return response
        return self._later(request, response)

    async def _later(self, request: Command, response: Awaitable[Command | None]) -> Command | None:
        try:
            found = await response
        except Failed as err:
            found = err.answer(request)
        except (OSError, RmqError) as err:
            found = self._unable(request, err)
        if found is not None:
            found.version = self._version
        return found

    def _unable(self, request: Command, error: OSError | RmqError) -> Command:
        """The answer to a request that met an error of the store."""
        code = ResponseCode.SERVICE_NOT_AVAILABLE if is_lacking(error) else ResponseCode.SYSTEM_ERROR
        return self.context.failure(f"request {request.code} cannot be carried out", error, code).answer(request)

    def ended(self, connection: Connection) -> None:
        """A connection has ended."""
        self._consuming.ended(connection)

    def _arrived(self, topic: str, queue_id: int) -> None:
        if topic == SCHEDULE and self._services is not None:
            self._services.look_again()
        self._pulling.arrived(topic, queue_id)
        self._pops.arrived(topic, queue_id)

    def _ask(self, asked: CheckRequest) -> Decision:
        return self._transactions.ask(asked)

    def _moved(self, header: h.Pull, offset: int) -> None:
        """A consumer has asked for what is not there: a broker writes that down."""
        context = self.context
        if self._services is None:
            return
        body = (
            f'{{"consumerGroup":"{header.consumer_group}","messageQueue":{{"brokerName":"{context.settings.name}",'
            f'"queueId":{header.queue_id},"topic":"{header.topic}"}},"offsetNew":{offset},'
            f'"offsetRequest":{header.queue_offset}}}'
        )
        message = Message(
            topic=OFFSET_MOVED,
            body=body.encode(),
            properties={TAGS: header.consumer_group, "KEYS": header.consumer_group, "WAIT": "false"},
            born_host=context.settings.address,
            store_host=context.settings.address,
        )
        try:
            context.store.append(message)
        except (OSError, RmqError) as err:
            context.log.error(f"that an offset has moved cannot be written down: {err}")

    # -- services -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with what goes on beside the requests."""
        self._tasks.append(asyncio.create_task(self._serve()))
        if self._access is not None:
            self._tasks.append(asyncio.create_task(self._access.watch()))

    async def _serve(self) -> None:
        flush_at = look_at = expire_at = sample_at = time.monotonic()
        stored = self._end()
        well = True
        while not self._ended.is_set():
            await asyncio.sleep(_TICK if well else _AFTER_AN_ERROR)
            well = self._does(self._step) & self._does(self._persist) & self._does(self._follow)
            now = time.monotonic()
            if (end := self._end()) != stored or now >= look_at:
                stored, look_at = end, now + _LOOK
                for job in (self._follow_tables, self._bring_back, self._pulling.look, self._pops.look):
                    well &= self._does(job)
            well &= self._does(self._pops.expire)
            if now >= flush_at:
                flush_at = now + _FLUSH
                well &= self._does(self._flush)
            if now >= expire_at:
                expire_at = now + _EXPIRE
                well &= self._does(self._consuming.expire)
            if now >= sample_at:
                sample_at = now + SAMPLE
                well &= self._does(partial(self.context.counts.sample, now))

    def _does(self, job: Callable[[], object]) -> bool:
        """Whether a job went well. Where it did not, the others are done all the same: what is stored becomes durable
        whatever cannot be delivered."""
        try:
            job()
        except Exception as found:
            err = found
            if isinstance(found, Disturbed) and self._services is not None:
                err = self.context.store.live.disturbed(found)  # a table was to be written, and the log says the rest
            self.context.log.error(f"{err}" if isinstance(err, (OSError, RmqError)) else f"{type(err).__name__}: {err}")
            if isinstance(err, Disturbed) or (self._services is not None and self.context.store.live.broken):
                self.failure = self.failure or err
                self._ended.set()
            return False
        return True

    def _follow(self) -> None:
        """See what another broker has stored meanwhile."""
        if isinstance(reading := self.context.reading, Following):
            for topic, queue_id in reading.look().grown:
                self._pulling.arrived(topic, queue_id)

    def _follow_tables(self) -> None:
        if isinstance(state := self.context.state, FollowedState) and state.look():
            self.context.topics_changed()

    def _end(self) -> int:
        return self.context.reading.end

    def _step(self) -> None:
        """What is due, for as long as requests may wait."""
        if self._services is not None:
            until = time.monotonic() + _SLICE
            self._services.step(lambda: time.monotonic() >= until)

    def _persist(self) -> None:
        """Where groups are, whatever cannot be delivered."""
        if self._services is not None:
            self._services.persist_when_due()

    def _bring_back(self) -> None:
        """Messages that were popped and not acked in time."""
        if self._pop is not None:
            until = time.monotonic() + _SLICE
            self._pop.step(lambda: time.monotonic() >= until)

    def _flush(self) -> None:
        """Make durable what was stored, or where groups are."""
        if self._services is None:
            self.context.state.persist()
            return
        self.context.store.live.flush_beside()

    async def wait(self) -> None:
        """Until this broker cannot go on; :attr:`failure` says why."""
        await self._ended.wait()

    async def stop(self) -> None:
        """End the services, and write down what is known. The store stays open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._sending.store()
        if self.failure is None and self._services is not None:
            self._services.finish()
        elif self.failure is None:
            self.context.state.persist()
        elif not isinstance(self.failure, Disturbed):
            self.context.state.persist_what_is_stored()


def _access_control(context: BrokerContext, accounts: str) -> "AccessControl":
    from rmqtool.server.access.control import AccessControl  # loads PyYAML
    from rmqtool.server.access.rights import Rights

    return AccessControl(accounts, Rights(context.topic_at, f"{context.settings.cluster}{REPLY_SUFFIX}"), context.clock)
