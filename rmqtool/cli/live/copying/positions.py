"""How far a mirror is: a file in the store's folder, and the marks of the messages behind what it says.

The file says where the mirror was in each queue when the log had a length that it names too. Behind that the marks of
the messages themselves tell, so that a message and the position behind it are stored in one write: a kill between them
is not possible.
"""

import json
import re
import secrets
from typing import NamedTuple

from formats.message.properties import parse
from formats.remoting.shapes import MessageQueue
from rmqtool.client.copying.steps import ORIGIN
from rmqtool.errors import CorruptFile, Refused
from rmqtool.services.opened.engine import Store
from rmqtool.store.disk.durable import replace_file
from rmqtool.store.disk.files import open_file
from rmqtool.store.log.commit_log import Found

FILE = "config/rmqtoolMirror.json"
_VERSION, _LARGEST = 1, 64 << 20  # bytes
_MARK = re.compile(r"([0-9a-f]{16}):(.+):([0-9]{1,10}):([0-9]{1,19})", re.ASCII)


class Key(NamedTuple):
    """A queue of the origin."""

    topic: str
    broker_name: str
    queue_id: int


def key_of(queue: MessageQueue) -> Key:
    """Its place in the file."""
    return Key(queue.topic, queue.broker_name, queue.queue_id)


class Positions:
    """Next offsets of the queues that are mirrored into a store that is open for writing.

    Attributes:
        at: queue to the offset of the next message.

    Raises:
        CorruptFile: the file is not one of a mirror.
        Refused: the log lacks messages that the file knows of.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._path = store, store.layout.path(FILE)
        self._id, self.at, log = secrets.token_hex(8), dict[Key, int](), store.live.end
        if (data := _read(self._path)) is not None:
            try:
                found = json.loads(data)
                if found["version"] != _VERSION:
                    raise ValueError
                self._id, log = str(found["mirror"]), int(found["log"])
                self.at = {Key(str(t), str(b), int(q)): int(offset) for t, b, q, offset in found["positions"]}
            except (ValueError, TypeError, KeyError, RecursionError):
                raise CorruptFile(self._path, None, "no positions of a mirror") from None
        if log > store.live.end:
            raise Refused(
                f"{store.layout.root}: the log ends at {store.live.end}, and the mirror was at {log}: messages that it "
                "has copied are gone; mirror into another store"
            )
        for item in store.messages(log, None):
            if isinstance(item, Found):
                self._take(item)

    def _take(self, found: Found) -> None:
        mark = _MARK.fullmatch(parse(found.record.properties).get(ORIGIN, ""))
        if mark is not None and mark[1] == self._id:
            key = Key(found.record.topic.decode("utf-8", "replace"), mark[2], int(mark[3]))
            self.at[key] = max(self.at.get(key, 0), int(mark[4]) + 1)

    def mark(self, key: Key, offset: int) -> str:
        """What a message of a queue carries."""
        return f"{self._id}:{key.broker_name}:{key.queue_id}:{offset}"

    def save(self) -> None:
        """Make the messages durable, then the file that speaks of them."""
        self._store.flush()
        positions = [[*key, offset] for key, offset in sorted(self.at.items())]
        value = {"version": _VERSION, "mirror": self._id, "log": self._store.live.end, "positions": positions}
        replace_file(self._path, json.dumps(value, indent=1).encode(), keep=False)


def _read(path: str) -> bytes | None:
    try:
        with open_file(path) as file:
            return file.read(0, _LARGEST)
    except FileNotFoundError:
        return None
