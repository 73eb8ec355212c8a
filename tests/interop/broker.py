"""Start a complete real broker on a store, with name server and unmodified clients, and return what consumers got.

There are two: 5.3.3, and 4.9.8 as far as Maven Central has it (``broker_judge/pom.xml`` lists the origins), and by name
5.4.0, 5.5.0 and, in part, 5.5.1. The Java
program is in ``broker_judge/``; it is built like the client judge of :mod:`tests.interop.client`.
"""

import json
import signal
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
# Maven Central has only some parts of a release; the others are of the one before it
_SHELLS = {"5.5.1": {"shell": "5.5.0", "rocketmq": "5.5.0"}}
_PAUSE = 0.2  # s
_REBALANCE = 2000  # ms between two looks of Java's consumers at their queues; 20 s unless told, too long for a test


@cache
def available(version: str) -> str | None:
    """Why the broker is unavailable here, or None. Builds the judge."""
    try:
        _classpath(version)
    except engine.Unavailable as err:
        return str(err)
    return None


def _classpath(version: str) -> str:
    names = ("broker", "core") if version in _SHELLS else ("shell", "rocketmq")
    versions = {} if version in VERSIONS else dict.fromkeys(names, version) | _SHELLS.get(version, {})
    options = [f"-D{name}.version={part}" for name, part in versions.items()]
    return client.built(_SOURCES, f"broker-{version}", f"-Pv{version[0]}", *options)


SMALL_FILES = {"mappedFileSizeCommitLog": 8 << 20, "mappedFileSizeConsumeQueue": 60_000}  # settings of most tests


class Broker:
    """One JVM, for any number of :meth:`boot` and :meth:`stop`.

    Args:
        options: options of the JVM.

    Attributes:
        engine: the release whose rules it follows, as in :class:`rmqtool.Store`.
        namesrv: address of the running broker's name server.
        turn: number of boots and connects: if it has changed, somebody else has taken the JVM.
        offsets: directory of offset files of broadcasting consumers.
        settings: the file that the broker writes all settings to when one is changed.
    """

    def __init__(self, version: str, *options: str) -> None:
        self.engine = version.rpartition(".")[0]
        self._home = tempfile.TemporaryDirectory(prefix="broker-judge-")
        self.log, self.offsets = Path(self._home.name, "said"), Path(self._home.name, "offsets")
        self.settings = Path(self._home.name, "store", "config", "broker.properties")
        self._running, self.namesrv, self.turn = False, "", 0
        with open(self.log, "wb") as output:
            self._jvm = subprocess.Popen(
                [engine._java_tool("java"), *engine._JVM_OPTIONS, f"-Duser.home={self._home.name}",
                 f"-Drocketmq.client.rebalance.waitInterval={_REBALANCE}",
                 "-Dtls.server.mode=disabled",  # else each server that starts makes itself an RSA key, for seconds
                 *options, "-Drocketmq.client.logUseSlf4j=false", f"-Drocketmq.client.logRoot={self._home.name}/logs",
                 f"-Drocketmq.client.localOffsetStoreDir={self.offsets}",
                 "-cp", _classpath(version), "judge.Broker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, cwd=self._home.name, encoding="utf-8",
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._jvm.pid

    def ask(self, command: str, **request: Any) -> Any:
        """Send a request to the judge; returns its answer.

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

    def boot(self, store: Path, config: dict[str, Any], **more: str | bool) -> None:
        """Start a broker on a store, after stopping one left running by a failed test.

        Args:
            more: ``namesrv``: further name servers to register with; ``waits=False``: do not wait for a master.
        """
        if self._running:
            self.stop()
        booted = self.ask("boot", store=str(store), config={name: str(value) for name, value in config.items()}, **more)
        self.namesrv = booted["namesrv"]
        self._running, self.turn = True, self.turn + 1

    def connect(self, namesrv: str, broker: str) -> None:
        """Use the clients with another running broker, until :meth:`stop`."""
        if self._running:
            self.stop()
        self.ask("connect", namesrv=namesrv, broker=broker)
        self._running, self.turn = True, self.turn + 1

    def stop(self) -> None:
        """Stop it cleanly."""
        self._running = False
        self.ask("stop")

    def wait_for(self, enough: Callable[[list[dict[str, Any]]], bool], seconds: float = 180) -> list[dict[str, Any]]:
        """What the consumers have got, as soon as it is enough, or at the time limit.

        The limit is long enough for a busy machine. Pauses are counted, not the clock, so that time during a stall does
        not count.
        """
        for _ in range(int(seconds / _PAUSE)):
            if enough(self.ask("seen")):
                break
            time.sleep(_PAUSE)
        seen: list[dict[str, Any]] = self.ask("seen")
        return seen

    def kill(self) -> None:
        """Kill the JVM; only :meth:`__exit__` may follow."""
        self._jvm.kill()
        self._jvm.wait()

    def pause(self) -> None:
        """Stop the JVM where it is, so that nobody gets an answer of it; until :meth:`resume` nothing may be asked."""
        self._jvm.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the JVM go on."""
        self._jvm.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._jvm.communicate(timeout=30)  # its stdin ends, and so does it
        except subprocess.TimeoutExpired:
            self._jvm.kill()
            self._jvm.communicate()
        self._home.cleanup()
