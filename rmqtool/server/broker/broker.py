"""A broker on a store: it answers requests and runs the background services.

Source: broker.BrokerController (4.9.8, 5.3.3).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.topics import SCHEDULE
from rmqtool.errors import RmqError
from rmqtool.remoting.connection import Answer, Connection
from rmqtool.server.access.rights import AclPermission, needs_of
from rmqtool.server.broker.admin.absent import Absent
from rmqtool.server.broker.admin.access import AccessRequests
from rmqtool.server.broker.admin.control import Control
from rmqtool.server.broker.admin.lite import LiteAdmin
from rmqtool.server.broker.admin.status import Status
from rmqtool.server.broker.admin.tables import TableRequests
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.clients import Clients
from rmqtool.server.broker.context.counts import SAMPLE
from rmqtool.server.broker.context.settings import BrokerSettings
from rmqtool.server.broker.context.throttled_log import ThrottledLog
from rmqtool.server.broker.requests.consuming import Consuming
from rmqtool.server.broker.requests.lite import LiteRequests
from rmqtool.server.broker.requests.lookups import Lookups
from rmqtool.server.broker.requests.pop_answers import PopAnswers
from rmqtool.server.broker.requests.popping import Pops
from rmqtool.server.broker.requests.positions import OffsetRequests
from rmqtool.server.broker.requests.pulling import Pulling
from rmqtool.server.broker.requests.recalling import Recalling
from rmqtool.server.broker.requests.replying import Replying
from rmqtool.server.broker.requests.sending import Sending
from rmqtool.server.broker.requests.transactions import TransactionRequests, ask_producer
from rmqtool.server.broker.table import REQUESTS
from rmqtool.server.dispatch.table import bind, refuse_unknown
from rmqtool.services.open_store.following import Following
from rmqtool.services.open_store.opened import read_store
from rmqtool.services.open_store.store import Store
from rmqtool.services.popping import service as pop
from rmqtool.services.popping.assigning import RequestModes
from rmqtool.services.popping.in_memory import MemoryPops
from rmqtool.services.popping.settings import PopSettings
from rmqtool.services.retries.send_back import SendBackStore
from rmqtool.services.serving.drained_state import DrainedState, FollowedState
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.transactions.service import TransactionService
from rmqtool.store.disk.durable import is_lacking
from rmqtool.store.disk.lock import Disturbed

if TYPE_CHECKING:
    from rmqtool.server.access.control import AccessControl

log = logging.getLogger(__name__)

_TICK = 0.1  # s between runs of the services
_SLICE = 0.05  # s that the services may take at a time
_FLUSH = 1.0  # s between flushes
_LOOK = 1.0
_EXPIRE = 10.0
_AFTER_AN_ERROR = 1.0


class Broker:
    """A broker on a store.

    Args:
        store: open for writing, unless ``state`` is given. The caller closes it.
        state: the tables of a read-only or followed store; then nothing is stored.
        random: chooses queues.
        accounts: the file plain_acl.yml; None for no access control.

    Raises:
        CorruptFile: the accounts are not valid for a broker.
        UnreadableStore: they cannot be read.
    """

    def __init__(
        self,
        store: Store,
        settings: BrokerSettings,
        *,
        state: DrainedState | None = None,
        random: Random | None = None,
        accounts: str | None = None,
    ) -> None:
        clients, throttled, random = Clients(), ThrottledLog(log), random or Random()
        self._services: RunLoop | None = None
        if state is None:
            ask = partial(ask_producer, clients, settings.release)
            self._services = services = RunLoop(store, throttled.warn, ask, check_at_once=False)
            services.state.at_once = True
            tables, halves = services.state, services.transactions
        else:
            tables, halves = state, TransactionService(store, state, throttled.warn)
        reading = Following(store) if isinstance(state, FollowedState) else read_store(store)
        self.context = context = BrokerContext(settings, store, tables, reading, clients, throttled)
        context.suppose_topics()
        context.arrivals.subscribe(self._look_at_delayed)
        self._access = None if accounts is None else _access_control(accounts, context)
        back = SendBackStore(store, tables, random)
        self._sending, self._pulling = Sending(context, back, halves, random), Pulling(context)
        self._consuming, positions = Consuming(context, back), OffsetRequests(context)
        self.status = Status(context, checks_accounts=accounts is not None)
        control = Control(context, positions, None if self._services is None else self._services.state)
        parts: list[object] = [
            self._sending, Replying(context, self._sending), self._pulling, self._consuming, positions,
            TransactionRequests(context, halves), Lookups(context), TableRequests(context), self.status,
            control, AccessRequests(context, self._access),
        ]  # fmt: skip
        self._pop: pop.PopService | MemoryPops | None = None
        self._pops: Pops | None = None
        self._lite: LiteRequests | None = None
        if context.release.is_5:
            self._pops, answers, self._lite = self._make_pops(random)
            parts += [self._pops, answers, Recalling(context), Absent(context)]
            if self._lite is not None:
                parts += [self._lite, LiteAdmin(context, self._lite.service)]
        self._handlers = bind(parts, context.release)
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self.failure: Exception | None = None

    def _make_pops(self, random: Random) -> tuple[Pops, PopAnswers, LiteRequests | None]:
        """The handlers of POP (5.x). Of a read-only store what is handed out is kept in memory."""
        context, services = self.context, self._services
        if isinstance(context.state, FollowedState):
            settings = PopSettings.of(context.store.layout.conf)
            modes = RequestModes(context.state, settings, pull_only=True)
            return Pops(context, None), PopAnswers(context, None, modes, settings), None
        broker = pop.PopBroker(
            name=context.settings.name,
            cluster=context.settings.cluster,
            address=context.settings.address,
            arrived=context.arrivals.publish,
            freed=context.freed_queues.publish,
            expired=self._announce_expired,
            topic_made=context.topic_changes.publish,
            in_time=services.is_timer_in_time if services is not None else lambda: True,
        )
        kind = pop.PopService if services is not None else MemoryPops
        self._pop = service = kind(
            context.store, context.reading, context.state, broker, context.log.warn,
            resets=context.resets, random=random,
        )  # fmt: skip
        lite = None
        if context.release.knows_lite_topics:
            lite = LiteRequests(context, service.records, service.settings, random)
        answers = PopAnswers(context, service.finishing, service.modes, service.settings, lite)
        return Pops(context, service.popping), answers, lite

    def _announce_expired(self, topic: str, group: str, queue_id: int) -> None:
        if self.context.settings.notify_after_lock:
            self.context.freed_queues.publish(topic, group, queue_id)

    # -- requests -----------------------------------------------------------------------------------------------------

    def handle(self, connection: Connection, request: Command) -> Answer:
        """Answer one request."""
        handler = self._handlers.get(request.code)
        changes = len(self.context.state.changed_topics)
        try:
            if self._access is not None:
                self._access.check(connection.peer, request, partial(self._find_needs, connection, request))
            response = refuse_unknown(request) if handler is None else handler(connection, request)
        except Failed as err:
            response = err.answer(request)
        except (OSError, RmqError) as err:
            response = self._failure_of(request, err)
        if response is None:
            return None
        if isinstance(response, Command):
            response.version = self.context.release.mq_version
            if len(self.context.state.changed_topics) > changes and self.context.announced is not None:
                return self._answer_when_announced(response, self.context.announced())
            return response
        return self._await_answer(request, response)

    async def _answer_when_announced(self, response: Command, announced: Awaitable[None]) -> Command:
        """A response to a request that has changed topics: name servers know them first."""
        await announced
        return response

    def _find_needs(self, connection: Connection, request: Command) -> dict[str, AclPermission] | None:
        row = REQUESTS.get(request.code)
        if row is None or row.right is None:
            return None
        return needs_of(row.right, self.context, row.read(connection, request))

    async def _await_answer(self, request: Command, response: Awaitable[Command | None]) -> Command | None:
        try:
            answer = await response
        except Failed as err:
            answer = err.answer(request)
        except (OSError, RmqError) as err:
            answer = self._failure_of(request, err)
        if answer is not None:
            answer.version = self.context.release.mq_version
        return answer

    def _failure_of(self, request: Command, error: OSError | RmqError) -> Command:
        """The answer to a request that failed with an error of the store."""
        code = ResponseCode.SERVICE_NOT_AVAILABLE if is_lacking(error) else ResponseCode.SYSTEM_ERROR
        return self.context.failure(f"request {request.code} cannot be carried out", error, code).answer(request)

    def end_connection(self, connection: Connection) -> None:
        """Forget the clients of a closed connection."""
        self._consuming.end_connection(connection)

    def _look_at_delayed(self, topic: str, _queue_id: int) -> None:
        if topic == SCHEDULE and self._services is not None:
            self._services.look_again()

    # -- services -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the background services."""
        self._tasks.append(asyncio.create_task(self._serve()))
        if self._access is not None:
            self._tasks.append(asyncio.create_task(self._access.watch()))

    async def _serve(self) -> None:
        flush_at = look_at = expire_at = sample_at = time.monotonic()
        stored = self._end()
        well = True
        while not self._ended.is_set():
            await asyncio.sleep(_TICK if well else _AFTER_AN_ERROR)
            well = self._run(self._step) & self._run(self._persist) & self._run(self._follow)
            now = time.monotonic()
            if (end := self._end()) != stored or now >= look_at:
                stored, look_at = end, now + _LOOK
                for job in (self._follow_tables, self._bring_back, self._pulling.look):
                    well &= self._run(job)
                if self._pops is not None:
                    well &= self._run(self._pops.look)
            if self._pops is not None:
                well &= self._run(self._pops.expire)
            if self._lite is not None:
                well &= self._run(self._lite.expire) & self._run(self._lite.service.look)
            if now >= flush_at:
                flush_at = now + _FLUSH
                well &= self._run(self._flush)
            if now >= expire_at:
                expire_at = now + _EXPIRE
                well &= self._run(self._consuming.expire)
                if self._lite is not None:
                    well &= self._run(self._lite.forget_silent)
            if now >= sample_at:
                sample_at = now + SAMPLE
                well &= self._run(partial(self.context.counts.sample, now))

    def _run(self, job: Callable[[], object]) -> bool:
        """Run one service; returns whether it succeeded.

        The other services run in any case: messages are flushed even if some cannot be delivered.
        """
        try:
            job()
        except Exception as found:
            err = found
            if isinstance(found, Disturbed) and self._services is not None:
                err = self.context.store.live.stop_disturbed(
                    found
                )  # a table could not be written; the log has the details
            self.context.log.error(f"{err}" if isinstance(err, (OSError, RmqError)) else f"{type(err).__name__}: {err}")
            if isinstance(err, Disturbed) or (self._services is not None and self.context.store.live.broken):
                self.failure = self.failure or err
                self._ended.set()
            return False
        return True

    def _follow(self) -> None:
        """Answer pulls for messages that another broker has stored meanwhile."""
        if isinstance(reading := self.context.reading, Following):
            for topic, queue_id in reading.look().grown:
                self._pulling.wake(topic, queue_id)

    def _follow_tables(self) -> None:
        if isinstance(state := self.context.state, FollowedState):
            changed = state.look()
            if self.context.static_topics.look() or changed:
                self.context.topic_changes.publish()

    def _end(self) -> int:
        return self.context.reading.end

    def _step(self) -> None:
        """Deliver what is due, for as long as requests may wait."""
        if self._services is not None:
            until = time.monotonic() + _SLICE
            self._services.step(lambda: time.monotonic() >= until)

    def _persist(self) -> None:
        """Write down the offsets of groups, even if messages cannot be delivered."""
        if self._services is not None:
            self._services.persist_when_due()

    def _bring_back(self) -> None:
        """Bring back messages that were popped but not acked in time."""
        if self._pop is not None:
            until = time.monotonic() + _SLICE
            self._pop.step(lambda: time.monotonic() >= until)

    def _flush(self) -> None:
        """Flush stored messages, or the offsets of groups."""
        if self._services is None:
            self.context.state.persist()
            return
        self.context.store.live.flush_beside()

    async def wait(self) -> None:
        """Wait until this broker cannot continue; :attr:`failure` says why."""
        await self._ended.wait()

    async def stop(self) -> None:
        """Stop the services and write the tables. The store stays open."""
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


def _access_control(accounts: str, context: BrokerContext) -> "AccessControl":
    from rmqtool.server.access.control import AccessControl  # loads PyYAML

    return AccessControl(accounts, context.clock)
