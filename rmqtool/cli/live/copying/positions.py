"""The progress of a mirror: a file in the store's folder, and the marks of messages after it.

The file has the position in each queue at a certain length of the log. After that the messages themselves carry marks,
so a message and its position are stored in one write and a kill cannot part them. The record before that length proves
that the log is still the same: one that was cut and has grown again lacks messages that count as copied. The last
message copied from a queue proves that the queue is the same: one that was recreated has other messages at those
offsets.
"""

import json
import re
import secrets
from typing import Any, NamedTuple

from formats.remoting.shapes import MessageQueue
from rmqtool.analytics.dump.position import Position
from rmqtool.client.consumer.proof import Last, last_of
from rmqtool.client.copying.steps import ORIGIN
from rmqtool.errors import CorruptFile, Refused
from rmqtool.services.open_store.message import StoredMessage
from rmqtool.services.open_store.store import Store
from rmqtool.store.disk.directories import read_small
from rmqtool.store.disk.durable import replace_file
from rmqtool.store.log.commit_log import CommitLog

FILE = "config/rmqtoolMirror.json"
_VERSION, _OLDER, _LARGEST = 3, 2, 64 << 20  # bytes
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MARK = re.compile(rf"({_ID.pattern}):(.+):([0-9]{{1,10}}):([0-9]{{1,19}})", re.ASCII | re.DOTALL)


class QueueKey(NamedTuple):
    """A queue of the origin."""

    topic: str
    broker_name: str
    queue_id: int


def key_of(queue: MessageQueue) -> QueueKey:
    """Its key in the file."""
    return QueueKey(queue.topic, queue.broker_name, queue.queue_id)


class MirrorPositions:
    """The next offset of each queue that is mirrored into an open store.

    Attributes:
        at: queue to the offset of the next message.
        last: queue to the last message copied from it, if any.

    Raises:
        UnreadableStore: the file cannot be read.
        CorruptFile: it is not a mirror's.
        Refused: the log lacks messages that count as copied.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._path = store, store.layout.path(FILE)
        self._id, self.at, self._log = secrets.token_hex(8), dict[QueueKey, int](), store.live.end
        self.last = dict[QueueKey, Last]()
        if (data := read_small(self._path, _LARGEST)) is not None:
            try:
                self._id, self.at, self.last, position, older = _understood(json.loads(data))
            except (ValueError, TypeError, KeyError, RecursionError):
                raise CorruptFile(self._path, None, "not the positions of a mirror") from None
            changed = position.differs(CommitLog(store.layout))
            if position.next > self._log:
                changed = f"it ends at {self._log}, and the mirror was at {position.next}"
            if changed is not None:
                raise Refused(
                    f"{store.layout.root}: its log is not the one that the mirror wrote: {changed}. Messages "
                    "that it has copied may be gone; mirror into another store"
                )
            for message in store.messages(None if older else position.next):
                self._take(message)

    def _take(self, message: StoredMessage) -> None:
        mark = _MARK.fullmatch(message.properties.get(ORIGIN, ""))
        if mark is not None and mark[1] == self._id:
            key, offset = QueueKey(message.topic, mark[2], int(mark[3])), int(mark[4])
            self.at[key] = max(self.at.get(key, 0), offset + 1)
            if key not in self.last or self.last[key].offset < offset:
                self.last[key] = last_of(message.record, offset)

    def mark(self, key: QueueKey, offset: int) -> str:
        """The mark for a message."""
        return f"{self._id}:{key.broker_name}:{key.queue_id}:{offset}"

    def move(self, key: QueueKey, offset: int, last: Last | None) -> None:
        """Note that all messages of a queue before an offset are in the log, and the last of them."""
        self.at[key], self._log = offset, self._store.live.end
        if last is not None:
            self.last[key] = last

    def save(self) -> None:
        """Make the messages durable, then the file."""
        self._store.flush()
        positions = [[*key, offset, *self.last.get(key, ())] for key, offset in sorted(self.at.items())]
        # not up to the end after an error: messages after this have marks
        log = Position.at(CommitLog(self._store.layout), self._log).to_dict()
        value = {"version": _VERSION, "mirror": self._id, "log": log, "positions": positions}
        replace_file(self._path, json.dumps(value, indent=1).encode(), keep=False)


def _understood(value: Any) -> tuple[str, dict[QueueKey, int], dict[QueueKey, Last], Position, bool]:
    """(mirror id, positions, last messages, length of the log, whether the file is of an older version).

    An older file does not have the last messages, but the copies in the log do.

    Raises:
        ValueError, TypeError, KeyError: it is not a mirror's file.
    """
    if value["version"] not in (_VERSION, _OLDER) or not _ID.fullmatch(value["mirror"]):
        raise ValueError
    positions, lasts = dict[QueueKey, int](), dict[QueueKey, Last]()
    for topic, broker, queue_id, offset, *last in value["positions"]:
        if not all(type(text) is str for text in (topic, broker)):
            raise ValueError
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in (queue_id, offset, *last)):
            raise ValueError
        key = QueueKey(topic, broker, queue_id)
        positions[key] = offset
        if last:
            lasts[key] = Last(*last)
            if lasts[key].offset >= offset:
                raise ValueError
    return value["mirror"], positions, lasts, Position.from_dict(value["log"]), value["version"] == _OLDER
