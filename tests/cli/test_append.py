"""init, append and clean from the command line."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from rmqtool.contract import MESSAGE_FIELDS, PUT_FIELDS
from tests.amounts import by_turns, every
from tests.cli.running import RMQTOOL, process
from tests.conftest import Unpacked
from tests.store.helpers import tree

pytestmark = pytest.mark.slow

PLACED = {"queueOffset", "physicalOffset", "offsetMsgId", "storeTimestamp", "storeSize"}
POINTER = {"preparedTransactionOffset"}  # to the half message, which lies elsewhere now; tests/analytics/test_import.py


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(
        "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=1280\nmaxHashSlotNum=61\nmaxIndexNum=300\n"
    )
    return path


@pytest.fixture
def store(tmp_path: Path, conf: Path) -> Path:
    path = tmp_path / "store"
    assert process("init", path, "--broker-conf", conf).code == 0
    return path


def append(store: Path, conf: Path, lines: str | bytes, *options: object) -> tuple[int, str, str]:
    data = lines.encode() if isinstance(lines, str) else lines
    result = process("append", store, "--broker-conf", conf, *options, input=data, stdin=None)
    return result.code, result.out, result.err


@by_turns(13)
@pytest.mark.parametrize("case", every(3, ["ipv6", "broker", "clean", "large-bodies"]))
def test_what_is_dumped_can_be_appended(case: str, golden: Unpacked, tmp_path: Path) -> None:
    """Everything except positions, and times unless requested, is preserved."""
    source = golden(case)
    target = tmp_path / "new"
    assert process("init", target).code == 0
    dumped = process("commitlog", "dump", source, "-o", "ndjson", "--body", "base64").out
    result = process("append", target, "--keep-times", "-o", "ndjson", input=dumped.encode(), stdin=None)
    assert result.code == 0, result.err
    before = [json.loads(line) for line in dumped.splitlines()]
    acknowledged = [json.loads(line) for line in result.out.splitlines()]
    assert [row["line"] for row in acknowledged] == list(range(1, len(before) + 1))
    assert all(list(row) == list(PUT_FIELDS) for row in acknowledged)
    after = [
        json.loads(line)
        for line in process("commitlog", "dump", target, "-o", "ndjson", "--body", "base64").out.splitlines()
    ]
    assert len(after) == len(before) > 0
    inflated = {"sysFlag", "bodyCrc", "storeSize"}
    for old, new, answer in zip(before, after, acknowledged, strict=True):
        same = set(MESSAGE_FIELDS) - PLACED - POINTER - (inflated if old["sysFlag"] & 1 else set()) | {"storeTimestamp"}
        if "UNIQ_KEY" not in old["properties"]:
            same -= {"msgId"}
        assert {name: new[name] for name in same} == {name: old[name] for name in same}
        assert {name: new[name] for name in PLACED} == {name: answer[name] for name in PLACED}
    assert process("check", target).out.count("error") == 0


def test_lines_that_are_no_messages(store: Path, conf: Path) -> None:
    lines = [
        '{"topic": "t", "body": "one"}',
        "{",
        '"text"',
        "",
        '{"body": "no topic"}',
        '{"topic": 7}',
        '{"topic": "t", "queueId": "1"}',
        '{"topic": "t", "queueId": true}',
        '{"topic": "t", "body": "zz", "bodyEncoding": "hex"}',
        '{"topic": "t", "body": "zz", "bodyEncoding": "rot13"}',
        '{"topic": "t", "bodyLength": 3, "body": null, "bodyEncoding": "none"}',
        '{"topic": "t", "properties": ["a"]}',
        '{"topic": "t", "keys": 5}',
        '{"topic": "../t"}',
        '{"topic": "t", "bornHost": "somewhere"}',
        "[" * 100_000,
        b"\xff\xfe".decode("latin-1"),
        '{"topic": "t", "body": {"a": [1, null]}, "tags": "x", "keys": ["k1", "k2"]}',
    ]
    code, out, err = append(store, conf, "\n".join(lines), "-o", "ndjson")
    assert code == 1
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["line"] for row in rows if row["status"] == "PUT_OK"] == [1, len(lines)]
    assert [row["line"] for row in rows] == [n for n, line in enumerate(lines, 1) if line]
    assert all(row["reason"] for row in rows if row["status"] != "PUT_OK")
    assert err.count("line ") - err.count(": line 1 column") == len(lines) - 3
    assert "2 messages appended" in err
    assert "Traceback" not in err
    shown = process("query-key", store, "t", "k2", "-o", "json", "--body", "json").out
    (row,) = json.loads(shown)
    assert row["body"] == {"a": [1, None]}
    assert row["tags"] == "x"


def test_a_line_is_acknowledged_when_it_is_stored(store: Path, conf: Path) -> None:
    """Not only at the end of the input: its producer may wait for the answer."""
    command = [*RMQTOOL, "append", str(store), "--broker-conf", str(conf), "-o", "ndjson", "--sync"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for n in range(3):
            running.stdin.write(json.dumps({"topic": "t", "body": str(n)}) + "\n")
            assert json.loads(running.stdout.readline())["queueOffset"] == n
        assert (store / "abort").exists()
        other = process("append", store, "--broker-conf", conf, input=b'{"topic": "t"}\n', stdin=None)
        assert other.code == 4
        assert f"held by process {running.pid}" in other.err
        running.stdin.close()
        assert running.wait(20) == 0
    assert not (store / "abort").exists()


@by_turns(3)
@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_forms_of_the_answer(form: str, store: Path, conf: Path) -> None:
    code, out, _err = append(store, conf, '{"topic": "t"}\n{"topic": "u", "queueId": 3}\n', "-o", form)
    assert code == 0
    if form == "json":
        assert [row["topic"] for row in json.loads(out)] == ["t", "u"]
    else:
        assert len(out.splitlines()) == 3
        assert out.split()[0].split(",")[0] == ("topic" if form == "table" else "line")


@by_turns(3)
def test_what_append_refuses(tmp_path: Path, store: Path, conf: Path, golden_copy: Unpacked) -> None:
    crashed = golden_copy("size-field-negative")
    before = tree(crashed)
    assert append(crashed, conf, '{"topic": "t"}')[0] == 4
    assert tree(crashed) == before
    assert append(tmp_path / "none", conf, "")[0] == 3
    result = process("append", store, tmp_path / "nothing.ndjson")
    assert (result.code, result.err) == (3, f"error: {tmp_path}/nothing.ndjson: No such file or directory\n")
    assert process("append", store, "--engine", "6").code == 2
    assert process("init", crashed).code == 4
    assert process("init", tmp_path / "broker.conf" / "x").code == 4


@by_turns(3)
def test_clean_goes_by_the_age_of_the_log(store: Path, conf: Path) -> None:
    lines = "".join(json.dumps({"topic": "t", "body": "x" * 400, "keys": f"k{n}"}) + "\n" for n in range(400))
    assert append(store, conf, lines)[0] == 0
    logs = sorted((store / "commitlog").iterdir())
    assert len(logs) > 8
    options = ("--broker-conf", conf)
    assert process("clean", store, "--dry-run", *options).code == 0
    old = time.time() - 73 * 3600
    for path in (*logs[:3], logs[5]):  # the fourth is young, so the sixth stays
        os.utime(path, (old, old))
    aged = tree(store)
    plan = process("clean", store, "--dry-run", "-o", "json", *options)
    assert plan.code == 1
    named = [entry["file"] for entry in json.loads(plan.out)["files"]]
    assert tree(store) == aged
    assert [name for name in named if name.startswith("commitlog")] == [f"commitlog/{p.name}" for p in logs[:3]]
    assert process("clean", store, *options).code == 4  # nobody was asked
    result = process("clean", store, "--yes", "-o", "json", *options)
    assert result.code == 0
    report = json.loads(result.out)
    assert report["newMinPhyOffset"] == 3 * 16384
    assert [entry["file"] for entry in report["files"]] == named
    assert set(aged) - set(tree(store)) == set(named)
    assert process("check", store, *options).out.count("error") == 0
    shown = json.loads(process("info", store, "-o", "json", *options).out)
    assert shown["minPhyOffset"] == 3 * 16384
    # queues: every file whose last entry points below; index: likewise; the last of each stays
    assert any(name.startswith("consumequeue") for name in named)
    assert process("undo", store, "--yes").code == 0
    assert tree(store) == aged
    assert process("clean", store, "--yes", "--delete", "--files", "1", *options).code == 0
    assert sorted(path.name for path in (store / "commitlog").iterdir()) == [path.name for path in logs[1:]]
    assert len(list(Path(f"{store}.rmqtool").iterdir())) == 1  # of the first, which was undone
