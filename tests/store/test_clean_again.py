"""``clean`` after other runs: an interrupted one, and one with --delete."""

import json
import signal
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.store.dying import ended, killed
from tests.store.helpers import content, cut_queues
from tests.store.test_change_between import MARKER, SIZES, conf, layout_of, new_store

pytestmark = pytest.mark.slow

__all__ = ["conf"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with nine log files."""
    return new_store(tmp_path, 500, 1000)


def log_of(store: Path) -> list[int]:
    return sorted(int(path.name) for path in (store / "commitlog").iterdir())


def test_the_same_command_goes_on_and_removes_no_more(store: Path, conf: Path) -> None:
    """It was asked for two files; running it again must not remove two further ones."""
    args = ["clean", store, "--hours", "0", "--files", "2", "--yes", "--broker-conf", conf]
    before, files = content(store), log_of(store)
    for step, more in ((1, []), (4, []), (4, ["--delete"])):
        killed(step, *args)
        result = rmqtool(*args, *more, "--output", "json")
        assert result.code == 0, result
        assert log_of(store) == files[2:]
        answer = json.loads(result.out)
        (folder,) = Path(f"{store}.rmqtool").glob("*/manifest.json")
        assert answer["backup"] == str(folder.parent)
        assert (answer["applied"], answer["deleted"]) == (True, False)
        assert (answer["minPhyOffset"], answer["newMinPhyOffset"]) == (0, files[2])
        assert [file["file"] for file in answer["files"][:2]] == [f"commitlog/{base:020d}" for base in files[:2]]
        assert {file["bytes"] for file in answer["files"][:2]} == {1 << 16}
        assert answer["warnings"] == ["a run that was interrupted has been finished, and nothing else was removed"]
        assert rmqtool("undo", store, "--yes", "--broker-conf", conf).code == 0
        assert {**content(store), "lock": ""} == {**before, "lock": ""}
        for path in sorted(folder.parent.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.parent.rmdir()
    assert rmqtool(*args).code == 0
    assert rmqtool(*args).code == 0  # nothing was interrupted: two more
    assert log_of(store) == files[4:]


def test_one_that_deletes_and_is_stopped_says_how_many_are_left(store: Path, conf: Path) -> None:
    args = ["clean", store, "--hours", "0", "--yes", "--delete", "--broker-conf", conf]
    files = log_of(store)
    done = ended(signal.SIGTERM, -2, *args, "--files", 3)
    left = 3 - (len(files) - len(log_of(store)))
    assert done.code == 143, done
    assert 0 < left < 3
    assert f"with --files {left} it continues with them" in done.err
    assert rmqtool(*args, "--files", left).code == 0
    assert log_of(store) == files[3:]
    assert rmqtool("check", store, "--broker-conf", conf).code == 0


def test_undo_makes_no_hole_in_the_log(store: Path, conf: Path) -> None:
    args = ["clean", store, "--hours", "0", "--files", "1", "--yes", "--broker-conf", conf]
    assert rmqtool(*args).code == 0
    assert rmqtool(*args, "--delete").code == 0
    before, files = content(store), log_of(store)
    size = 1 << 16
    assert files[0] == 2 * size
    planned = rmqtool("undo", store, "--dry-run", "--output", "json", "--broker-conf", conf)
    assert json.loads(planned.out)["conflicts"] == [str(store / "commitlog" / f"{0:020d}")]
    for options in ([], ["--broker-conf", conf]):
        result = rmqtool("undo", store, "--yes", *options)
        assert result.code == 4, result
        assert f"the log would go on at {2 * size}, not at {size}" in result.err
    assert content(store) == before
    assert rmqtool("undo", store, "--yes", "--force").code == 0
    assert log_of(store) == [0, *files]


def test_undo_puts_back_one_clean_after_the_other(store: Path, conf: Path) -> None:
    args = ["clean", store, "--hours", "0", "--files", "2", "--yes", "--broker-conf", conf]
    before = content(store)
    for _ in range(3):
        assert rmqtool(*args).code == 0
    with Store(store, broker_conf=SIZES, write=True) as opened:
        opened.append(NewMessage(topic="t", body=b"later"))
    later = content(store)
    for _ in range(3):
        assert rmqtool("undo", store, "--yes").code == 0
    assert set(before) <= set(content(store))
    assert all(content(store)[name] == digest for name, digest in later.items())


@pytest.mark.parametrize("closed", [True, False])
def test_messages_that_are_not_in_their_queues_yet_stay(closed: bool, store: Path, conf: Path) -> None:
    """Without them a queue would continue too low, and assign offsets a second time."""
    with Store(store, broker_conf=SIZES, write=True) as opened:
        opened.append_many([NewMessage(topic="u", queue_id=n % 2, body=b"y" * 1000) for n in range(300)])
    layout = layout_of(store)
    middle = log_of(store)[5]
    cut_queues(layout, behind=middle + 5000)
    if not closed:
        (store / "abort").touch()
    args = ["clean", store, "--hours", "0", "--yes", "--broker-conf", conf]
    for more in (["--delete"], []):
        result = rmqtool(*args, *more)
        assert result.code == 0, result
        assert f"rmqtool {'dispatch' if closed else 'recover'} {store} first" in result.err
        assert middle in log_of(store)
    assert log_of(store)[0] == middle  # a start begins there, with and without abort
    ends = rmqtool("recover", store, "--yes", "--broker-conf", conf)
    assert ends.code == 0, ends
    assert rmqtool(*args).code == 0
    assert len(log_of(store)) == 1
    with Store(store, broker_conf=SIZES, write=True) as opened:
        assert [opened.append(NewMessage(topic="u", queue_id=n, body=b"")).queue_offset for n in range(2)] == [150, 150]


@by_turns(3)
@pytest.mark.parametrize("step", range(1, 7))
def test_what_an_undo_has_put_back_is_not_torn_from_the_rest(
    step: int, store: Path, conf: Path, tmp_path: Path
) -> None:
    """A later run kept elsewhere was killed, and is continued after files before its own were restored."""
    files = log_of(store)
    args = ["clean", store, "--hours", "0", "--files", "1", "--yes", "--broker-conf", conf]
    elsewhere = ["--backup", tmp_path / "elsewhere"]
    assert rmqtool(*args).code == 0
    killed(step, *args, *elsewhere)
    (store / MARKER).unlink(missing_ok=True)  # as if it had not been written yet
    assert log_of(store) == files[1:]
    assert rmqtool("undo", store, "--yes", "--broker-conf", conf).code == 0
    assert log_of(store) == files
    told = rmqtool("recover", store, "--dry-run", *elsewhere, "--broker-conf", conf)
    result = rmqtool("recover", store, "--yes", *elsewhere, "--broker-conf", conf)
    assert log_of(store) == files
    if result.code:
        assert result.code == 4
        assert f"without it the log would have nothing between {files[1]} and {files[2]}" in result.err
        assert "would have nothing between" in " ".join(told.out.split())
        assert rmqtool("undo", store, "--forget", "--yes", *elsewhere, "--broker-conf", conf).code == 0
        assert rmqtool("recover", store, "--yes", *elsewhere, "--broker-conf", conf).code == 0
        assert log_of(store) == files
