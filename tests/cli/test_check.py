"""check and explain as commands."""

import json
from pathlib import Path

from rmqtool.admin.doctor.codes import CODES as CLUSTER_CODES
from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.findings import FINDING_FIELDS
from tests import goldens
from tests.cli.running import rmqtool
from tests.conftest import Unpacked


def test_the_command(golden: Unpacked, tmp_path: Path) -> None:
    clean = rmqtool("check", golden("broker"))
    assert (clean.code, clean.out.splitlines()[0], clean.err) == (0, "Clean: nothing was found.", "")
    assert rmqtool("check", golden("broker"), "-o", "table") == (0, "", "clean: nothing found\n")
    torn = rmqtool("check", golden("torn-header"), "-o", "ndjson")
    assert torn.code == 1
    assert torn.err == "1 error, 4 warnings, 3 infos\n"
    rows = [json.loads(line) for line in torn.out.splitlines()]
    assert all(tuple(row) == FINDING_FIELDS for row in rows)
    assert rows[0]["fix"].startswith(f"rmqtool recover {golden('torn-header')}: ")
    (step,) = rows[0]["steps"]
    assert step["command"] == ["rmqtool", "recover", str(golden("torn-header"))]
    assert (step["costs"], step["destroys"]) == ("no intact message is cut", False)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={size}\n" for name, size in goldens.about("torn-header")["config"].items()))
    row = json.loads(rmqtool("check", golden("torn-header"), "-o", "ndjson", "--broker-conf", conf).out.splitlines()[0])
    assert row["steps"][0]["command"] == [*step["command"], "--broker-conf", str(conf)]
    assert row["fix"].startswith(f"rmqtool recover {golden('torn-header')} --broker-conf {conf}: ")
    errors = rmqtool("check", golden("torn-header"), "-o", "json", "--severity", "error")
    assert [row["code"] for row in json.loads(errors.out)] == ["cq-no-message"]
    assert rmqtool("check", golden("crash"), "--severity", "error").code == 0
    few = rmqtool("check", golden("clean-exit-consumequeue-deleted"), "-o", "csv", "--limit-per-code", "2")
    assert [line.partition(",")[0] for line in few.out.splitlines()] == ["code", *["cq-missing"] * 2, "topics-missing"]
    assert few.err == "cq-missing: 403 more not shown (--limit-per-code)\n500 errors, 3 infos\n"


def test_advice_has_the_settings_that_it_was_found_by(golden_copy: Unpacked, tmp_path: Path) -> None:
    store, conf = golden_copy("clean"), tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={size}\n" for name, size in goldens.about("torn-header")["config"].items()))
    last = sorted((store / "commitlog").iterdir())[-1]
    # made a moment before the power went
    empty = last.with_name(f"{int(last.name) + 49152:020d}")
    empty.touch()
    rows = [
        json.loads(line) for line in rmqtool("check", store, "-o", "ndjson", "--broker-conf", conf).out.splitlines()
    ]
    commands = [step["command"] for row in rows for step in row["steps"] if step["command"]]
    assert ["rmqtool", "rebuild", str(store), "files", "--broker-conf", str(conf)] in commands
    assert all(command[-2:] == ["--broker-conf", str(conf)] for command in commands if command[0] == "rmqtool")
    refused = rmqtool(
        "recover", store, "--dry-run", "--exactly", "--engine", "4.9", "-o", "json", "--broker-conf", conf
    )
    assert refused.code == 1
    mend, again = json.loads(refused.out)["nextSteps"]
    assert mend.startswith(f"rmqtool rebuild {store} files --broker-conf {conf}: ")
    assert again == f"rmqtool recover {store} --dry-run --broker-conf {conf}: shows the plan again"


def test_explain_knows_every_code() -> None:
    listed = json.loads(rmqtool("explain", "-o", "json").out)
    assert [row["code"] for row in listed] == [*CODES, *CLUSTER_CODES]
    for code in CODES:
        shown = rmqtool("explain", code)
        assert (shown.code, shown.err) == (0, "")
        first = shown.out.partition("\n\n")[0]
        assert " ".join(first.split()) == f"{code} ({CODES[code].severity}): {CODES[code].title}"
    unknown = rmqtool("explain", "cq-mising")
    assert (unknown.code, unknown.out) == (2, "")
    assert "cq-missing" in unknown.err


def test_infos_are_clean(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    (store / "config" / "topics.json.tmp").write_bytes(b"{")
    assert "What was found: 1 info\n" in rmqtool("check", store).out
    result = rmqtool("check", store, "-o", "table")
    assert result.code == 0
    assert result.err.endswith("1 info\n")


def test_advice_names_our_own_commands() -> None:
    ours = ("updateTopic", "updateTopicPerm", "updateSubGroup", "resetOffsetByTime")
    for code in CODES.values():
        for step in code.steps:
            assert not [name for name in ours if f"mqadmin {name}" in step.does], code.code
