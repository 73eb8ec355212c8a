"""A broker in its own thread."""

import asyncio
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rmqtool.rules.releases import NEWEST, Release
from rmqtool.server.serve import Served, ServeOptions

_PATIENCE = 60.0  # s for the start and for the end


@dataclass(frozen=True)
class TestBroker:
    """A running broker.

    Attributes:
        namesrv: address of its name server, HOST:PORT.
        address: of the broker itself.
        store: its store directory.
    """

    __test__ = False  # not a class of tests

    namesrv: str
    address: str
    store: str


@contextmanager
def broker(
    store: str | os.PathLike[str] | None = None,
    *,
    settings: dict[str, str] | None = None,
    release: Release = NEWEST,
    name: str = "broker-a",
    cluster: str = "DefaultCluster",
) -> Iterator[TestBroker]:
    """A broker with its name server, on free local ports, while the context lasts.

    Args:
        store: directory of its store, created if it does not exist; None for a temporary one.
        settings: of the broker, by the names of its properties file.
        release: the release to behave as if the store does not show one.

    Raises:
        Refused: the store is in use, or not healthy.
    """
    with ExitStack() as stack:
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqtool-broker-"))
            store = os.path.join(folder, "store")
        conf = {"mappedFileSizeCommitLog": str(64 << 20), "mappedFileSizeConsumeQueue": "600000", **(settings or {})}
        new = not os.path.lexists(store)
        options = ServeOptions(
            broker_conf=conf if new else settings or {},
            listen=("127.0.0.1", 0),
            namesrv_listen=("127.0.0.1", 0),
            name=name,
            cluster=cluster,
            create=True,
            release=release if new else None,
        )
        running = _Running(os.fspath(store), options)
        stack.callback(running.stop)
        yield running.start()


class _Running:
    def __init__(self, store: str, options: ServeOptions) -> None:
        self._store, self._options = store, options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._ready = threading.Event()
        self._served: TestBroker | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rmqtool-broker", daemon=True)

    def start(self) -> TestBroker:
        self._thread.start()
        if not self._ready.wait(_PATIENCE):
            raise TimeoutError(f"the broker was not ready within {_PATIENCE:g} s")
        if self._served is None:
            assert self._error is not None
            raise self._error
        return self._served

    def stop(self) -> None:
        if self._loop is not None and self._end is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as err:  # raised in the thread that started the broker
            self._error = err
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with Served(self._store, self._options) as served:
            self._served = TestBroker(served.name_servers[0], served.broker_address, os.path.abspath(self._store))
            self._ready.set()
            await self._end.wait()
