"""Files created from a store are never more readable than the store, under any umask."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool import Store
from rmqtool.services.serving.drained_state import DrainedState
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.conftest import Unpacked

MADE = {
    "export": ["export", "STORE", "NEW"],
    "salvage": ["salvage", "STORE", "NEW"],
    "salvage to NDJSON": ["salvage", "STORE", "NEW", "--to", "ndjson"],
    "salvage to Parquet": ["salvage", "STORE", "NEW", "--to", "parquet"],
    "dump": ["dump-to-parquet", "STORE", "NEW", "--runner", "local", "--partition-by", "topic"],
}


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    assert os.umask(before) == 0o022


def close_store(store: Path, what: str) -> int:
    """Make a store private; returns the mode bits that its products must not have."""
    if what == "directory":
        store.chmod(0o700)
    elif what == "directory to others":
        store.chmod(0o750)
        return 0o007
    elif what == "log directory":
        (store / "commitlog").chmod(0o700)
    else:
        for path in (store / "commitlog").iterdir():
            path.chmod(0o600)
    return 0o077


@by_turns(2)
@pytest.mark.parametrize("what", ["directory", "directory to others", "log directory", "log files"])
@pytest.mark.parametrize("command", MADE)
def test_what_is_made_of_a_private_store_is_private(
    golden_copy: Unpacked, tmp_path: Path, command: str, what: str
) -> None:
    store, out = golden_copy("clean"), tmp_path / "out"
    closed = close_store(store, what)
    result = rmqtool(*({"STORE": store, "NEW": out}.get(word, word) for word in MADE[command]))
    assert result.code == 0, result.err
    inner = next((path for path in out.rglob("*") if path.is_file()), out)
    assert [path for path in (out, inner, *tmp_path.glob("*")) if path.stat().st_mode & closed] == []


@pytest.mark.parametrize("command", MADE)
def test_what_is_made_of_an_open_store_follows_the_umask(golden_copy: Unpacked, tmp_path: Path, command: str) -> None:
    out = tmp_path / "out"
    result = rmqtool(*({"STORE": golden_copy("clean"), "NEW": out}.get(word, word) for word in MADE[command]))
    assert result.code == 0, result.err
    assert out.stat().st_mode & 0o777 == (0o755 if out.is_dir() else 0o644)


@pytest.mark.parametrize("what", ["directory", "log directory", "log files"])
def test_kept_bytes_are_as_private_as_what_they_come_from(golden_copy: Unpacked, what: str) -> None:
    store = golden_copy("torn-header")
    closed = close_store(store, what)
    result = rmqtool("recover", store, "--yes")
    assert result.code == 0, result.err
    home = store.with_name("store.rmqtool")
    kept = [path for path in home.rglob("*") if path.is_file() and "commitlog" in path.parts]
    assert kept
    assert not home.stat().st_mode & closed or not any(path.stat().st_mode & closed for path in kept)


@pytest.mark.parametrize("what", ["directory", "directory to others", "log directory", "log files"])
def test_offsets_that_are_kept_beside_a_private_store_are_private(
    golden_copy: Unpacked, tmp_path: Path, what: str
) -> None:
    """``serve --read-only --offsets FILE``; an existing file keeps its mode."""
    store = golden_copy("clean")
    closed, offsets = close_store(store, what), tmp_path / "offsets.csv"
    with Store(store) as opened:
        state = DrainedState(opened, lambda _text: None, str(offsets))
        state.set_offset("TopicA", "readers", 0, 3)
        assert state.persist()
        assert offsets.stat().st_mode & closed == 0
        offsets.chmod(0o644)
        state.set_offset("TopicA", "readers", 0, 4)
        assert state.persist()
    assert offsets.stat().st_mode & 0o777 == 0o644
