"""Directories of slaves, DLedger members, controller replicas, tiered and multi-path brokers (golden/roles)."""

import gzip
import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

from formats.layouts.derived import HEAD_V4_V4
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord

PLACE = Path(__file__).parent / "golden" / "roles"
TIERED, NEW_TIERED = "tiered-5.3.3", "tiered-5.5.0"
DLEDGER, CONTROLLER = "dledger-5.3.3", "controller-5.3.3"
OLD_DLEDGER = "dledger-4.9.8"
SLAVE, NEW_SLAVE, MULTI_PATH = "slave-4.9.8", "slave-5.5.0", "multi-path-5.3.3"
_PATHS = ("tieredStoreFilePath", "storePathCommitLog")


class Node(NamedTuple):
    """One broker's directory and settings."""

    store: Path
    conf: Path

    @property
    def settings(self) -> dict[str, str]:
        """The settings by name."""
        return dict(line.split("=", 1) for line in self.conf.read_text().splitlines())

    def options(self) -> tuple[str, str]:
        """Options that pass the settings to a command."""
        return "--broker-conf", str(self.conf)


def unpack(case: str, node: str, folder: Path) -> Node:
    """Unpack a node, with the paths in its settings adjusted."""
    with tarfile.open(PLACE / case / f"{node}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    lines = []
    for line in (PLACE / case / f"{node}.conf").read_text().splitlines():
        name, _equals, value = line.partition("=")
        if name in _PATHS:
            value = ",".join(str(folder / part) for part in value.split(","))
        lines.append(f"{name}={value}")
    conf = folder / f"{node}.conf"
    conf.write_text("\n".join(lines) + "\n")
    return Node(folder / node, conf)


def copy(node: Node, folder: Path) -> Node:
    """A copy of a node, with the paths in its settings adjusted."""
    shutil.copytree(node.store, folder / "a")
    conf = folder / "a.conf"
    conf.write_text(node.conf.read_text().replace(str(node.store.parent), str(folder)))
    return Node(folder / "a", conf)


def served(case: str) -> list[dict[str, Any]]:
    """Every entry served by the real broker."""
    with gzip.open(PLACE / case / "messages.ndjson.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def entries_of(case: str, node: str) -> list[dict[str, Any]]:
    """Every entry of a member's DLedger log, read by the DLedger library."""
    with gzip.open(PLACE / case / "log.ndjson.gz", "rt", encoding="utf-8") as lines:
        return [entry for entry in map(json.loads, lines) if node in entry["in"]]


def missing_alone(case: str, node: str) -> dict[tuple[str, int], list[range]]:
    """Queue offsets that the brokers of a group serve together, and a broker on one directory alone does not."""
    with gzip.open(PLACE / case / "alone.json.gz", "rt", encoding="utf-8") as text:
        missing = json.load(text)[node]["notHere"]
    queues = {}
    for name, ranges in missing.items():
        topic, _slash, queue_id = name.rpartition("/")
        queues[topic, int(queue_id)] = [range(first, last + 1) for first, last in ranges]
    return queues


def unpack_all(case: str, folder: Path) -> list[Node]:
    """Unpack every broker's directory of a case, in the order of their names."""
    names = sorted(path.stem for path in (PLACE / case).glob("*.conf"))
    return [unpack(case, name, folder) for name in names]


def prints(folder: Path) -> dict[str, str]:
    """Path → digest of every file below a folder, except the lock."""
    return {
        str(path.relative_to(folder)): hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("lock", "timerwheel") and path.stat().st_size < 1 << 24
    }


def make_stale_tail(node: Node) -> int:
    """Let the log of the controller's replica b end as after a truncation in memory alone: messages of epoch 2, written
    by the master of that time, follow those of epoch 3.

    Returns:
        The physical offset at which they begin.
    """
    log = CommitLog(StoreLayout(str(node.store), load(str(node.conf))))
    items = [item for item in log.walk() if isinstance(item, LocatedRecord)]
    old = [item for item in items if 74726 <= item.physical_offset < 104698][-12:]
    start = [item for item in items if item.physical_offset >= 114688][2]  # the last file begins there
    at, data = start.at, bytearray(Path(start.file.path).read_bytes())
    place = HEAD_V4_V4.offsets["physical_offset"]
    tail = bytearray()
    for item in old:
        raw = bytearray(item.file.map()[item.at : item.at + item.record.total_size])
        raw[place : place + 8] = (start.physical_offset + len(tail)).to_bytes(8, "big")
        tail += raw
    data[at:] = tail.ljust(len(data) - at, b"\0")
    Path(start.file.path).write_bytes(data)
    return start.physical_offset


def unpack_controller(folder: Path) -> Path:
    """Unpack the directory of the controller of two replicas; returns its path."""
    with tarfile.open(PLACE / CONTROLLER / "controller.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return next(path.parent for path in folder.rglob("dledger-*"))


def damage_last_file(node: Node) -> None:
    """Flip a byte of the tenth body in the last file of a log."""
    log = CommitLog(StoreLayout(str(node.store), load(str(node.conf))))
    records = [item for item in log.walk(log.segments.files[-1].base) if isinstance(item, LocatedRecord)]
    item = records[10]
    with open(item.file.path, "r+b") as file:
        file.seek(item.at + HEAD_V4_V4.size)
        file.write(bytes([item.record.body[0] ^ 0xFF]))
