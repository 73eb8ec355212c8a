"""How far a mirror is: a file in the store's folder, and the marks of the messages behind what it says.

The file says where the mirror was in each queue when the log had a length that it names too. Behind that the marks of
the messages themselves tell, so that a message and the position behind it are stored in one write: a kill between them
is not possible. The record before that place proves, the next time, that the log is still the same: one that was cut
and has grown again lacks messages that the file counts as copied. What was last copied of a queue proves that the queue
is still the same: one that was made again, and has grown since, has other messages at those offsets.
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
from rmqtool.store.disk.durable import replace_file
from rmqtool.store.disk.files import open_file
from rmqtool.store.log.commit_log import CommitLog

FILE = "config/rmqtoolMirror.json"
_VERSION, _OLDER, _LARGEST = 3, 2, 64 << 20  # bytes
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MARK = re.compile(rf"({_ID.pattern}):(.+):([0-9]{{1,10}}):([0-9]{{1,19}})", re.ASCII | re.DOTALL)


class Key(NamedTuple):
    """A queue of the origin."""

    topic: str
    broker_name: str
    queue_id: int


def key_of(queue: MessageQueue) -> Key:
    """Its place in the file."""
    return Key(queue.topic, queue.broker_name, queue.queue_id)


class MirrorPositions:
    """Next offsets of the queues that are mirrored into a store that is open for writing.

    Attributes:
        at: queue to the offset of the next message.
        last: queue to the last message that was copied of it; none of a queue of which none was.

    Raises:
        CorruptFile: the file is not one of a mirror.
        Refused: the log lacks messages that the file knows of.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._path = store, store.layout.path(FILE)
        self._id, self.at, self._log = secrets.token_hex(8), dict[Key, int](), store.live.end
        self.last = dict[Key, Last]()
        if (data := _read(self._path)) is not None:
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
            key, offset = Key(message.topic, mark[2], int(mark[3])), int(mark[4])
            self.at[key] = max(self.at.get(key, 0), offset + 1)
            if key not in self.last or self.last[key].offset < offset:
                self.last[key] = last_of(message.record, offset)

    def mark(self, key: Key, offset: int) -> str:
        """What a message of a queue carries."""
        return f"{self._id}:{key.broker_name}:{key.queue_id}:{offset}"

    def move(self, key: Key, offset: int, last: Last | None) -> None:
        """All messages of a queue before an offset are in the log; the last of those that came now, if there is one."""
        self.at[key], self._log = offset, self._store.live.end
        if last is not None:
            self.last[key] = last

    def save(self) -> None:
        """Make the messages durable, then the file that speaks of them."""
        self._store.flush()
        positions = [[*key, offset, *self.last.get(key, ())] for key, offset in sorted(self.at.items())]
        # not to its end where an error has ended the work: what lies behind has marks, if it is there
        log = Position.at(CommitLog(self._store.layout), self._log).to_dict()
        value = {"version": _VERSION, "mirror": self._id, "log": log, "positions": positions}
        replace_file(self._path, json.dumps(value, indent=1).encode(), keep=False)


def _understood(value: Any) -> tuple[str, dict[Key, int], dict[Key, Last], Position, bool]:
    """The mirror's id, the positions, what was last copied, up to where the log was then, and if the file is older.

    An older file says nothing of what was last copied, but the copies do.

    Raises:
        ValueError, TypeError, KeyError: it is something else.
    """
    if value["version"] not in (_VERSION, _OLDER) or not _ID.fullmatch(value["mirror"]):
        raise ValueError
    positions, lasts = dict[Key, int](), dict[Key, Last]()
    for topic, broker, queue_id, offset, *last in value["positions"]:
        if not all(type(text) is str for text in (topic, broker)):
            raise ValueError
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in (queue_id, offset, *last)):
            raise ValueError
        key = Key(topic, broker, queue_id)
        positions[key] = offset
        if last:
            lasts[key] = Last(*last)
            if lasts[key].offset >= offset:
                raise ValueError
    return value["mirror"], positions, lasts, Position.from_dict(value["log"]), value["version"] == _OLDER


def _read(path: str) -> bytes | None:
    try:
        with open_file(path) as file:
            return file.read(0, _LARGEST)
    except FileNotFoundError:
        return None
