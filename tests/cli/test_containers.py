"""``check`` of a directory that holds several stores, as the root of a broker container does."""

import json
from pathlib import Path

import pytest

from tests import goldens
from tests.cli.running import rmqtool


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """Two brokers' stores side by side, one of them damaged, and what else may lie there."""
    root = tmp_path / "container"
    for name, case in (("broker-a", "clean"), ("broker-b", "body-bit-flip-last-file")):
        goldens.unpack(case, root / "unpacked").rename(root / name)
    (root / "unpacked").rmdir()
    (root / "logs").mkdir()
    (root / "container.conf").write_text("brokerConfigPaths=a.conf:b.conf\n")
    return root


def findings(*args: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in rmqtool("check", *args, "--output", "ndjson").out.splitlines()]


def test_each_store_is_checked(container: Path) -> None:
    together = findings(container)
    alone = {name: findings(container / name) for name in ("broker-a", "broker-b")}
    assert len(together) == sum(map(len, alone.values())) > 0
    for name, rows in alone.items():
        names = {f"{name}/{row['file']}" if row["file"] != "." else name for row in rows}
        assert names == {row["file"] for row in together if str(row["file"]).split("/")[0] == name}
    steps = [row["fix"] for row in together if str(row["file"]).startswith("broker-b/commitlog")]
    assert steps
    assert all(str(container / "broker-b") in str(fix) for fix in steps)


def test_the_exit_code_is_the_worst(container: Path) -> None:
    assert rmqtool("check", container / "broker-a").code == 0
    result = rmqtool("check", container)
    assert result.code == 1
    lines = result.out.splitlines()
    assert lines.index("broker-a:") < lines.index("broker-b:")


def test_settings_are_of_one_store(container: Path) -> None:
    (conf := container / "a.conf").write_text("brokerName=a\n")
    result = rmqtool("check", container, "--broker-conf", conf)
    assert result.code == 2, result
    assert "holds 2 stores" in result.err


def test_a_store_is_no_container(container: Path) -> None:
    store = container / "broker-a"
    (container / "broker-b").rename(store / "inside")
    assert all("inside/commitlog" not in str(row["file"]) for row in findings(store))


def test_stores_in_directories_that_are_named_as_logs_of_members(tmp_path: Path) -> None:
    root = tmp_path / "group"
    for name in ("dledger-a", "dledger-b"):
        goldens.unpack("body-bit-flip-last-file", root / "unpacked").rename(root / name)
    (root / "unpacked").rmdir()
    assert {str(row["file"]).split("/")[0] for row in findings(root)} == {"dledger-a", "dledger-b"}
    info = rmqtool("info", root)
    assert (info.code, info.err.splitlines()[0].startswith(f"error: {root}: not a store directory")) == (3, True)
