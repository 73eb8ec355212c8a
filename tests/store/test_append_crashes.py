"""Append with a power cut or kill -9 at every step: acknowledged messages are there, the rest is a prefix."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from rmqtool import NewMessage, Store
from rmqtool.store.append import live
from rmqtool.store.append.create import create
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns, some
from tests.cli.running import RMQTOOL
from tests.store.crashes import Killed, Seam
from tests.store.findings import check_store
from tests.store.helpers import content

pytestmark = pytest.mark.slow

SIZES = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "7",
    "maxIndexNum": "40",
}
MESSAGES = [
    NewMessage(
        topic="ab"[n % 2],
        queue_id=n % 3,
        body=b"%d" % n * (n % 40),
        keys=f"k{n % 9}",
        born_timestamp=n,
        store_timestamp=10**12 + n,
    )
    for n in range(60)
]


def open_again(path: Path, *, sync_flush: bool = True) -> Store:
    return Store(path, write=True, broker_conf=SIZES, sync_flush=sync_flush, mend=True)


def append_rest(store: Store, acknowledged: list[int], *, flush_at: int) -> None:
    """Append one by one, in batches and many at once, with a dispatch and a flush in between."""
    number = sum(1 for _message in store.messages())
    while number < len(MESSAGES):
        if number % 7 == 3:
            part = MESSAGES[number : number + 5]
            results = list(store.append_many(part))
        else:
            part = MESSAGES[number : number + 1]
            results = [store.append(part[0])]
        assert all(result.ok for result in results)
        number += len(part)
        acknowledged[0] = number
        if number % flush_at == 0:
            store.dispatch()
        if number % (2 * flush_at) == 0:
            store.flush()


def bodies(path: Path) -> list[bytes]:
    with Store(path, broker_conf=SIZES) as store:
        return [item.record.body for item in store.messages()]


def errors(path: Path) -> list[str]:
    layout = StoreLayout(str(path), BrokerConf(SIZES))
    return [finding.code for finding in check_store(layout) if finding.severity == "error"]


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """An uninterrupted store, and its content."""
    path = tmp_path / "whole"
    create(str(path), BrokerConf(SIZES))
    with open_again(path) as store:
        append_rest(store, [0], flush_at=10)
    return path, log_and_queues(path)


def log_and_queues(path: Path) -> dict[str, str]:
    return {name: digest for name, digest in content(path).items() if name.startswith(("commitlog", "consumequeue"))}


@by_turns(13)
@pytest.mark.parametrize("dispatched", ["when asked", "beside"])
@pytest.mark.parametrize("ending", ["killed", "power cut", "power cut here and there"])
def test_at_every_step(
    ending: str, dispatched: str, tmp_path: Path, whole: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seam = Seam(monkeypatch)
    if dispatched == "beside":
        monkeypatch.setattr(live, "_DISPATCH_BYTES", 500)
    steps, stop, lost = None, 0, 0
    while steps is None:
        stop += some(11, 1 if ending == "killed" else 3)
        path = tmp_path / f"s{stop}"
        seam.begin()
        create(str(path), BrokerConf(SIZES))
        seam.begin(stop)
        acknowledged = [0]
        try:
            with open_again(path) as store:
                append_rest(store, acknowledged, flush_at=10)
            steps = stop
        except Killed:
            pass
        seam.end(ending, path, stop)
        seam.durable.clear()
        (path / "commitlog").mkdir(exist_ok=True)
        with open_again(path) as store:
            result = [item.record.body for item in store.messages()]
            assert result == [message.body for message in MESSAGES[: len(result)]], stop
            assert len(result) >= acknowledged[0], stop
            lost += len(result) - acknowledged[0]
            append_rest(store, [0], flush_at=10)
        assert log_and_queues(path) == whole[1], stop
        assert errors(path) == [], stop
    assert steps > 150
    if ending != "power cut":
        assert lost > 0  # some message was written and not yet acknowledged


@by_turns(3)
def test_killed_without_a_word(tmp_path: Path) -> None:
    """kill -9 of the command again and again; its input continues after what the log has."""
    path = tmp_path / "s"
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()).replace("=4096", "=65536"))
    sizes = SIZES | {"mappedFileSizeCommitLog": "65536"}
    create(str(path), BrokerConf(sizes))
    rng, total, kills = Random(9), some(15_000, 60_000), 0
    lines = [json.dumps({"topic": "ab"[n % 2], "body": str(n), "keys": [f"k{n % 9}"]}) + "\n" for n in range(total)]
    command = [*RMQTOOL, "append", str(path), "-o", "ndjson", "--broker-conf", str(conf)]
    done = 0
    while done < total:
        (tmp_path / "in").write_text("".join(lines[done:]))
        with open(tmp_path / "in") as stdin, open(tmp_path / "out", "wb") as stdout:
            process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
            if kills < 6:
                # some before it has begun, some in the middle of it
                with suppress(subprocess.TimeoutExpired):
                    process.wait(rng.uniform(0.15, 0.6))
            else:
                process.wait(300)
            kills += process.poll() is None
            process.kill()
            _, stderr = process.communicate()
            assert process.returncode in (0, -9), stderr
        whole_lines = [line for line in (tmp_path / "out").read_bytes().split(b"\n")[:-1] if line]
        acknowledged = [json.loads(line) for line in whole_lines]
        assert all(row["status"] == "PUT_OK" for row in acknowledged)
        with Store(path, broker_conf=sizes) as store:
            result = [item.record.body for item in store.messages()]
        assert result == [str(n).encode() for n in range(len(result))]
        assert len(result) >= done + len(acknowledged)
        done = len(result)
    assert kills >= 3
    layout = StoreLayout(str(path), BrokerConf(sizes))
    assert [f.code for f in check_store(layout) if f.severity == "error"] == []
