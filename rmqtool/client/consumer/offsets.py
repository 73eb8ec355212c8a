"""Offsets of a group: at brokers, or in a local file (client.consumer.store)."""

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from formats.errors import FormatError
from formats.remoting.shapes import MessageQueue
from formats.topics import RETRY_PREFIX
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consumer.options import From
from rmqtool.client.consumer.puller import Puller
from rmqtool.remoting.errors import RemotingError
from rmqtool.rules.broadcast import QueueName, build, parse

log = logging.getLogger(__name__)

_HALF_AN_HOUR = 30 * 60 * 1000  # ms


async def find_beginning(puller: Puller, queue: MessageQueue, start: From, start_time: int | None, began: int) -> int:
    """The offset at which a new group begins; ``From.FIRST`` is 0: if the broker no longer has it, it answers with
    another.

    For that, no broker is asked, as in Java: with ACL 2.0 asking takes more than the right to consume.

    Args:
        start_time: for ``From.TIMESTAMP``, in ms; by default half an hour before ``began``, when the consumer was
            created.

    Raises:
        NoRoute, RemotingError, BrokerError: the broker does not answer.
    """
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if start == From.FIRST or (start == From.LAST and is_retry):
        return 0
    if start == From.LAST or is_retry:
        return await puller.end(queue)
    return await puller.offset_at(queue, began - _HALF_AN_HOUR if start_time is None else start_time)


class RemoteOffsets:
    """Offsets kept at brokers.

    Args:
        puller: gives the puller of a topic.
    """

    def __init__(self, puller: Callable[[str], Puller]) -> None:
        self._puller = puller
        self._failing: set[MessageQueue] = set()

    async def open(self) -> None:
        """Do nothing."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset of the group, or None.

        Raises:
            ClientError, RemotingError: the broker does not answer.
        """
        return await self._puller(queue.topic).committed(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets; failures are retried next time, and logged as warnings once for a queue until it succeeds."""
        for queue, offset in offsets.items():
            try:
                await self._puller(queue.topic).commit(queue, offset)
            except (ClientError, RemotingError) as err:
                level = logging.INFO if queue in self._failing else logging.WARNING
                log.log(level, "%s: the offset %d is not kept yet: %s", queue, offset, err)
                self._failing.add(queue)
            else:
                self._failing.discard(queue)

    async def close(self) -> None:
        """Do nothing."""


_MOST_BYTES = 64 << 20
DEFAULT_FOLDER = Path("~/.rocketmq_offsets")


class LocalOffsets:
    """The file ``<folder>/<clientId>/<group>/offsets.json``, where Java's client has it and in its form.

    The previous file is kept as ``offsets.json.bak``, and read if the other cannot be. Offsets of other queues in the
    file are kept. The folder is locked, so that only one consumer writes it.

    Args:
        folder: where the files of all clients are.

    Raises:
        ValueError: an id that is not a folder name.
    """

    def __init__(self, folder: Path | None, client_id: str, group: str) -> None:
        if "/" in client_id or client_id in {"", ".", ".."}:
            raise ValueError(f"client_id {client_id!r}: no name for a folder of offsets")
        base = (DEFAULT_FOLDER if folder is None else folder).expanduser()
        self.path = Path(os.path.realpath(base / client_id / group / "offsets.json"))
        self._table: dict[QueueName, int] = {}
        self._written: dict[QueueName, int] | None = None
        self._lock: int | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Read the file.

        Raises:
            ClientError: it and its ``.bak`` cannot be read, or another consumer writes it.
        """
        await asyncio.to_thread(self._open)

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset of the consumer, or None."""
        offset = self._table.get(QueueName(queue.topic, queue.broker_name, queue.queue_id))
        return None if offset is None or offset < 0 else offset

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Rewrite the file; failures are retried next time."""
        async with self._turn:
            self._table |= {QueueName(q.topic, q.broker_name, q.queue_id): offset for q, offset in offsets.items()}
            table = dict(self._table)
            if table == self._written or self._lock is None:
                return
            try:
                await asyncio.to_thread(self._write, build(dict(sorted(table.items()))))
                self._written = table
            except OSError as err:
                log.warning("%s: offsets are not kept yet: %s", self.path, err.strerror or err)

    async def close(self) -> None:
        """Unlock the file."""
        async with self._turn:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as err:
            raise ClientError(f"{self.path.parent}: {err.strerror or err}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise ClientError(
                f"{self.path}: another consumer keeps its offsets there; give each a client_id of its own"
            ) from None
        except OSError as err:  # not on every file system
            log.warning("%s: cannot be locked: %s", self.path.parent, err.strerror or err)
        self._table = self._read()

    def _read(self) -> dict[QueueName, int]:
        failure: Exception | None = None
        for path in (self.path, self.path.with_name("offsets.json.bak")):
            try:
                if path.exists() and not path.is_file():
                    raise ClientError(f"{path}: not a regular file")  # a FIFO would wait for its other end
                with open(path, "rb") as file:
                    data = file.read(_MOST_BYTES + 1)
                if len(data) > _MOST_BYTES:
                    raise ClientError(f"{path}: more than {_MOST_BYTES} bytes")
                if data.strip():
                    return parse(data)
            except FileNotFoundError:
                continue
            except OSError as err:
                failure = failure or ClientError(f"{path}: {err.strerror or err}")
            except FormatError as err:
                failure = failure or ClientError(f"{path}: byte {err.at}: {err.reason}")
            except ClientError as err:
                failure = failure or err
        if failure is not None:
            raise failure
        return {}

    def _write(self, data: bytes) -> None:
        try:
            before = self.path.read_bytes()
        except FileNotFoundError:
            pass
        else:
            _replace(self.path.with_name("offsets.json.bak"), before)
        _replace(self.path, data)
        if self._lock is not None:
            os.fsync(self._lock)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically."""
    new = path.with_name(path.name + ".tmp")
    try:
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
