"""A real broker and ours in parallel, with separate clients, to run the same programs on both."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import examine
from tests.interop.broker import Broker
from tests.interop.serving import Serving

Program = Callable[[Broker], Any]
SETTINGS = """\
mappedFileSizeCommitLog=8388608
mappedFileSizeConsumeQueue=60000
transactionCheckInterval=1000
transactionTimeOut=1000
brokerFastFailureEnable=false
enablePropertyFilter=true
"""


class Pair:
    """Both brokers, running.

    Args:
        broker: JVM of the real broker.
        clients: JVM of our broker's clients.
        folder: directory for the stores ``real`` and ``ours``.
        settings: settings of both, as lines of a broker's file.
    """

    def __init__(self, broker: Broker, clients: Broker, folder: Path, settings: str) -> None:
        self.broker, self.clients, self.store, self.settings = broker, clients, folder / "ours", settings
        conf, real = folder / "broker.conf", folder / "real"
        conf.write_text(settings)
        real.mkdir()
        broker.boot(real, dict(line.split("=") for line in settings.split()))
        self._serving = Serving(self.store, "--create", "--engine", clients.engine, "--broker-conf", str(conf))
        clients.connect(self._serving.namesrv, self._serving.broker)
        self._turns = broker.turn, clients.turn

    @property
    def stands(self) -> bool:
        """Whether nobody else has taken over one of the JVMs."""
        return self._turns == (self.broker.turn, self.clients.turn)

    def run(self, program: Program) -> tuple[Any, Any]:
        """Run a program on the real broker and on ours in parallel, as programs mostly wait; returns both results.

        A program must use its own topics and groups; those of other programs still exist.
        """

        def one(side: Broker) -> Any:
            try:
                return program(side)
            finally:
                side.ask("rest")
                shutil.rmtree(side.offsets, ignore_errors=True)  # of consumers that get everything

        with ThreadPoolExecutor(1) as beside:
            wanted = beside.submit(one, self.broker)
            got = one(self.clients)
            return wanted.result(), got

    def close(self) -> None:
        """Stop both.

        Raises:
            AssertionError: ours did not end properly, or its store is not in order.
        """
        with self._serving as serving:
            for side, turn in zip((self.broker, self.clients), self._turns, strict=True):
                if side.turn == turn:
                    side.stop()
            code, stderr = serving.end()
        assert code == 0, stderr
        assert "Traceback" not in stderr, stderr
        report = examine(StoreLayout(str(self.store))).report
        assert report.clean, report


class Pairs:
    """Running pairs, one per real broker; a pair is replaced if settings differ."""

    def __init__(self) -> None:
        self._pairs: dict[Broker, tuple[Pair, TemporaryDirectory[str]]] = {}

    def run(self, broker: Broker, clients: Broker, program: Program, more: str = "") -> tuple[Any, Any]:
        """See :meth:`Pair.run`.

        Args:
            more: further settings of both, as lines.
        """
        pair = self._pairs[broker][0] if broker in self._pairs else None
        if pair is None or not pair.stands or pair.settings != SETTINGS + more:
            self._close(broker)
            folder = TemporaryDirectory(prefix="pair-")
            pair = Pair(broker, clients, Path(folder.name), SETTINGS + more)
            self._pairs[broker] = pair, folder
        return pair.run(program)

    def _close(self, broker: Broker) -> None:
        if broker in self._pairs:
            pair, folder = self._pairs.pop(broker)
            with folder:
                pair.close()

    def close(self) -> None:
        """Stop all pairs."""
        for broker in list(self._pairs):
            self._close(broker)
