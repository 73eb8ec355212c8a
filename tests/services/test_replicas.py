"""Several copies of a store compared: what real brokers served from all of them and from each alone is the judge."""

import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from formats.layouts.derived import DLEDGER_ENTRY_HEAD, DLEDGER_INDEX_UNIT, HEAD_V4_V4
from formats.variants import epoch
from rmqtool.services.comparison.replicas import compare_replicas
from rmqtool.services.comparison.report import MessageRun, ReplicasReport
from rmqtool.store.layout.broker_conf import BrokerConf, load
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.log.dledger import UNIT, DLedgerLog
from tests import goldens, roles
from tests.cli.running import rmqtool
from tests.services.build import Builder, never
from tests.services.test_comparison import builder_of, parted_histories
from tests.services.test_comparison import compare as compare_two

Place = tuple[str, int, int]  # topic, queue id, queue offset


Cases = Callable[[str], list[roles.Node]]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Every directory of a case, to read."""
    return cache(lambda case: roles.unpack_all(case, tmp_path_factory.mktemp("roles")))


def layouts_of(nodes: list[roles.Node]) -> list[StoreLayout]:
    return [StoreLayout(str(node.store), load(str(node.conf))) for node in nodes]


def compare(*stores: Path) -> ReplicasReport:
    return compare_replicas([StoreLayout(str(store), BrokerConf()) for store in stores], never)


def compare_nodes(nodes: list[roles.Node]) -> ReplicasReport:
    return compare_replicas(layouts_of(nodes), never)


def places(rows: list[MessageRun], store: Path, what: str, **values: Any) -> set[Place]:
    """The messages of the rows of one copy; none may be there twice."""
    listed = [
        (row.topic, row.queueId, offset)
        for row in rows
        if row.store == str(store) and row.what == what
        and all(getattr(row, name) == value for name, value in values.items())
        for offset in range(row.fromOffset, row.toOffset)
    ]  # fmt: skip
    assert len(listed) == len(set(listed))
    assert sum(row.messages for row in rows if row.store == str(store) and row.what == what) >= len(listed)
    return set(listed)


# -- DLedger ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [roles.OLD_DLEDGER, roles.DLEDGER])
def test_members_of_a_group(case: str, unpacked: Cases) -> None:
    """Against every entry of all logs, as the DLedger library reads them."""
    nodes = unpacked(case)
    report = compare_nodes(nodes)
    entries = {node.store.name: roles.entries_of(case, node.store.name) for node in nodes}
    every: dict[str, dict[tuple[int, int], dict[str, Any]]] = {
        name: {(entry["index"], entry["term"]): entry for entry in rows} for name, rows in entries.items()
    }
    common = set.intersection(*(set(table) for table in every.values()))
    last = max(common)
    assert (report.agreedFrom, report.agreedTo) == (0, every["n0"][last]["pos"] + every["n0"][last]["size"])
    assert not report.equal
    assert report.contradictions == []
    for node, copy in zip(nodes, report.copies, strict=True):
        own = every[node.store.name]
        others = [table for name, table in every.items() if name != node.store.name]
        mine = {_place(entry) for entry in own.values()}
        alone = {_place(entry) for key, entry in own.items() if not any(key in table for table in others)}
        theirs = {_place(entry) for table in others for key, entry in table.items() if key not in own}
        assert places(report.messages, node.store, "alone") == alone
        assert places(report.messages, node.store, "lacks") == theirs - mine
        assert places(report.messages, node.store, "different") == theirs & mine
        assert (copy.alone, copy.lacks) == (len(alone), len(theirs - mine))
        newest = max(own)
        assert (copy.role, copy.lastIndex, copy.lastPeriod) == ("dledger", newest[0], newest[1])
        assert copy.endOffset == own[newest]["pos"] + own[newest]["size"]
        terms = defaultdict(list)
        for index, term in sorted(own):
            terms[term].append(index)
        history = [row for row in report.history if row.store == copy.store]
        assert [(row.number, row.fromIndex) for row in history] == [(term, min(all_)) for term, all_ in terms.items()]
        assert [row.fromOffset for row in history] == [own[min(terms[term]), term]["pos"] for term in terms]
    assert Path(report.advice.store).name == "n0"
    assert report.advice.role == "leader"


def _place(entry: dict[str, Any]) -> Place:
    return entry["topic"], entry["queueId"], entry["queueOffset"]


def test_what_a_group_acknowledged_and_what_it_did_not(unpacked: Cases) -> None:
    """n2 took nine messages in while it was alone; the others wrote different ones in their place."""
    nodes = unpacked(roles.DLEDGER)
    report = compare_nodes(nodes)
    n0, n1, n2 = (node.store for node in nodes)
    assert len(places(report.messages, n2, "alone", acknowledged="no")) == 9
    assert len(places(report.messages, n2, "lacks", acknowledged="yes")) == 83
    for store in (n0, n1):
        assert len(places(report.messages, store, "different", acknowledged="yes")) == 9
    cuts = {(Path(row.store).name, Path(row.master).name): row for row in report.following}
    assert {key: (row.what, row.at, row.messages) for key, row in cuts.items()} == {
        ("n0", "n1"): ("goes-on", 178896, 0), ("n1", "n0"): ("goes-on", 178896, 0),
        ("n0", "n2"): ("cut", 126247, 92), ("n1", "n2"): ("cut", 126247, 92),
        ("n2", "n0"): ("cut", 126247, 9), ("n2", "n1"): ("cut", 126247, 9),
    }  # fmt: skip
    advice = report.advice
    assert (advice.lost, advice.lostAcknowledged, advice.lostUnknown) == (9, 0, 0)
    assert advice.steps[0].startswith("rmqtool salvage ")


def test_a_member_that_is_not_here_may_have_had_it(tmp_path: Path) -> None:
    """Of two directories of a group of three, what one holds is ruled out only by other committed entries."""
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    n0, n2 = nodes[0], nodes[2]
    without_settings = [n0._replace(conf=tmp_path / "none"), n2._replace(conf=tmp_path / "none")]
    (tmp_path / "none").write_text("")
    for pair in ([n0, n2], without_settings):
        assert len(places(compare_nodes(pair).messages, n2.store, "alone", acknowledged="no")) == 9
    (n0.store / "dledger-n0" / "checkpoint").write_text("committedIndex=230\nendIndex=328\n")
    for pair in ([n0, n2], without_settings):
        assert len(places(compare_nodes(pair).messages, n2.store, "alone", acknowledged="unknown")) == 9


def test_what_is_lost_whichever_copy_leads(tmp_path: Path) -> None:
    """n1 leads, as n0 lacks the last entry; both have other messages than n2 has under nine queue offsets."""
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    last = CommitLog(layouts_of(nodes)[0]).last()
    assert last is not None
    with open(last.file.path, "r+b") as file:
        file.seek(last.at - DLEDGER_ENTRY_HEAD.size)
        file.write(bytes(DLEDGER_ENTRY_HEAD.size + last.record.total_size))
    for copies in (nodes, nodes[::-1]):
        advice = compare_nodes(copies).advice
        assert (Path(advice.store).name, advice.lost, advice.lostAcknowledged, advice.lostUnknown) == ("n1", 9, 0, 0)
        assert advice.steps[0].startswith("rmqtool salvage")


def rewrite_entry(node: roles.Node, index: int, source: roles.Node, term: int | None = None) -> None:
    """Put the entry of another member, with its unit, where this one has the entry of that index."""
    logs = [DLedgerLog.of(layout)[0] for layout in layouts_of([node, source])]
    units = [log.unit(index) for log in logs]
    assert units[0] is not None
    assert units[1] is not None
    assert units[0].position == units[1].position
    file, other = (log.data.find(units[0].position) for log in logs)
    assert file is not None
    assert other is not None
    at = units[1].position - other.base
    raw = bytearray(other.map()[at : at + units[1].size])
    unit = units[1] if term is None else units[1]._replace(term=term)
    place = DLEDGER_ENTRY_HEAD.offsets["term"]
    raw[place : place + 8] = unit.term.to_bytes(8, "big")
    for path, start, data in ((file.path, at, bytes(raw)),
                              (logs[0].index.files[0].path, index * UNIT, DLEDGER_INDEX_UNIT.pack(*unit))):  # fmt: skip
        with open(path, "r+b") as out:
            out.seek(start)
            out.write(data)


@pytest.mark.parametrize(("source", "term", "end"), [("n2", 3, 126755), ("n0", None, 126809)])
def test_a_member_killed_before_all_of_its_old_tail_was_overwritten(
    source: str, term: int | None, end: int, tmp_path: Path
) -> None:
    """n2 follows and has the leader's first entry: an old one begins at its end, or in the middle of nothing."""
    nodes = {node.store.name: node for node in roles.unpack_all(roles.DLEDGER, tmp_path)}
    n2 = nodes["n2"]
    rewrite_entry(n2, 237, nodes[source], term)
    finding = {row["code"]: row for row in findings(n2)}
    assert not [code for code, row in finding.items() if row["severity"] == "error"]
    assert (finding["dledger-stale"]["expected"], finding["dledger-stale"]["severity"]) == (
        f"the end of the log at {end}", "info",
    )  # fmt: skip
    report = compare_nodes([*nodes.values()])
    copy = report.copies[2]
    assert (copy.endOffset, copy.lastIndex, copy.lastPeriod) == (end, 237, 3)
    assert [(row.fault, row.physicalOffset) for row in report.problems] == [("stale-tail", end)]
    plan = json.loads(rmqtool("recover", n2.store, *n2.options(), "--dry-run", "-o", "json").out)
    assert plan["stop"]["physicalOffset"] == end
    assert any("the group has replaced them" in warning for warning in plan["warnings"])


