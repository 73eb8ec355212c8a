"""Backups in a bucket: complete, incremental, damaged, interrupted anywhere, and of others."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from rmqtool.analytics.remote.backups import RemoteHome
from rmqtool.analytics.remote.backups import RemotePart as RemotePartOf
from rmqtool.analytics.remote.files import Folder
from rmqtool.errors import CorruptFile, Refused, RmqError
from rmqtool.store.backup.create import create_backup
from rmqtool.store.backup.manifest import Backup
from rmqtool.store.backup.use import list_backups, restore, verify
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns, some
from tests.analytics.test_remote_store import Server, server
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services.build import never
from tests.store.crashes import Killed
from tests.store.helpers import tree

__all__ = ["server"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    left = tmp_path / "state" / "rmqtool" / "backups"
    assert not list(left.glob("*.ndjson")), "the journal of a complete backup"


@pytest.fixture
def uri(server: Server, request: pytest.FixtureRequest) -> str:
    """A place that does not exist yet."""
    return server.uri(f"backups/{abs(hash(request.node.nodeid))}")


def backup(store: Path, uri: str, **more: bool) -> Backup:
    return create_backup(StoreLayout(str(store)), RemoteHome(uri), never, **more)


def content(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(store).items() if name != "lock"}


@by_turns(3)
@pytest.mark.parametrize("case", some(["broker", "rocksdb-5.3.3"], ["broker", "rocksdb-5.3.3", "torn-header", "lmq"]))
def test_a_restored_store_is_the_same(case: str, golden: Unpacked, uri: str, tmp_path: Path) -> None:
    store = golden(case)
    made = backup(store, uri)
    assert restore(RemoteHome(uri), str(tmp_path / "restored")) == made
    assert content(tmp_path / "restored") == content(store)
    assert list(verify(RemoteHome(uri))) == []
    for file in made.files:
        assert (tmp_path / "restored" / file.path).stat().st_mtime_ns == (store / file.path).stat().st_mtime_ns
    # plain objects, without the zeros at the end of files
    log = (store / "commitlog" / f"{0:020d}").read_bytes()
    with Folder(uri).fs.open_input_stream(Folder(uri).full(f"{made.name}/store/commitlog/{0:020d}")) as stream:
        assert stream.read() == log.rstrip(b"\0")


def test_the_commands(golden: Unpacked, uri: str, tmp_path: Path) -> None:
    store = golden("broker")
    (row,) = json.loads(rmqtool("backup", store, uri, "--output", "json").out)
    assert rmqtool("backup", "create", store, uri, "--incremental").code == 0
    listed = [json.loads(line) for line in rmqtool("backup", "list", uri, "-o", "ndjson").out.splitlines()]
    assert [each["state"] for each in listed] == ["complete", "complete"]
    assert row == listed[0]
    result = rmqtool("backup", "verify", uri)
    assert (result.code, result.err) == (0, "2 backups in order, 0 damaged backups\n")
    assert rmqtool("backup", "restore", uri, tmp_path / "new", "--name", row["name"]).code == 0
    assert content(tmp_path / "new") == content(store)


@by_turns(3)
@pytest.mark.parametrize("how", ["flip", "cut", "remove", "add", "manifest"])
def test_damaged_backups_are_named(how: str, golden: Unpacked, uri: str, tmp_path: Path) -> None:
    made = backup(golden("broker"), uri)
    folder, name = Folder(uri), f"commitlog/{0:020d}"
    place = f"{made.name}/store/{name}"
    with folder.fs.open_input_stream(folder.full(place)) as stream:
        data = bytearray(stream.read())
    if how == "flip":
        data[5000] ^= 1
        folder.write_new(place, bytes(data))
    elif how == "cut":
        folder.write_new(place, bytes(data[:-1]))
    elif how == "remove":
        folder.delete(place)
    elif how == "add":
        name = "commitlog/extra"
        folder.write_new(f"{made.name}/store/{name}", b"x")
    else:
        name = "manifest.json"
        folder.write_new(f"{made.name}/{name}", made.build().replace(b'"live": false', b'"live": true'))
    assert [(fault.name, fault.file) for fault in verify(RemoteHome(uri))] == [(made.name, name)]
    if how != "add":
        with pytest.raises(CorruptFile):
            restore(RemoteHome(uri), str(tmp_path / "restored"))
        assert not list(tmp_path.glob("restored*"))


def test_what_is_there_is_not_sent_again(
    golden_copy: Unpacked, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_copy("head-file-deleted")
    first = backup(store, uri)
    last = store / "commitlog" / max(path.name for path in (store / "commitlog").iterdir())
    last.write_bytes(last.read_bytes()[:-1] + b"\x01")
    sent: list[str] = []
    send = RemotePartOf._send
    monkeypatch.setattr(
        RemotePartOf, "_send", lambda part, path, *rest: (sent.append(path), send(part, path, *rest))[1]
    )
    second = backup(store, uri, incremental=True)
    assert sent == [f"commitlog/{last.name}"]
    assert list(verify(RemoteHome(uri))) == []
    Folder(uri).delete_dir(first.name)  # each is whole by itself
    restore(RemoteHome(uri), str(tmp_path / "restored"), name=second.name)
    assert content(tmp_path / "restored") == content(store)


@by_turns(11)
def test_killed_anywhere_and_run_again(
    golden: Unpacked, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("broker")
    count, limit = 0, 0

    def step(call: str) -> None:
        original = getattr(Folder, call)

        def counted(self: Folder, *args: object) -> object:
            nonlocal count
            count += 1
            if count == limit:
                raise Killed
            return original(self, *args)

        monkeypatch.setattr(Folder, call, counted)

    for call in ("size", "write_new", "full"):
        step(call)
    backup(store, Folder(uri).below("whole").location)
    steps = count
    assert steps > 50
    rng = Random(11)
    for number in sorted({1, 2, 3, steps - 1, steps, *rng.sample(range(steps), some(2, 60))}):
        home, limit = Folder(uri).below(f"killed-{number}").location, 0
        count, limit = 0, number
        with pytest.raises(Killed):
            backup(store, home)
        limit = 0
        if Folder(home).files():
            assert {row.state for row in list_backups(RemoteHome(home), never)} <= {"interrupted"}
        made = backup(store, home)
        assert [(row.name, row.state) for row in list_backups(RemoteHome(home), never)] == [(made.name, "complete")]
        assert list(verify(RemoteHome(home))) == []
    restore(RemoteHome(home), str(tmp_path / "restored"))
    assert content(tmp_path / "restored") == content(store)


def test_another_machine_does_not_go_on_with_it(
    golden: Unpacked, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("broker")
    with monkeypatch.context() as here:
        here.setattr(RemotePartOf, "finish", lambda *_args: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            backup(store, uri)
    there = tmp_path / "there"
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(there))
        made = backup(store, uri)
    states = {row.name: row.state for row in list_backups(RemoteHome(uri), never)}
    assert states.pop(made.name) == "complete"
    assert list(states.values()) == ["interrupted"]
    assert backup(store, uri).name in states


def test_two_at_once(golden: Unpacked, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []
    finish = RemotePartOf.finish

    def other(part: RemotePartOf, *args: object) -> None:
        if not refused:
            with pytest.raises(Refused, match="another backup"):
                backup(golden("broker"), uri)
            refused.append(True)
        finish(part, *args)

    monkeypatch.setattr(RemotePartOf, "finish", other)
    backup(golden("broker"), uri)
    assert refused


def test_places_of_others_are_left_alone(golden: Unpacked, server: Server, uri: str) -> None:
    server.write("backups/theirs/file", b"x")
    for wrong in (server.uri("backups/theirs"), uri):
        result = rmqtool("backup", "list", wrong)
        assert (result.code, result.err.count("\n")) == (3, 1)
    with pytest.raises(Refused, match="other files"):
        backup(golden("broker"), server.uri("backups/theirs"))
    assert [path for path, *_more in server.listing("backups/theirs")] == ["stores/backups/theirs/file"]


def test_a_server_that_does_not_answer(golden: Unpacked, uri: str) -> None:
    gone = uri.partition("?")[0] + "?endpoint_override=127.0.0.1:1&scheme=http&connect_timeout=1"
    with pytest.raises(RmqError) as raised:
        backup(golden("broker"), gone)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)
