"""A store whose log is in other directories is not taken for an empty one, if its settings are not given."""

import shutil
from pathlib import Path

import pytest

from tests import roles
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

SAID = "it has had messages, and there is no commit log in it"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> roles.Node:
    return roles.unpack(roles.MULTI_PATH, "a", tmp_path_factory.mktemp("paths"))


@pytest.mark.parametrize(
    "words",
    [
        ("du", "STORE"), ("commitlog", "dump", "STORE"), ("grep", "STORE", "order"), ("report", "traffic", "STORE"),
        ("retention", "STORE"), ("why", "STORE", "Events", "0", "5"), ("diff", "STORE", "STORE"),
        ("backup", "create", "STORE", "HOME"),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_it_is_said(words: tuple[str, ...], node: roles.Node, tmp_path: Path) -> None:
    call = [node.store if word == "STORE" else tmp_path / "home" if word == "HOME" else word for word in words]
    assert SAID in rmqtool(*call).err
    if words[0] not in ("diff", "backup"):
        assert SAID not in rmqtool(*call, *node.options()).err


def test_a_backup_without_the_log_is_not_whole(node: roles.Node, tmp_path: Path) -> None:
    result = rmqtool("backup", "create", node.store, tmp_path / "home")
    assert (result.code, result.err.count(SAID)) == (1, 1)
    assert rmqtool("backup", "create", node.store, tmp_path / "whole", *node.options()).code == 0


def test_a_new_store_has_had_none(tmp_path: Path) -> None:
    assert rmqtool("init", tmp_path / "new").code == 0
    assert rmqtool("du", tmp_path / "new").err == "there is nothing to list\n"


def test_no_new_log_begins_where_the_checkpoint_knows_of_another(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("clean")  # closed by its broker
    for part in ("consumequeue", "index"):
        shutil.rmtree(store / part)
    for file in (store / "commitlog").iterdir():
        file.unlink()  # what is left where the disk of the log is not mounted
    lines = tmp_path / "lines.ndjson"
    lines.write_text('{"topic": "Orders", "body": "x"}\n')
    for words in (["append", store, lines], ["serve", store], ["recover", store, "--dry-run"]):
        result = rmqtool(*words)
        assert (result.code, result.out) == (4, "")
        assert "although its checkpoint points to messages in it: is its disk mounted?" in result.err
        assert not list((store / "commitlog").iterdir())
    assert rmqtool("rebuild", store, "checkpoint", "--yes").code == 0  # as the refusal advises
    assert rmqtool("append", store, lines).code == 0
    assert rmqtool("check", store).code == 0