def test_a_committed_index_beyond_the_end(tmp_path: Path) -> None:
    """A member that lost its last entries proves that the others' were acknowledged, as far as the logs agree."""
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    n0, n1, _n2 = nodes
    entry = next(row for row in roles.entries_of(roles.DLEDGER, "n1") if row["index"] == 300)
    file = sorted((n1.store / "dledger-n1" / "data").iterdir())[-1]
    with open(file, "r+b") as data:
        data.seek(entry["pos"] - int(file.name))
        data.write(bytes(file.stat().st_size - entry["pos"] + int(file.name)))
    (n0.store / "dledger-n0" / "checkpoint").unlink()
    (n0.store / "dledger-n0" / "checkpoint.bak").unlink()
    report = compare_nodes([n0, n1])
    assert [(row.store, row.fault) for row in report.problems] == [(str(n1.store), "committed-ahead")]
    assert report.copies[1].confirmedOffset == entry["pos"]
    assert len(places(report.messages, n0.store, "alone", acknowledged="unknown")) == 329 - 300
    assert report.advice.store == str(n0.store)


def test_what_in_sync_replicas_prove(tmp_path: Path) -> None:
    """A message that must be on two of three replicas was not acknowledged if only one of all three has it."""
    first = builder_of(range(10))
    stores = [first.write(tmp_path / name) for name in ("b", "c")]
    for number in range(3):
        first.put("Orders", 0, body=b"of the master alone %d" % number)
    stores = [first.write(tmp_path / "a"), *stores]
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "3"}
    for more, expected in (({}, "no"), ({"totalReplicas": "4"}, "unknown"), ({"inSyncReplicas": "1"}, "unknown")):
        confs = [BrokerConf(settings | more), BrokerConf({"brokerRole": "SLAVE"}), BrokerConf({"brokerRole": "SLAVE"})]
        layouts = [StoreLayout(str(store), conf) for store, conf in zip(stores, confs, strict=True)]
        report = compare_replicas(layouts, never)
        assert {row.acknowledged for row in report.messages if row.what == "alone"} == {expected}, more


