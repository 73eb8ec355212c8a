"""Partial writes, as at a quota or a limit: nothing is reported as done before all of it is written."""

import resource
from pathlib import Path

import pytest

from tests.cli.running import rmqtool
from tests.model.commands import run
from tests.store.helpers import tree
from tests.store.test_change_between import conf, new_store

__all__ = ["conf"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return new_store(tmp_path, 60, 900)


def second(store: Path, conf: Path) -> tuple[int, int]:
    """The start of some message, and a file length beyond it."""
    at = 45_000
    text = rmqtool("truncate", store, at, "--dry-run", "--broker-conf", conf).err
    begins = int(text.rpartition("begins at ")[2].split()[0])
    return begins, begins + 700


def test_a_cut_goes_on_with_what_was_left(store: Path, conf: Path) -> None:
    before = tree(store)
    at, longest = second(store, conf)
    args = ["truncate", store, at, "--yes", "--broker-conf", conf]
    result = run(*args, limits={resource.RLIMIT_FSIZE: longest})
    assert result.code == 3, result
    assert "half done" in result.err
    assert rmqtool(*args).code == 0
    log = store / "commitlog" / f"{0:020d}"
    assert not log.read_bytes()[at:].strip(b"\0")
    assert rmqtool("recover", store, "--dry-run", "--broker-conf", conf).code == 0
    result = run("undo", store, "--yes", limits={resource.RLIMIT_FSIZE: longest})
    assert result.code == 3, result
    assert "half done" in result.err
    assert rmqtool("undo", store, "--yes").code == 0
    assert tree(store) == before
