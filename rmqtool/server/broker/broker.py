"""A broker on a store: requests in, answers out, and the services that go on meanwhile.

Source: broker.BrokerController (4.9.8, 5.3.3).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from random import Random

from formats.message.properties import TAGS
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.errors import RmqError
from rmqtool.remoting.connection import Answer, Connection
from rmqtool.server.broker.known.answers import Failed, version_of
from rmqtool.server.broker.known.clients import Clients
from rmqtool.server.broker.known.core import Core
from rmqtool.server.broker.known.counts import SAMPLE, Counts
from rmqtool.server.broker.known.locks import QueueLocks
from rmqtool.server.broker.known.settings import Settings
from rmqtool.server.broker.requests.consuming import Consuming
from rmqtool.server.broker.requests.control import Control
from rmqtool.server.broker.requests.lookups import Lookups
from rmqtool.server.broker.requests.positions import Positions
from rmqtool.server.broker.requests.pulling import Pulling
from rmqtool.server.broker.requests.replying import Replying
from rmqtool.server.broker.requests.sending import Sending
from rmqtool.server.broker.requests.status import Status
from rmqtool.server.broker.requests.tables import Tables
from rmqtool.server.broker.requests.transactions import Transactions
from rmqtool.services.lookup.queue_messages import SCHEDULE
from rmqtool.services.opened.broker_state import BrokerState
from rmqtool.services.opened.engine import Store
from rmqtool.services.sending.back import SendBack
from rmqtool.services.serving.drained_state import DrainedState
from rmqtool.services.serving.reading import Reading
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.waiting.transaction_check import TransactionService
from rmqtool.services.waiting.transaction_rules import CheckRequest, Decision
from rmqtool.store.append.outgoing import Message
from rmqtool.store.disk.lock import Disturbed

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
        state: the tables of a store that is only read; nothing is stored then.
        topics_changed: told when name servers must hear of it.
        random: chooses queues.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        state: DrainedState | None = None,
        topics_changed: Callable[[], None] = lambda: None,
        random: Random | None = None,
    ) -> None:
        self._services: RunLoop | None = None
        tables: BrokerState
        if state is None:
            self._services = RunLoop(store, log.warning, self._ask, check_at_once=False)
            tables = self._services.state
            tables.at_once = True
        else:
            tables = state
        self.core = core = Core(
            settings=settings,
            store=store,
            state=tables,
            reading=Reading(store),
            clients=Clients(),
            locks=QueueLocks(time.monotonic),
            clock=tables.clock,
            now=time.monotonic,
            counts=Counts(),
            arrived=self._arrived,
            topics_changed=topics_changed,
        )
        for topic in core.system_topics():
            core.state.suppose_topic(topic)
        random = random or Random()
        back = SendBack(store, core.state, random)
        halves = TransactionService(store, core.state, log.warning)
        self._sending = Sending(core, back, halves, random)
        self._pulling = Pulling(core, self._moved)
        self._consuming = Consuming(core, back)
        self._transactions = Transactions(core, halves)
        self._positions = Positions(core)
        self.status = Status(core)
        lookups, replying = Lookups(core), Replying(core, self._sending)
        self._version = version_of(settings.engine)
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
            **Tables(core).handlers(),
            **self.status.handlers(),
            **Control(core, self._positions).handlers(),
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self.failure: Exception | None = None

    # -- requests -----------------------------------------------------------------------------------------------------

    def handle(self, connection: Connection, request: Command) -> Answer:
        """Answer one request."""
        handler = self._handlers.get(request.code)
        if handler is None:
            words = f" request type {request.code} not supported"
            response: Answer = request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, words)
        else:
            try:
                response = handler(connection, request)
            except Failed as err:
                response = err.answer(request)
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
        if found is not None:
            found.version = self._version
        return found

    def ended(self, connection: Connection) -> None:
        """A connection has ended."""
        self._consuming.ended(connection)

    def _arrived(self, topic: str, queue_id: int) -> None:
        if topic == SCHEDULE and self._services is not None:
            self._services.look_again()
        self._pulling.arrived(topic, queue_id)

    def _ask(self, asked: CheckRequest) -> Decision:
        return self._transactions.ask(asked)

    def _moved(self, header: h.Pull, offset: int) -> None:
        """A consumer has asked for what is not there: a broker writes that down."""
        core = self.core
        if self._services is None:
            return
        body = (
            f'{{"consumerGroup":"{header.consumer_group}","messageQueue":{{"brokerName":"{core.settings.name}",'
            f'"queueId":{header.queue_id},"topic":"{header.topic}"}},"offsetNew":{offset},'
            f'"offsetRequest":{header.queue_offset}}}'
        )
        message = Message(
            topic="OFFSET_MOVED_EVENT",
            body=body.encode(),
            properties={TAGS: header.consumer_group, "KEYS": header.consumer_group, "WAIT": "false"},
            born_host=core.settings.address,
            store_host=core.settings.address,
        )
        try:
            core.store.append(message)
        except (OSError, RmqError) as err:
            log.error("that an offset has moved cannot be written down: %s", err)

    # -- services -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with what goes on beside the requests."""
        self._tasks.append(asyncio.create_task(self._serve()))

    async def _serve(self) -> None:
        flush_at = look_at = expire_at = sample_at = time.monotonic()
        stored = flushed = self._end()
        while True:
            await asyncio.sleep(_TICK)
            try:
                self._step()
                now = time.monotonic()
                if (end := self._end()) != stored or now >= look_at:
                    stored, look_at = end, now + _LOOK
                    self._pulling.look()
                if now >= flush_at:
                    flush_at, flushed = now + _FLUSH, self._flush(flushed)
                if now >= expire_at:
                    expire_at = now + _EXPIRE
                    self._consuming.expire()
                if now >= sample_at:
                    sample_at = now + SAMPLE
                    self.core.counts.sample(now)
            except Disturbed as err:
                self.failure = err
                self._ended.set()
                return
            except (OSError, RmqError) as err:
                log.error("%s", err)
                await asyncio.sleep(_AFTER_AN_ERROR)

    def _end(self) -> int:
        return self.core.reading.end

    def _step(self) -> None:
        """What is due, for as long as requests may wait."""
        if self._services is not None:
            until = time.monotonic() + _SLICE
            self._services.step(lambda: time.monotonic() >= until)

    def _flush(self, flushed: int) -> int:
        """Make durable what was stored, or where groups are; up to where it is now."""
        if self._services is None:
            self.core.state.persist()
        elif self._end() != flushed:
            self.core.store.flush()
        return self._end()

    async def wait(self) -> None:
        """Until this broker cannot go on; :attr:`failure` says why."""
        await self._ended.wait()

    async def stop(self) -> None:
        """End the services, and write down what is known. The store stays open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._sending.store()
        if self.failure is None:
            self.core.state.persist()