def test_a_message_that_did_not_wait_for_replicas_may_have_been_acknowledged(tmp_path: Path) -> None:
    first = builder_of(range(10))
    stores = [first.write(tmp_path / name) for name in ("b", "c")]
    first.put("Orders", 0, body=b"waits", properties={"WAIT": "true"})
    first.put("Orders", 0, body=b"does not", properties={"WAIT": "false"})
    first.put("Orders", 0, body=b"waits by default")
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "3"}
    confs = [BrokerConf(settings), BrokerConf({"brokerRole": "SLAVE"}), BrokerConf({"brokerRole": "SLAVE"})]
    stores = [first.write(tmp_path / "a"), *stores]
    layouts = [StoreLayout(str(store), conf) for store, conf in zip(stores, confs, strict=True)]
    rows = [row for row in compare_replicas(layouts, never).messages if row.what == "alone"]
    assert [(row.messages, row.acknowledged) for row in rows] == [(1, "no"), (1, "unknown"), (1, "no")]


def test_terms_are_found_without_an_index(tmp_path: Path) -> None:
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    whole = compare_nodes(nodes[:2]).history
    [index] = (nodes[0].store / "dledger-n0" / "index").iterdir()
    with open(index, "r+b") as file:
        file.seek(32 * 100)
        file.write(bytes(32 * 150))
    assert compare_nodes(nodes[:2]).history == whole


