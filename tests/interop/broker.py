"""A whole real broker, with its name server and unmodified clients, on a store: boots it, and says what consumers got.

Of the 4.9 line Maven Central has the broker up to 4.9.7. The Java program is in ``broker_judge/``; it is built like the
client judge of :mod:`tests.interop.client`.
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
VERSION = "4.9.7"


@cache
def available() -> str | None:
    """Why the broker cannot be used here; None if it can. Builds the judge."""
    try:
        client.built(_SOURCES, f"broker-{VERSION}")
    except engine.Unavailable as err:
        return str(err)
    return None


class Broker:
    """One JVM; :meth:`boot` and :meth:`stop` as often as wanted."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="broker-judge-")
        path = client.built(_SOURCES, f"broker-{VERSION}")
        self.log = Path(self._home.name, "said")
        with open(self.log, "wb") as said:
            self._jvm = subprocess.Popen(
                [engine._java_tool("java"), *engine._JVM_OPTIONS, f"-Duser.home={self._home.name}",
                 "-Drocketmq.client.logUseSlf4j=false", f"-Drocketmq.client.logRoot={self._home.name}/logs",
                 "-cp", path, "judge.Broker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, cwd=self._home.name, encoding="utf-8",
            )  # fmt: skip

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

    def boot(self, store: Path, config: dict[str, Any]) -> None:
        """Start a broker on a store."""
        self.ask("boot", store=str(store), config={name: str(value) for name, value in config.items()})

    def stop(self) -> None:
        """Stop it cleanly."""
        self.ask("stop")

    def wait_for(self, enough: Callable[[list[dict[str, Any]]], bool], seconds: float = 40) -> list[dict[str, Any]]:
        """What the consumers have got, as soon as it is enough; else what they have got when the time is over."""
        end = time.monotonic() + seconds
        while True:
            seen: list[dict[str, Any]] = self.ask("seen")
            if enough(seen) or time.monotonic() > end:
                return seen
            time.sleep(0.2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._jvm.communicate(timeout=30)  # its stdin ends, and so does it
        except subprocess.TimeoutExpired:
            self._jvm.kill()
            self._jvm.communicate()
        self._home.cleanup()
