"""Start a real broker like ``mqbroker -c FILE``, to see whether it starts."""

import socket
import subprocess
from pathlib import Path

from tests.interop import broker, engine
from tests.interop.broker_settings import VERSIONS

_LOGBACK = "<configuration><root level='off'/></configuration>"
_SECONDS = 120
_BOOTED = "boot success"


def start_code(release: str, store: Path, conf: str, home: Path) -> int | None:
    """Start a broker on a store with a configuration, and stop it; returns its exit code, or None if it started.

    Args:
        release: 4.9 or 5.3.
        conf: properties file without paths and ports, which are appended.
        home: empty directory for other files of the broker.
    """
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "logback_broker.xml").write_text(_LOGBACK)
    with socket.socket() as first, socket.socket() as two:
        first.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        ports = first.getsockname()[1], two.getsockname()[1]
    path = home / "broker.conf"
    path.write_text(
        f"{conf}\nstorePathRootDir={store}\nlistenPort={ports[0]}\nhaListenPort={ports[1]}\nbrokerIP1=127.0.0.1\n"
        f"namesrvAddr=127.0.0.1:1\nrocketmqHome={home}\n"
    )
    command = [
        engine._java_tool("java"), *engine._JVM_OPTIONS, f"-Duser.home={home}", "-Dtls.server.mode=disabled",
        "-cp", broker._classpath(VERSIONS[release]), "org.apache.rocketmq.broker.BrokerStartup", "-c", str(path),
    ]  # fmt: skip
    with open(home / "errors", "wb") as errors:
        jvm = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={"ROCKETMQ_HOME": str(home)}
        )
    try:
        assert jvm.stdout is not None
        for line in jvm.stdout:
            if _BOOTED in line:
                return None
        return jvm.wait(_SECONDS)
    finally:
        jvm.kill()
        jvm.communicate()
