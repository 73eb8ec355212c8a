"""What check predicts of the next start follows the rules of the store's release, as recovery does."""

from pathlib import Path

import pytest

from formats import checkpoint
from formats.message.read import Record, read
from rmqtool.rules.releases import V4_9, V5_3, V5_5, V5_5_1, Release
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import plan
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.findings import check_store
from tests.store.helpers import conf_of, cut_queues, rewrite
from tests.store.test_recover_engines import lengthen_blank

CASE = "clean"  # four commit-log files, stopped cleanly


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), conf_of(CASE))


def logs(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def only(store: Path, code: str) -> Finding:
    (result,) = [finding for finding in check_store(layout_of(store)) if finding.code == code]
    return result


def damage(path: Path) -> None:
    """Damage a record near the beginning of a file."""
    data = path.read_bytes()
    first = read(data, 0, len(data))
    assert isinstance(first, Record)
    with path.open("r+b") as file:
        file.seek(first.total_size)
        file.write(bytes(8))


def shown(store: Path, release: str) -> None:
    """Turn it into a store of this release."""
    if release == "5.3":
        (store / "abort.bak").write_bytes(b"17")


@by_turns(2)
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("lag", [None, 2, 1])
@pytest.mark.parametrize("release", ["4.9", "5.3"])
def test_whether_damage_is_met_after_a_clean_stop(
    release: str, lag: int | None, number: int, golden_copy: Unpacked
) -> None:
    """4.9 reads the last three files, 5.3 from where its queues end."""
    store = golden_copy(CASE)
    shown(store, release)
    files = logs(store)
    if lag is not None:
        cut_queues(layout_of(store), behind=int(files[lag].name) + 1)
    damage(files[number])
    report = plan(layout_of(store))
    assert report.engine == release
    assert report.startFile is not None
    met = report.startFile <= f"commitlog/{files[number].name}"
    assert met == (number >= (len(files) - 3 if release == "4.9" else len(files) - 1 if lag is None else lag))
    text = only(store, "log-damage").consequence
    assert text.startswith(
        "a broker's next start ends the log here" if met else "the next start does not check this file"
    )


@pytest.mark.parametrize("release", ["4.9", "5.3"])
def test_after_a_crash_5_3_also_takes_a_file_that_begins_with_a_v2_record(release: str, golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    shown(store, release)
    (store / "abort").touch()
    files = logs(store)
    first = next(
        item
        for item in CommitLog(layout_of(store)).walk()
        if isinstance(item, LocatedRecord) and item.file.path == str(files[2])
    )
    point = checkpoint.parse((store / "checkpoint").read_bytes())
    time = first.record.store_timestamp + 3000
    new = point._replace(physic_msg_timestamp=time, logics_msg_timestamp=time)
    (store / "checkpoint").write_bytes(checkpoint.build(new))
    damage(files[1])
    start = plan(layout_of(store)).startFile
    assert start == f"commitlog/{files[2].name}"
    assert only(store, "log-damage").consequence.startswith("the next start does not check this file")
    rewrite(first, body=first.record.body[1:], version=2)
    start = plan(layout_of(store)).startFile
    assert start == f"commitlog/{files[2 if release == '5.3' else 1].name}"
    looks = only(store, "log-damage").consequence.startswith("a broker's next start ends the log here")
    assert looks == (release == "4.9")


@pytest.mark.parametrize(("release", "severity"), [("4.9", "info"), ("5.3", "error")])
def test_a_blank_beyond_its_file(release: str, severity: str, golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    shown(store, release)
    at = lengthen_blank(store)
    finding = only(store, "log-blank-size")
    assert (finding.severity, finding.offset) == (severity, at)
    if release == "5.3":
        assert finding.consequence.startswith("a broker's next start ends the log here and cuts off")
        assert plan(layout_of(store)).lost
    else:
        assert not plan(layout_of(store)).lost


@pytest.mark.parametrize(("release", "size", "severity"), [
    (V4_9, -7, "info"), (V5_3, -7, "info"), (V5_5, -7, "warning"), (V5_5_1, -7, "error"),
    (V5_3, -(2**31), "error"), (V5_3, 3 - 2**31, "error"), (V5_3, 4 - 2**31, "info"), (V4_9, -(2**31), "info"),
])  # fmt: skip
def test_a_blank_of_negative_size(release: Release, size: int, severity: str, golden_copy: Unpacked) -> None:
    """5.5.1 takes it for damage; before it, 5.x does if the subtraction of four overflows."""
    store = golden_copy(CASE)
    at = lengthen_blank(store, size)
    (finding,) = [f for f in check_store(layout_of(store), release=release) if f.code == "log-blank-size"]
    assert (finding.severity, finding.offset) == (severity, at)
    assert any("salvage" in step.command for step in finding.steps) == (severity != "info")
    report = plan(layout_of(store), release=release)
    assert bool(report.lost) == (severity == "error")
    assert report.engineReason == ("asked for as 5.5.1" if release is V5_5_1 else "asked for")


def test_what_does_not_tell_the_release_is_no_obstacle(golden_copy: Unpacked) -> None:
    store = golden_copy(CASE)
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").mkdir()
    assert {finding.code for finding in check_store(layout_of(store))} == {"config-broken", "file-foreign"}
