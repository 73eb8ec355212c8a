"""Directories of slaves, DLedger members, controller replicas, tiered and multi-path brokers (golden/roles)."""

import gzip
import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

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


def unpack_controller(folder: Path) -> Path:
    """Unpack the directory of the controller of two replicas; returns its path."""
    with tarfile.open(PLACE / CONTROLLER / "controller.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return next(path.parent for path in folder.rglob("dledger-*"))
