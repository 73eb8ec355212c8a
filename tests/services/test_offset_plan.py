"""Offsets are set as planned, in the broker's format, and can be undone; nothing else changes."""

import csv
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats.config.files import ConsumerOffsets, LmqConsumerOffsets, Topics
from formats.versions import V4_9, V5_3
from rmqtool.errors import BadValue, CorruptFile, Refused, UnreadableStore
from rmqtool.services.consumers import offset_plan
from rmqtool.services.consumers.groups import ConsumerGroups
from rmqtool.services.consumers.offset_plan import OffsetPlan, OffsetTarget, Planner, clone, from_rows, read_rows, reset
from rmqtool.services.lookup.configs import Warn
from rmqtool.services.lookup.query_time import offset_by_time_v5
from rmqtool.services.offsets.files import BrokerFile, ClientFile, OffsetFile
from rmqtool.store.changes import steps
from rmqtool.store.changes.change import Change
from rmqtool.store.changes.places import Places, named_outside
from rmqtool.store.changes.undo import undo
from rmqtool.store.disk.lock import StoreLock
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.reader import ConsumeQueue
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.services.build import log_of, never
from tests.store.helpers import tree

GROUP, FILE = "lab-consumer", "config/consumerOffset.json"


def opener(layout: StoreLayout, warn: Warn) -> OffsetFile:
    return BrokerFile(layout, warn)


def plan(store: Path, planner: Planner, *, clamp: bool = False) -> OffsetPlan:
    return offset_plan.make(StoreLayout(str(store)), opener, planner, clamp=clamp)


def apply(store: Path, planner: Planner, *, command: str = "group-reset", clamp: bool = False) -> OffsetPlan:
    return offset_plan.apply(StoreLayout(str(store)), opener, planner, command=command, clamp=clamp)


def new_offsets(made: OffsetPlan) -> dict[tuple[str, int], int]:
    return {(move.topic, move.queueId): move.newOffset for move in made.moves}


def test_targets(golden: Unpacked) -> None:
    store = golden("broker")
    orders = ["Orders"]
    for target, expected in (
        (OffsetTarget("earliest"), [0, 0, 0, 0]),
        (OffsetTarget("latest"), [105, 106, 104, 105]),
        (OffsetTarget("offset", 100), [100, 100, 100, 100]),
        (OffsetTarget("shift", -5), [100, 101, 99, 100]),
    ):
        made = plan(store, reset(GROUP, orders, None, target))
        assert list(new_offsets(made).values()) == expected
        assert [move.change for move in made.moves] == [
            n - old for n, old in zip(expected, [105, 106, 104, 105], strict=True)
        ]
    log = log_of(store)
    for time in (0, 1_795_206_885_000, 1_795_206_886_134, 1 << 60):
        made = plan(store, reset(GROUP, orders, None, OffsetTarget("time", time)))
        for move in made.moves:
            queue = ConsumerGroups(log, never).queues.one("Orders", move.queueId)
            assert isinstance(queue, ConsumeQueue)
            assert move.newOffset == offset_by_time_v5(log, queue, time)
            times = [log.read(e.physical_offset).record.store_timestamp for e in queue.entries()]  # type: ignore[union-attr]
            assert move.newOffset == sum(t < time for t in times)


def test_which_topics_and_queues(golden: Unpacked) -> None:
    store = golden("broker")
    every = {move.topic for move in plan(store, reset(GROUP, None, None, OffsetTarget("earliest"))).moves}
    assert every == {"Orders", "Batched", "Delayed", "Payments"}  # not its retry topic, unless it is asked for
    retry = plan(store, reset(GROUP, ["%RETRY%*"], None, OffsetTarget("earliest")))
    assert new_offsets(retry) == {("%RETRY%lab-consumer", 0): 0}
    two = plan(store, reset(GROUP, ["Ord*", "Del*"], [1, 3], OffsetTarget("latest")))
    assert set(new_offsets(two)) == {(topic, n) for topic in ("Orders", "Delayed") for n in (1, 3)}
    fresh = plan(store, reset("new", ["Sequenced"], None, OffsetTarget("latest")))
    assert [(move.consumerOffset, move.newOffset, move.change) for move in fresh.moves] == [(None, 10, None)] * 3
    assert plan(store, reset("new", None, None, OffsetTarget("latest"))).moves == []
    assert plan(store, reset(GROUP, ["../config"], None, OffsetTarget("latest"))).moves == []


