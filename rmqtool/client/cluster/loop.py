"""An event loop in its own thread, for use without asyncio."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Opened(Protocol):
    """An object that is opened and closed in an event loop."""

    async def __aenter__(self) -> Self:
        """Open it."""

    async def close(self) -> None:
        """Close it."""


Inner = TypeVar("Inner", bound=Opened)


def fast_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop if it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Loop:
    """An event loop in its own thread.

    Args:
        make: creates it.
    """

    def __init__(self, make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        self._loop = make()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rmqtool-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; it is cancelled if the wait is interrupted."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def is_here(self) -> bool:
        """Whether the caller is in the event loop's thread."""
        return threading.current_thread() is self._thread

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
    """A synchronous face of a client's object. Use as a context manager, or call :meth:`close`.

    Args:
        make: creates the object, in the event loop.
    """

    def __init__(self, make: Callable[[], Inner]) -> None:
        async def open_inner() -> Inner:
            return await make().__aenter__()

        self._loop = Loop()
        try:
            self._inner = self._loop.run(open_inner())
        except BaseException:
            self._loop.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, commit offsets, and close the connections."""
        try:
            self._loop.run(self._inner.close())
        finally:
            self._loop.close()


def waits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that waits for the coroutine of the inner object."""

    @wraps(method)
    def wait(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = face._loop.run(getattr(face._inner, method.__name__)(*args, **kwargs))
        return result

    return wait


def starts(method: Callable[Concatenate[Any, P], Awaitable[T]]) -> Callable[Concatenate[Any, P], "Future[T]"]:
    """A method that starts the coroutine of the inner object and returns a future."""

    @wraps(method)
    def start(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        async def work() -> T:
            return await inner(*args, **kwargs)

        inner: Callable[P, Awaitable[T]] = getattr(face._inner, method.__name__)
        result: Future[T] = face._loop.start(work())
        return result

    return start


def calls(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method that calls the inner object in the event loop's thread."""

    @wraps(method)
    def call(face: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            return inner(*args, **kwargs)

        inner: Callable[P, T] = getattr(face._inner, method.__name__)
        if face._loop.is_here():  # called from that thread, for example by a watcher
            return inner(*args, **kwargs)
        result: T = face._loop.run(work())
        return result

    return call
