"""A real master and its real replica, each in its own JVM, on given or new directories."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.interop.broker import Broker
from tests.roles import Node

# what the controller's serializer looks into, and newer releases of Java do not show
CONTROLLER_OPTIONS = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.lang.reflect", "java.util", "java.util.concurrent", "java.math", "java.text")
)
_LOOKS, _PAUSE = 600, 0.1  # for a replica to have what its master has
_SETTINGS = {
    "brokerClusterName": "Shop", "brokerName": "store-1", "mappedFileSizeCommitLog": "40960",
    "mappedFileSizeConsumeQueue": "1200", "maxHashSlotNum": "150", "maxIndexNum": "600", "diskMaxUsedSpaceRatio": "95",
    "haTransferBatchSize": "700",  # pieces that end within records
}  # fmt: skip
_KILLED_AT = 60_000  # bytes of log that the replica has


class Difference(NamedTuple):
    """Physical offsets [start, stop) at which two logs differ."""

    start: int
    stop: int


class Replicas:
    """A running master and replica.

    Args:
        master: JVM of the master.
        replica: JVM of the replica.
    """

    def __init__(self, master: Broker, replica: Broker) -> None:
        self.master, self.replica = master, replica

    def ends(self) -> tuple[int, int]:
        """The ends of the master's and the replica's log."""
        return self.master.ask("log")["end"], self.replica.ask("log")["end"]

    def follow(self) -> None:
        """Wait until the replica's log ends where the master's does.

        Raises:
            AssertionError: it does not within the time limit.
        """
        for _ in range(_LOOKS):
            mine, its = self.ends()
            if mine == its:
                return
            time.sleep(_PAUSE)
        raise AssertionError(f"the master's log ends at {mine}, the replica's at {its}")

    def send(self, topic: str, prefix: str, count: int) -> None:
        """Send messages to the master one by one."""
        rows = self.master.ask("sendMany", topic=topic, prefix=prefix, count=count, threads=1, how="sync")
        assert [row.get("error") for row in rows] == [None] * count


@contextmanager
def booted(master: Broker, replica: Broker, nodes: tuple[Node, Node], **more: str) -> Iterator[Replicas]:
    """Run both brokers on their directories; at the end the replica is stopped first.

    Args:
        nodes: directories of master and replica.
        more: settings of both.
    """
    mine, its = nodes
    master.boot(mine.store, {**mine.settings, **more})
    try:
        replica.boot(its.store, {**its.settings, **more}, follows=master.namesrv)
        try:
            yield Replicas(master, replica)
        finally:
            replica.stop()
    finally:
        master.stop()


def make_killed(version: str, folder: Path) -> tuple[Node, Node]:
    """Directories of a master and its slave, both killed during work, the slave first."""
    nodes = []
    for name, settings in (
        ("master", {"brokerId": "0", "brokerRole": "ASYNC_MASTER"}),
        ("slave", {"brokerId": "1", "brokerRole": "SLAVE"}),
    ):
        (folder / name).mkdir()
        conf = folder / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in {**_SETTINGS, **settings}.items()))
        nodes.append(Node(folder / name, conf))
    mine, its = nodes
    with Broker(version) as master, Broker(version) as replica, ThreadPoolExecutor(1) as beside:
        master.boot(mine.store, mine.settings)
        replica.boot(its.store, its.settings, follows=master.namesrv)
        pair = Replicas(master, replica)
        master.ask("topic", topic="Events")
        pair.send("Events", "early-", 120)
        pair.follow()
        sending = beside.submit(pair.send, "Events", "meanwhile-", 300)
        while replica.ask("log")["end"] < _KILLED_AT:
            assert not sending.done()
        replica.kill()
        sending.result()
        pair.send("Events", "late-", 60)
        master.kill()
    return mine, its


def log_of(store: Path) -> tuple[int, bytes]:
    """(physical offset of the first byte, all bytes of the files) of a log without gaps."""
    files = sorted((store / "commitlog").iterdir())
    return int(files[0].name), b"".join(file.read_bytes() for file in files)


def differences(first: Path, other: Path, end: int) -> list[Difference]:
    """Ranges in which two logs differ, from the later of their beginnings to a physical offset."""
    (one_base, one_log), (other_base, other_log) = log_of(first), log_of(other)
    base = max(one_base, other_base)
    a, b = one_log[base - one_base : end - one_base], other_log[base - other_base : end - other_base]
    assert len(a) == len(b) == end - base
    result: list[Difference] = []
    for at in (base + at for at in range(len(a)) if a[at] != b[at]) if a != b else ():
        if result and result[-1].stop == at:
            result[-1] = Difference(result[-1].start, at + 1)
        else:
            result.append(Difference(at, at + 1))
    return result
