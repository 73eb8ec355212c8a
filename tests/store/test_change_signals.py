"""SIGINT, SIGTERM and SIGHUP at any step: the state is reported and durable, and the same command continues."""

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.store.changes.places import Places
from rmqtool.store.changes.signals import Signals, Stop
from rmqtool.store.changes.writing import pending_runs
from tests.amounts import by_turns, some
from tests.cli.running import rmqtool
from tests.store.dying import ended
from tests.store.helpers import content, tree
from tests.store.test_change_between import MARKER, SIZES, conf, torn

pytestmark = pytest.mark.slow

__all__ = ["conf", "torn"]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
STEP = 195  # in the middle of the renames
each = pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)


@pytest.fixture(autouse=True)
def as_at_the_start() -> Iterator[None]:
    """Restore the default SIGTERM handling, which a previous command in this process may have changed."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A store with many queues to rebuild."""
    store = tmp_path / "wide"
    with Store.create(store, broker_conf=SIZES) as opened:
        opened.append_many([NewMessage(topic=f"t{n}", body=b"x", keys=f"k{n}") for n in range(30)])
    for path in (store / "consumequeue").glob("*/*/*"):
        path.write_bytes(b"\1" * 2000)
    return store


@by_turns(13)
@each
@pytest.mark.parametrize("times", [1, 5])
def test_while_it_is_applied(number: signal.Signals, times: int, wide: Path, conf: Path, tmp_path: Path) -> None:
    args = ["rebuild", wide, "consumequeue", "--yes", "--broker-conf", conf]
    before = tree(wide)
    done = ended(number, STEP, *args, times=times)
    assert done.code == CODES[number], done
    assert done.out == ""
    text = re.fullmatch(
        rf"error: {number.name}: (\d+) of (\d+) changes are done and durable, (\d+) are left: the same command "
        rf"continues with them, and rmqtool undo {wide} puts all back\n",
        done.err,
    )
    assert text is not None, done.err
    assert 0 < int(text[1]) < int(text[2]) == int(text[1]) + int(text[3])
    assert (wide / MARKER).exists()
    assert rmqtool(*args).code == 0
    assert pending_runs(Places(str(wide))) == []
    assert rmqtool("check", wide, "--broker-conf", conf).code == 0
    assert rmqtool("undo", wide, "--yes").code == 0
    assert rmqtool("undo", wide, "--yes").code == 0
    assert {**tree(wide), "lock": None} == {**before, "lock": None}


@by_turns(2)
@each
def test_what_was_stopped_is_put_back(number: signal.Signals, wide: Path, conf: Path) -> None:
    before = tree(wide)
    ended(number, 100, "rebuild", wide, "consumequeue", "--yes", "--broker-conf", conf)
    assert rmqtool("undo", wide, "--yes").code == 0
    assert {**tree(wide), "lock": None} == {**before, "lock": None}


@by_turns(2)
@each
def test_a_short_rest_is_done(number: signal.Signals, torn: Path, conf: Path, tmp_path: Path) -> None:
    args = ["recover", torn, "--yes", "--broker-conf", conf]
    done = ended(number, 4, *args)
    assert done.code == CODES[number], done
    assert done.err == f"error: {number.name}: all was done before it stopped: rmqtool undo {torn} puts it back\n"
    assert "Nothing to do" in rmqtool("recover", torn, "--dry-run", "--broker-conf", conf).out


@by_turns(3)
@each
@pytest.mark.parametrize("step", [-1, -9, -40])
def test_while_it_is_planned(number: signal.Signals, step: int, wide: Path, conf: Path) -> None:
    before = content(wide)
    done = ended(number, step, "rebuild", wide, "consumequeue", "--yes", "--broker-conf", conf)
    assert done.code == CODES[number], done
    assert done.err == f"error: {number.name}: nothing was changed\n"
    assert content(wide) == before
    assert not Path(f"{wide}.rmqtool").exists()


@by_turns(13)
@each
def test_a_plan_and_its_tidying_up(number: signal.Signals, torn: Path, conf: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before, codes = content(torn), []
    first, apart = some((1 + list(CODES).index(number), len(CODES)), (1, 1))  # at each step one of them
    for step in range(first, 400, apart):
        done = ended(number, -step, "recover", torn, "--dry-run", "--broker-conf", conf, env={"TMPDIR": str(scratch)})
        codes.append(done.code)
        assert done.code in (CODES[number], 1), done
        assert done.err == (f"error: {number.name}: nothing was changed\n" if done.code != 1 else ""), done
        assert list(scratch.glob("rmqtool-*")) == [], step
        if done.code == 1:
            break
    assert codes.count(1) == 1
    assert len(codes) > some(1, 3)
    assert content(torn) == before


@by_turns(2)
@each
def test_an_undo(number: signal.Signals, wide: Path, conf: Path) -> None:
    before = tree(wide)
    assert rmqtool("rebuild", wide, "consumequeue", "--yes", "--broker-conf", conf).code == 0
    done = ended(number, 20, "undo", wide, "--yes")
    assert done.code == CODES[number], done
    assert re.fullmatch(
        rf"error: {number.name}: \d+ of \d+ changes are put back, \d+ are left: the same command continues\n", done.err
    )
    assert rmqtool("recover", wide, "--yes", "--broker-conf", conf).code == 4
    assert rmqtool("undo", wide, "--yes").code == 0
    assert {**tree(wide), "lock": None} == {**before, "lock": None}


@by_turns(2)
@each
def test_clean_that_deletes(number: signal.Signals, tmp_path: Path, conf: Path) -> None:
    store = tmp_path / "long"
    with Store.create(store, broker_conf=SIZES) as opened:
        opened.append_many([NewMessage(topic="t", body=b"x" * 1000) for n in range(500)])
    files = len(list((store / "commitlog").iterdir()))
    assert files > 8
    args = ["clean", store, "--hours", "0", "--yes", "--delete", "--broker-conf", conf]
    done = ended(number, -2, *args)
    assert done.code == CODES[number], done
    assert re.fullmatch(rf"error: {number.name}: \d+ of \d+ files are deleted, \d+ are left: .*\n", done.err), done.err
    assert rmqtool(*args).code == 0
    assert len(list((store / "commitlog").iterdir())) == 1
    assert rmqtool("check", store, "--broker-conf", conf).code == 0
    assert not Path(f"{store}.rmqtool").exists()


@each
def test_one_that_comes_while_python_tidies_up_is_not_lost(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exceptions in finalizers are dropped; the next check finds the signal, without a traceback."""

    class Tidied:
        def __del__(self) -> None:
            signal.raise_signal(number)

    hook = sys.unraisablehook
    with Signals() as signals:
        Tidied()
        assert signals.asked == number
        with pytest.raises(Stop):
            signals.defer()
    assert sys.unraisablehook is hook
    assert capsys.readouterr().err == ""
