"""The page for Prometheus, over HTTP."""

import asyncio
import logging
from contextlib import suppress

from prometheus_client.exposition import choose_encoder

from rmqtool.errors import Refused, RmqError
from rmqtool.server.broker.broker import Broker
from rmqtool.server.metrics.families import Families, MetricsSnapshot

log = logging.getLogger(__name__)

_HEAD_PATIENCE = 5.0  # s for a request, from the connection to its last byte
_PATIENCE = 60.0  # s for one request from its first byte to the last of the answer
_MOST = 32  # most connections; for another, the longest idle one is closed
_HEAD = 16 << 10  # bytes of a request
_FRESH = 1.0  # s for which a snapshot is reused


class MetricsPage:
    """Serves ``/metrics`` of one broker; values are gathered on request.

    Attributes:
        address: HOST:PORT, once started.
    """

    def __init__(self, broker: Broker) -> None:
        self._families = Families(broker)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: dict[asyncio.Task[None], None] = {}  # idle connections, longest first
        self._lock = asyncio.Lock()
        self._known: tuple[float, MetricsSnapshot] | None = None
        self.address = ""

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            Refused: the address is in use, or not one of this machine.
        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_HEAD)
        except OSError as err:
            raise Refused(f"metrics {host}:{port}: {err.strerror or err}") from None
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if self._has_room(task):
                async with asyncio.timeout(_PATIENCE):
                    async with asyncio.timeout(_HEAD_PATIENCE):
                        head = await reader.readuntil(b"\r\n\r\n")
                    self._idle.pop(task, None)
                    writer.write(await self._answer(head))
                    self._idle[task] = None
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()  # the client is slow, gone, or does not speak HTTP
        except asyncio.CancelledError:  # closed for another connection or at the end; streams would log it
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            self._idle.pop(task, None)
            with suppress(OSError):
                writer.close()

    def _has_room(self, task: asyncio.Task[None]) -> bool:
        """Whether a new connection may stay; closes an idle one if there are too many."""
        if len(self._tasks) >= _MOST:
            longest = next(iter(self._idle), None)
            if longest is None:
                return False
            del self._idle[longest]
            self._tasks.discard(longest)
            longest.cancel()
        self._tasks.add(task)
        self._idle[task] = None
        return True

    async def _answer(self, head: bytes) -> bytes:
        first, *lines = head.decode("latin-1").split("\r\n")
        parts = first.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/"):
            return _response("400 Bad Request", b"")
        method, target = parts[0], parts[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", b"")
        if target not in ("/metrics", "/"):
            return _response("404 Not Found", b"the metrics are at /metrics\n")
        accepted = next((line.partition(":")[2].strip() for line in lines if line.lower().startswith("accept:")), "")
        encode, kind = choose_encoder(accepted)
        try:
            snapshot = await self._snapshot()
            body = await asyncio.to_thread(encode, snapshot.registry())
        except (OSError, RmqError) as err:
            log.error("metrics cannot be read: %s", err)
            return _response("500 Internal Server Error", f"{err}\n".encode())
        return _response("200 OK", body, kind, head_only=method == "HEAD")

    async def _snapshot(self) -> MetricsSnapshot:
        """A recent snapshot, so that many requests cost no more than one."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._known is None or loop.time() - self._known[0] > _FRESH:
                self._known = loop.time(), await self._families.snapshot()
            return self._known[1]


def _response(status: str, body: bytes, kind: str = "text/plain; charset=utf-8", *, head_only: bool = False) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("latin-1") + (b"" if head_only else body)
