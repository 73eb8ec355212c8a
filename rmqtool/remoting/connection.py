"""One connection: requests and responses in both directions (netty.NettyRemotingAbstract)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, cast

from formats.errors import FormatError
from formats.remoting import frame
from formats.remoting.codes import MAX_FRAME, ResponseCode
from formats.remoting.frame import Command
from rmqtool.errors import RmqError
from rmqtool.remoting.errors import ConnectionLost, NoAnswer

log = logging.getLogger(__name__)

Answer: TypeAlias = Command | Awaitable[Command | None] | None
Handler: TypeAlias = "Callable[[Connection, Command], Answer]"
"""Answers a request: at once, or later where it gives an awaitable. None is no answer; one may still be sent later."""

_OPAQUE = 0x7FFFFFFF
_UNSENT = 1 << 20  # bytes waiting for a peer above which its requests are not read
_ONE_WRITE = 1 << 12  # most bytes of answers sent together
_GIVEN_UP = 4096  # unanswered requests that are remembered
_UNTIL_SENT = 0.01  # s between checks whether everything was sent
TLS_GOODBYE = 1.0  # s for a peer's TLS close, which Java does not send


@dataclass(frozen=True)
class PeerLimits:
    """Limits on what a peer may use.

    Attributes:
        idle: seconds without a byte in either direction until the connection is closed.
        stalled: seconds that a peer may take to read what waits for it, or to send the next byte of a frame.
        requests: requests of one connection that are worked on at a time; above that no more are read.
        turn: seconds of work for one connection before others get their turn.
        frame: most bytes of a frame.
    """

    idle: float = 120.0
    stalled: float = 30.0
    requests: int = 256
    turn: float = 0.002
    frame: int = MAX_FRAME


class Connection(asyncio.Protocol):
    """A connection of either side, as an event loop drives it.

    Attributes:
        peer: the other side, HOST:PORT.
        local: this side, HOST:PORT.
        closed: nothing more can be sent.

    Args:
        handler: answers requests; without one they are refused.
        ended: called once, when the connection has ended.
        strict: an unexpected response closes the connection, as others may have been mismatched.
    """

    def __init__(
        self,
        handler: "Handler | None" = None,
        limits: PeerLimits | None = None,
        ended: "Callable[[Connection], None] | None" = None,
        *,
        strict: bool = False,
    ) -> None:
        self.limits = limits or PeerLimits()
        self.peer = self.local = "unknown"
        self.closed = False
        self.lost = asyncio.Event()
        self._handler, self._ended = handler, ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()  # of a frame that is not complete yet
        self._reading = False
        self._paused = False  # no more is received for now
        self._next_turn: asyncio.Handle | None = None  # when it has had one, and more has been received
        self._outgoing: list[bytes] = []
        self._unsent = 0
        self._unread = 0  # bytes that waited for the peer at the last look
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._strict = strict
        self._given_up: dict[int, None] = {}  # requests whose response is no longer awaited, or never was
        self._working: set[asyncio.Task[None]] = set()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reason = "the peer closed the connection"
        self._next = 0
        self._last = self._progress = self._loop.time()
        self._watching: asyncio.TimerHandle | None = None

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Send a command without waiting for an answer; dropped if the connection is closed.

        Raises:
            BadLength: no frame holds it.
        """
        data = frame.build(command)
        # commands of one turn of the event loop are sent together
        if not (self._outgoing or self._reading):
            self._loop.call_soon(self._write_answers)
        self._outgoing.append(data)
        self._unsent += len(data)
        if self._unsent >= _ONE_WRITE:
            self._write_answers()

    def send_now(self, commands: Iterable[Command]) -> None:
        """As :meth:`send` for several commands, at once.

        Raises:
            BadLength: no frame holds one of them.
        """
        self._outgoing += map(frame.build, commands)
        if not self._reading:
            self._write_answers()

    def _write(self, data: bytes) -> None:
        if not self.closed and self._transport is not None:
            self._last = self._loop.time()
            self._transport.write(data)

    async def call(self, request: Command, timeout: float = 3.0) -> Command:
        """Send a request and wait for its response.

        Raises:
            NoAnswer: none within ``timeout`` seconds. The connection stays open; a late response is dropped.
            ConnectionLost: the connection is or was closed before the response.
        """
        opaque = self._number()
        answer: asyncio.Future[Command] = self._loop.create_future()
        self._waiting[opaque] = answer
        late = self._loop.call_later(timeout, _late, answer)
        try:
            if self.closed or not self._writable.is_set():
                async with asyncio.timeout(timeout):
                    await self._ready()
            self.send(request.request(opaque, oneway=False))
            return await answer
        except TimeoutError:
            raise NoAnswer(f"{self.peer}: no answer to request {request.code} within {timeout:g} s") from None
        finally:
            late.cancel()
            del self._waiting[opaque]
            if not answer.done() or answer.cancelled() or answer.exception() is not None:
                self._give_up(opaque)

    def _give_up(self, opaque: int) -> None:
        if not self._strict:
            return
        self._given_up[opaque] = None
        if len(self._given_up) > _GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]

    async def oneway(self, request: Command) -> None:
        """Send a one-way request.

        Raises:
            ConnectionLost: the connection is closed.
        """
        await self._ready()
        self._tell(request)

    def tell(self, request: Command) -> None:
        """As :meth:`oneway`, without flow control; dropped if the connection is closed."""
        self._tell(request)

    def _tell(self, request: Command) -> None:
        opaque = self._number()
        self._give_up(opaque)  # brokers answer some of those that they refuse
        self.send(request.request(opaque, oneway=True))

    async def _ready(self) -> None:
        """Wait until the peer has read enough."""
        await self._writable.wait()
        if self.closed:
            raise ConnectionLost(f"{self.peer}: the connection is closed")

    def _number(self) -> int:
        while self._next in self._waiting:
            self._next = (self._next + 1) & _OPAQUE
        number, self._next = self._next, (self._next + 1) & _OPAQUE
        return number

    # -- receiving ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNSENT)
        self.peer = _address(transport, "peername")
        self.local = _address(transport, "sockname")
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes: dispatch all complete commands."""
        self._progress = self._last = self._loop.time()
        self._received += data
        self._flow()

    @property
    def _halted(self) -> bool:
        """Whether reading is paused, as too many requests or answers are pending."""
        full = len(self._working) >= self.limits.requests or not self._writable.is_set()
        return full or self._next_turn is not None

    def _take_frames(self) -> None:
        at, ending = 0, self._loop.time() + self.limits.turn
        self._reading = True
        try:
            with memoryview(self._received) as view:
                while not (self.closed or self._halted):
                    if (parsed := frame.parse(view[at:], self.limits.frame)) is None:
                        break
                    at += parsed[1]
                    self._take(parsed[0])
                    if self._loop.time() >= ending:
                        self._next_turn = self._loop.call_soon(self._take_turn)
            del self._received[:at]
        except FormatError as err:
            log.warning("%s: no frame of the remoting protocol: %s; closed", self.peer, err)
            self.abort(f"no frame of the remoting protocol: {err}")
        finally:
            self._reading = False
            self._write_answers()

    def _take_turn(self) -> None:
        self._next_turn = None
        self._flow()

    def _write_answers(self) -> None:
        if self._outgoing:
            data = b"".join(self._outgoing)
            self._outgoing.clear()
            self._unsent = 0
            self._write(data)

    def _take(self, command: Command) -> None:
        if not command.is_response:
            self._answer(command)
            return
        answer = self._waiting.get(command.opaque)
        if answer is not None and not answer.done():
            answer.set_result(command)
            return
        log.debug("%s: a response that nobody waits for: %s", self.peer, command)
        given_up = answer is not None and (answer.cancelled() or answer.exception() is not None)
        if command.opaque in self._given_up:
            del self._given_up[command.opaque]
        elif self._strict and not given_up:
            log.warning("%s: a response that nobody waits for; closed", self.peer)
            self.abort("a response came that nobody waits for")

    def _answer(self, request: Command) -> None:
        try:
            answer = _refuse(request) if self._handler is None else self._handler(self, request)
        except Exception as err:  # a bad request must not end the connection or the server
            answer = self._error_response(request, err)
        if isinstance(answer, Command):
            self._respond(request, answer)
        elif answer is not None:
            task = self._loop.create_task(self._work(request, answer))
            self._working.add(task)
            task.add_done_callback(self._end_work)

    async def _work(self, request: Command, answer: Awaitable[Command | None]) -> None:
        try:
            response = await answer
        except Exception as err:
            response = self._error_response(request, err)
        if response is not None:
            self._respond(request, response)

    def _end_work(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._flow()

    def _error_response(self, request: Command, error: Exception) -> Command:
        if isinstance(error, (FormatError, RmqError)):
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        log.error("%s: request %s failed: %s: %s", self.peer, request.code, type(error).__name__, error)
        # paths must not be sent to a peer
        reason = error.strerror if isinstance(error, OSError) else error
        return request.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {reason}")

    def _respond(self, request: Command, response: Command) -> None:
        if request.is_oneway:
            return
        try:
            self.send(response)
        except FormatError as err:
            log.error("%s: the response to request %s cannot be sent: %s", self.peer, request.code, err)
            self.send(request.response(ResponseCode.SYSTEM_ERROR, str(err)))

    # -- flow ---------------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Stop reading until the peer has read some answers."""
        self._writable.clear()
        self._progress, self._unread = self._loop.time(), 0
        self._flow()

    def resume_writing(self) -> None:
        """Continue reading."""
        self._writable.set()
        self._flow()

    def _flow(self) -> None:
        """Dispatch received commands as far as limits allow, and resume reading once done."""
        if self._reading:
            return  # it looks by itself after each command
        if self._received:
            self._take_frames()
        if self.closed or self._transport is None:
            return
        if (halted := self._halted) is not self._paused:  # asking a transport for what it does already is not free
            self._paused = halted
            if halted:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _watch(self) -> None:
        """Check for idle and stalled peers."""
        if (reason := self._overdue()) is not None:
            self.abort(reason)
        else:
            self._watching = self._loop.call_later(min(self.limits.idle, self.limits.stalled) / 2, self._watch)

    def _overdue(self) -> str | None:
        now, limits = self._loop.time(), self.limits
        unread = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if not self._writable.is_set():
            if unread < self._unread:
                self._progress = now
            self._unread = unread
            return "it does not read what is sent" if now - self._progress >= limits.stalled else None
        if self._received and not self._halted and now - self._progress >= limits.stalled:
            return "the connection ended inside a frame"
        if now - self._last >= limits.idle and not self._working:
            return "no byte came for too long"
        return None

    # -- ending -------------------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail pending requests, and cancel running handlers."""
        if exc is not None and not self.closed:
            self._reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        elif self._received and not self.closed:
            self._reason = "the connection ended inside a frame"
        self.closed = True
        for timer in (self._watching, self._next_turn):
            if timer is not None:
                timer.cancel()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(f"{self.peer}: {self._reason}"))
        for task in self._working:
            task.cancel()
        self._writable.set()
        self._received = bytearray()  # an error on its way may still hold a view of the old one
        self.lost.set()
        if self._ended is not None:
            self._ended(self)

    def abort(self, reason: str = "the connection is closed") -> None:
        """Close at once, dropping unsent data."""
        if not self.closed:
            self.closed, self._reason = True, reason
            if self._transport is not None:
                self._transport.abort()

    async def close(self) -> None:
        """Close once everything is sent, or the peer stalls."""
        if self._transport is None or self.lost.is_set():
            return
        self._write_answers()
        self.closed, self._reason = True, "the connection is closed"
        try:
            async with asyncio.timeout(self.limits.stalled):
                while self._transport.get_write_buffer_size() and not self.lost.is_set():
                    await asyncio.sleep(_UNTIL_SENT)
                self._transport.close()
                await self.lost.wait()
        except TimeoutError:
            self._transport.abort()
            await self.lost.wait()


def _late(answer: "asyncio.Future[Command]") -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


def _refuse(request: Command) -> Command:
    remark = f" request type {request.code} not supported"
    return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def _address(transport: asyncio.BaseTransport, name: str) -> str:
    address = transport.get_extra_info(name)
    if not isinstance(address, tuple) or len(address) < 2:
        return "unknown"
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{address[1]}"
