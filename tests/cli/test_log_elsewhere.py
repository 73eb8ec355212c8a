"""A store whose log is in other directories is not taken for an empty one, if its settings are not given."""

from pathlib import Path

import pytest

from tests import roles
from tests.cli.running import rmqtool

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