# -- controller mode --------------------------------------------------------------------------------------------------


def test_replicas_of_a_controller(unpacked: Cases) -> None:
    nodes = unpacked(roles.CONTROLLER)
    report = compare_nodes(nodes)
    a, b = (node.store for node in nodes)
    missing = {
        (*queue, offset)
        for queue, ranges in roles.missing_alone(roles.CONTROLLER, "b").items() for run in ranges for offset in run
    }  # fmt: skip
    assert len(missing) == 79
    assert places(report.messages, b, "lacks") == places(report.messages, a, "alone") == missing
    assert (report.agreedFrom, report.agreedTo) == (0, 137704)
    assert [(row.number, row.fromOffset, row.toOffset) for row in report.history if row.store == str(a)] == [
        (1, 0, 74726), (2, 74726, 104698), (3, 104698, 179388),
    ]  # fmt: skip
    assert [copy.confirmedOffset for copy in report.copies] == [137704, 137704]
    assert [(row.what, row.at, row.messages) for row in report.following] == [
        ("cut", 137704, 79), ("goes-on", 137704, 0),
    ]  # fmt: skip
    assert (report.advice.store, report.advice.lost) == (str(a), 0)


def test_epochs_decide_what_is_cut(tmp_path: Path) -> None:
    """An old master that wrote on in epoch 2 while another one began epoch 3."""
    nodes = roles.unpack_all(roles.CONTROLLER, tmp_path)
    b = nodes[1].store
    (b / "epochFileCheckpoint").write_bytes(epoch.build([epoch.Epoch(1, 0), epoch.Epoch(2, 74726)]))
    report = compare_nodes(nodes)
    cut = next(row for row in report.following if row.store == str(b))
    assert (cut.what, cut.at, cut.bytes) == ("cut", 104698, 137704 - 104698)
    assert cut.messages == 0, "its master sends them again"
    (b / "epochFileCheckpoint").write_bytes(epoch.build([epoch.Epoch(1, 5), epoch.Epoch(2, 74)]))
    assert next(row.what for row in compare_nodes(nodes).following if row.store == str(b)) == "refuses"


def test_a_stale_tail_that_a_start_would_take_for_real(tmp_path: Path) -> None:
    """A replica was cut in memory alone, knows the new epoch already, and was killed before anything followed."""
    stale, new = builder_of(range(10)), builder_of(range(10))
    at = len(new.log)
    for number in range(4):
        stale.put("Orders", number % 2, body=b"of the old master %d" % number)
    new.number += 20  # later
    for number in range(6):
        new.put("Orders", number % 2, body=b"of the new %d" % number)
    stores = stale.write(tmp_path / "stale"), new.write(tmp_path / "new")
    for store in stores:
        (store / "epochFileCheckpoint").write_bytes(epoch.build([epoch.Epoch(1, 0), epoch.Epoch(2, at)]))
    report = compare(*stores)
    assert report.agreedTo == at
    follows = report.following[0]
    assert (follows.what, follows.why.startswith("the epochs agree up to ")) == ("keeps-damage", True)
    assert f"the logs only up to {at}" in follows.why
    assert report.advice.store == str(stores[1])
    assert any(step.startswith(f"rmqtool truncate {stores[0]} {at}, before it") for step in report.advice.steps)
    assert [(row.store, row.fault, row.physicalOffset, row.other) for row in report.problems] == [
        (str(stores[0]), "stale-tail", at, str(stores[1])),
    ]  # fmt: skip


def test_the_longer_log_is_not_started_if_its_tail_is_stale(tmp_path: Path) -> None:
    stale, new = builder_of(range(10)), builder_of(range(10))
    at = len(new.log)
    for number in range(9):
        stale.put("Orders", number % 2, body=b"of the old master %d" % number)
    new.number += 20  # later
    new.put("Orders", 0, body=b"of the new master")
    stores = stale.write(tmp_path / "stale"), new.write(tmp_path / "new")
    for store in stores:
        (store / "epochFileCheckpoint").write_bytes(epoch.build([epoch.Epoch(1, 0), epoch.Epoch(2, at)]))
    report = compare(*stores)
    assert report.advice.store == str(stores[1])
    assert report.following[0].at == at


