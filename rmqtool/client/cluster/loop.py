"""An event loop in a thread of its own, for objects that are used without asyncio."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")


class Opened(Protocol):
    """What is opened and closed in an event loop."""

    async def __aenter__(self) -> Self:
        """Open it."""

    async def close(self) -> None:
        """Close it."""


Inner = TypeVar("Inner", bound=Opened)


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rmqtool-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, which is cancelled when the wait for it is interrupted."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Face(Generic[Inner]):
    """Something of the client for programs without asyncio. Use as a context manager, or call :meth:`close`.

    Args:
        make: makes it, in the event loop.
    """

    def __init__(self, make: Callable[[], Inner]) -> None:
        async def opened() -> Inner:
            return await make().__aenter__()

        self._loop = Loop()
        try:
            self._inner = self._loop.run(opened())
        except BaseException:
            self._loop.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group if there is one, keep what is to be kept, and close the connections."""
        try:
            self._loop.run(self._inner.close())
        finally:
            self._loop.close()

    def _now(self, call: Callable[[], T]) -> T:
        """The result of a function that is to run in the event loop's thread."""

        async def called() -> T:
            return call()

        return self._loop.run(called())
