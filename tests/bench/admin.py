"""Our commands and ``mqadmin`` on one real cluster: seconds of each, from the start of its process to its end.

Run as ``python -m tests.bench.admin [--release 5.3.3] [--rounds N]``. Both are new processes each time, in turns; the
better round of each counts. ``mqadmin`` runs with a small heap and the client compiler alone, which makes it faster
than its own script.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cli.running import RMQTOOL
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.engine import _java_tool
from tests.interop.mqadmin import CONFIG, prepare
from tests.interop.serving import CLUSTER

WANTED = 8  # times as fast
PAIRS = (
    ("clusterList", "cluster list TARGET"),
    ("brokerStatus -b {broker}", "cluster list TARGET -o json"),
    ("topicList", "topic list TARGET"),
    ("topicStatus -t Orders", "topic show TARGET Orders"),
    ("topicRoute -t Orders", "topic show TARGET Orders -o json"),
    ("consumerProgress", "group list TARGET"),
    ("consumerProgress -g readers", "group lag TARGET readers"),
    ("consumerConnection -g readers", "client list TARGET -g readers"),
    ("consumerStatus -g readers -i {client}", "client show TARGET readers"),
    ("producer -b {broker}", "client producers TARGET"),
    ("getBrokerConfig -b {broker}", "broker-config show TARGET"),
    ("getNamesrvConfig", "namesrv-config show TARGET"),
    ("queryMsgByKey -t Orders -k key3", "query-key TARGET Orders key3"),
    ("queryMsgById -t Orders -i {id}", "query-id TARGET {id}"),
    ("queryMsgByUniqueKey -t Orders -i {unique}", "query-id TARGET {unique} --topic Orders"),
    ("getConsumerConfig -g readers", "config TARGET subscriptionGroup.json"),
    ("updateTopicPerm -t Orders -c {cluster} -p 6", "topic perm TARGET Orders RW --yes"),
    ("updateSubGroup -c {cluster} -g idle -r 5", "group update TARGET idle --max-retries 5 --yes"),
    ("haStatus -b {broker}", "cluster replicas TARGET"),
)


def seconds(command: Sequence[str], environment: dict[str, str] | None = None) -> float:
    """Run a command; its output must not be empty."""
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    taken = time.perf_counter() - begin
    if done.returncode not in (0, 1) or not done.stdout + done.stderr:
        raise AssertionError((command, done))
    return taken


def report(release: str, rounds: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Seconds of ``mqadmin`` and of ours, by the line of ours."""
    with Broker(release) as judge:
        (folder / "store").mkdir()
        judge.boot(folder / "store", dict(CONFIG))
        addresses = judge.ask("addresses")
        filled = {**addresses, **prepare(judge, folder / "files"), "cluster": CLUSTER}
        java = [
            _java_tool("java"), "-XX:TieredStopAtLevel=1", "-Xms64m", "-Xmx256m", f"-Duser.home={folder}",
            f"-Drocketmq.namesrv.addr={filled['namesrv']}", "-cp", brokers._classpath(release),
            "org.apache.rocketmq.tools.command.MQAdminStartup",
        ]  # fmt: skip
        target = f"rocketmq://{filled['namesrv']}/{CLUSTER}"
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        result = {}
        for theirs, ours in PAIRS:
            if release.startswith("4"):
                theirs = theirs.replace("queryMsgById -t Orders", "queryMsgById")
            admin = [*java, *theirs.format_map(filled).split()]
            own = [*RMQTOOL, *(target if word == "TARGET" else word.format_map(filled) for word in ours.split())]
            times = [(seconds(admin), seconds(own, environment)) for _ in range(rounds)]
            result[ours] = (min(time for time, _own in times), min(time for _admin, time in times))
        judge.stop()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default="5.3.3", choices=brokers.VERSIONS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reported = report(options.release, options.rounds, Path(folder))
    for line, (theirs, ours) in reported.items():
        print(f"{theirs / ours:5.1f} times as fast: {ours:.2f} s and {theirs:.2f} s: {line}")
    least = min(theirs / ours for theirs, ours in reported.values())
    print(f"at least {least:.1f} times as fast; wanted: {WANTED}")
    sys.exit(least < WANTED)


if __name__ == "__main__":
    main()