def test_a_stale_tail_of_real_brokers(tmp_path: Path) -> None:
    """The copy itself shows it: after messages of the last epoch's master come older ones of the one before."""
    nodes = roles.unpack_all(roles.CONTROLLER, tmp_path)
    b, conf = nodes[1].store, nodes[1].options()
    at = roles.make_stale_tail(nodes[1])
    for options in ((), ("--exactly",)):
        plan = rmqtool("recover", b, *conf, "--dry-run", *options)
        assert f"from {at} on, the log has messages that its group has truncated" in plan.out + plan.err
    [finding] = [row for row in findings(nodes[1]) if row["code"] == "epoch-stale"]
    assert finding["steps"][-1]["command"][:4] == ["rmqtool", "truncate", str(b), str(at)]
    report = compare_nodes(nodes)
    assert [(row.fault, row.physicalOffset) for row in report.problems] == [("stale-tail", at)]
    assert rmqtool("recover", b, *conf, "--yes").code == 0
    assert rmqtool("truncate", b, at, *conf, "--yes").code == 0
    report = compare_nodes(nodes)
    assert not report.problems
    assert (report.following[1].what, report.copies[1].endOffset) == ("goes-on", at)
    assert not {row["code"] for row in findings(nodes[1])} & {"epoch-stale", "epoch-missing"}


def findings(node: roles.Node) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqtool("check", node.store, *node.options(), "-o", "ndjson").out.splitlines()]


@pytest.mark.parametrize(
    ("starts", "faults"),
    [
        ({1: 0, 3: 104698}, {("epoch-missing", 74726), ("master-changes", 74726)}),
        ({1: 0, 2: 74726}, {("epoch-missing", 104698), ("master-changes", 104698)}),
        ({1: 0, 2: 70000, 3: 104698}, {("epoch-elsewhere", 74726), ("master-changes", 74726)}),
        ({1: 0, 2: 74726, 3: 104698}, set()),
    ],
)
def test_epochs_that_contradict_the_log(starts: dict[int, int], faults: set[tuple[str, int]], tmp_path: Path) -> None:
    nodes = roles.unpack_all(roles.CONTROLLER, tmp_path)
    b = nodes[1].store
    (b / "epochFileCheckpoint").write_bytes(epoch.build([epoch.Epoch(*line) for line in starts.items()]))
    problems = {(row.fault, row.physicalOffset) for row in compare_nodes(nodes).problems if row.store == str(b)}
    assert problems == faults


# -- classic masters and slaves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "agreed", "torn"),
    [(roles.SLAVE, 180398, (0, "keeps-damage")), (roles.NEW_SLAVE, 152226, (110, "goes-on"))],
)
def test_a_slave_killed_in_a_record(case: str, agreed: int, torn: tuple[int, str], unpacked: Cases) -> None:
    nodes = unpacked(case)
    report = compare_nodes(nodes)
    master, slave = (node.store for node in nodes)
    missing = {
        (*queue, offset)
        for queue, ranges in roles.missing_alone(case, "slave").items() for run in ranges for offset in run
    }  # fmt: skip
    assert places(report.messages, slave, "lacks") == places(report.messages, master, "alone") == missing
    assert report.agreedTo == agreed
    assert (report.copies[1].tornBytes, report.following[1].what) == torn
    assert {row.acknowledged for row in report.messages} == {"unknown"}, "a classic master does not say"
    assert [copy.role for copy in report.copies] == ["master", "slave"]
    assert report.advice.store == str(master)
    if case == roles.SLAVE:
        assert [(row.has, row.physicalOffset) for row in report.contradictions] == [
            ("intact", 180398), ("torn", 180398),
        ]  # fmt: skip
        assert report.contradictions[1].fields == "properties"
    topics = {row.name for row in report.settings if row.what == "topics.json"}
    assert "topicConfigTable.%RETRY%all-reader" in topics


