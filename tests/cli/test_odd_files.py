"""A non-file or unreadable file beside an intact log: commands that do not need it continue, with a warning."""

import json
import shutil
import tarfile
from pathlib import Path

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
        assert any(relative in words for words in json.loads(salvaged.out)["warnings"])

    result = rmqtool("check", store, "-o", "json")
    assert result.code == 1
    told = [one["file"] for one in json.loads(result.out) if one["code"] == "file-unreadable"]
    assert told.count(relative) == 1

    info = rmqtool("info", store, "-o", "json")
    assert info.code in (0, 1)
    if not relative.endswith(("timercheck", "timerlog")):  # which it does not look at
        assert any(relative in words for words in json.loads(info.out)["problems"])


@pytest.mark.parametrize(
    ("relative", "kind"), [("checkpoint", "directory"), ("checkpoint", "fifo"), ("config/timercheck", "device")]
)
def test_who_needs_no_marks_goes_on(relative: str, kind: str, golden: Unpacked, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("broker"), store)
    before = {words: rmqtool(*words[0].split(), store, *words[1:]) for words in LOOKS}
    replace_by(store / relative, kind)
    for words in LOOKS:
        result = rmqtool(*words[0].split(), store, *words[1:])
        # a warning makes 1 of 0
        assert result.code <= 1, words
        if "delay" not in words[0] or relative == "checkpoint":  # what was delivered is not known without that file
            assert result.out == before[words].out
    planned = rmqtool("recover", store, "--dry-run", "-o", "json")
    assert planned.code in (0, 1)
    assert any(
        f"{relative}: " in words and "no broker starts" in words for words in json.loads(planned.out)["warnings"]
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
    (warning,) = (words for words in json.loads(planned.out)["warnings"] if f"config/{name}: " in words)
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
    assert any("checkpoint: Input/output error" in words for words in report["warnings"])
    assert result == process("query-time", store, "Orders", "1", "1795206885011", "-o", "json")
