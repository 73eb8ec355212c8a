"""A non-file or unreadable file beside an intact log: commands that do not need it continue, with a warning."""

import errno
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.amounts import by_turns
from tests.bad_disk import bad_disk
from tests.cli.odd_files import replace_by
from tests.cli.running import process, rmqtool
from tests.conftest import Unpacked


def messages(store: Path) -> int:
    return sum(isinstance(item, LocatedRecord) for item in CommitLog(StoreLayout(str(store))).walk())


@by_turns(3)
@pytest.mark.parametrize(
    ("relative", "kind"),
    [("checkpoint", "directory"), ("checkpoint", "fifo"), ("checkpoint", "loop"), ("config/timercheck", "device"),
     ("consumequeue", "fifo"), ("config", "loop"), ("timerlog", "device")],
)  # fmt: skip
def test_salvage_and_check_go_on(relative: str, kind: str, golden: Unpacked, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker"), store)
    replace_by(store / relative, kind)
    salvaged = rmqtool("salvage", store, tmp_path / "new", "-o", "json")
    assert salvaged.code == 0, salvaged.err
    assert messages(tmp_path / "new") == messages(store)
    if relative != "config/timercheck":  # which is made anew
        assert any(relative in warning for warning in json.loads(salvaged.out)["warnings"])

    result = rmqtool("check", store, "-o", "json")
    assert result.code == 1
    told = [row["file"] for row in json.loads(result.out) if row["code"] == "file-unreadable"]
    assert told.count(relative) == 1

    info = rmqtool("info", store, "-o", "json")
    assert info.code in (0, 1)
    if not relative.endswith(("timercheck", "timerlog")):  # which it does not look at
        assert any(relative in problem for problem in json.loads(info.out)["problems"])


@pytest.mark.parametrize(
    ("relative", "kind"), [("checkpoint", "directory"), ("checkpoint", "fifo"), ("config/timercheck", "device")]
)
def test_who_needs_no_marks_goes_on(relative: str, kind: str, golden: Unpacked, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker"), store)
    before = {args: rmqtool(*args[0].split(), store, *args[1:]) for args in LOOKS}
    replace_by(store / relative, kind)
    for args in LOOKS:
        result = rmqtool(*args[0].split(), store, *args[1:])
        # a warning makes 1 of 0
        assert result.code <= 1, args
        if "delay" not in args[0] or relative == "checkpoint":  # what was delivered is not known without that file
            assert result.out == before[args].out
    planned = rmqtool("recover", store, "--dry-run", "-o", "json")
    assert planned.code in (0, 1)
    assert any(
        f"{relative}: " in warning and "no broker starts" in warning for warning in json.loads(planned.out)["warnings"]
    )


LOOKS = [
    ("query-time", "Orders", "0", "1795206885011"),
    ("group list",),
    ("delay list",),
    ("topic list",),
]


@pytest.mark.parametrize("kind", ["directory", "device"])
def test_topics_that_cannot_be_read(kind: str, golden: Unpacked, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker-5.3.3"), store)
    replace_by(store / "config" / "topics.json", kind)
    salvaged = rmqtool("salvage", store, tmp_path / "new", "-o", "json")
    assert salvaged.code == 0, salvaged.err
    # as a broker does it, which takes the .bak where the file does not read
    assert (tmp_path / "new/config/topics.json").read_bytes() == (store / "config/topics.json.bak").read_bytes()
    assert rmqtool("check", store).code == 1
    assert "config/topics.json: not a regular file" in rmqtool("info", store, "-o", "json").out


@pytest.mark.parametrize("kind", ["directory", "fifo", "loop", "device"])
@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json.bak"])
def test_a_recovery_is_planned_over_a_table_that_cannot_be_read(
    name: str, kind: str, golden: Unpacked, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker"), store)
    path = store / "config" / name
    if name.endswith(".bak"):
        path.with_name(name.removesuffix(".bak")).write_bytes(b"{")
    replace_by(path, kind)
    advice = f"move {path} out of the store: a file belongs there"
    planned = rmqtool("recover", store, "--dry-run", "-o", "json")
    assert planned.code == 1, planned.err
    (warning,) = (text for text in json.loads(planned.out)["warnings"] if f"config/{name}: " in text)
    assert "a broker can neither read nor write it, and recover stops at it" in warning
    assert advice in warning
    stopped = rmqtool("recover", store, "--yes")
    assert stopped.code == 3
    assert advice in stopped.err


@pytest.mark.parametrize("relative", ["batchconsumequeue", "compaction", "consumequeue", "config", "nothing-of-ours"])
def test_evidence_and_retention_go_on(relative: str, golden: Unpacked, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker-5.3.3"), store)
    replace_by(store / relative, "loop")
    assert rmqtool("retention", store).code in (0, 1)
    packed = rmqtool("evidence", store, tmp_path / "out.tar.gz")
    assert packed.code == 0, packed.err
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        (name,) = (name for name in archive.getnames() if name.endswith("check.ndjson"))
        member = archive.extractfile(name)
        assert member is not None
        findings = [json.loads(line) for line in member]
    unread = {finding["file"].split("/")[0] for finding in findings if finding["code"] == "file-unreadable"}
    assert unread == {relative} - {"nothing-of-ours"}


def test_bad_sectors_beside_the_log(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("broker")
    everywhere = [(0, 1 << 20)]
    bad = {
        "checkpoint": everywhere,
        "config/consumerOffset.json": everywhere,
        "config/consumerOffset.json.bak": everywhere,
        "index/20261120203445001": everywhere,
        f"SCHEDULE_TOPIC_XXXX/2/{0:020d}": everywhere,
        f"Orders/0/{0:020d}": everywhere,
    }
    try:
        with bad_disk(store, tmp_path / "disk", bad) as broken:
            salvaged = process("salvage", broken, tmp_path / "new", "-o", "json")
            result = process("query-time", broken, "Orders", "1", "1795206885011", "-o", "json")
    except PermissionError as err:
        pytest.skip(f"cannot mount a file system: {err}")
    assert salvaged.code == 0, salvaged.err
    assert messages(tmp_path / "new") == messages(store)
    report = json.loads(salvaged.out)
    assert report["leftOut"] == ["config/consumerOffset.json"]
    assert any("checkpoint: Input/output error" in warning for warning in report["warnings"])
    assert result == process("query-time", store, "Orders", "1", "1795206885011", "-o", "json")


READING = (
    "info STORE", "trace STORE ID", "why STORE ID", "topic list STORE", "topic show STORE Orders", "topic unused STORE",
    "query-key STORE Orders KEY", "query-id STORE ID Orders", "query-offset STORE Orders 0 0",
    "query-time STORE Orders 0 1795392041325", "commitlog dump STORE", "grep STORE order",
    "consumequeue dump STORE Orders", "du STORE", "retention STORE", "group list STORE", "group inflight STORE",
    "retry list STORE", "dlq list STORE", "delay list STORE", "delay due STORE", "transaction list STORE",
    "diff STORE OTHER", "check STORE", "salvage STORE NEW",
)  # fmt: skip
FOUND_IN_5 = {"ID": "FD000000000000000000000000000002514030946E09714C837F0000", "KEY": "order-0"}
PLACES = (
    "batchconsumequeue", "batchconsumequeue/BatchQueue/0", f"batchconsumequeue/BatchQueue/0/{0:020d}", "compaction",
    "compaction/compactionLog", "compaction/compactionCq/Profiles/0", f"compaction/compactionCq/Profiles/0/{0:020d}",
    f"compaction/compactionLog/Profiles/0/{0:020d}", "compaction/position-checkpoint", "consumequeue/Payments",
    "consumequeue/Payments/0", f"consumequeue/Payments/0/{0:020d}", f"consumequeue/SCHEDULE_TOPIC_XXXX/2/{0:020d}",
    f"consumequeue/%DLQ%pull-group/0/{0:020d}", f"consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0/{0:020d}",
    "config/delayOffset.json", "config/consumerFilter.json", "config/subscriptionGroup.json", "config/timercheck",
    "config/consumerOrderInfo.json", "checkpoint", "timerwheel", "timerlog", "lock", "abort",
)  # fmt: skip


def fail_at(path: Path, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whatever opens or lists a path, or something below it, fail."""
    for name in ("open", "scandir"):
        real = getattr(os, name)

        def fail(at: object, *args: object, _real: Any = real, **options: object) -> object:
            text = os.fspath(at) if isinstance(at, str | os.PathLike) else ""
            if text == str(path) or text.startswith(f"{path}/"):
                raise OSError(error, os.strerror(error), text)
            return _real(at, *args, **options)

        monkeypatch.setattr(os, name, fail)


@by_turns(9)
@pytest.mark.parametrize("relative", PLACES)
@pytest.mark.parametrize("kind", ["fifo", "loop", "EIO"])
def test_reading_goes_on_over_any_path(
    relative: str, kind: str, golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker-5.3.3"), store)
    path = store / relative
    if kind != "EIO":
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_by(path, kind)
    elif path.exists():
        fail_at(path, errno.EIO, monkeypatch)
    words = {"STORE": store, "OTHER": golden("broker-5.3.3"), "NEW": tmp_path / "new", **FOUND_IN_5}
    named = 0
    for line in READING:
        result = rmqtool(*(words.get(word, word) for word in line.split()))
        assert result.code in (0, 1), (line, result.err)
        named += str(path) in f"{result.out}{result.err}".replace("\n   ", "")
    if kind == "EIO" and path.exists():
        assert named or relative in ("lock", "abort"), "no command names it"


@pytest.mark.parametrize("relative", ["batchconsumequeue", "compaction"])
@pytest.mark.parametrize("kind", ["fifo", "EIO", "EACCES"])
def test_few_stores_have_these_and_none_stops_over_them(
    relative: str, kind: str, golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker-5.3.3"), store)
    if kind == "fifo":
        replace_by(store / relative, kind)
    else:
        (store / relative).mkdir(exist_ok=True)
        fail_at(store / relative, getattr(errno, kind), monkeypatch)
    words = {"STORE": store, "OTHER": golden("broker-5.3.3"), "NEW": tmp_path / "new", **FOUND_IN_5}
    for line in ("topic list STORE", "query-key STORE Orders KEY", "why STORE ID", "diff STORE OTHER"):
        result = rmqtool(*(words.get(word, word) for word in line.split()), "-o", "json")
        assert result.code in (0, 1), (line, result.err)
        assert json.loads(result.out)
    listed = rmqtool("topic", "list", store)
    if relative == "batchconsumequeue":
        assert listed.code == 1
        assert f"warning: {store / relative}" in listed.err
        assert "the answer lacks what is in it" in listed.err.replace("\n", " ")


@pytest.mark.parametrize(
    "relative", [f"consumequeue/Orders/1/{0:020d}", "consumequeue/Orders/1", "consumequeue/Orders"]
)
def test_the_lag_in_a_queue_that_cannot_be_read_is_unknown(
    relative: str, golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("broker-5.3.3")
    before = json.loads(rmqtool("group", "lag", store, "-o", "json").out)
    fail_at(store / relative, errno.EIO, monkeypatch)
    result = rmqtool("group", "lag", store, "-o", "json")
    assert f"warning: {store / relative}" in result.err
    unknown = 0
    for row, known in zip(json.loads(result.out), before, strict=True):
        if row["topic"] == "Orders" and (row["queueId"] == 1 or relative.endswith("Orders")):
            assert (row["brokerOffset"], row["diff"], row["state"]) == (None, None, "unknown")
            unknown += 1
        else:
            assert row == known
    assert unknown
    group = next(row["group"] for row in before if row["topic"] == "Orders")
    (info,) = (row for row in json.loads(rmqtool("group", "list", store, "-o", "json").out) if row["group"] == group)
    assert info["diff"] is None


@pytest.mark.parametrize("case", ["broker", "broker-5.3.3", "broker-crash"])
def test_a_recovery_is_planned_over_queue_files_that_cannot_be_read(
    case: str, golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden(case), store)
    bad = store / "consumequeue/Orders/1" / f"{0:020d}"
    fail_at(bad, errno.EIO, monkeypatch)
    planned = rmqtool("recover", store, "--dry-run", "-o", "json")
    assert planned.code == 1, planned.err
    report = json.loads(planned.out)
    (warning,) = (words for words in report["warnings"] if words.startswith(str(bad)))
    assert "Input/output error: no broker starts over it, and recover stops at it" in warning
    assert any("consumequeue/Orders/1" in action for action in report["actions"])  # it would be built again
    stopped = rmqtool("recover", store, "--yes")
    assert stopped.code == 3
    assert f"{bad}: Input/output error" in stopped.err


@pytest.mark.parametrize("relative", ["consumequeue", "consumequeue_ext/TopicA/2/00000000000000000000", "config"])
def test_a_store_with_extensions(
    relative: str, golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("queue-ext")
    fail_at(store / relative, errno.EIO, monkeypatch)
    assert rmqtool("salvage", store, tmp_path / "new").code == 0
    assert messages(tmp_path / "new") == messages(store)
    for line in ("recover STORE --dry-run", "retention STORE", "check STORE"):
        result = rmqtool(*(store if word == "STORE" else word for word in line.split()))
        assert result.code in (0, 1), (line, result.err)
        assert relative in f"{result.out}{result.err}".replace("\n", "").replace(" ", "") or "retention" in line, line


@pytest.mark.parametrize("relative", ["checkpoint", "config", "compaction"])
def test_the_plan_for_a_database(
    relative: str, golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("rocksdb-5.5.0")
    fail_at(store / relative, errno.EIO, monkeypatch)
    planned = rmqtool("recover", store, "--dry-run", "-o", "json")
    assert planned.code in (0, 1), planned.err
    (warning, *_) = (text for text in json.loads(planned.out)["warnings"] if f"/{relative}" in text)
    assert warning.endswith("Input/output error: this plan is for when it is out of the way")


@pytest.mark.parametrize("kind", ["device", "loop", "EIO"])
def test_the_pointer_of_a_database(
    kind: str, golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``CURRENT`` names the database's manifest, and is read before RocksDB is."""
    store = tmp_path / "store"
    shutil.copytree(golden("rocksdb-5.5.0"), store)
    path = store / "rocksdbstore" / "CURRENT"
    replace_by(path, kind) if kind != "EIO" else fail_at(path, errno.EIO, monkeypatch)
    planned = rmqtool("recover", store, "--dry-run")
    assert planned.code == 1, planned.err
    assert "rocksdbstore: CURRENT: " in " ".join(planned.out.split())
    salvaged = rmqtool("salvage", store, tmp_path / "new", "-o", "json")
    assert salvaged.code == 0, salvaged.err
    assert json.loads(salvaged.out)["leftOut"] == ["rocksdbstore"]


@pytest.mark.parametrize("relative", ["consumequeue/Orders/0", "config/subscriptionGroup.json", "consumequeue/Odd/7"])
@pytest.mark.parametrize("kind", ["fifo", "EIO"])
@pytest.mark.parametrize("args", ["report lag", "report unconsumed", "sql"])
def test_tables_name_what_they_leave_out(
    args: str, kind: str, relative: str, golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker"), store)
    rest = ("select count(*) from offsets, queues", "--runner", "duckdb") if args == "sql" else ()
    assert rmqtool(*args.split(), store, *rest).code == 0
    (store / relative).parent.mkdir(exist_ok=True)
    if kind == "fifo":
        replace_by(store / relative, kind)
    else:
        (store / relative).mkdir(exist_ok=True) if "Odd" in relative else None
        fail_at(store / relative, errno.EIO, monkeypatch)
    result = rmqtool(*args.split(), store, *rest)
    assert result.code == 1, result.err
    assert result.err.count(f"{relative}: {'not a ' if kind == 'fifo' else 'Input/output error'}") == 1, result.err


@by_turns(3)
@pytest.mark.parametrize("sector", [0, 1 << 12])
def test_a_bad_sector_of_the_index(sector: int, golden: Unpacked, tmp_path: Path) -> None:
    """Read through a mapping it would end the process, so each index file is read once before."""
    store = golden("broker")
    index = min((store / "index").iterdir())
    assert index.stat().st_size > (1 << 13)
    try:
        with bad_disk(store, tmp_path / "disk", {f"index/{index.name}": [(sector, sector + 4096)]}) as broken:
            salvaged = process("salvage", broken, tmp_path / "new", "-o", "json")
            checked = process("check", broken, "-o", "json")
            info = process("info", broken, "-o", "json")
            by_key = process("query-key", broken, "Orders", "order-10", "-o", "json")
    except PermissionError as err:
        pytest.skip(f"cannot mount a file system: {err}")
    assert salvaged.code == 0, salvaged.err
    assert messages(tmp_path / "new") == messages(store)
    assert any(f"{index.name}: Input/output error" in warning for warning in json.loads(salvaged.out)["warnings"])
    assert checked.code == 1
    assert [row["file"] for row in json.loads(checked.out) if row["severity"] == "error"] == [f"index/{index.name}"]
    assert (info.code, by_key.code) == (1, 1)
    assert any(index.name in problem for problem in json.loads(info.out)["problems"])
    assert f"{index.name}: Input/output error" in by_key.err


@pytest.mark.parametrize("kind", ["directory", "loop"])
def test_reports_read_the_older_offsets(kind: str, golden: Unpacked, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker"), store)
    path = store / "config/consumerOffset.json"
    shutil.copy(path, path.with_name("consumerOffset.json.bak"))
    before = rmqtool("report", "lag", store, "-o", "csv")
    replace_by(path, kind)
    result = rmqtool("report", "lag", store, "-o", "csv")
    assert (result.code, result.out) == (before.code, before.out)
    assert result.out.count("\n") > 3
    assert "consumerOffset.json.bak is read, as a broker does at its start" in result.err
