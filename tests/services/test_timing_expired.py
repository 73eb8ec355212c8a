"""Expired files of the timer log: deleted by clean and by the services, and safe against kills."""

import os
from pathlib import Path
from random import Random

import pytest

from formats.variants import timer
from rmqtool import NewMessage, Store
from rmqtool.rules.releases import V5_3
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.repair.expiry import clean
from tests.services.build import TIME
from tests.services.live import SIZES
from tests.store.crashes import Killed, Seam
from tests.store.findings import check_store

UNITS = 5
CONF = SIZES | {"mappedFileSizeTimerLog": str(52 * UNITS + 16), "mappedFileSizeCommitLog": "8192"}
COUNT = 60


@pytest.fixture(autouse=True)
def _small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer, "SLOTS", 4096)
    monkeypatch.setattr(timer, "WHEEL_SIZE", 4096 * timer.SLOT_SIZE)


def prepare(path: Path) -> None:
    """A store with timer messages in several files of both logs: the first half delivered, the second waiting."""
    Store.create(path, broker_conf=CONF, release=V5_3, clock=lambda: TIME).close()
    for now, numbers, wait in ((TIME, range(COUNT // 2), 2_000), (TIME + 10_000, range(COUNT // 2, COUNT), 590_000)):
        with Store(path, write=True, broker_conf=CONF, release=V5_3, clock=lambda now=now: now) as store:  # type: ignore[misc]
            for n in numbers:
                asked = {"TIMER_DELIVER_MS": str(now + wait), "UNIQ_KEY": f"k{n}"}
                assert store.append(NewMessage(topic="T", body=b"%d" % n + bytes(300), properties=asked)).ok
        serve(path, now, 10_000)


def serve(path: Path, start: int, millis: int) -> None:
    now = [start]

    def wait(some: int) -> None:
        now[0] += some

    with Store(path, write=True, broker_conf=CONF, release=V5_3, sync_flush=True, mend=True, clock=lambda: now[0]) as s:
        RunLoop(s, lambda _text: None).run(wait, until=start + millis)


def layout_of(path: Path) -> StoreLayout:
    return StoreLayout(str(path), BrokerConf(CONF))


def bases(path: Path, folder: str) -> list[int]:
    return sorted(int(file.name) for file in (path / folder).iterdir())


def expire(path: Path, files: int) -> None:
    """Delete the oldest commit-log files as a broker's cleaning does, and nothing else."""
    for base in bases(path, "commitlog")[:files]:
        (path / "commitlog" / f"{base:020d}").unlink()


def delivered(path: Path) -> set[str]:
    log = CommitLog(layout_of(path))
    located = (item.record for item in log.walk() if isinstance(item, LocatedRecord))
    return {record.body.rstrip(b"\0").decode() for record in located if record.topic == b"T"}


def expected_left(path: Path) -> list[int]:
    """Bases of the timer-log files to keep: from the first one whose last unit points into the log."""
    low = bases(path, "commitlog")[0]
    left = bases(path, "timerlog")
    while len(left) > 1:
        data = (path / "timerlog" / f"{left[0]:020d}").read_bytes()
        unit = timer.read_unit(data, 52 * (UNITS - 1), len(data))
        assert isinstance(unit, timer.LogUnit)
        if unit.physical_offset >= low:
            break
        left.pop(0)
    return left


def test_the_services_delete_what_has_expired(tmp_path: Path) -> None:
    path = tmp_path / "store"
    prepare(path)
    assert bases(path, "timerlog")[0] == 0
    serve(path, TIME + 20_000, 2_000)
    assert bases(path, "timerlog")[0] == 0  # nothing has expired
    expire(path, 3)
    left = expected_left(path)
    assert 0 < left[0] < bases(path, "timerlog")[-1]
    serve(path, TIME + 22_000, 2_000)
    assert bases(path, "timerlog") == left
    layout = layout_of(path)
    assert [
        finding.code for finding in check_store(layout) if finding.severity == "error" and "timer" in finding.code
    ] == []
    serve(path, TIME + 590_000, 20_000)
    assert {str(n) for n in range(COUNT // 2, COUNT)} <= delivered(path)


def test_clean_deletes_it_with_the_log(tmp_path: Path) -> None:
    path = tmp_path / "store"
    prepare(path)
    for file in (path / "commitlog").iterdir():
        os.utime(file, (1, 1))
    report = clean(layout_of(path), most_files=3)
    gone = [value.file for value in report.files if value.file.startswith("timerlog/")]
    assert gone
    assert bases(path, "timerlog") == expected_left(path)
    assert [
        finding.code for finding in check_store(layout_of(path)) if is_problem(finding) and "timer" in finding.code
    ] == []
    serve(path, TIME + 590_000, 20_000)
    assert {str(n) for n in range(COUNT // 2, COUNT)} <= delivered(path)


@pytest.mark.parametrize("ending", ["killed", "power cut"])
def test_killed_at_every_step(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seam = Seam(monkeypatch)
    first = tmp_path / "first"
    prepare(first)
    expire(first, 3)
    left, stop, done, met = expected_left(first), 0, False, set()
    files = {file.relative_to(first): file.read_bytes() for file in first.rglob("*") if file.is_file()}
    while not done:
        stop += 3
        path = tmp_path / f"s{stop}"
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        seam.durable.clear()
        seam.durable.update({str(path / name): content for name, content in files.items()})
        seam.begin(stop)
        try:
            serve(path, TIME + 22_000, 1_500)
            done = True
        except Killed:
            pass
        seam.begin()
        met.add(bases(path, "timerlog")[0])
        if ending == "power cut":
            seam.cut_power(path, Random(stop))
        serve(path, TIME + 24_000, 1_000)
        assert bases(path, "timerlog") == left, stop
        serve(path, TIME + 590_000, 20_000)
        assert {str(n) for n in range(COUNT // 2, COUNT)} <= delivered(path), stop
    assert len(met) > 2  # some were ended between two files
