"""Read all settings of a broker of each release from its classes, obtained from Maven.

``python -m tests.interop.broker_settings`` updates ``rmqtool/store/config/settings-RELEASE.json``. Values that depend
on the machine (name, addresses, cores, home) are null there.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop import broker, engine

_SOURCE = Path(__file__).with_name("settings_judge") / "Settings.java"
_DATA = Path(__file__).parents[2] / "rmqtool" / "store" / "config"
VERSIONS = {"4.9": "4.9.8", "5.3": "5.3.3", "5.4": "5.4.0", "5.5": "5.5.0", "5.5.1": "5.5.1"}
# those that BrokerStartup fills from the file, and what the plug-in TieredMessageStore reads of it
_CLASSES = (
    "org.apache.rocketmq.common.BrokerConfig",
    "org.apache.rocketmq.store.config.MessageStoreConfig",
    "org.apache.rocketmq.remoting.netty.NettyServerConfig",
    "org.apache.rocketmq.remoting.netty.NettyClientConfig",
    "org.apache.rocketmq.auth.config.AuthConfig",
    "org.apache.rocketmq.tieredstore.MessageStoreConfig",
)
_OF_THE_MACHINE = {"brokerName", "brokerIP1", "brokerIP2"}
# BrokerStartup.properties2SystemEnv
_SYSTEM = {"rmqAddressServerDomain": ["String", None], "rmqAddressServerSubGroup": ["String", None]}


def taken(release: str, properties: Sequence[Path], *options: str) -> list[dict[str, dict[str, list[Any]]]]:
    """For each properties file: class → setting → [type, value] after a broker has read it.

    Args:
        release: one of :data:`VERSIONS`.
        properties: the files; none means an empty one.
        options: options of the JVM.
    """
    run = subprocess.run(
        [engine._java_tool("java"), "-XX:TieredStopAtLevel=1", *options, "-cp", broker._classpath(VERSIONS[release]),
         str(_SOURCE), os.pathsep.join(map(str, properties)) or "-", *_CLASSES],
        stdout=subprocess.PIPE, check=True, text=True, timeout=300,
    )  # fmt: skip
    # classes of 5.5 log to standard output too
    return [json.loads(line[line.index('{"') :]) for line in run.stdout.splitlines() if '{"' in line]


def known(release: str) -> dict[str, dict[str, list[Any]]]:
    """The content of a release's data file: defaults that depend on the machine are null."""
    [here] = taken(release, [], "-XX:ActiveProcessorCount=1", "-Duser.home=/here")
    [there] = taken(release, [], "-XX:ActiveProcessorCount=16", "-Duser.home=/there")
    for name, settings in here.items():
        for key, (_kind, value) in settings.items():
            if value != there[name][key][1] or key in _OF_THE_MACHINE:
                settings[key][1] = None
    here["org.apache.rocketmq.broker.BrokerStartup"] = _SYSTEM
    return here


def data_path(release: str) -> Path:
    """The data file of a release."""
    return _DATA / f"settings-{release}.json"


def written(release: str) -> str:
    """The text of the data file."""
    lines = []
    for name, settings in known(release).items():
        rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(settings.items()))
        lines.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    for each in VERSIONS:
        data_path(each).write_text(written(each))
