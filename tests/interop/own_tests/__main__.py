"""Run RocketMQ's own integration tests against brokers that we serve, beside real brokers, and print a table.

    python -m tests.interop.own_tests --only 'Pop' --sides ours

The source release 5.3.3 on Maven Central has them, in its module ``test``. 60 classes need no broker's internals, or
only what can be asked over the wire (``Served.java``); tests that look deeper are counted apart, as ``inside``. Each
side has three brokers and a name server: ours are processes of ``rmqtool serve``, real ones run in the JVM of the
tests, as they are meant to. Both sides run at the same time, some 15 minutes. The exit code is 1 if a test passes
there and fails here.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop import client, engine
from tests.remoting.certificates import Certificates

VERSION = "5.3.3"
_HERE = Path(__file__).parent
_RELEASE = f"org.apache.rocketmq:rocketmq-all:{VERSION}:zip:source-release"
_MODULE = f"rocketmq-all-{VERSION}/test/src/"
# they start brokers of other kinds; lmq and schema need no broker
_OTHER = ("autoswitchrole", "container", "dledger", "grpc", "lmq", "schema")
# they restart brokers, hook into their requests, or estimate lags inside of them
_INSIDE = ("NormalMessageSendAndRecvIT", "OffsetNotFoundIT", "LagCalculationIT")
_BASE = "org/apache/rocketmq/test/base/IntegrationTestBase.java"
_STARTS = {
    "public static NamesrvController createAndStartNamesrv() {": "nameServer",
    "public static BrokerController createAndStartBroker(String nsAddr) {": "broker",
}
# IntegrationTestBase.createAndStartBroker
_SETTINGS = {
    "brokerIP1": "127.0.0.1", "enablePropertyFilter": "true", "enableCalcFilterBitMap": "true",
    "appendAckAsync": "true", "appendCkAsync": "true", "recallMessageEnable": "true", "enableConsumeQueueExt": "true",
    "mappedFileSizeCommitLog": str(100 << 20), "maxIndexNum": "1000", "maxHashSlotNum": "4000",
    "maxTransferCountOnMessageInMemory": "1024", "maxTransferCountOnMessageInDisk": "1024",
    "appendTopicForTimerDeleteKey": "true",  # as 5.3.3 always does
}  # fmt: skip
_BROKERS = 3

Test = tuple[str, str]  # class and method


class Ended(NamedTuple):
    """How a test ended: passed, failed, ignored, or inside if it looks into a broker."""

    how: str
    seconds: float
    trace: str


def assemble(folder: Path) -> list[str]:
    """Put the sources of the release and ours together; returns the names of the test classes."""
    maven = shutil.which("mvn")
    if maven is None:
        raise engine.Unavailable("Maven (mvn) is not on the PATH")
    with tempfile.TemporaryDirectory() as place:
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        command = [maven, "-q", "-B", plugin, f"-Dartifact={_RELEASE}", f"-DoutputDirectory={place}"]
        subprocess.run(command, check=True, stdout=sys.stderr, timeout=600)
        [archive] = Path(place).iterdir()
        classes = _unpack(archive, folder)
    shutil.copytree(_HERE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return classes


def _unpack(archive: Path, folder: Path) -> list[str]:
    classes = []
    with zipfile.ZipFile(archive) as release:
        for name in release.namelist():
            found = re.fullmatch(_MODULE + r"(?:main|test)/java/(org/apache/rocketmq/test/(\w+)/.*?(\w+)\.java)", name)
            if found is None or found[2] in _OTHER or found[3] in _INSIDE:
                continue
            text = release.read(name).decode()
            if found[1] == _BASE:
                for start, instead in _STARTS.items():
                    assert start in text
                    text = text.replace(
                        start, f"{start}\n        if (Served.NAMESRV != null) {{ return Served.{instead}(); }}\n"
                    )
            path = folder / "src/main/java" / found[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if found[3].endswith("IT"):
                classes.append(found[1].removesuffix(".java").replace("/", "."))
    return sorted(classes)


def serve(folder: Path, release: str, stack: ExitStack) -> list[str]:
    """Start three brokers and a name server of ours; returns options of the JVM that point the tests to them."""
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in _SETTINGS.items()))
    tls = Certificates(folder).server(tls_server_mode="permissive")
    names = ""
    brokers = []
    for number in range(1, _BROKERS + 1):
        command = [sys.executable, "-m", "rmqtool.main", "serve", str(folder / f"store-{number}"), "--create"]
        command += ["--engine", release, "--broker-conf", str(conf), "--listen", "127.0.0.1:0", "--output", "json"]
        command += ["--name", f"TestBrokerName_{number}", "--cluster", "DefaultCluster", "--tls-config", str(tls)]
        command += ["--namesrv", names] if names else ["--namesrv-listen", "127.0.0.1:0"]
        with open(folder / f"serve-{number}.log", "wb") as log:
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log))
        stack.callback(process.terminate)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        names = ready["namesrv"]
        brokers.append(ready["broker"])
    return [f"-Dserved.namesrv={names}", f"-Dserved.brokers={','.join(brokers)}"]


def start(
    folder: Path, classpath: str, classes: list[str], options: list[str], stack: ExitStack
) -> subprocess.Popen[str]:
    """Start the JVM of the tests; its stdout has a line of JSON for each."""
    with open(folder / "tests.log", "wb") as log:
        jvm = subprocess.Popen(
            [engine._java_tool("java"), *engine._JVM_OPTIONS, *options, f"-Duser.home={folder}",
             f"-Djava.io.tmpdir={folder}", "-cp", classpath, "judge.Run", *classes],
            stdout=subprocess.PIPE, stderr=log, cwd=folder, text=True,
        )  # fmt: skip
    stack.enter_context(jvm)
    stack.callback(jvm.kill)
    return jvm


def results(jvm: subprocess.Popen[str]) -> Iterator[tuple[Test, Ended]]:
    """Each test as it ends."""
    assert jvm.stdout is not None
    for line in jvm.stdout:
        if not line.startswith('{"class"'):
            continue
        row: dict[str, Any] = json.loads(line)
        yield (row["class"], row.get("test") or "-"), Ended(row["how"], row["milliseconds"] / 1000, row["trace"])


def main(words: list[str] | None = None) -> int:
    """Run the tests; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="classes whose names match")
    parser.add_argument("--sides", default="real,ours", help="real, ours or both (real,ours)")
    parser.add_argument("--release", default="5.3", help="release of our brokers")
    parser.add_argument("--keep", type=Path, help="directory for logs, stores and results")
    arguments = parser.parse_args(words)
    sides: list[str] = arguments.sides.split(",")
    with ExitStack() as stack:
        work = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="own-tests-")))
        sources = work / "sources"
        classes = [name for name in assemble(sources) if re.search(arguments.only, name)]
        classpath = client.built(sources, f"own-tests-{VERSION}")
        print(f"{len(classes)} classes", file=sys.stderr)
        jvms = {}
        for side in sides:
            folder = work / side
            folder.mkdir()
            options = serve(folder, arguments.release, stack) if side == "ours" else []
            jvms[side] = start(folder, classpath, classes, options, stack)
        with ThreadPoolExecutor(len(jvms)) as pool:
            ended = pool.map(lambda side: follow(side, jvms[side], work), sides)
            table = dict(zip(sides, ended, strict=True))
    return report(table)