@pytest.mark.parametrize(("case", "name", "at"), [(roles.CONTROLLER, "a", 0), (roles.NEW_SLAVE, "master", 204800)])
def test_an_empty_copy_is_filled(case: str, name: str, at: int, tmp_path: Path) -> None:
    """It neither contradicts the others nor keeps damage."""
    node = roles.unpack(case, name, tmp_path)
    empty = tmp_path / "empty"
    (empty / "commitlog").mkdir(parents=True)
    if case == roles.CONTROLLER:
        shutil.copy(node.store / "brokerIdentity", empty)
    report = compare_nodes([roles.Node(empty, node.conf), node])
    (row,) = (row for row in report.following if row.store == str(empty))
    assert (row.what, row.at, row.messages) == ("goes-on", at, 0)
    assert row.why.startswith("it has nothing, and is filled from there")
    assert report.advice.store == str(node.store)
    assert not [step for step in report.advice.steps if str(empty) in step]
    shown = rmqtool("replicas", empty, node.store, *node.options(), *node.options()).out
    assert "log       empty" in shown or "log      empty" in shown, shown


def test_a_member_that_never_had_an_entry(tmp_path: Path) -> None:
    """As a broker leaves it that was down while its group stored messages."""
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    unused = nodes[2].store / "dledger-n2"
    for part in ("data", "index"):
        shutil.rmtree(unused / part)
    (unused / "data").mkdir()
    (unused / "checkpoint").write_text("committedIndex=-1\nendIndex=-1\n")
    report = compare_nodes(nodes)
    follows = [row for row in report.following if row.store == str(nodes[2].store)]
    assert {(row.what, row.messages) for row in follows} == {("goes-on", 0)}
    assert Path(report.advice.store).name == "n0"
    assert rmqtool("commitlog", "dump", nodes[2].store).code == 0
    (unused / "checkpoint").write_text("committedIndex=5\nendIndex=5\n")
    assert rmqtool("commitlog", "dump", nodes[2].store).code == 5


def test_equal_copies(tmp_path: Path) -> None:
    stores = [builder_of(range(50)).write(tmp_path / name) for name in ("a", "b", "c")]
    report = compare(*stores)
    assert report.equal
    assert not any((report.messages, report.contradictions, report.settings))
    assert {row.what for row in report.following} == {"goes-on"}
    assert rmqtool("replicas", *stores).code == 0


def test_a_topic_that_only_another_copy_knows(tmp_path: Path) -> None:
    stores = [builder_of(range(50)).write(tmp_path / name) for name in ("a", "b")]
    for store, name in zip(stores, ("Known", "Other"), strict=True):
        (store / "config").mkdir(exist_ok=True)
        table = {"topicConfigTable": {name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}}}
        (store / "config" / "topics.json").write_text(json.dumps(table))
    report = compare(*stores)
    assert report.advice.store == str(stores[0])
    assert report.advice.steps[-1] == f"Create the topics that {stores[0]} does not know: Other"


def test_histories_that_part(tmp_path: Path) -> None:
    """Two classic masters: each has messages of its own under the same queue offsets."""
    first, second, at = parted_histories()
    stores = first.write(tmp_path / "one"), second.write(tmp_path / "other")
    report = compare(*stores)
    assert report.agreedTo == at
    assert places(report.messages, stores[0], "different") == {("Orders", 0, 5), ("Orders", 0, 6), ("Orders", 1, 5),
                                                               ("Orders", 1, 6)}  # fmt: skip
    assert [row.what for row in report.following] == ["breaks", "breaks"]
    assert report.advice.store == str(stores[1])
    assert report.advice.lost == 4


def with_tail(count: int, body: bytes, first_time: int) -> Builder:
    """Ten messages that all copies have, and more of one length."""
    builder = builder_of(range(10))
    for number in range(count):
        time = first_time + number
        builder.put("Orders", 0, body=body % number, born_timestamp=time, store_timestamp=time)
    return builder


def test_other_messages_of_the_same_length(tmp_path: Path) -> None:
    """They lie at the same places, as damage would; a copy that ends before them has no damage there."""
    builders = with_tail(6, b"mine %d", 10**12), with_tail(4, b"here %d", 2 * 10**12), builder_of(range(10))
    stores = [builder.write(tmp_path / name) for builder, name in zip(builders, "abc", strict=True)]
    report = compare(*stores)
    assert report.agreedTo == len(builders[2].log)
    assert (report.advice.store, report.advice.lost) == (str(stores[0]), 4)
    assert [(copy.alone, copy.lacks, copy.damaged) for copy in report.copies] == [(6, 0, 0), (4, 2, 0), (0, 6, 0)]
    follows = {(row.store, row.master): row.what for row in report.following}
    assert follows[str(stores[2]), str(stores[0])] == "goes-on"
    assert follows[str(stores[1]), str(stores[0])] == "keeps-damage"  # its own messages, at the end of which it goes on
    done = [step.split()[0] for step in report.advice.steps]  # what changes a copy comes before its broker runs
    assert done == ["rmqtool", "Replace", "Start"]
    comparison = compare_two(*stores[:2])
    assert (comparison.records, comparison.different, comparison.onlyFirst) == (0, 4, 2)


