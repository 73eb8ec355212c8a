"""The real proxy in front of our broker, and the official gRPC clients of four languages.

The proxy runs in cluster mode: it speaks gRPC to clients, and RocketMQ's own protocol to name server and broker.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests.interop import client, engine
from tests.interop.languages import built
from tests.interop.serving import CLUSTER

_HERE = Path(__file__).parent
_PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--target", ".", "--requirement", "requirements.txt")
_BUILDS = {
    "python": _PIP,
    "node": ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund"),
    "go": ("go", "build", "-o", "client", "."),
}
_RUNS = {"python": (sys.executable, "main.py"), "node": ("node", "main.js"), "go": ("./client",)}
_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SECONDS = 240


class Proxy:
    """The proxy's process; as a context manager, it is killed at the end.

    Args:
        home: a new directory for its settings and logs.
        namesrv: address of the name server.
        settings: further settings.

    Attributes:
        endpoint: address for gRPC clients.
    """

    def __init__(self, home: Path, namesrv: str, **settings: Any) -> None:
        (home / "conf").mkdir(parents=True)
        ports = _free_ports(2)
        self.endpoint = f"127.0.0.1:{ports[0]}"
        settings |= {
            "rocketMQClusterName": CLUSTER, "namesrvAddr": namesrv, "proxyMode": "CLUSTER",
            "grpcServerPort": ports[0], "remotingListenPort": ports[1], "transactionHeartbeatPeriodSecond": 1,
        }  # fmt: skip
        (home / "conf" / "rmq-proxy.json").write_text(json.dumps(settings))
        command = [engine._java_tool("java"), *_OPTIONS, f"-Duser.home={home}", "-cp", _classpath()]
        command += ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(home / "conf" / "rmq-proxy.json")]
        self._log = home / "out.txt"
        environment = {**os.environ, "RMQ_PROXY_HOME": str(home), "ROCKETMQ_HOME": str(home)}
        with self._log.open("w") as out:
            self._process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        end = time.monotonic() + _SECONDS
        while "startup successfully" not in (answer := self._log.read_text()):
            if self._process.poll() is not None or time.monotonic() > end:
                self._process.kill()
                raise AssertionError(answer)
            time.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()


def _classpath() -> str:
    return client.built(_HERE / "proxy", "proxy-5.5.0")


def need(language: str) -> None:
    """Build the proxy's class path and a client on first use.

    Raises:
        Unavailable: a tool is missing, or something cannot be fetched.
    """
    _classpath()
    _client(language)


def _client(language: str) -> tuple[list[str], Path | None]:
    """The command that runs a language's program, and its directory."""
    if language == "java":
        classpath = client.built(_HERE / "java", "grpc-java")
        return [engine._java_tool("java"), *_OPTIONS, "-cp", classpath, "judge.Grpc"], None
    return list(_RUNS[language]), built(f"grpc-{language}", _HERE / language, _BUILDS[language])


def run(language: str, *words: str) -> Any:
    """Run a client's program; returns what it prints as JSON."""
    command, place = _client(language)
    with tempfile.TemporaryDirectory(prefix="rmqtool-grpc-") as home:
        if language == "java":
            command.insert(1, f"-Duser.home={home}")  # it writes its log there
        done = subprocess.run(
            [*command, *words], cwd=place or home, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
