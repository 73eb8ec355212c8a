"""A full disk, or no descriptors, while a store is open: nothing is half appended, and everything continues."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import NoRoom, RmqError
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.opened import read_store
from rmqtool.services.open_store.store import Store
from rmqtool.store.append.outgoing import NewMessage
from rmqtool.store.append.space import WritePlaces
from tests.amounts import by_turns, some

pytestmark = pytest.mark.slow

CONF = {
    "mappedFileSizeCommitLog": "8192",
    "mappedFileSizeConsumeQueue": "200",
    "maxIndexNum": "30",
    "maxHashSlotNum": "7",
}
PWRITE, FALLOCATE, OPEN, LINK, REPLACE = os.pwrite, os.posix_fallocate, os.open, os.link, os.replace


class Disk:
    """Has space, or descriptors, for a number of steps, then none until freed. The last write is partial, and zeros
    find space where something was written.
    """

    def __init__(self, patch: pytest.MonkeyPatch, error: int) -> None:
        self.error, self.count, self.room = error, 0, -1
        if error == errno.EMFILE:
            patch.setattr(os, "open", self._step(OPEN))
            return
        patch.setattr(os, "pwrite", self._pwrite)
        for name, real in (("posix_fallocate", FALLOCATE), ("link", LINK), ("replace", REPLACE)):
            patch.setattr(os, name, self._step(real))

    @property
    def full(self) -> bool:
        return 0 <= self.room < self.count

    def _step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.full:
                raise OSError(self.error, os.strerror(self.error))
            return real(*args, **kwargs)

        return step

    def _pwrite(self, fd: int, data: Any, at: int) -> int:
        self.count += 1
        if not self.full or not bytes(data).strip(b"\0"):
            return PWRITE(fd, data, at)
        if self.count == self.room + 1 and len(data) > 1:
            return PWRITE(fd, bytes(data)[: (len(data) + 1) // 2], at)
        raise OSError(self.error, os.strerror(self.error))


@contextmanager
def opened(path: Path, conf: dict[str, str]) -> Iterator[Store]:
    store = (
        Store(path, write=True, broker_conf=conf, mend=True) if path.exists() else Store.create(path, broker_conf=conf)
    )
    with store:
        yield store


class Lab:
    """A store with messages of several kinds, and the acknowledged ones."""

    def __init__(self, store: Store) -> None:
        self.store, self.state, self.reading = store, BrokerState(store, lambda _text: None), read_store(store)
        self.acknowledged: list[bytes] = []
        self.refused: list[bytes] = []
        self.number = 0

    def message(self, size: int = 300) -> NewMessage:
        self.number += 1
        body = b"%d-" % self.number + bytes([self.number % 251 + 1]) * size
        return NewMessage(topic="T", queue_id=self.number % 3, body=body, keys=f"k{self.number}", tags="t")

    def put(self, count: int, append: Callable[[list[NewMessage]], object]) -> None:
        messages = [self.message() for _ in range(count)]
        try:
            append(messages)
        except NoRoom:
            self.refused += [message.body for message in messages]
        else:
            self.acknowledged += [message.body for message in messages]

    def run(self) -> None:
        store = self.store
        for turn in range(3):
            self.put(1, lambda messages: store.append(messages[0]))
            self.put(9, store.append_many)
            self.put(20, store.append_many)  # by a kernel
            self.try_to(lambda: self.state.set_offset("T", "g", 0, self.number))
            self.try_to(store.flush if turn == 1 else store.live.flush_beside)
            self.drain()
            self.try_to(self.state.persist)

    def try_to(self, job: Callable[[], object]) -> None:
        try:
            job()
        except (OSError, RmqError):
            assert not self.store.live.broken

    def drain(self) -> list[bytes]:
        """Check that consumers get each acknowledged message once, as far as queues could be written."""
        result: list[bytes] = []
        try:
            for queue_id in range(3):
                at = 0
                while (got := self.reading.pull("T", queue_id, at, 32)).messages:
                    result += [self.body(bytes(message)) for message in got.messages]
                    at = got.next_begin_offset
                assert got.status in ("OFFSET_OVERFLOW_ONE", "NO_MESSAGE_IN_QUEUE"), got.status
        except (OSError, RmqError):
            assert not self.store.live.broken
        assert len(set(result)) == len(result)
        assert set(result) <= set(self.acknowledged)
        return result

    @staticmethod
    def body(record: bytes) -> bytes:
        from formats.message.read import Record, read

        unit = read(record, 0, len(record))
        assert isinstance(unit, Record)
        return bytes(unit.body)


@by_turns(13)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE], ids=["full", "descriptors"])
@pytest.mark.parametrize("more", [{}, {"enableConsumeQueueExt": "true"}, {"flushDiskType": "SYNC_FLUSH"}], ids=str)
def test_at_any_step(error: int, more: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WritePlaces, "need_space", lambda *_args: None)  # it becomes full between two looks
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    disk, conf = Disk(monkeypatch, error), CONF | more
    with opened(tmp_path / "whole", conf) as store:
        disk.count = 0
        Lab(store).run()
        steps = disk.count
    refused = 0
    for room in range(0, steps, some(7, 1) * 2 + 1):
        path = tmp_path / f"store{room}"
        with opened(path, conf) as store:
            lab = Lab(store)
            disk.count, disk.room = 0, room
            lab.run()
            assert not store.live.broken, room
            disk.room = -1
            lab.reading = read_store(store)
            lab.run()
            assert sorted(lab.drain()) == sorted(lab.acknowledged), room
            refused += len(lab.refused)
            keyed = [store.query_key("T", f"k{number}") for number in range(1, lab.number + 1)]
            assert sorted(bytes(located.record.body) for result in keyed for located in result) == sorted(
                lab.acknowledged
            )
        with Store(path, broker_conf=conf) as again:
            assert [bytes(located.record.body) for located in again.messages()] == lab.acknowledged
        assert not (path / "abort").exists()
    assert refused