def test_a_copy_that_its_broker_does_not_load(tmp_path: Path) -> None:
    """A kill left a queue file of which nothing was written; its broker would not start as advised."""
    stores = [builder_of(range(count)).write(tmp_path / name) for count, name in ((12, "a"), (10, "b"))]
    (stores[0] / "abort").touch()
    empty = stores[0] / "consumequeue" / "Other" / "0" / f"{0:020d}"
    empty.parent.mkdir(parents=True)
    empty.touch()
    report = compare(*stores)
    assert report.advice.store == str(stores[0])
    [recover] = [step for step in report.advice.steps if step.startswith("rmqtool recover")]
    assert f"rmqtool recover {stores[0]}, before its broker starts" in recover
    assert f"{empty}: 0 bytes long" in recover
    assert rmqtool("recover", stores[0], "--yes").code == 0
    assert not any("before its broker starts" in step for step in compare(*stores).advice.steps)


# -- damage -----------------------------------------------------------------------------------------------------------


def located(store: Path) -> list[LocatedRecord]:
    layout = StoreLayout(str(store), BrokerConf())
    return [item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord)]


def overwrite(item: LocatedRecord, at: int, data: bytes) -> None:
    with open(item.file.path, "r+b") as file:
        file.seek(item.at + at)
        file.write(data)


def test_each_place_that_is_damaged_in_one_copy(tmp_path: Path) -> None:
    """A broken length, a rotten body and a hole over three records: the logs agree before, between and after them."""
    first = builder_of(range(60)).write(tmp_path / "a")
    stores = [first, *(shutil.copytree(first, tmp_path / name) for name in ("b", "c"))]
    items = [located(store) for store in stores]
    overwrite(items[0][10], HEAD_V4_V4.offsets["total_size"], b"\0\0\0\1")
    body = items[1][20].record.total_size - len(items[1][20].record.topic) - len(items[1][20].record.properties) - 5
    overwrite(items[1][20], body, b"\xff")
    overwrite(items[2][30], 0, bytes(items[2][33].at - items[2][30].at))
    report = compare(*stores)
    assert (report.agreedFrom, report.agreedTo) == (0, items[0][-1].end)
    damaged = {(row.store, row.physicalOffset): row.has for row in report.contradictions if row.has != "intact"}
    assert damaged == {
        (str(stores[0]), items[0][10].physical_offset): "nothing",
        (str(stores[1]), items[1][20].physical_offset): "rotten",
        (str(stores[2]), items[2][30].physical_offset): "nothing",
    }
    assert [copy.lacks for copy in report.copies] == [1, 0, 3]
    assert [copy.alone for copy in report.copies] == [0, 0, 0]
    assert [copy.damaged for copy in report.copies] == [1, 1, 1]
    # a start ends the log at the first damage: the copy whose damage comes last keeps the most
    assert (report.advice.store, report.advice.cut) == (str(stores[2]), len(items[2]) - 33)
    assert (report.advice.lost, report.advice.damaged) == (3, 0)
    assert not report.equal


def test_a_log_that_begins_with_damage(tmp_path: Path) -> None:
    first = builder_of(range(20)).write(tmp_path / "a")
    other = shutil.copytree(first, tmp_path / "b")
    items = located(other)
    overwrite(items[0], 0, bytes(8))
    report = compare(first, other)
    assert (report.agreedFrom, report.agreedTo) == (0, items[-1].end)
    assert places(report.messages, other, "lacks") == {("Orders", 0, 0)}


