"""The journal of a replay: a file with a JSON object on each line, written before and after each round.

The first line says what is replayed. ``aim`` assigns targets to queues, ``begin`` and ``done`` enclose a round, and
``stopped`` says which messages of a round that ended early are stored. ``before`` and ``last`` have, for each queue,
the message before those of a round and the last one of it, which prove that the queue is the same. An incomplete last
line is ignored.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from stat import S_ISREG
from typing import Any, Self

from formats.remoting.shapes import MessageQueue
from rmqtool.client.consumer.proof import Last
from rmqtool.client.copying.replay import CannotGoOn
from rmqtool.client.copying.steps import CopyRound, InputPlace, OriginQueue
from rmqtool.errors import CorruptFile, Refused, UnreadableStore

_KIND, _VERSION = "rmqtool replay", 1
_LONGEST = 16 << 20  # of a line
_MOST = 1 << 16  # messages of a round, all in memory at once


@dataclass
class ReplayPosition:
    """The progress of a replay.

    Attributes:
        last: place of the last message handled, and its digest.
        sent, refused: messages.
        begun: a round that is not finished.
    """

    last: InputPlace | None = None
    digest: int = 0
    sent: int = 0
    refused: int = 0
    begun: CopyRound | None = None


class FileJournal:
    """A journal in a file, created if missing. Use as a context manager: it is locked meanwhile.

    Args:
        subject: what is replayed; a journal of another subject is refused.
        times: since and until; an existing journal keeps its own, as ``-1h`` means another time now.

    Attributes:
        times: since and until, as first given.
        run: the id in the marks of the messages.
        targets: queue to the queue that its messages go to.
        before: queue to the last message known to be there, before those of the last round or of them.
        position: the progress.
        new: whether it was created now.

    Raises:
        UnreadableStore: it cannot be opened, or is not a regular file.
        CorruptFile: it is not a journal.
        Refused: it belongs to another replay, or another process is writing it.
    """

    def __init__(
        self, path: str, subject: Mapping[str, Any], times: tuple[int, int], *, read_only: bool = False
    ) -> None:
        self.path, self._subject, self.times = path, dict(subject), times
        self.run, self.targets, self.position = (
            secrets.token_hex(8),
            dict[OriginQueue, MessageQueue](),
            ReplayPosition(),
        )
        self.before: dict[MessageQueue, Last] = {}
        self.new, self._fd = True, -1
        flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT | os.O_APPEND
        try:
            self._fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)  # a FIFO would wait for its other end
        except FileNotFoundError:
            if read_only:
                return  # nothing was sent yet
            raise UnreadableStore(f"{path}: its directory does not exist") from None
        except OSError as err:
            raise UnreadableStore(f"{path}: {os.strerror(err.errno or 0)}") from err
        try:
            if not S_ISREG(os.fstat(self._fd).st_mode):  # /dev/null, say, keeps nothing of what was sent
                raise UnreadableStore(f"{path}: not a regular file")
            self._begin(read_only)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Unlock and close it."""
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
        """Read the journal; returns where the last complete line ends."""
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
                self.targets[OriginQueue(topic, queue_id)] = _queue(*to)
        elif "begin" in line:
            floors = {_queue(*queue): int(offset) for *queue, offset in line["floors"]}
            if not 0 < line["count"] <= _MOST:
                raise ValueError
            before = _proofs(line.get("before", ()))
            position.begun = CopyRound(
                InputPlace(*line["begin"]), int(line["digest"]), int(line["count"]), floors, before=before
            )
            self.before.update(before)
        elif "stopped" in line and position.begun is not None:
            position.begun.arrived = {InputPlace(*place) for place in line["stopped"]}
            self.before.update(_proofs(line.get("last", ())))
        elif "done" in line and position.begun is not None:
            position.last, position.digest = position.begun.last, position.begun.digest
            position.sent += int(line["done"])
            position.refused += len(line["refused"])
            position.begun = None
            self.before.update(_proofs(line.get("last", ())))
        else:
            raise ValueError

    # -- what happens -------------------------------------------------------------------------------------------------

    def aim(self, targets: Mapping[OriginQueue, MessageQueue]) -> None:
        """Record further targets."""
        self._write({"aim": [[*origin, *_list(queue)] for origin, queue in targets.items()]})
        self.targets.update(targets)

    def begin(self, begun: CopyRound) -> None:
        """Record the beginning of a round, durably."""
        floors = [[*_list(queue), offset] for queue, offset in begun.floors.items()]
        line = {"begin": begun.last, "digest": begun.digest, "count": begun.count, "floors": floors}
        self._write({**line, "before": _listed(begun.before)})
        self.position.begun = begun
        self.before.update(begun.before)

    def end_round(
        self, begun: CopyRound, sent: int, refused: Sequence[InputPlace], last: Mapping[MessageQueue, Last]
    ) -> None:
        """Record that all messages of a round are stored or refused."""
        line = {"done": sent, "refused": list(refused), "last": _listed(last)}
        self._write(line, sync=False)  # if this is lost, the broker is asked
        self.before.update(last)
        position = self.position
        position.last, position.digest, position.begun = begun.last, begun.digest, None
        position.sent += sent
        position.refused += len(refused)

    def stop_round(self, arrived: Sequence[InputPlace], last: Mapping[MessageQueue, Last]) -> None:
        """Record that a round ended early with exactly these messages stored."""
        self._write({"stopped": list(arrived), "last": _listed(last)})
        self.before.update(last)

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


def _listed(proofs: Mapping[MessageQueue, Last]) -> list[list[str | int]]:
    return [[*_list(queue), *last] for queue, last in proofs.items()]


def _proofs(listed: Iterable[Sequence[Any]]) -> dict[MessageQueue, Last]:
    return {_queue(*queue): Last(int(at), int(digest)) for *queue, at, digest in listed}
