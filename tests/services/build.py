"""Build small stores by hand, record by record, for situations that no golden case has."""

from pathlib import Path
from typing import Any

from formats.message.build import compose, pack
from formats.primitives import java_hash
from formats.queues.consume import build as build_queue
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog

TIME = 1_700_000_000_000
FILE_SIZE, QUEUE_FILE_SIZE = 1 << 18, 20 * 500
HOST = b"\xc0\x00\x02\x0a"  # 192.0.2.10


class Builder:
    """Collects messages in log order, and assigns queue offsets."""

    def __init__(self) -> None:
        self.log = bytearray()
        self.queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.number = 0

    def put(self, topic: str, queue_id: int = 0, *, code: int | None = None, **fields: Any) -> int:
        """Add a message; returns its physical offset.

        Args:
            code: tags code of the queue entry, instead of the tag's hash.
        """
        self.number += 1
        at = len(self.log)
        properties: dict[str, str] = fields.pop("properties", {})
        entries = self.queues.setdefault((topic, queue_id), [])
        defaults: dict[str, Any] = {
            "body": b"body",
            "born_timestamp": TIME + self.number,
            "store_timestamp": TIME + self.number,
            "born_address": HOST,
            "born_port": 1234,
            "store_address": HOST,
            "store_port": 10911,
        }
        record = pack(
            compose(
                topic=topic.encode(),
                queue_id=queue_id,
                queue_offset=len(entries),
                physical_offset=at,
                properties="\x02".join(f"{k}\x01{v}" for k, v in properties.items()).encode(),
                **{**defaults, **fields},
            )
        )
        tag = properties.get("TAGS")
        entries.append((at, len(record), code if code is not None else java_hash(tag) if tag else 0))
        self.log += record
        return at

    def write(self, root: Path, configs: dict[str, str] | None = None) -> Path:
        """Write the store; returns its directory."""
        store = root / "store"
        (store / "commitlog").mkdir(parents=True)
        (store / "commitlog" / f"{0:020d}").write_bytes(bytes(self.log).ljust(FILE_SIZE, b"\0"))
        for (topic, queue_id), rows in self.queues.items():
            folder = store / "consumequeue" / topic / str(queue_id)
            folder.mkdir(parents=True)
            (folder / f"{0:020d}").write_bytes(build_queue(rows).ljust(QUEUE_FILE_SIZE, b"\0"))
        (store / "config").mkdir()
        for name, content in (configs or {}).items():
            (store / "config" / name).write_text(content, encoding="utf-8")
        (store / "checkpoint").write_bytes(bytes(4096))
        return store


def log_of(store: Path, **settings: str) -> CommitLog:
    """The commit log of a store, with broker settings."""
    return CommitLog(StoreLayout(str(store), BrokerConf(settings)))


def never(text: str) -> None:
    """A ``warn`` callback that must not be called."""
    raise AssertionError(text)
