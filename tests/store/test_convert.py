"""Stores of another form: what stays, what is said, what is refused, and kills at every step."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.variants import epoch
from rmqtool import NewMessage, Store
from rmqtool.errors import BadValue, Refused
from rmqtool.store.convert import copying
from rmqtool.store.convert.convert import convert, split_topics, spread_log
from rmqtool.store.convert.report import ConversionReport, StoreForm
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests import roles
from tests.amounts import some
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.copies import Identity, identity
from tests.store.crashes import Killed, Seam
from tests.store.helpers import content

SIZES = {"mappedFileSizeCommitLog": "2048", "mappedFileSizeConsumeQueue": "200", "maxHashSlotNum": "7",
         "maxIndexNum": "40"}  # fmt: skip
Place = tuple[bytes, int, int]
OF_REPLICAS = ("epochFileCheckpoint", "epochFileCheckpoint.bak", "brokerIdentity", "brokerIdentity.bak")


def layout_of(node: roles.Node) -> StoreLayout:
    return StoreLayout(str(node.store), load(str(node.conf)))


def messages(layout: StoreLayout) -> dict[Place, Identity]:
    """Every message of a log by its queue offset."""
    items = [item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]
    return {(r.topic, r.queue_id, r.queue_offset): identity(r) for r in (item.record for item in items)}


def files(root: Path, *but: str) -> dict[str, bytes]:
    """Every file below a directory, without some, and without locks."""
    found = {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}
    contents = {name: path.read_bytes() for name, path in found.items() if name not in (*but, "lock")}
    named = [name for name in contents if "index/2" in name]
    for number, name in enumerate(named):  # after the clock
        contents[f"{name.rpartition('/')[0]}/{number}"] = contents.pop(name)
    return contents


# -- several directories, and one -----------------------------------------------------------------------------


def test_several_directories_become_one_and_several_again(tmp_path: Path) -> None:
    node = roles.unpack(roles.MULTI_PATH, "a", tmp_path)
    before, wanted = files(tmp_path), messages(layout_of(node))
    one = tmp_path / "one"
    plan = rmqtool("consolidate", node.store, one, *node.options(), "--dry-run", "-o", "json")
    assert (json.loads(plan.out)["applied"], one.exists()) == (False, False)
    done = json.loads(rmqtool("consolidate", node.store, one, *node.options(), "-o", "json").out)
    assert {**json.loads(plan.out), "applied": True} == done
    assert (done["sameOffsets"], done["settings"]) == (True, {"storePathCommitLog": None})
    logs = [path for name, path in before.items() if "/log/" in name]
    assert [path.read_bytes() for path in sorted((one / "commitlog").iterdir())] == [
        before[name] for name in sorted((name for name in before if "/log/" in name), key=lambda name: name[-20:])
    ]
    assert len(logs) == 6
    assert {name: data for name, data in files(one).items() if not name.startswith("commitlog/")} == files(node.store)
    assert messages(StoreLayout(str(one))) == wanted
    again = tmp_path / "again"
    folders = [tmp_path / "x" / name for name in ("disk-b", "disk-a")]
    report = spread_log(StoreLayout(str(one)), str(again), [str(folder) for folder in folders])
    # as brokers do, which sort the directories: file 0 is in the first one
    assert report.folders == sorted(map(str, folders))
    assert [sorted(int(path.name) // 32768 for path in folder.iterdir()) for folder in sorted(folders)] == [
        [0, 2, 4], [1, 3, 5],
    ]  # fmt: skip
    assert not (again / "commitlog").exists()
    assert messages(StoreLayout(str(again), BrokerConf({"storePathCommitLog": ",".join(report.folders)}))) == wanted
    assert {name: data for name, data in files(tmp_path).items() if name in before} == before


def test_directories_inside_of_the_new_store(tmp_path: Path) -> None:
    store = made(tmp_path)
    new = tmp_path / "new"
    report = spread_log(StoreLayout(str(store), BrokerConf(SIZES)), str(new), [str(new / "log-1"), str(new / "log-2")])
    conf = BrokerConf({**SIZES, "storePathCommitLog": ",".join(report.folders)})
    assert messages(StoreLayout(str(new), conf)) == messages(StoreLayout(str(store)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "store"]


# -- DLedger, controller --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [StoreForm.STORE, StoreForm.CONTROLLER])
@pytest.mark.parametrize(("case", "node_name"), [(roles.DLEDGER, "n0"), (roles.OLD_DLEDGER, "n1")])
def test_a_member_of_a_dledger_group(case: str, node_name: str, form: StoreForm, tmp_path: Path) -> None:
    node = roles.unpack(case, node_name, tmp_path)
    before, wanted = roles.prints(node.store), messages(layout_of(node))
    report = convert(layout_of(node), str(tmp_path / "new"), form)
    new = tmp_path / "new"
    assert messages(StoreLayout(str(new))) == wanted
    assert (report.messages, report.sameOffsets) == (len(wanted), False)
    names = {change.name for change in report.settings}
    assert names >= {"enableDLegerCommitLog", "dLegerPeers"}
    assert (new / "epochFileCheckpoint").exists() is (form is StoreForm.CONTROLLER)
    if form is StoreForm.CONTROLLER:
        assert epoch.parse((new / "epochFileCheckpoint").read_bytes()) == [epoch.Epoch(0, 0)]
        assert names >= {"enableControllerMode", "controllerAddr"}
    assert not any(new.glob("dledger-*"))
    assert json.loads(rmqtool("check", new, "-o", "json").out or "[]") is not None
    assert roles.prints(node.store) == before


def test_a_replica_of_a_controller_becomes_an_ordinary_store(tmp_path: Path) -> None:
    node = roles.unpack(roles.CONTROLLER, "a", tmp_path)
    report = convert(layout_of(node), str(tmp_path / "new"), StoreForm.STORE)
    assert files(tmp_path / "new") == files(node.store, *OF_REPLICAS)
    assert report.sameOffsets
    with pytest.raises(Refused, match="is a replica in controller mode"):
        convert(layout_of(node), str(tmp_path / "other"), StoreForm.CONTROLLER)


def test_an_ordinary_store_becomes_the_first_replica_of_a_group(tmp_path: Path) -> None:
    """Its log begins after 0: an empty replica must get it from there."""
    node = roles.unpack(roles.SLAVE, "master", tmp_path)
    for path in sorted((node.store / "commitlog").iterdir())[:2]:
        path.unlink()
    convert(layout_of(node), str(tmp_path / "new"), StoreForm.CONTROLLER)
    new = files(tmp_path / "new")
    assert epoch.parse(new.pop("epochFileCheckpoint")) == [epoch.Epoch(0, CommitLog(layout_of(node)).min_offset)]
    assert new == files(node.store)


def test_entries_that_the_group_has_replaced_are_not_taken(tmp_path: Path) -> None:
    from tests.services.test_replicas import rewrite_entry

    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    rewrite_entry(nodes[2], 237, nodes[0])
    with pytest.raises(Refused, match="entries that its group has replaced"):
        convert(layout_of(nodes[2]), str(tmp_path / "new"), StoreForm.STORE)


# -- 4.9 to 5.5 -----------------------------------------------------------------------------------------------


def test_a_store_for_the_newest_release(tmp_path: Path) -> None:
    node = roles.unpack(roles.SLAVE, "master", tmp_path)
    before, wanted = files(node.store), messages(layout_of(node))
    report = convert(layout_of(node), str(tmp_path / "new"), StoreForm.NEWEST)
    assert messages(StoreLayout(str(tmp_path / "new"))) == wanted
    plan = rmqtool("recover", tmp_path / "new", *node.options(), "--engine", "5.5", "--dry-run", "--exactly")
    assert plan.code == 0, plan.out
    assert any("rocksdbstore" in change for change in report.changes)
    assert files(node.store) == before
    assert not any(name.startswith(".rmqtool") for name in files(tmp_path / "new"))
    group = roles.unpack(roles.DLEDGER, "n0", tmp_path)
    with pytest.raises(Refused, match="upgraded with their group"):
        convert(layout_of(group), str(tmp_path / "other"), StoreForm.NEWEST)


# -- topics ---------------------------------------------------------------------------------------------------


def test_topics_in_a_store_of_their_own(tmp_path: Path) -> None:
    node = roles.unpack(roles.SLAVE, "master", tmp_path)
    before, every = files(node.store), messages(layout_of(node))
    report = split_topics(layout_of(node), str(tmp_path / "new"), ["Events", "%RETRY%*"])
    found = messages(StoreLayout(str(tmp_path / "new")))
    plain = {key: value for key, value in every.items() if key[0] == b"Events" or key[0].startswith(b"%RETRY%")}
    assert {key: value for key, value in found.items() if not key[0].startswith(b"SCHEDULE")} == plain
    waiting = [value for key, value in every.items() if key[0].startswith(b"SCHEDULE")]
    taken = [value for key, value in found.items() if key[0].startswith(b"SCHEDULE")]
    assert taken == [value for value in waiting if b"REAL_TOPIC\x01Events" in value[3] or b"%RETRY%" in value[3]]  # type: ignore[operator]
    assert report.messages == len(found)
    rows = [json.loads(line) for line in rmqtool("check", tmp_path / "new", "-o", "ndjson").out.splitlines()]
    assert [row["code"] for row in rows if row["severity"] != "info"] == []
    topics = {row["topic"] for row in json_rows("topic", "list", tmp_path / "new")}
    assert "Events" in topics
    assert not topics & {"Invoices", "Refunds"}
    had, has = (
        [row for row in json_rows("offsets", store) if row["topic"] == "Events"]
        for store in (node.store, tmp_path / "new")
    )
    assert has == had
    assert files(node.store) == before


@pytest.mark.parametrize("case", ["broker-5.3.3", "broker-5.5.0"])
def test_topics_of_a_broker_with_light_queues(case: str, golden: Unpacked, tmp_path: Path) -> None:
    """It has offsets of ordinary topics in the file of light queues, too."""
    split_topics(StoreLayout(str(golden(case))), str(tmp_path / "new"), ["Orders"])
    assert {row["topic"] for row in json_rows("offsets", tmp_path / "new") if row["topic"][0] != "%"} == {"Orders"}
    assert rmqtool("check", tmp_path / "new").code == 0


def json_rows(*words: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqtool(*words, "-o", "ndjson").out.splitlines()]


def test_topics_without_queues_are_not_unknown(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    shutil.rmtree(store / "consumequeue" / "Orders")
    with pytest.raises(Refused, match=r"no queues of it: rmqtool rebuild .* consumequeue builds them from the log"):
        split_topics(StoreLayout(str(store)), str(tmp_path / "new"), ["Orders"])
    with pytest.raises(BadValue, match="no such topic"):
        split_topics(StoreLayout(str(store)), str(tmp_path / "new"), ["Missing"])


def test_topics_that_cannot_be_taken(tmp_path: Path) -> None:
    store = StoreLayout(str(made(tmp_path)), BrokerConf(SIZES))
    with pytest.raises(BadValue, match="--topic nothing\\*: no such topic"):
        split_topics(store, str(tmp_path / "new"), ["a", "nothing*"])
    assert rmqtool("split", store.root, tmp_path / "new").code == 2
    assert rmqtool("split", store.root, tmp_path / "new", "--log-dir", tmp_path / "x").code == 2


# -- refusals -------------------------------------------------------------------------------------------------


def test_places_that_are_taken_or_inside(tmp_path: Path) -> None:
    store = made(tmp_path)
    layout = StoreLayout(str(store), BrokerConf(SIZES))
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "diary").write_text("mine")
    for new, folders in (
        (store / "inside", []), (tmp_path / "there", []), (tmp_path, []), (store, []),
        (tmp_path / "new", [tmp_path / "there", tmp_path / "b"]), (tmp_path / "new", [store / "a", tmp_path / "b"]),
        (tmp_path / "new", [tmp_path / "b", tmp_path / "b"]), (tmp_path / "new", [tmp_path / "new", tmp_path / "b"]),
    ):  # fmt: skip
        with pytest.raises(Refused):
            spread_log(layout, str(new), [str(folder) for folder in folders or [tmp_path / "a", tmp_path / "b"]])
    with pytest.raises(Refused, match="in one directory"):
        spread_log(layout, str(tmp_path / "new"), [])
    assert (tmp_path / "there" / "diary").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "there"]


def test_a_store_that_changes_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made(tmp_path)
    real = copying.copy_file

    def touch(source: str, target: str, **options: Any) -> Any:
        with open(store / "commitlog" / f"{2048:020d}", "r+b") as file:
            file.write(b"\0")
        return real(source, target, **options)

    monkeypatch.setattr(copying, "copy_file", touch)
    with pytest.raises(Refused, match="it changed while it was copied"):
        convert(StoreLayout(str(store), BrokerConf(SIZES)), str(tmp_path / "new"), StoreForm.STORE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_store_in_use(tmp_path: Path) -> None:
    store = made(tmp_path)
    with Store(store, broker_conf=SIZES, write=True):
        assert rmqtool("convert", store, tmp_path / "new").code == 4
    assert not (tmp_path / "new").exists()


# -- kills ----------------------------------------------------------------------------------------------------


def made(folder: Path) -> Path:
    store = folder / "store"
    with Store.create(store, broker_conf=SIZES) as new:
        new.append_many(
            [
                NewMessage(topic="ab"[n % 2], queue_id=0, body=b"x" * n, keys=f"k{n}", born_timestamp=n)
                for n in range(30)
            ]
        )
    return store


def _spread(layout: StoreLayout, folder: Path) -> ConversionReport:
    return spread_log(layout, str(folder / "new"), [str(folder / name) for name in ("a", "b")])


RUNS: dict[str, Callable[[StoreLayout, Path], ConversionReport]] = {
    "directories": _spread,
    "topic": lambda layout, folder: split_topics(layout, str(folder / "new"), ["a"]),
    "controller": lambda layout, folder: convert(layout, str(folder / "new"), StoreForm.CONTROLLER),
    "newest": lambda layout, folder: convert(layout, str(folder / "new"), StoreForm.NEWEST),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # who is killed closes no file
def test_killed_anywhere_and_run_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made(tmp_path)
    layout, before = StoreLayout(str(store), BrokerConf(SIZES)), content(store)

    def run(folder: Path) -> dict[str, bytes]:
        RUNS[name](layout, folder)
        return files(folder)

    seam = Seam(monkeypatch)
    (tmp_path / "whole").mkdir()
    seam.begin()
    expected = run(tmp_path / "whole")
    steps = seam.count
    assert steps > 20
    for stop in [*range(1, steps - 8, some(7, 1)), *range(max(steps - 8, 1), steps + 1)]:
        folder = tmp_path / str(stop)
        folder.mkdir()
        seam.begin(stop)
        with pytest.raises(Killed):
            run(folder)
        seam.begin()
        left = files(folder) if (folder / "new").exists() else run(folder)
        marks = {path for path in left if path.endswith(".mark")}
        assert {path: data for path, data in left.items() if path not in marks} == expected, f"killed at {stop}"
        assert not marks or (folder / "new").exists()
        assert not [path for path in folder.iterdir() if path.is_dir() and "ing" in path.suffix]
        shutil.rmtree(folder)
    assert content(store) == before


def test_a_directory_of_another_new_store_is_not_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the last rename and the removal of its marks, it leaves marks beside complete directories."""
    layout = StoreLayout(str(made(tmp_path)), BrokerConf(SIZES))
    seam = Seam(monkeypatch)
    (tmp_path / "whole").mkdir()
    seam.begin()
    _spread(layout, tmp_path / "whole")
    steps = seam.count
    for stop in range(steps - 6, steps + 1):
        folder = tmp_path / str(stop)
        folder.mkdir()
        seam.begin(stop)
        with pytest.raises(Killed):
            _spread(layout, folder)
        seam.begin()
        if (folder / "new").exists():
            had = files(folder)
            with pytest.raises(Refused):
                spread_log(layout, str(folder / "other"), [str(folder / name) for name in ("a", "b")])
            assert {path: data for path, data in files(folder).items() if not path.endswith(".mark")} == {
                path: data for path, data in had.items() if not path.endswith(".mark")
            }
            break
    else:
        raise AssertionError("no kill after the last rename")