def test_out_of_range(golden: Unpacked) -> None:
    store = golden("broker")
    for target in (
        OffsetTarget("offset", 106),
        OffsetTarget("shift", 2),
        OffsetTarget("shift", -106),
        OffsetTarget("offset", 2**62),
    ):
        planner = reset(GROUP, ["Orders"], [0], target)
        with pytest.raises(Refused, match="outside 0 to 105"):
            plan(store, planner)
        (move,) = plan(store, planner, clamp=True).moves
        assert move.newOffset == (0 if target.value < 0 else 105)
        assert move.note is not None


def test_the_broker_s_own_bytes(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    before, file = tree(store), store / FILE
    old = file.read_bytes()
    done = apply(store, reset(GROUP, ["Orders"], [2], OffsetTarget("earliest")))
    assert done.applied
    assert done.changes == {("Orders", GROUP, 2): 0}
    assert file.read_bytes() == old.replace(b"2:104,3:105", b"2:0,3:105")
    assert (store / f"{FILE}.bak").read_bytes() == old
    after = tree(store)
    assert {name for name in after if before.get(name) != after[name]} == {FILE, f"{FILE}.bak"}
    assert undo(str(store)).applied
    assert {name: digest for name, (_t, digest) in tree(store).items()} == {n: d for n, (_t, d) in before.items()}


def test_nothing_to_change_writes_nothing(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    (store / "lock").unlink()
    before = tree(store)
    done = apply(store, reset(GROUP, None, None, OffsetTarget("latest")))
    assert not done.applied
    assert len(done.moves) == 16  # four queues each of Orders, Batched, Delayed and Payments
    assert tree(store) == before
    assert os.listdir(store.parent) == ["store"]


def test_clone(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    old = ConsumerOffsets.parse((store / FILE).read_bytes())
    done = apply(store, clone(GROUP, "copy", None), command="group-clone")
    new = ConsumerOffsets.parse((store / FILE).read_bytes())
    added = {key: queues for key, queues in new.offsets.items() if key not in old.offsets}
    assert added == {
        key.replace(f"@{GROUP}", "@copy"): queues
        for key, queues in old.offsets.items()
        if key.endswith(f"@{GROUP}") and not key.startswith("%RETRY%")
    }
    assert [key for key in new.offsets if key in old.offsets] == list(old.offsets)
    assert len(done.moves) == 16
    assert len(plan(store, clone(GROUP, "copy", ["Ord*"])).moves) == 4
    assert plan(store, clone(GROUP, "copy", None)).changes == {}
    assert plan(store, clone("nobody", "copy", None)).moves == []


def csv_of(made: OffsetPlan) -> str:
    from rmqtool.cli.render.output import CsvWriter, write_all
    from rmqtool.cli.render.rows import names_of

    out = io.StringIO()
    write_all(CsvWriter(out, names_of(offset_plan.OffsetMove)), (move.to_dict() for move in made.moves))
    return out.getvalue()


def test_by_a_csv_file(golden_copy: Unpacked, tmp_path: Path) -> None:
    store, file = golden_copy("broker"), tmp_path / "plan.csv"
    file.write_text(
        csv_of(plan(store, reset(GROUP, ["Orders"], None, OffsetTarget("earliest")))).replace(",0,-", ",7,-")
    )
    done = apply(store, from_rows(GROUP, read_rows(str(file))))
    assert set(new_offsets(done).values()) == {7}
    with pytest.raises(Refused, match="make a new plan"):
        apply(store, from_rows(GROUP, read_rows(str(file))))
    file.write_text("topic,queueId,group,consumerOffset\nOrders,1,lab-consumer,9\n")
    assert apply(store, from_rows(GROUP, read_rows(str(file)))).changes == {("Orders", GROUP, 1): 9}
    with pytest.raises(BadValue, match="lab-consumer"):
        plan(store, from_rows("other", read_rows(str(file))))


@pytest.mark.parametrize(
    "content",
    [b"", b"a,b\n1,2\n", b"topic,group,queueId\nT,g,0\n", b"topic,group,queueId,newOffset\nT,g,0,-1\n",
     b"topic,group,queueId,newOffset\nT,g,x,1\n", b"topic,group,queueId,newOffset\nT,g,0\n", b"\xff",
     b"topic,group,queueId,newOffset\nT,g,0,99999999999999999999\n",
     b"topic,group,queueId,newOffset\nT,g,2147483648,1\n",
     b'topic,group,queueId,newOffset\n"T,g,0,1\n', b"topic,group,queueId,newOffset\nT,g,0,1.5\n"],
)  # fmt: skip
def test_files_that_are_no_plan(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_bytes(content)
    with pytest.raises(CorruptFile, match=r"plan\.csv"):
        read_rows(str(file))
    with pytest.raises(UnreadableStore):
        read_rows(str(tmp_path / "none"))


def test_a_broken_file_does_not_become_the_backup(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    good = (store / f"{FILE}.bak").read_bytes()
    (store / FILE).write_bytes(b'{"offsetTable":{"Ord')
    done = apply(store, reset(GROUP, ["Orders"], [0], OffsetTarget("earliest")))
    assert len(done.warnings) == 1
    assert (store / f"{FILE}.bak").read_bytes() == good
    assert (store / FILE).read_bytes() == good.replace(b"{0:105,1:106", b"{0:0,1:106")
    (store / FILE).write_bytes(b"{")
    (store / f"{FILE}.bak").write_bytes(b"{")
    with pytest.raises(CorruptFile):
        apply(store, reset(GROUP, ["Orders"], [0], OffsetTarget("earliest")))


def test_no_file_at_all(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    (store / FILE).unlink()
    (store / f"{FILE}.bak").unlink()
    apply(store, reset("g", ["Sequenced"], [0, 1], OffsetTarget("latest")))
    assert (store / FILE).read_bytes() == b'{\n\t"offsetTable":{\n\t\t"Sequenced@g":{0:10,1:10\n\t\t}\n\t}\n}'
    assert not (store / f"{FILE}.bak").exists()


def test_a_file_of_5_x_keeps_its_version(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    table = ConsumerOffsets.parse((store / FILE).read_bytes())
    new = table.build(V5_3)
    assert b'"dataVersion"' in new
    (store / FILE).write_bytes(new)
    apply(store, reset(GROUP, ["Orders"], [0], OffsetTarget("earliest")))
    assert (store / FILE).read_bytes() == new.replace(b"{0:105,1:106", b"{0:0,1:106")


def test_light_queues(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    (store / FILE).unlink()
    (store / f"{FILE}.bak").unlink()
    light = store / "config" / "lmqConsumerOffset.json"
    light.write_bytes(LmqConsumerOffsets(lmq_offsets={"Orders@%LMQ%g": 3}, offsets={"Orders@g": {0: 1}}).build())
    apply(store, reset("%LMQ%g", ["Orders"], [0], OffsetTarget("latest")))
    apply(store, reset("g", ["Orders"], [0], OffsetTarget("latest")))
    body = LmqConsumerOffsets.parse(light.read_bytes())
    assert (body.lmq_offsets, body.offsets) == ({"Orders@%LMQ%g": 105}, {"Orders@g": {0: 105}})


def refused_by_abort(store: Path) -> Any:
    (store / "abort").touch()


def refused_by_dledger(store: Path) -> Any:
    (store / "dledger-n0").mkdir()


def refused_by_rocksdb(store: Path) -> Any:
    place = store / "config" / "consumerOffsets"
    place.mkdir()
    for name in ("CURRENT", "MANIFEST-000001", "IDENTITY"):
        (place / name).write_text("MANIFEST-000001\n")


@pytest.mark.parametrize("make", [refused_by_abort, refused_by_dledger, refused_by_rocksdb])
def test_refused(make: Callable[[Path], Any], golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    make(store)
    before = tree(store)
    with pytest.raises(Refused):
        apply(store, reset(GROUP, ["Orders"], [0], OffsetTarget("earliest")))
    assert tree(store) == before


def test_a_store_in_use(golden_copy: Unpacked, tmp_path: Path) -> None:
    import subprocess
    import sys

    store = golden_copy("broker")
    script = "import sys; sys.path.insert(0, sys.argv[1]); from rmqtool.store.disk.lock import StoreLock\n"
    script += "with StoreLock(sys.argv[2]): print('held', flush=True); sys.stdin.read()"
    root = Path(offset_plan.__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script, str(root), str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Refused, match=str(holder.pid)):
            apply(store, reset(GROUP, ["Orders"], [0], OffsetTarget("earliest")))
        holder.communicate()
    with StoreLock(str(store)):
        pass


class Killed(BaseException):
    """Simulates kill -9: no further code runs."""


STEPS = [("put", 0), ("put", 1), ("write_manifest", 0), ("write_manifest", 1)]


@pytest.mark.parametrize(("method", "number"), STEPS)
@pytest.mark.parametrize("before", [True, False])
def test_a_killed_run_is_finished_and_not_repeated(
    method: str, number: int, before: bool, golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_copy("broker")
    real: Any = steps.put if method == "put" else Change.write_manifest
    calls: list[None] = []

    def dying(self: Any, *arguments: Any) -> None:
        calls.append(None)
        if len(calls) - 1 == number and before:
            raise Killed
        real(self, *arguments)
        if len(calls) - 1 == number:
            raise Killed

    planner = reset(GROUP, ["Orders"], [0], OffsetTarget("shift", -5))
    with monkeypatch.context() as patched:
        if method == "put":
            patched.setitem(steps.STEPS, "put", dying)
        else:
            patched.setattr(Change, method, dying)
        patched.setattr(Change, "__exit__", lambda *_arguments: None)
        with pytest.raises(Killed):
            apply(store, planner)
    old = ConsumerOffsets.parse((store / FILE).read_bytes()).offset("Orders", GROUP, 0)
    assert old in (105, 100)
    finished = apply(store, planner)
    now = ConsumerOffsets.parse((store / FILE).read_bytes()).offset("Orders", GROUP, 0)
    if (method, number, before) == ("write_manifest", 1, False):  # it was done: this is a new order
        assert (old, now) == (100, 95)
    else:
        assert now == 100
    assert now is not None
    assert finished.applied
    assert ConsumerOffsets.parse((store / f"{FILE}.bak").read_bytes()).offset("Orders", GROUP, 0) == now + 5


def client_file(folder: Path, content: str) -> Path:
    path = folder / "10.0.0.1@DEFAULT" / "bc" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    return path


ENTRY = '{{\n\t\t\t"brokerName":"{}",\n\t\t\t"queueId":{},\n\t\t\t"topic":"Orders"\n\t\t}}:{}'


def test_a_broadcasting_client(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    content = '{{\n\t"offsetTable":{{{}\n\t}}\n}}'
    old = content.format(",".join([ENTRY.format("lab-a", 0, 3), ENTRY.format("lab-b", 0, 999)]))
    path = client_file(tmp_path, old)
    layout = StoreLayout(str(store))
    with pytest.raises(BadValue, match="lab-a, lab-b"):
        ClientFile(str(path), None)
    file = ClientFile(str(path), "lab-a")
    assert file.offsets == {("Orders", "bc", 0): 3}
    rows = {row.queueId: row for row in ConsumerGroups(log_of(store), never, file.tables()).lag()}
    assert (rows[0].diff, rows[1].state) == (102, "none")
    done = offset_plan.apply(
        layout,
        lambda _layout, _warn: ClientFile(str(path), "lab-a"),
        reset("bc", ["Orders"], [0, 1], OffsetTarget("latest")),
        command="group-reset",
    )
    assert done.applied
    new = content.format(
        ",".join([ENTRY.format("lab-a", 0, 105), ENTRY.format("lab-b", 0, 999), ENTRY.format("lab-a", 1, 106)])
    )
    assert path.read_text() == new
    assert path.with_name("offsets.json.bak").read_text() == old
    with pytest.raises(Refused, match="--broadcast"):  # what lies outside a store is named each time
        undo(str(store))
    assert rmqtool("undo", store, "--broadcast", path, "--yes").code == 0
    assert path.read_text() == old
    assert not path.with_name("offsets.json.bak").exists()
    shutil.rmtree(path.parent)
    with pytest.raises(UnreadableStore):
        ClientFile(str(path), None)


def test_between_a_group_and_a_client_that_broadcasts(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    path = tmp_path / "10.0.0.1@DEFAULT" / GROUP / "offsets.json"
    args = ["group", "clone", store, GROUP, GROUP, "--topic", "Orders", "--to-broadcast", path]
    for wrong in (args, [*args[:4], "another", *args[5:], "--broker", "lab-a"]):
        assert rmqtool(*wrong, "--yes").code == 2
    assert rmqtool(*args, "--broker", "lab-a", "--dry-run").code == 1
    assert not path.parent.parent.exists()
    assert rmqtool(*args, "--broker", "lab-a", "--yes").code == 0
    before = ConsumerOffsets.parse((store / FILE).read_bytes())
    own = {("Orders", GROUP, n): before.offset("Orders", GROUP, n) for n in range(4)}
    assert ClientFile(str(path), None).offsets == own
    assert rmqtool(*args, "--yes").code == 0  # nothing to change; the file names its broker
    text = path.read_text()
    back = ["group", "clone", store, GROUP, "new", "--broadcast", path, "--yes"]
    assert rmqtool(*back).code == 0
    after = ConsumerOffsets.parse((store / FILE).read_bytes())
    assert {("Orders", GROUP, n): after.offset("Orders", "new", n) for n in range(4)} == own
    assert path.read_text() == text
    other = path.parents[1] / "new" / "offsets.json"
    assert rmqtool("group", "clone", store, GROUP, "new", "--broadcast", path, "--to-broadcast", other,
                   "--broker", "lab-a", "--yes").code == 0  # fmt: skip
    assert other.read_text() == text
    assert undo(Places(str(store), named=named_outside([str(other)]))).applied
    assert not other.exists()
    assert not other.parent.exists()


BAD_GROUPS = ["g@x", "", " ", "x/y", "a\nb", "x" * 256, "gr\u00fcppe", "..", "a.b", "g g"]


@pytest.mark.parametrize("group", BAD_GROUPS)
def test_no_offset_for_a_group_that_no_broker_could_have(group: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    before = tree(store)
    file = tmp_path / "plan.csv"
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([["group", "topic", "queueId", "newOffset"], [group, "Orders", 0, 5]])
    for planner in (
        reset(group, ["Orders"], None, OffsetTarget("latest")),
        clone(GROUP, group, None),
        from_rows(group, read_rows(str(file))),
    ):
        with pytest.raises(BadValue, match="group"):
            apply(store, planner)
    assert rmqtool("group", "reset", store, group, "--topic", "Orders", "--to-latest", "--yes").code == 2
    assert rmqtool("group", "reset", store, group, "--from-csv", file, "--yes").code == 2
    assert tree(store) == before


HEAD = "group,topic,queueId,newOffset\n"
GOOD = f"{GROUP},Orders,1,5\n"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (HEAD + GOOD + f"{GROUP},Unknown,0,0\n", 4, "line 3: column topic: 'Unknown' is not a topic"),
        (HEAD + GOOD + f"{GROUP},..,0,0\n", 4, "line 3: column topic: '..' is not a topic"),
        (HEAD + GOOD + f"{GROUP},,0,0\n", 4, "line 3: column topic"),
        (HEAD + f"{GROUP},Orders,2147483647,0\n" + GOOD, 4, "line 2: column queueId: topic Orders has no queue"),
        (HEAD + f"{GROUP},Orders,4,0\n", 4, "line 2: column queueId: topic Orders has no queue 4"),
        (HEAD + f"{GROUP},Orders,-1,0\n", 5, "line 2: column queueId: '-1'"),
        (HEAD + f"{GROUP},Orders,0,x\n", 5, "line 2: column newOffset: 'x'"),
        (HEAD + f"{GROUP},Orders,2147483648,0\n", 5, "line 2: column queueId"),
        (HEAD + GOOD + GOOD, 5, "line 3: topic 'Orders' queue 1 of group 'lab-consumer' is in line 2 already"),
        (HEAD + GOOD + f"{GROUP},Orders,01,7\n", 5, "line 3: topic 'Orders' queue 1"),
        (HEAD + GOOD + "other,Orders,0,0\n", 2, "line 3: column group"),
        (HEAD + GOOD + f"{GROUP},Orders,0\n", 5, "line 3: fewer cells"),
        (HEAD + GOOD + f"{GROUP},Orders,0,0,0\n", 5, "line 3: more cells"),
        ("group,topic,queueId,newOffset,newOffset\n", 5, "column 'newOffset' is there twice"),
        ("group,topic,queueId,newOffset,topic\n", 5, "column 'topic' is there twice"),
        ("group,topic,queueId,newOffset,colour\n", 5, "column 'colour' is not known"),
        ("group,topic,queueId,newOffset,\n", 5, "column '' is not known"),
        (HEAD + GOOD + f"{GROUP},Orders,0,999999\n", 4, "outside"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_as_a_whole(
    text: str, code: int, message: str, golden_copy: Unpacked, tmp_path: Path
) -> None:
    store = golden_copy("broker")
    before = tree(store)
    file = tmp_path / "plan.csv"
    file.write_text(text)
    for more in ("--yes", "--dry-run"):
        result = rmqtool("group", "reset", store, GROUP, "--from-csv", file, more)
        assert (result.code, message in result.err, result.out) == (code, True, ""), result.err
        assert len(result.err.splitlines()) == 1
    assert tree(store) == before


def test_a_queue_that_is_configured_and_empty_has_an_offset(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    topics = store / "config" / "topics.json"
    table = Topics.parse(topics.read_bytes())
    wide = replace(table.topics["Orders"], read_queue_nums=6)
    topics.write_bytes(replace(table, topics={**table.topics, "Orders": wide}).build(V4_9))
    file = tmp_path / "plan.csv"
    file.write_text(HEAD + f"{GROUP},Orders,5,0\n")
    assert apply(store, from_rows(GROUP, read_rows(str(file)))).changes == {("Orders", GROUP, 5): 0}


def test_a_light_group_has_one_offset_in_an_ordinary_topic(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("broker")
    (store / FILE).unlink()
    (store / f"{FILE}.bak").unlink()
    light = store / "config" / "lmqConsumerOffset.json"
    light.write_bytes(LmqConsumerOffsets(lmq_offsets={}, offsets={f"Orders@{GROUP}": {0: 1, 1: 2}}).build())
    result = rmqtool("group", "reset", store, "%LMQ%g", "--topic", "Orders", "--to-latest", "--yes")
    assert result.code == 0
    assert "1 offset set" in result.err
    assert "3 of 4 queues are left out" in result.err
    assert LmqConsumerOffsets.parse(light.read_bytes()).lmq_offsets == {"Orders@%LMQ%g": 105}
    made = apply(store, clone(GROUP, "%LMQ%h", None), command="group-clone")
    assert made.changes == {("Orders", "%LMQ%h", 0): 1}
    assert LmqConsumerOffsets.parse(light.read_bytes()).lmq_offsets == {"Orders@%LMQ%g": 105, "Orders@%LMQ%h": 1}
    before = tree(store)
    file = tmp_path / "plan.csv"
    file.write_text(HEAD + "%LMQ%g,Orders,0,5\n%LMQ%g,Orders,1,5\n")
    result = rmqtool("group", "reset", store, "%LMQ%g", "--from-csv", file, "--yes")
    assert (result.code, "line 3: column queueId" in result.err) == (4, True)
    assert tree(store) == before
