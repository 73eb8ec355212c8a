"""A copy of a store that leads to the log of the original, or shares its files: these are not the copy's to change."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.errors import Refused
from rmqtool.store.append.live import LiveStore
from rmqtool.store.changes.undo import undo
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan, recover
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.helpers import conf_of, tree

CONF = conf_of("crash")


@pytest.fixture
def original(golden_copy: Unpacked, tmp_path: Path) -> Path:
    """A store whose log is beside it."""
    store = golden_copy("crash").rename(tmp_path / "store")
    (store / "commitlog").rename(tmp_path / "log")
    return store


def settings(root: Path, log: Path) -> BrokerConf:
    return BrokerConf({**CONF.values, "storePathRootDir": str(root), "storePathCommitLog": str(log)})


def copy_of(store: Path, log: Path | None = None) -> Path:
    """A copy, whose log is a link if one is given."""
    copy = Path(shutil.copytree(store, store.with_name("copy")))
    if log is not None:
        (copy / "commitlog").symlink_to(log)
    return copy


@contextmanager
def held_open(path: Path) -> Iterator[None]:
    """Another process has a file open for writing, as a broker has the files of its log."""
    code = "import sys; file = open(sys.argv[1], 'r+b'); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


@pytest.mark.parametrize(
    "command",
    [("recover", "--accept-loss"), ("truncate", "0"), ("clean", "--accept-loss"), ("rebuild", "consumequeue")],
    ids=lambda command: command[0],
)
def test_settings_of_the_original(command: tuple[str, ...], original: Path, tmp_path: Path) -> None:
    copy, conf = copy_of(original), tmp_path / "broker.conf"
    values = settings(original, tmp_path / "log").values
    conf.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    (copy / "abort").unlink(missing_ok=True)
    before = tree(tmp_path)
    verb, *words = command
    done = rmqtool(verb, copy, *words, "--broker-conf", conf, "--yes")
    assert (done.code, done.out) == (4, ""), done
    assert f"{tmp_path}/log: belongs to the store in {original}" in " ".join(done.err.split())
    assert tree(tmp_path) == before


def test_a_writer_with_settings_of_the_original(original: Path, tmp_path: Path) -> None:
    conf = settings(original, tmp_path / "log")
    recover(StoreLayout(str(original), conf))
    copy = copy_of(original)
    before = tree(tmp_path)
    with pytest.raises(Refused, match="belongs to the store in"):
        LiveStore(str(copy), conf)
    assert tree(tmp_path) == before
    with LiveStore(str(original), conf):
        pass
    original.rename(original.with_name("moved"))  # a store that was moved, with the settings that it had before
    with LiveStore(str(copy), conf):
        pass


def test_a_link_to_a_log_that_somebody_writes(original: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    copy = copy_of(original, log)
    layout = StoreLayout(str(copy), CONF)
    before = tree(tmp_path)
    with held_open(max(log.iterdir())):
        assert plan(layout).actions
        with pytest.raises(Refused, match=r"process \d+ .* has it open, and holds another lock"):
            recover(layout)
        assert tree(tmp_path).keys() - before.keys() <= {"copy/lock"}
    recover(layout)
    with held_open(max(log.iterdir())), pytest.raises(Refused, match="holds another lock"):
        undo(str(copy))
    undo(str(copy))
    after = tree(tmp_path)
    assert {name: after[name] for name in before} == before


def test_a_copy_of_hard_links(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A broker on the original writes to the files that the copy would cut."""
    store = golden_copy("crash").rename(tmp_path / "store")
    copy = Path(shutil.copytree(store, tmp_path / "copy", copy_function=os.link))
    before = tree(copy)
    with held_open(max((store / "commitlog").iterdir())):
        with pytest.raises(Refused, match="holds another lock"):
            recover(StoreLayout(str(copy), CONF))
        assert tree(copy) == before
    assert [text for text in plan(StoreLayout(str(copy), CONF)).warnings if "has another hard link" in text]
    recover(StoreLayout(str(copy), CONF))
