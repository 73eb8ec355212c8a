"""A log followed while a broker writes it: every record once, in order, whole, across files."""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from rmqtool.client import Message
from rmqtool.client.sync import Producer
from rmqtool.errors import Refused
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import Damage, LocatedRecord
from rmqtool.store.log.scan import scan_log
from rmqtool.store.log.tail import follow
from rmqtool.testing.embedded import broker
from tests import roles
from tests.cli.running import RMQTOOL, ROOT, rmqtool
from tests.conftest import Unpacked
from tests.services.build import Builder, log_of, never

SIZES = {"mappedFileSizeCommitLog": str(64 << 10), "mappedFileSizeConsumeQueue": "2000"}


def test_every_record_once_over_rolls(tmp_path: Path) -> None:
    store, seen = tmp_path / "store", []
    with broker(store, settings=SIZES) as served, Producer(served.namesrv) as producer:
        producer.send(Message("Orders", b"first"))
        start, done = log_of(store, **SIZES).end()[0], threading.Event()
        looks = 0

        def wait(_millis: int) -> bool:
            nonlocal looks
            looks += done.is_set()
            time.sleep(0.01)
            return looks < 5

        def watch() -> None:
            layout = StoreLayout(str(store), BrokerConf(SIZES))
            seen.extend(bytes(item.record.body) for item in follow(layout, start, wait, never) if item is not None)

        thread = threading.Thread(target=watch)
        thread.start()
        for number in range(1500):
            producer.send(Message("Orders", b"%d-" % number + b"x" * (number % 400)))
        done.set()
        thread.join(60)
    assert len(log_of(store, **SIZES).segments.files) > 4
    assert seen == [b"%d-" % number + b"x" * (number % 400) for number in range(1500)]


def test_a_record_that_is_being_written_is_held_back(tmp_path: Path) -> None:
    builder = Builder()
    for number in range(3):
        builder.put("T", body=b"body" * 20, properties={"a": str(number)})
    store = builder.write(tmp_path)
    path = store / "commitlog" / f"{0:020d}"
    whole = path.read_bytes()
    last = [item for item in log_of(store).walk() if isinstance(item, LocatedRecord)][-1]
    path.write_bytes(whole[: last.end - 1].ljust(len(whole), b"\0"))  # its last byte is not there yet
    steps = iter([whole, whole, whole, None])

    def wait(_millis: int) -> bool:
        content = next(steps)
        if content is not None:
            with path.open("r+b") as file:
                file.write(content)
        return content is not None

    result = [item for item in follow(StoreLayout(str(store), BrokerConf()), 0, wait, never) if item is not None]
    assert [bytes(item.record.properties) for item in result] == [b"a\x010", b"a\x011", b"a\x012"]


@pytest.mark.parametrize("is_old", [False, True])
def test_a_walk_waits_for_a_record_that_is_being_written(
    is_old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not if the file has not changed for long: then it is damaged."""
    store = _store_of(tmp_path, b"0", b"1", b"2")
    path, begun = store / "commitlog" / f"{0:020d}", list[float]()
    whole = path.read_bytes()
    records = [item for item in log_of(store).walk() if isinstance(item, LocatedRecord)]
    path.write_bytes(whole[: records[2].physical_offset + 7].ljust(len(whole), b"\0"))
    if is_old:
        os.utime(path, (time.time() - 3600,) * 2)

    def sleep(seconds: float) -> None:
        begun.append(seconds)
        if seconds:
            with path.open("r+b") as file:
                file.write(whole)

    monkeypatch.setattr("rmqtool.store.log.commit_log.sleep", sleep)
    items = list(log_of(store).walk())
    assert [type(item) for item in items] == [LocatedRecord] * 2 + [Damage if is_old else LocatedRecord]
    assert any(begun) is not is_old
    if not is_old:
        path.write_bytes(whole[: records[2].physical_offset + 7].ljust(len(whole), b"\0"))
        found = [part for part in scan_log(log_of(store)) if isinstance(part, Damage)]
        assert not found


def _store_of(folder: Path, *bodies: bytes) -> Path:
    builder = Builder()
    for body in bodies:
        builder.put("T", body=body)
    return builder.write(folder)


@pytest.mark.parametrize("shown", [[b"2", b"3"], []])
@pytest.mark.parametrize("kept", [[b"0", b"1"], []])
def test_a_log_that_is_not_the_one_that_was_read(kept: list[bytes], shown: list[bytes], tmp_path: Path) -> None:
    """Cut at a broker's start and written again, or another store's log in its place; both grow past the position."""
    store = _store_of(tmp_path / "store", b"0", b"1", b"2", b"3")
    other = _store_of(tmp_path / "other", *kept, *[b"new"] * 9)
    records = [item for item in log_of(store).walk() if isinstance(item, LocatedRecord)]
    name, result = f"commitlog/{0:020d}", list[bytes]()

    def wait(_millis: int) -> bool:
        if len(result) == len(shown):
            (store / name).write_bytes((other / name).read_bytes())
        return True

    start, last = (records[2].physical_offset, None) if shown else (records[-1].end, records[-1])
    with pytest.raises(Refused, match="read last, is not there any more"):
        result.extend(
            bytes(item.record.body)
            for item in follow(StoreLayout(str(store), BrokerConf()), start, wait, never, last=last)
            if item is not None
        )
    assert result == shown


def test_the_command_until_a_signal(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with broker(store) as served, Producer(served.namesrv) as producer:
        producer.send(Message("Orders", b"before"))
        command = [*RMQTOOL, "commitlog", "dump", str(store), "--follow", "-o", "ndjson", "--topic", "Orders"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        rows = []
        for number in range(100):
            producer.send(Message("Orders", b"%d" % number))
            time.sleep(0.05)
        while not rows or rows[-1] != "99":
            rows.append(json.loads(process.stdout.readline())["body"])
        process.terminate()
        _out, err = process.communicate(timeout=20)
    assert rows == [str(number) for number in range(100)][-len(rows) :]
    assert len(rows) > 10
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("case", ["broker", "head-file-deleted", "rocksdb-5.5.0-crash"])
def test_the_command_from_the_beginning_of_the_log(case: str, golden: Unpacked) -> None:
    """An offset of 0 is one; a log whose first files expired begins later."""
    options = ("--limit", "3", "--output", "csv")
    whole = rmqtool("commitlog", "dump", golden(case), *options)
    result = rmqtool("commitlog", "dump", golden(case), "--follow", "--offset", "0:", *options)
    assert (result.code, result.out) == (0, whole.out)
    assert len(result.out.splitlines()) == 4


def test_the_command_says_what_only_the_tier_has(tmp_path: Path) -> None:
    node = roles.unpack(roles.TIERED, "a", tmp_path)
    result = rmqtool("commitlog", "dump", node.store, "--follow", "--offset", "0:", "--limit", "1", *node.options())
    assert result.code == 0
    assert "are in the tier alone" in result.err