def follow(side: str, jvm: subprocess.Popen[str], work: Path) -> dict[Test, Ended]:
    """Print and keep how each test ends."""
    ends = {}
    with open(work / f"{side}.txt", "w") as log:
        for test, ended in results(jvm):
            now = time.strftime("%H:%M:%S")
            print(f"{now} {side} {ended.how} {ended.seconds:.1f} s {'.'.join(test)}", file=sys.stderr)
            print(*test, ended.how, ended.seconds, ended.trace, file=log, flush=True)
            ends[test] = ended
    return ends


def report(table: dict[str, dict[Test, Ended]]) -> int:
    """Print what differs, and how many passed; returns the exit code."""
    worse = 0
    for test in sorted({test for ended in table.values() for test in ended}):
        ends = {side: ended[test].how if test in ended else "absent" for side, ended in table.items()}
        if any(how not in ("passed", "ignored") for how in ends.values()):
            print(f"{'.'.join(test)}: " + ", ".join(f"{side} {how}" for side, how in ends.items()))
        fails = ends.get("ours") in ("failed", "absent") and ends.get("real", "passed") == "passed"
        worse += fails
    for side, ended in table.items():
        counts = Counter(one.how for one in ended.values())
        print(f"{side}: " + ", ".join(f"{count} {how}" for how, count in counts.most_common()))
    return int(worse > 0)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
