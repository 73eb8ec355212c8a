"""The client for programs without asyncio: the same names, each call returns when it is done.

Every object has an event loop in a thread of its own, and may be used from any thread.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Self, TypeVar

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.producing import producer
from rmqtool.client.producing.message import Message, SendResult
from rmqtool.client.producing.producer import BATCH_BYTES, ProducerOptions, Select

T = TypeVar("T")


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rmqtool-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, which is cancelled when the wait for it is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Producer:
    """As :class:`rmqtool.client.producing.producer.Producer`. Use as a context manager, or call :meth:`close`."""

    def __init__(
        self, client: str | ClientOptions, group: str = "rmqtool-producer", options: ProducerOptions | None = None
    ) -> None:
        self._loop = Loop()
        try:
            self._producer = self._loop.run(self._open(client, group, options))
        except BaseException:
            self._loop.close()
            raise

    @staticmethod
    async def _open(client: str | ClientOptions, group: str, options: ProducerOptions | None) -> producer.Producer:
        return await producer.Producer(client, group, options).__aenter__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, and close the connections."""
        try:
            self._loop.run(self._producer.close())
        finally:
            self._loop.close()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of a topic may go to."""
        return self._loop.run(self._producer.queues(topic))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message; it is stored when this returns."""
        return self._loop.run(self._producer.send(message, queue=queue, select=select, timeout=timeout))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout: float | None = None,
        limit: int = BATCH_BYTES,
    ) -> list[SendResult]:
        """Send messages of one topic together, in as few requests as hold them; a result for each message."""
        sending = self._producer.send_batch(messages, queue=queue, select=select, timeout=timeout, limit=limit)
        return self._loop.run(sending)

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None, select: Select | None = None) -> str:
        """Send a message without an answer: whether it is stored is not known. Its unique id."""
        return self._loop.run(self._producer.send_oneway(message, queue=queue, select=select))

    def recall(self, topic: str, handle: str, broker_name: str) -> str:
        """Call back a message that still waits for its time (5.x). Its unique id."""
        return self._loop.run(self._producer.recall(topic, handle, broker_name))
