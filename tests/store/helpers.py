"""Helpers for store tests: a golden case's configuration, and the content of a recovered store."""

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

from formats.message.build import compose, pack
from formats.message.read import Record
from formats.queues.consume import as_array
from rmqtool.store.index.reader import BadIndex, open_index, physical_offsets
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.queues.reader import queues_of
from rmqtool.store.recovery.report import StoreState
from tests import goldens

NO_LOG = "commitlog-deleted"  # only --exactly takes it for a store without messages
_PAGE = 1 << 12


def conf_of(case: str) -> BrokerConf:
    """The settings with which the case was written."""
    return BrokerConf({name: str(value) for name, value in goldens.about(case)["config"].items()})


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Modification time and content of every file below a directory."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, digest(path))
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def digest(path: Path) -> str:
    """Checksum of a file's length and of its pages that are not zero; files of a store are mostly holes."""
    size = path.stat().st_size
    result = hashlib.sha256(b"%d" % size)
    with path.open("rb") as file:
        at = 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // _PAGE * _PAGE
            except OSError as err:
                if err.errno == errno.ENXIO:  # a hole to the end
                    break
            page = os.pread(file.fileno(), _PAGE, at)
            if any(page):
                result.update(b"%d:" % at + page)
            at += _PAGE
    return result.hexdigest()


def content(root: Path) -> dict[str, str]:
    """Content of every file; index files, whose names depend on the clock, by number."""
    result: dict[str, str] = {}
    for name, (_mtime, digest) in tree(root).items():
        key = f"index/{sum(n.startswith('index/') for n in result)}" if name.startswith("index/") else name
        result[key] = digest
    return result


def state_of(answer: dict[str, Any]) -> tuple[int, int, list[tuple[str, int, int, int]]]:
    """A golden state without the empty queues of the delay topic that every start of the engine creates."""
    queues = [(q["topic"], q["queueId"], q["minOffset"], q["maxOffset"]) for q in answer["queues"]]
    kept = [q for q in queues if q[3] or q[0] != "SCHEDULE_TOPIC_XXXX"]
    return answer["minPhyOffset"], answer["maxPhyOffset"], sorted(kept)


def state_from(state: StoreState) -> tuple[int, int, list[tuple[str, int, int, int]]]:
    """Our state in the same format."""
    queues = [(q.topic, q.queueId, q.minOffset, q.maxOffset) for q in state.queues]
    kept = [q for q in queues if q[3] or q[0] != "SCHEDULE_TOPIC_XXXX"]
    return state.minPhyOffset, state.maxPhyOffset, sorted(kept)


def entries_of(layout: StoreLayout) -> list[tuple[str, int, int, int, int, int]]:
    """Every queue entry that a broker would read."""
    low = CommitLog(layout).min_offset
    return sorted((q.topic, q.queue_id, *e[:4]) for q in queues_of(layout) for e in q.entries(q.min_offset(low)))


def cut_queues(layout: StoreLayout, last: int = 0, *, behind: int = 0) -> list[Record]:
    """Zero the queue entries of the last messages, or of all from a physical offset; returns these, in order."""
    records = [item.record for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]
    behind = records[-last].physical_offset if last else behind
    for path in Path(layout.path("consumequeue")).glob("*/*/*"):
        units = as_array(memoryview(path.read_bytes())).copy()
        units[units["physical_offset"] >= behind] = 0
        path.write_bytes(units.tobytes())
    return [record for record in records if record.physical_offset >= behind]


def rewrite(located: LocatedRecord, **changes: Any) -> None:
    """Rewrite a record in place with changed fields of the same length."""
    names = "topic queue_id queue_offset physical_offset body properties sys_flag born_timestamp born_address born_port"
    names += " store_timestamp store_address store_port"
    new = compose(**{name: getattr(located.record, name) for name in names.split()} | changes)
    assert new.total_size == located.record.total_size
    with open(located.file.path, "r+b") as file:
        file.seek(located.at)
        file.write(pack(new))


def key_hits(layout: StoreLayout, topic: str, key: str) -> list[int]:
    """Readable offsets of a key, as a broker answers: sorted, with hash collisions."""
    files = [file for file in open_index(layout) if not isinstance(file, BadIndex)]
    log = CommitLog(layout)
    return sorted(o for o in physical_offsets(files, topic, key, limit=64) if log.read(o, crc=False))
