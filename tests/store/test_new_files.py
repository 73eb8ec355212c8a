"""Files created by an open store: by two threads, in any number, on any file system, for another owner."""

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqtool import NewMessage, Store
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.services.sending.importer import new_store
from rmqtool.store.append import live
from rmqtool.store.disk import new_files
from rmqtool.store.disk.new_files import PREFIX, make_file, open_at_length, sweep
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns
from tests.cli.running import RMQTOOL, process
from tests.store.findings import check_store
from tests.store.helpers import content

pytestmark = pytest.mark.slow

SIZES = {
    "mappedFileSizeCommitLog": "16384",
    "mappedFileSizeConsumeQueue": "100",
    "maxHashSlotNum": "61",
    "maxIndexNum": "300",
}
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away and mounts")


def messages(count: int, topics: int, size: int = 100) -> list[NewMessage]:
    return [
        NewMessage(topic=f"t{n % topics}", body=bytes(size), keys=f"k{n}", born_timestamp=1, store_timestamp=10**12 + n)
        for n in range(count)
    ]


def worst(path: Path, sizes: dict[str, str] = SIZES) -> list[str]:
    return [f.code for f in check_store(StoreLayout(str(path), BrokerConf(sizes))) if f.severity != "info"]


def offsets(path: Path, sizes: dict[str, str] = SIZES) -> int:
    with Store(path, broker_conf=sizes) as store:
        return sum(queue.maxOffset for queue in store.queues())


