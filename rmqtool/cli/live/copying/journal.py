"""The journal of a replay: a file with a JSON object on each line, written before and after each round.

The first line says what is replayed. ``aim`` gives queues their targets, ``begin`` and ``done`` enclose a round, and
``stopped`` tells which messages of a round are stored where it has ended early. A line that is cut short was not
written.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from formats.remoting.shapes import MessageQueue
from rmqtool.client.consumer.proof import Last
from rmqtool.client.copying.replay import CannotGoOn
from rmqtool.client.copying.steps import Origin, Place, Round
from rmqtool.errors import CorruptFile, Refused, UnreadableStore

_KIND, _VERSION = "rmqtool replay", 1
_LONGEST = 16 << 20  # of a line
_MOST = 1 << 16  # messages of a round, which are in memory together


@dataclass
class Position:
    """How far a replay is.

    Attributes:
        last: place of the last message that was dealt with, and its digest.
        sent, refused: messages.
        begun: a round that is not done.
    """

    last: Place | None = None
    digest: int = 0
    sent: int = 0
    refused: int = 0
    begun: Round | None = None


class FileJournal:
    """A journal in a file, made where there is none. Use as a context manager: nobody else may write it meanwhile.

    Args:
        subject: what is replayed; another replay must not go on with the journal.
        times: since when and until when, which stay as they were when it was made: ``-1h`` means another time later.

    Attributes:
        times: as they were.
        run: in the marks of the messages.
        targets: queue to the queue that its messages go to.
        before: queue to what was before the messages of the last round that went there.
        position: how far it is.
        new: whether it was made now.

    Raises:
        UnreadableStore: it cannot be opened.
        CorruptFile: it is no journal.
        Refused: it is that of another replay, or another process writes it.
    """

    def __init__(
        self, path: str, subject: Mapping[str, Any], times: tuple[int, int], *, read_only: bool = False
    ) -> None:
        self.path, self._subject, self.times = path, dict(subject), times
        self.run, self.targets, self.position = secrets.token_hex(8), dict[Origin, MessageQueue](), Position()
        self.before: dict[MessageQueue, Last] = {}
        self.new, self._fd = True, -1
        flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT | os.O_APPEND
        try:
            self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            if read_only:
                return  # nothing was sent yet
            raise UnreadableStore(f"{path}: its directory does not exist") from None
        except OSError as err:
            raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
        try:
            self._begin(read_only)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _begin(self, read_only: bool) -> None:
        if not read_only:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Refused(f"{self.path}: another process writes this journal") from None
        end = self._read()
        if read_only:
            return
        os.ftruncate(self._fd, end)
        if self.new:
            self._write({"journal": _KIND, "version": _VERSION, "run": self.run, "times": self.times, **self._subject})
            folder = os.open(os.path.dirname(os.path.abspath(self.path)), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _read(self) -> int:
        """Where the last whole line ends."""
        end = 0
        with open(os.dup(self._fd), "rb") as file:
            while line := file.readline(_LONGEST):
                if not line.endswith(b"\n"):
                    if len(line) >= _LONGEST or (not end and not b'{"journal"'.startswith(line[:10])):
                        raise CorruptFile(self.path, end, "not a journal of rmqtool replay")
                    break
                try:
                    self._take(json.loads(line))
                except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
                    raise CorruptFile(self.path, end, "not a line of a replay's journal") from None
                end += len(line)
        return end

    def _take(self, line: dict[str, Any]) -> None:
        position = self.position
        if self.new:
            if line["journal"] != _KIND or line["version"] != _VERSION:
                raise ValueError
            other = [name for name, value in self._subject.items() if line.get(name) != value]
            if other:
                raise Refused(
                    f"{self.path}: is the journal of another replay ({', '.join(other)}): name another one, or "
                    "remove it to begin again"
                )
            since, until = line["times"]
            self.run, self.times, self.new = str(line["run"]), (int(since), int(until)), False
        elif "aim" in line:
            for topic, queue_id, *to in line["aim"]:
                self.targets[Origin(topic, queue_id)] = _queue(*to)
        elif "begin" in line:
            floors = {_queue(*queue): int(offset) for *queue, offset in line["floors"]}
            if not 0 < line["count"] <= _MOST:
                raise ValueError
            before = {_queue(*queue): Last(int(at), int(digest)) for *queue, at, digest in line.get("before", ())}
            position.begun = Round(
                Place(*line["begin"]), int(line["digest"]), int(line["count"]), floors, before=before
            )
            self.before.update(before)
        elif "stopped" in line and position.begun is not None:
            position.begun.arrived = {Place(*place) for place in line["stopped"]}
        elif "done" in line and position.begun is not None:
            position.last, position.digest = position.begun.last, position.begun.digest
            position.sent += int(line["done"])
            position.refused += len(line["refused"])
            position.begun = None
        else:
            raise ValueError

    # -- what happens -------------------------------------------------------------------------------------------------

    def aim(self, targets: Mapping[Origin, MessageQueue]) -> None:
        """Keep further targets."""
        self._write({"aim": [[*origin, *_list(queue)] for origin, queue in targets.items()]})
        self.targets.update(targets)

    def begin(self, begun: Round) -> None:
        """A round begins: durable when this returns."""
        floors = [[*_list(queue), offset] for queue, offset in begun.floors.items()]
        before = [[*_list(queue), *last] for queue, last in begun.before.items()]
        line = {"begin": begun.last, "digest": begun.digest, "count": begun.count, "floors": floors, "before": before}
        self._write(line)
        self.position.begun = begun
        self.before.update(begun.before)

    def end_round(self, begun: Round, sent: int, refused: Sequence[Place]) -> None:
        """All messages of a round are stored or refused."""
        self._write({"done": sent, "refused": list(refused)}, sync=False)  # where this is lost, the broker is asked
        position = self.position
        position.last, position.digest, position.begun = begun.last, begun.digest, None
        position.sent += sent
        position.refused += len(refused)

    def stop_round(self, arrived: Sequence[Place]) -> None:
        """A round has ended early; exactly these of it are stored."""
        self._write({"stopped": list(arrived)})

    def _write(self, line: Mapping[str, Any], *, sync: bool = True) -> None:
        data = memoryview(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        before = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            if sync:
                os.fdatasync(self._fd)
        except OSError as err:
            with suppress(OSError):
                os.ftruncate(self._fd, before)
            raise CannotGoOn(f"{self.path}: {os.strerror(err.errno or 0)}: the journal cannot be written") from err


def _list(queue: MessageQueue) -> list[str | int]:
    return [queue.topic, queue.broker_name, queue.queue_id]


def _queue(topic: str, broker_name: str, queue_id: int) -> MessageQueue:
    return MessageQueue(str(topic), str(broker_name), int(queue_id))