def test_damage_in_a_member_of_a_group(tmp_path: Path) -> None:
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)[:2]
    entry = roles.entries_of(roles.DLEDGER, "n1")[40]
    data = nodes[1].store / "dledger-n1" / "data" / f"{0:020d}"
    with open(data, "r+b") as file:
        file.seek(entry["physicalOffset"] + 2)
        file.write(b"\xff\xff")
    report = compare_nodes(nodes)
    assert report.agreedTo == 178896
    assert places(report.messages, nodes[1].store, "lacks") == {_place(entry)}
    assert [(row.has, row.physicalOffset) for row in report.contradictions] == [
        ("intact", entry["physicalOffset"]), ("nothing", entry["physicalOffset"]),
    ]  # fmt: skip
    assert compare_nodes(nodes[::-1]).advice.store == str(nodes[0].store)  # both can lead


def test_an_entry_at_which_a_start_ends_the_log(tmp_path: Path) -> None:
    """The member votes, and stands for election, with what its start leaves."""
    nodes = roles.unpack_all(roles.DLEDGER, tmp_path)
    entry = next(row for row in roles.entries_of(roles.DLEDGER, "n0") if row["index"] == 300)
    data = sorted((nodes[0].store / "dledger-n0" / "data").iterdir())
    file = next(path for path in reversed(data) if int(path.name) <= entry["pos"])
    with open(file, "r+b") as log:
        log.seek(entry["pos"] - int(file.name))
        log.write(bytes(4))
    report = compare_nodes(nodes)
    assert (report.copies[0].startIndex, report.copies[0].startEndOffset) == (299, entry["pos"])
    assert report.advice.store == str(nodes[1].store)
    [row] = [row for row in report.following if (row.store, row.master) == (str(nodes[0].store), report.advice.store)]
    assert (row.what, row.at, row.messages) == ("cut", entry["pos"], 0)
    # the third one votes for it as well, and then what it lacks would be cut from the best one
    first = f"Start the brokers of {nodes[1].store} and {nodes[2].store} first"
    assert any(step.startswith(first) for step in report.advice.steps)


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command(unpacked: Cases) -> None:
    nodes = unpacked(roles.DLEDGER)
    before = [roles.prints(node.store) for node in nodes]
    stores = [str(node.store) for node in nodes]
    result = rmqtool("replicas", *stores, "-o", "json")
    assert result.code == 1
    assert "settings of" in result.err, "the files beside them"
    report = json.loads(result.out)
    assert (report["agreedTo"], report["advice"]["store"]) == (126247, stores[0])
    steps = report["advice"]["steps"]  # either of the two with the whole log may become the leader
    assert [step.split(",")[0] for step in steps if step.startswith("rmqtool rebuild")] == [
        f"rmqtool rebuild {node.store} consumequeue --broker-conf {node.conf}" for node in nodes[:2]
    ]
    confs = [word for node in nodes for word in ("--broker-conf", str(node.conf))]
    assert json.loads(rmqtool("replicas", *stores, *confs, "-o", "json").out) == report
    text = rmqtool("replicas", *stores).out
    assert "All logs agree from 0 to 126247." in text
    assert "Lost then: 9 messages of other copies, never acknowledged." in text
    rows = rmqtool("replicas", *stores, "-o", "csv", "--table", "following").out.splitlines()
    assert len(rows) == 7
    assert [roles.prints(node.store) for node in nodes] == before


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    store = Builder().write(tmp_path / "a")
    assert rmqtool("replicas", store).code == 2
    assert "the same directory" in rmqtool("replicas", store, f"{store}/").err
    assert rmqtool("replicas", store, tmp_path / "nowhere").code == 3
    other = builder_of(range(3)).write(tmp_path / "b")
    conf = tmp_path / "x.conf"
    conf.write_text("")
    wrong = rmqtool("replicas", store, other, *("--broker-conf", conf) * 3)
    assert (wrong.code, "one for each of the 2 directories" in wrong.err) == (2, True)


def test_directories_that_are_no_copies_of_each_other(tmp_path: Path) -> None:
    """Nothing advises to empty one of them."""
    member, master = roles.unpack(roles.DLEDGER, "n0", tmp_path), roles.unpack(roles.SLAVE, "master", tmp_path)
    other = goldens.unpack("clean", tmp_path)
    for stores, why in (
        ((member.store, master.store), "no replicas of one kind"),
        ((master.store, other), "in common"),
    ):
        steps = json.loads(rmqtool("replicas", *stores, "-o", "json").out)["advice"]["steps"]
        assert [step for step in steps if step.startswith("Leave the directory") and why in step]
        assert not [step for step in steps if step.startswith(("Empty", "Replace"))]