WAYS = ["nameless", "beside", "in place"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Features of the file system: unnamed files, links, neither."""
    if request.param != "nameless":
        monkeypatch.delattr(os, "O_TMPFILE")
    if request.param == "in place":

        def link(source: str, target: str, **_options: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted", source, None, target)

        monkeypatch.setattr(os, "link", link)
    return str(request.param)


@by_turns(3)
def test_many_topics_and_small_files(tmp_path: Path) -> None:
    """Log files by one thread, queue and index files by the other, thousands of them; a case that once failed."""
    sizes = {"mappedFileSizeCommitLog": str(2 << 20), "mappedFileSizeConsumeQueue": "2000"}
    path = tmp_path / "s"
    with Store.create(path, broker_conf=sizes) as store:
        given = messages(40_000, 200, 1000)
        for at in range(0, len(given), 1000):
            assert all(result.ok for result in store.append_many(given[at : at + 1000]))
    assert offsets(path, sizes) == 40_000
    assert {p.stat().st_size for p in (path / "commitlog").iterdir()} == {2 << 20}
    assert {p.stat().st_size for p in path.glob("consumequeue/*/*/*")} == {2000}
    assert worst(path, sizes) == []


@by_turns(13)
def test_both_threads_in_every_way(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_DISPATCH_BYTES", 2000)
    path, given = tmp_path / "s", messages(2_500, 50)
    with Store.create(path, broker_conf=SIZES) as store:
        for at in range(0, len(given), 20):
            assert all(result.ok for result in store.append_many(given[at : at + 20]))
    assert offsets(path) == len(given)
    assert len(list(path.rglob("*/*"))) > 500
    assert not list(tmp_path.rglob(f"{PREFIX}*"))
    assert worst(path) == []


def test_two_stores_whose_logs_lie_beside_each_other(way: str, tmp_path: Path) -> None:
    stores = []
    for name in "ab":
        (tmp_path / name).mkdir()
        conf = SIZES | {"storePathCommitLog": str(tmp_path / "logs" / name)}
        stores.append((tmp_path / name, conf))
    (a, conf_a), (b, conf_b) = stores
    with Store.create(a, broker_conf=conf_a) as value, Store.create(b, broker_conf=conf_b) as other:
        # what a killed writer of the other one left, and one of the first
        first, second = (os.stat(tmp_path / "logs" / name).st_ino for name in "ab")
        (tmp_path / "logs" / f"{PREFIX}{first:x}-1-1").touch()
        (tmp_path / "logs" / f"{PREFIX}{second:x}-1-1").touch()
        value.append(messages(1, 1)[0])
        assert [p.name for p in (tmp_path / "logs").iterdir() if p.is_file()] == [f"{PREFIX}{second:x}-1-1"]
        for message in messages(300, 3, 300):
            assert value.append(message).ok
            assert other.append(message).ok
    assert [p for p in (tmp_path / "logs").iterdir() if p.is_file()] == []
    for path, conf in stores:
        assert worst(path, conf) == []


def test_a_file_that_appears_meanwhile_stays(way: str, tmp_path: Path) -> None:
    target = tmp_path / "log" / "00000000000000000000"

    def meanwhile(folder: str) -> list[str]:
        os.mkdir(folder)
        target.write_bytes(b"of somebody else")
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_files, "make_folders", meanwhile)
        with pytest.raises(UnreadableStore, match="another process"):
            open_at_length(str(target), 1000, str(tmp_path))
    assert target.read_bytes() == b"of somebody else"
    assert not make_file(str(target), b"other")
    assert [p.name for p in tmp_path.rglob("*")] == ["log", target.name]


def test_sweeping_goes_by_the_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    names = [f"{PREFIX}{os.stat(tmp_path / 'a').st_ino:x}-5-1", f"{PREFIX}ffff-5-1", "other"]
    for name in names:
        (tmp_path / name).touch()
    sweep(str(tmp_path), str(tmp_path / "a"))
    assert {p.name for p in tmp_path.iterdir()} == {"a", *names[1:]}
    sweep(str(tmp_path))
    assert {p.name for p in tmp_path.iterdir()} == {"a", "other"}


@ROOT_ONLY
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_belong_to_whom_the_store_belongs(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert process("init", path).code == 0
    (path / "lock").unlink()
    (path / "checkpoint").unlink()
    for each in (path, *path.rglob("*")):
        os.chown(each, 12345, 23456)
        os.chmod(each, 0o750 if each.is_dir() else 0o640)
    line = b'{"topic": "t", "keys": ["k"]}\n'
    with subprocess.Popen(
        [*RMQTOOL, "append", str(path), "-o", "ndjson"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, umask=umask
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(line)
        running.stdin.flush()
        assert b"PUT_OK" in running.stdout.readline()
        assert (path / "abort").stat().st_uid == 12345
        assert stat.S_IMODE((path / "abort").stat().st_mode) == 0o640
        running.stdin.close()
        assert running.wait(30) == 0
    status = {each: each.stat() for each in path.rglob("*")}
    assert {"lock", "checkpoint"} <= {each.name for each in status}
    assert len(list(path.glob("index/*"))) == len(list(path.glob("consumequeue/t/0/*"))) == 1
    assert {(s.st_uid, s.st_gid) for s in status.values()} == {(12345, 23456)}
    assert {stat.S_IMODE(s.st_mode) for s in status.values()} == {0o750, 0o640}


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Any]:
    """Mount a small file system on a directory."""
    done: list[Path] = []

    def mount(path: Path, size: str) -> None:
        path.mkdir(exist_ok=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], check=False).returncode:
            pytest.skip("no file system can be mounted here")
        done.append(path)

    yield mount
    for path in reversed(done):
        subprocess.run(["umount", "-l", path], check=True)


@by_turns(13)
@ROOT_ONLY
@pytest.mark.parametrize("how", ["symlink", "mount"])
@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_a_part_on_another_file_system(part: str, how: str, way: str, tmp_path: Path, mounted: Any) -> None:
    path = tmp_path / "s"
    with Store.create(path, broker_conf=SIZES) as store:
        store.append(messages(1, 1)[0])
    target = path / part if how == "mount" else tmp_path / "elsewhere"
    shutil.move(path / part, tmp_path / "kept")
    mounted(target, "8m")
    shutil.copytree(tmp_path / "kept", target, dirs_exist_ok=True)
    if how == "symlink":
        (path / part).symlink_to(target)
    given = messages(600, 10)[1:]
    with Store(path, write=True, broker_conf=SIZES) as store:
        assert all(result.ok for result in store.append_many(given))
        assert all(store.append(message).ok for message in given)
    assert worst(path) == []
    assert not list(tmp_path.rglob(f"{PREFIX}*"))


@by_turns(13)
@ROOT_ONLY
@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index", "."])
def test_a_part_whose_file_system_is_full(part: str, tmp_path: Path, mounted: Any) -> None:
    """It fills up while the store is open: acknowledged messages are there once there is space again."""
    path, conf = tmp_path / "s", tmp_path / "broker.conf"
    sizes = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "20000", "maxIndexNum": "3000"}
    conf.write_text("".join(f"{name}={value}\n" for name, value in sizes.items()) + "maxHashSlotNum=61\n")
    mounted(path, "16m")
    assert process("init", path, "--broker-conf", conf).code == 0
    if part != ".":
        shutil.move(path / part, tmp_path / "kept")
        mounted(path / part, "16m")
        shutil.copytree(tmp_path / "kept", path / part, dirs_exist_ok=True)
    lines = b"".join(b'{"topic": "t%d", "body": "%d", "keys": ["%d"]}\n' % (n % 5, n, n) for n in range(20_000))
    command = [*RMQTOOL, "append", str(path), "-o", "ndjson", "--broker-conf", str(conf)]
    with (
        open(tmp_path / "out", "wb") as out,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.PIPE) as running,
    ):
        assert running.stdin is not None
        assert running.stderr is not None
        running.stdin.write(lines[: len(lines) // 20])
        running.stdin.flush()
        while not os.path.getsize(tmp_path / "out"):
            assert running.poll() is None
        # a broker passes over such a name in none of these directories; it goes before anybody looks
        with suppress(OSError), open(path / part / ".filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        with suppress(BrokenPipeError):
            running.stdin.write(lines[len(lines) // 20 :])
            running.stdin.close()
        stderr = running.stderr.read().decode()
        code = running.wait(60)
    (path / part / ".filler").unlink()
    assert code in (3, 4), stderr
    assert stderr.startswith(("error: ", '{"error":'))
    assert len(stderr.splitlines()) == 1
    assert "No space left on device" in stderr or "left on its file system" in stderr
    done = (tmp_path / "out").read_bytes().count(b"PUT_OK")
    assert done > 0
    assert code == 3 or not (path / "abort").exists()
    done_again = process("append", path, "--broker-conf", conf, input=b'{"topic": "t0"}\n', stdin=None)
    assert done_again.code == 0, done_again.err
    with Store(path, broker_conf=str(conf)) as store:
        kept = [item.record.body for item in store.messages()][:-1]
    assert kept == [b"%d" % n for n in range(len(kept))]
    assert len(kept) >= done
    settings = sizes | {"maxHashSlotNum": "61"}
    assert offsets(path, settings) == len(kept) + 1
    assert [code for code in worst(path, settings) if not code.startswith("checkpoint")] == []


@by_turns(13)
def test_few_descriptors(tmp_path: Path) -> None:
    """3,000 topics, hundreds of log and index files, and 64 descriptors; then again on the existing store."""
    path, conf = tmp_path / "s", tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SIZES.items()))
    assert process("init", path, "--broker-conf", conf).code == 0
    lines = b"".join(b'{"topic": "t%d", "body": "%d", "keys": ["%d"]}\n' % (n % 3000, n, n) for n in range(6000))
    command = f'ulimit -n 64; exec "$@" append {path} --broker-conf {conf}'
    for _ in range(2):
        result = subprocess.run(["sh", "-c", command, "sh", *RMQTOOL], input=lines, capture_output=True, check=False)
        assert result.returncode == 0, result.stderr.decode()
    assert offsets(path) == 12_000


def test_what_a_wide_store_costs(tmp_path: Path) -> None:
    """A queue is read once, when the store is opened, up to its end; nothing is kept of it."""
    path = tmp_path / "s"
    with Store.create(path) as store:  # queue files of 6,000,000 bytes
        assert all(result.ok for result in store.append_many(messages(600, 600)))
    script = (
        "from rmqtool import NewMessage, Store\n"
        f"with Store({str(path)!r}, write=True) as store:\n"
        "    assert store.append(NewMessage(topic='t7', body=b'x')).queue_offset == 1\n"
        "    store.dispatch()\n"
        "    assert len(store.live.queues) == 1\n"
        "print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    )
    done = subprocess.run([RMQTOOL[0], "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200 << 10


def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(call, path) of each sync, removal and rename, in order."""
    calls: list[tuple[str, str]] = []
    fsync, unlink, rename = os.fsync, os.unlink, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(("sync", os.readlink(f"/proc/self/fd/{fd}"))), fsync(fd)))
    monkeypatch.setattr(os, "unlink", lambda p, **o: (calls.append(("unlink", os.fspath(p))), unlink(p, **o)))
    monkeypatch.setattr(os, "rename", lambda a, b: (calls.append(("rename", os.fspath(b))), rename(a, b)))
    return calls


