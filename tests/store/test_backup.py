"""Backups: complete, linked, damaged, interrupted anywhere, and of a store that a broker writes."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest

from rmqtool.cli.commands import COMMANDS, find_command, writes
from rmqtool.client import Message
from rmqtool.client.sync import Producer
from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.rules.releases import RELEASES
from rmqtool.services.lookup.queue_messages import QueueMessage, TopicQueues, messages_of
from rmqtool.store.backup import create as creating
from rmqtool.store.backup import local
from rmqtool.store.backup.create import create_backup
from rmqtool.store.backup.manifest import Backup, BackupFile, read_manifest
from rmqtool.store.backup.use import list_backups, restore, verify
from rmqtool.store.check.run import check_store
from rmqtool.store.disk.lock import StoreLock
from rmqtool.store.layout.backup_signs import STORE
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import LocatedRecord
from rmqtool.testing.embedded import broker
from tests import roles
from tests.amounts import by_turns, some
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services.build import log_of, never
from tests.store.crashes import Killed, Seam
from tests.store.helpers import tree

STORES = ("broker", "broker-crash", "broker-5.3.3", "rocksdb-5.3.3", "compaction-5.3.3", "torn-last-record", "lmq")


def layout_of(store: Path) -> StoreLayout:
    return StoreLayout(str(store), BrokerConf())


def backup(store: Path, home: Path, **more: bool) -> Backup:
    return create_backup(layout_of(store), str(home), never, **more)


def test_create_may_be_left_out(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "backups"
    assert rmqtool("backup", golden("broker"), home, "--rate", "1G", "-o", "json").code == 0
    assert rmqtool("backup", golden("broker"), home, "--incremental").code == 0
    assert len(rmqtool("backup", "list", home, "-o", "ndjson").out.splitlines()) == 2
    # commands come first, and what is no directory is no store
    monkeypatch.chdir(tmp_path)
    shutil.copytree(golden("clean"), tmp_path / "list")
    assert rmqtool("backup", "list", home).out.count("complete") == 2
    assert rmqtool("backup", "./list", tmp_path / "other").code == 0
    wrong = rmqtool("backup", "verfy", home)
    assert (wrong.code, wrong.out) == (2, "")
    assert "verify" in wrong.err


def test_a_signal_waits_for_the_short_form_too() -> None:
    assert writes(["backup", str(Path(__file__).parent), "backups"])
    assert find_command(["backup", str(Path(__file__).parent), "backups"]) is COMMANDS["backup create"]
    assert find_command(["backup", "list", "backups"]) is COMMANDS["backup list"]


def content(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(store).items() if name != "lock"}


@pytest.mark.parametrize("case", STORES)
def test_a_restored_store_is_the_same(case: str, golden: Unpacked, tmp_path: Path) -> None:
    store, home = golden(case), tmp_path / "backups"
    made = backup(store, home)
    restored = restore(str(home), str(tmp_path / "restored"))
    assert restored == made
    assert content(tmp_path / "restored") == content(store)
    for file in made.files:
        there, here = (root.joinpath(*file.path.split("/")).stat() for root in (store, tmp_path / "restored"))
        assert (there.st_mtime_ns, there.st_mode) == (here.st_mtime_ns, here.st_mode)
    assert list(verify(str(home))) == []
    assert not made.live
    assert not list(tmp_path.glob("restored.*"))


def test_several_paths_of_a_log_become_one(tmp_path: Path) -> None:
    node = roles.unpack(roles.MULTI_PATH, "master", tmp_path / "nodes") if _has("master") else _multi(tmp_path)
    layout = StoreLayout(str(node.store), load(str(node.conf)))
    create_backup(layout, str(tmp_path / "backups"), lambda _text: None)
    restore(str(tmp_path / "backups"), str(tmp_path / "restored"))
    names = {Path(file.path).name for file in layout.commit_log().files}
    assert len(layout.commit_log_paths) > 1
    assert {path.name for path in (tmp_path / "restored" / "commitlog").iterdir()} == names
    messages = [
        item.record.queue_offset for item in log_of(tmp_path / "restored").walk() if isinstance(item, LocatedRecord)
    ]
    assert messages


def test_restoring_writes_nothing_to_the_log_that_the_settings_name(tmp_path: Path) -> None:
    node = _multi(tmp_path)
    layout = StoreLayout(str(node.store), load(str(node.conf)))
    with StoreLock(str(node.store)):
        made = create_backup(layout, str(tmp_path / "backups"), lambda _text: None)
    assert made.live
    before = tree(tmp_path / "nodes")
    restore(str(tmp_path / "backups"), str(tmp_path / "restored"), conf=layout.conf)
    assert tree(tmp_path / "nodes") == before
    assert {path.name for path in (tmp_path / "restored" / "commitlog").iterdir()} >= {
        Path(file.path).name for file in layout.commit_log().files if file.base < made.logTo
    }


def _has(node: str) -> bool:
    return (roles.PLACE / roles.MULTI_PATH / f"{node}.conf").is_file()


def _multi(tmp_path: Path) -> roles.Node:
    (conf,) = (roles.PLACE / roles.MULTI_PATH).glob("*.conf")
    return roles.unpack(roles.MULTI_PATH, conf.stem, tmp_path / "nodes")


def test_unchanged_files_are_linked(golden_copy: Unpacked, tmp_path: Path) -> None:
    store, home = golden_copy("head-file-deleted"), tmp_path / "backups"
    first = backup(store, home)
    last = store / "commitlog" / max(path.name for path in (store / "commitlog").iterdir())
    data = last.read_bytes()
    last.write_bytes(data[:-1] + b"\x01")
    second = backup(store, home, incremental=True)
    third = backup(store, home)
    name = f"commitlog/{last.name}"
    assert {file.path for file in second.files if not file.linked} == {name}
    for file in second.files:
        first_file, two = (home / made.name / STORE / file.path for made in (first, second))
        assert first_file.samefile(two) == file.linked
    assert not any(file.linked for file in third.files)
    assert list(verify(str(home))) == []
    rows = list_backups(str(home), never)
    assert [row.copiedBytes for row in rows] == [
        sum(file.written for file in first.files),
        next(file.written for file in second.files if file.path == name),
        sum(file.written for file in third.files),
    ]
    shutil.rmtree(home / first.name)
    restore(str(home), str(tmp_path / "restored"), name=second.name)
    assert content(tmp_path / "restored") == content(store)


def test_a_directory_keeps_its_own_name(golden: Unpacked, golden_copy: Unpacked, tmp_path: Path) -> None:
    store, home = golden_copy("clean"), tmp_path / "backups"
    for name, to in (("again", "."), ("also", "consumequeue"), ("config/again", ".."), ("linked", "../elsewhere")):
        (store / name).symlink_to(to)
    (store.parent / "elsewhere").mkdir()
    (store.parent / "elsewhere" / "notes").touch()
    backup(store, home)
    restore(str(home), str(tmp_path / "restored"))
    restored = content(tmp_path / "restored")
    assert restored.pop("linked/notes")
    assert restored == content(golden("clean"))


def test_what_changed_since_in_an_earlier_backup_is_not_linked(golden: Unpacked, tmp_path: Path) -> None:
    store, home = golden("broker"), tmp_path / "backups"
    first = backup(store, home)
    path = home / first.name / STORE / "config" / "topics.json"
    path.write_bytes(path.read_bytes() + b" ")
    warnings: list[str] = []
    second = create_backup(layout_of(store), str(home), warnings.append, incremental=True)
    assert {file.path for file in second.files if not file.linked} == {"config/topics.json"}
    assert len(warnings) == 1
    assert [(fault.name, fault.file) for fault in verify(str(home))] == [(first.name, "config/topics.json")]


@pytest.mark.parametrize("how", ["flip", "flip a zero", "cut", "remove", "add", "manifest", "no manifest", "link"])
def test_damaged_backups_are_named(how: str, golden: Unpacked, tmp_path: Path) -> None:
    home = tmp_path / "backups"
    first, second = backup(golden("broker"), home), backup(golden("broker"), home)
    top = home / second.name / STORE
    path = top / "commitlog" / f"{0:020d}"
    named = f"commitlog/{0:020d}"
    data = bytearray(path.read_bytes())
    if how in ("flip", "flip a zero"):
        data[5000 if how == "flip" else len(data) - 1] ^= 1
        path.write_bytes(bytes(data))
    elif how == "cut":
        path.write_bytes(bytes(data[:-1]))
    elif how == "remove":
        path.unlink()
    elif how == "link":
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
    elif how == "add":
        (top / "commitlog" / "extra").touch()
        named = "commitlog/extra"
    else:
        manifest = home / second.name / "manifest.json"
        named = "manifest.json"
        text = manifest.read_text()
        manifest.write_text(text.replace('"live": false', '"live": true'))
        if how == "no manifest":
            manifest.unlink()
    assert [(fault.name, fault.file) for fault in verify(str(home))] == [(second.name, named)]
    result = rmqtool("backup", "verify", home)
    assert result.code == 1
    assert named in result.out
    assert rmqtool("backup", "verify", home, "--name", first.name).code == 0
    if how != "add":
        with pytest.raises((CorruptFile, UnreadableStore)):
            restore(str(home), str(tmp_path / "restored"))
        assert not list(tmp_path.glob("restored*"))


def test_places_of_others_are_left_alone(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").write_text("x")
    before, kept = tree(store), tree(theirs)
    for home in (theirs, theirs / "file", store / "backups", store, store / "commitlog" / "b"):
        with pytest.raises(Refused):
            backup(store, home)
    assert tree(store) == before
    assert tree(theirs) == kept
    made = backup(store, tmp_path / "backups")
    for new in (theirs, theirs / "file", store):
        with pytest.raises(Refused):
            restore(str(tmp_path / "backups"), str(new))
    assert tree(theirs) == kept
    for wrong in (theirs, tmp_path / "nowhere", store):
        assert rmqtool("backup", "list", wrong).code == 3
        assert rmqtool("backup", "verify", wrong).code == 3
    assert rmqtool("backup", "restore", tmp_path / "backups", tmp_path / "new", "--name", "nosuch").code == 3
    assert made.name in rmqtool("backup", "list", tmp_path / "backups").out


def test_a_path_that_leaves_the_store_is_no_manifest(golden: Unpacked, tmp_path: Path) -> None:
    home = tmp_path / "backups"
    made = backup(golden("broker"), home)
    outside = BackupFile(path="../../x", bytes=0, written=0, sha256="", modifiedNs=0, inode=0, sealed=True)
    path = home / made.name / "manifest.json"
    path.write_bytes(Backup(**{**{n: getattr(made, n) for n in made.__dataclass_fields__}, "files": [outside]}).build())
    with pytest.raises(CorruptFile):
        read_manifest(str(home / made.name))


def test_two_at_once(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, refused = tmp_path / "backups", []

    def copy(*args: object, **more: object) -> object:
        if not refused:
            with pytest.raises(Refused, match="another backup"):
                backup(golden("broker"), home)
            refused.append(True)
        return real(*args, **more)  # type: ignore[arg-type]

    real = local.copy_file
    monkeypatch.setattr(local, "copy_file", copy)
    backup(golden("broker"), home)
    assert refused


@pytest.mark.parametrize("what", ["file", "lock", "new file"])
def test_a_store_that_changes_meanwhile_is_refused(
    what: str, golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, home = golden_copy("broker"), tmp_path / "backups"
    held = StoreLock(str(store))

    def change(*args: object) -> None:
        if what == "file":
            with (store / "checkpoint").open("r+b") as file:
                file.write(b"\x01")
        elif what == "new file":
            (store / "config" / "new.json").write_text("{}")
        else:
            held.__enter__()
        real(*args)  # type: ignore[arg-type]

    real = creating._Run._refuse_changes
    monkeypatch.setattr(creating._Run, "_refuse_changes", change)
    with pytest.raises(Refused, match="run it again"):
        backup(store, home)
    if what == "lock":
        held.__exit__(None, None, None)
    assert [row.state for row in list_backups(str(home), never)] == ["interrupted"]
    monkeypatch.undo()
    made = backup(store, home)
    assert [row.state for row in list_backups(str(home), never)] == ["complete"]
    restore(str(home), str(tmp_path / "restored"), name=made.name)
    assert content(tmp_path / "restored") == content(store)


def test_killed_anywhere_and_run_again(golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden("broker")
    seam = Seam(monkeypatch)
    seam.begin()
    backup(store, tmp_path / "whole")
    steps = seam.count
    assert steps > 100
    rng = Random(7)
    for number in sorted({*range(1, 9), steps - 1, steps - 2, steps - 3, *rng.sample(range(1, steps), some(12, 200))}):
        home = tmp_path / f"killed-{number}"
        seam.begin(number)
        with pytest.raises(Killed):
            backup(store, home)
        seam.begin()
        copies = [path for path in home.glob("*.part/store/**/*") if path.is_file() and path.stat().st_size]
        for path in rng.sample(copies, len(copies) // 4):
            path.write_bytes(bytes(path.stat().st_size))  # as if a power cut had come, too
        assert all(row.state != "damaged" for row in (list_backups(str(home), never) if _is_home(home) else []))
        made = backup(store, home, incremental=number % 3 == 0)
        assert list(verify(str(home))) == []
        states = [row.state for row in list_backups(str(home), never)]
        assert set(states) == {"complete"}, (number, states)
        restore(str(home), str(tmp_path / f"restored-{number}"), name=made.name)
        assert content(tmp_path / f"restored-{number}") == content(store)
        shutil.rmtree(home)


def _is_home(home: Path) -> bool:
    return (home / "rmqtool-backups.json").is_file()


def test_a_killed_restore_leaves_nothing_in_the_way(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, home, new = golden("broker"), tmp_path / "backups", tmp_path / "restored"
    backup(store, home)
    seam = Seam(monkeypatch)
    seam.begin()
    restore(str(home), str(tmp_path / "other"))
    steps = seam.count
    for number in sorted({1, 2, steps - 2, *Random(3).sample(range(steps), some(8, 100))}):
        seam.begin(number)
        with pytest.raises(Killed):
            restore(str(home), str(new))
        seam.begin()
        if new.exists():
            assert content(new) == content(store)
            shutil.rmtree(new)
        restore(str(home), str(new))
        assert content(new) == content(store)
        shutil.rmtree(new)


def test_an_interrupted_run_goes_on_with_what_it_has(golden: Unpacked, tmp_path: Path) -> None:
    store, home = golden("broker"), tmp_path / "backups"
    args = [sys.executable, "-m", "rmqtool.main", "backup", "create", str(store), str(home)]
    process = subprocess.Popen([*args, "--rate", "20K"], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    for _number in range(600):
        if any(path.stat().st_size for path in home.glob("*.part/store/commitlog/*")):
            break
        time.sleep(0.05)
    process.kill()
    process.communicate()
    (part,) = home.glob("*.part")
    result = rmqtool("backup", "create", store, home)
    assert result.code == 0
    assert [path.name + ".part" for path in home.iterdir() if path.is_dir()] == [part.name]
    assert list(verify(str(home))) == []


def test_a_rate_slows_it_down(golden: Unpacked, tmp_path: Path) -> None:
    began = time.monotonic()
    create_backup(layout_of(golden("broker")), str(tmp_path / "backups"), never, rate=200_000)
    assert time.monotonic() - began > 1
    for rate in ("0", "fast", "-1", "1.5M", "9" * 20):
        assert rmqtool("backup", "create", golden("broker"), tmp_path / "b", "--rate", rate).code == 2


@by_turns(3)
@pytest.mark.parametrize("release", ["4.9", "5.3"])
def test_a_live_store_under_load(release: str, tmp_path: Path) -> None:
    """What was acknowledged before the backup began is in the restored store, whole and in its queue."""
    store, home = tmp_path / "store", tmp_path / "backups"
    sizes = {"mappedFileSizeCommitLog": str(128 << 10), "mappedFileSizeConsumeQueue": "2000"}
    acked: list[str] = []
    end = threading.Event()
    rules = RELEASES[release]
    with broker(store, settings=sizes, release=rules) as served, Producer(served.namesrv) as producer:

        def send(thread: int) -> None:
            number = 0
            while not end.is_set():
                key = f"k{thread}-{number}"
                body = bytes(Random(number).randrange(256) for _byte in range(1 + number % 300))
                producer.send(Message("Orders", body, keys=[key]))
                acked.append(key)
                number += 1

        threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        backups: list[tuple[str, set[str]]] = []
        for number in range(4):
            while len(acked) < 150 * (number + 1):
                assert any(thread.is_alive() for thread in threads)
                time.sleep(0.02)
            before = set(acked)
            conf = BrokerConf(sizes)
            made = create_backup(StoreLayout(str(store), conf), str(home), never, incremental=number > 1)
            assert made.live
            backups.append((made.name, before))
        end.set()
        for thread in threads:
            thread.join()
    assert list(verify(str(home))) == []
    assert any(file.linked for file in read_manifest(str(home / backups[-1][0])).files)
    for number, (name, before) in enumerate(backups):
        new = tmp_path / f"restored-{number}"
        restore(str(home), str(new), name=name, conf=BrokerConf(sizes))
        rows = list(log_of(new, **sizes).walk())
        assert all(isinstance(item, LocatedRecord) for item in rows)
        listed = {
            row.properties["KEYS"]
            for queue in range(4)
            for row in _messages(new, "Orders", queue, sizes)
        }  # fmt: skip
        assert before <= listed
        layout = StoreLayout(str(new), BrokerConf(sizes))
        assert [finding.code for finding in check_store(layout) if finding.severity == "error"] == []
        for key in sorted(before)[::40]:
            assert rmqtool("query-key", new, "Orders", key).code == 0
        with broker(new) as again, Producer(again.namesrv) as producer:
            producer.send(Message("Orders", b"more", keys=["more"]))


def _messages(store: Path, topic: str, queue_id: int, sizes: dict[str, str]) -> list[QueueMessage]:
    log = log_of(store, **sizes)
    queue = TopicQueues(log.layout).one(topic, queue_id)
    return [] if queue is None else list(messages_of(log, queue, never))


def test_a_live_store_with_databases_is_refused(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("rocksdb-5.3.3")
    with StoreLock(str(store)), pytest.raises(Refused, match="only be copied while none is"):
        backup(store, tmp_path / "backups")
    assert os.listdir(tmp_path / "backups")
