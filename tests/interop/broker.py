"""A whole real broker, with its name server and unmodified clients, on a store: boots it, and says what consumers got.

There are two: 5.3.3, and 4.9.8 as far as Maven Central has it (``broker_judge/pom.xml`` says what comes from where).
The Java program is in ``broker_judge/``; it is built like the client judge of :mod:`tests.interop.client`.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.interop import client, engine

_SOURCES = Path(__file__).with_name("broker_judge")
VERSIONS = ("4.9.8", "5.3.3")
_PAUSE = 0.2  # s
_REBALANCE = 2000  # ms between two looks of Java's consumers at their queues; 20 s unless told, too long for a test


@cache
def available(version: str) -> str | None:
    """Why the broker cannot be used here; None if it can. Builds the judge."""
    try:
        _classpath(version)
    except engine.Unavailable as err:
        return str(err)
    return None


def _classpath(version: str) -> str:
    versions = () if version in VERSIONS else (f"-Drocketmq.version={version}", f"-Dshell.version={version}")
    return client.built(_SOURCES, f"broker-{version}", f"-Pv{version[0]}", *versions)


class Broker:
    """One JVM; :meth:`boot` and :meth:`stop` as often as wanted.

    Args:
        options: of the JVM.

    Attributes:
        engine: whose rules it goes by, as :class:`rmqtool.Store` names them.
        namesrv: address of the name server of a broker that was booted.
        turn: how often it was booted or connected: who finds another number has been driven out.
        offsets: folder of the files in which broadcasting consumers keep their offsets.
    """

    def __init__(self, version: str, *options: str) -> None:
        self.engine = version.rpartition(".")[0]
        self._home = tempfile.TemporaryDirectory(prefix="broker-judge-")
        self.log, self.offsets = Path(self._home.name, "said"), Path(self._home.name, "offsets")
        self._running, self.namesrv, self.turn = False, "", 0
        with open(self.log, "wb") as said:
            self._jvm = subprocess.Popen(
                [engine._java_tool("java"), *engine._JVM_OPTIONS, f"-Duser.home={self._home.name}",
                 f"-Drocketmq.client.rebalance.waitInterval={_REBALANCE}",
                 "-Dtls.server.mode=disabled",  # else each server that starts makes itself an RSA key, for seconds
                 *options, "-Drocketmq.client.logUseSlf4j=false", f"-Drocketmq.client.logRoot={self._home.name}/logs",
                 f"-Drocketmq.client.localOffsetStoreDir={self.offsets}",
                 "-cp", _classpath(version), "judge.Broker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, cwd=self._home.name, encoding="utf-8",
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._jvm.pid

    def ask(self, command: str, **request: Any) -> Any:
        """The judge's answer.

        Raises:
            AssertionError: the broker or a client threw.
        """
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps({"command": command, **request}) + "\n")
        self._jvm.stdin.flush()
        answer = json.loads(self._jvm.stdout.readline() or '{"error": "it has ended"}')
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{answer['error']}: {self.log.read_text()[-3000:]}")
        return answer

    def boot(self, store: Path, config: dict[str, Any], **more: str) -> None:
        """Start a broker on a store; one that a failed test has left running is stopped first.

        Args:
            more: ``namesrv``, name servers beside its own that are to know of it.
        """
        if self._running:
            self.stop()
        booted = self.ask("boot", store=str(store), config={name: str(value) for name, value in config.items()}, **more)
        self.namesrv = booted["namesrv"]
        self._running, self.turn = True, self.turn + 1

    def connect(self, namesrv: str, broker: str) -> None:
        """Use the clients against a broker that runs elsewhere, until :meth:`stop`."""
        if self._running:
            self.stop()
        self.ask("connect", namesrv=namesrv, broker=broker)
        self._running, self.turn = True, self.turn + 1

    def stop(self) -> None:
        """Stop it cleanly."""
        self._running = False
        self.ask("stop")

    def wait_for(self, enough: Callable[[list[dict[str, Any]]], bool], seconds: float = 180) -> list[dict[str, Any]]:
        """What the consumers have got, as soon as it is enough; else what they have got in the end.

        The time is long for a machine that is busy with other things. Pauses are counted, not the clock: on one that
        stands still nobody has had his time.
        """
        for _ in range(int(seconds / _PAUSE)):
            if enough(self.ask("seen")):
                break
            time.sleep(_PAUSE)
        seen: list[dict[str, Any]] = self.ask("seen")
        return seen

    def kill(self) -> None:
        """As if its machine were gone; only :meth:`__exit__` follows."""
        self._jvm.kill()
        self._jvm.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._jvm.communicate(timeout=30)  # its stdin ends, and so does it
        except subprocess.TimeoutExpired:
            self._jvm.kill()
            self._jvm.communicate()
        self._home.cleanup()