def test_names_are_durable_before_the_store_counts_as_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    with Store.create(path, broker_conf=SIZES) as store:
        calls = synced(monkeypatch)
        store.append(NewMessage(topic="new", keys="k"))
    gone = calls.index(("unlink", str(path / "abort")))
    for part in ("consumequeue", "consumequeue/new", "consumequeue/new/0", "index"):
        assert ("sync", str(path / part)) in calls[:gone], part
    assert ("sync", str(path)) in calls[gone:]


def test_an_imported_store_is_durable_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = synced(monkeypatch)
    with new_store(str(tmp_path / "s"), None) as importer:
        importer.take([{"topic": "t"}])
    assert ("sync", str(tmp_path)) in calls[calls.index(("rename", str(tmp_path / "s"))) :]
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_import_removes_only_what_an_import_has_left(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"topic": "t"}\n')
    (tmp_path / "s.importing").mkdir()
    (tmp_path / "s.importing" / "precious").write_text("mine")
    before = content(tmp_path)
    result = process("import", tmp_path / "s", tmp_path / "in.ndjson")
    assert result.code == 4
    assert len(result.err.splitlines()) == 1
    assert {name: digest for name, digest in content(tmp_path).items() if "mark" not in name} == before
    shutil.rmtree(tmp_path / "s.importing")
    with suppress(FileNotFoundError):
        (tmp_path / "s.importing.mark").unlink()
    command = [*RMQTOOL, "import", str(tmp_path / "s"), "-", "-o", "ndjson"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(b'{"topic": "t"}\n')
        running.stdin.flush()
        assert b"PUT_OK" in running.stdout.readline()
        other = process("import", tmp_path / "s", tmp_path / "in.ndjson")
        assert (other.code, "another run" in other.err) == (4, True)
        running.kill()
    assert (tmp_path / "s.importing" / "commitlog").exists()
    assert process("import", tmp_path / "s", tmp_path / "in.ndjson").code == 0
    assert {p.name for p in tmp_path.iterdir()} == {"s", "in.ndjson"}


def test_settings_that_name_the_log_of_another_store(tmp_path: Path) -> None:
    with Store.create(tmp_path / "broker", broker_conf=SIZES) as store:
        store.append(NewMessage(topic="t"))
    before = content(tmp_path / "broker")
    with pytest.raises(Refused, match="not empty"):
        Store.create(tmp_path / "s", broker_conf=SIZES | {"storePathCommitLog": str(tmp_path / "broker" / "commitlog")})
    assert content(tmp_path / "broker") == before
