"""The whole-store check: silent on healthy stores, exact on damage, and never writing."""

import json
from pathlib import Path

import pytest

from rmqtool import NewMessage, Store
from rmqtool.services.lookup.info import store_info
from rmqtool.store.check.log import log
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log import commit_log
from rmqtool.store.recovery.command import recover
from tests import goldens
from tests.amounts import by_turns
from tests.conftest import Unpacked
from tests.store.findings import Told, check_store, found_in, told, totals
from tests.store.helpers import NO_LOG, conf_of, tree

LOG = "commitlog/{:020d}"
LAST_LOG = LOG.format(147456)
LAST_INDEX = "index/20261120205828377"
ABORT: Told = ("abort-present", "abort", None, 1)
NO_CHECKPOINT: Told = ("checkpoint-missing", "checkpoint", None, 1)
MESSAGES = {"TopicA": (49, 48, 42, 48), "TopicB": (38, 34, 33, 46), "order-events": (42, 32, 36, 52)}
CLEAN = ["clean", "broker", "delay", "ipv6", "large-bodies", "lmq", "queue-ext"]


def every_queue(code: str) -> list[Told]:
    return [
        (code, f"consumequeue/{topic}/{number}/{0:020d}", 0, count)
        for topic, counts in MESSAGES.items()
        for number, count in enumerate(counts)
    ]


def ghosts(*offsets: int) -> list[Told]:
    return [("index-ghost", LAST_INDEX, offset, 1) for offset in offsets]


TORN: list[Told] = [
    ("log-torn", LAST_LOG, 28028, 1),
    ("cq-no-message", f"consumequeue/TopicA/3/{0:020d}", 940, 1),
    *ghosts(5768, 5788),
]
DAMAGED: dict[str, list[Told]] = {
    "body-bit-flip-first-file-no-checkpoint": [ABORT, ("log-crc", LOG.format(0), 24198, 1), NO_CHECKPOINT],
    "body-bit-flip-last-file": [ABORT, ("log-crc", LAST_LOG, 19325, 1)],
    "broker-crash": [ABORT],
    "checkpoint-deleted": [ABORT, NO_CHECKPOINT],
    "checkpoint-zeroed": [ABORT, ("checkpoint-empty", "checkpoint", 0, 1)],
    "clean-exit-consumequeue-deleted": every_queue("cq-missing"),
    "clean-exit-torn-last-record": TORN,
    "commitlog-deleted": [ABORT, ("log-absent", "commitlog", None, 500)],
    "consumequeue-deleted": [ABORT, *every_queue("cq-behind")],
    "consumequeue-deleted-no-checkpoint": [ABORT, *every_queue("cq-behind"), NO_CHECKPOINT],
    "crash": [ABORT],
    "extra-zero-file": [ABORT],
    "head-file-deleted": [ABORT],
    "index-deleted": [ABORT, ("index-absent", "index", None, 1)],
    "index-deleted-no-checkpoint": [ABORT, ("index-absent", "index", None, 1), NO_CHECKPOINT],
    "magic-broken-last-file": [
        ABORT,
        *ghosts(3808, 3828),
        ("log-damage", LAST_LOG, 8755, 1),
        ("cq-no-message", f"consumequeue/TopicB/2/{0:020d}", 500, 1),
    ],
    "one-queue-deleted": [ABORT, ("cq-behind", f"consumequeue/TopicA/1/{0:020d}", 0, 48)],
    "queue-tail-zeroed": [ABORT, ("cq-behind", f"consumequeue/TopicA/2/{0:020d}", 640, 10)],
    "short-last-file": [ABORT, ("file-size", LOG.format(196608), None, 1)],
    "size-field-negative": [
        ABORT,
        *ghosts(4388, 4408, 4428),
        ("log-damage", LAST_LOG, 14216, 1),
        ("cq-no-message", f"consumequeue/order-events/3/{0:020d}", 960, 1),
    ],
    "torn-header": [ABORT, *TORN],
    "torn-last-record": [ABORT, *TORN],
}


def test_every_golden_store_has_an_expectation() -> None:
    assert sorted(CLEAN + list(DAMAGED)) == goldens.cases()


@pytest.mark.parametrize("case", CLEAN)
def test_nothing_is_found_in_a_healthy_store(case: str, golden: Unpacked) -> None:
    assert found_in(golden(case)) == []
    assert found_in(golden(case), conf_of(case)) == []


@by_turns(2)
@pytest.mark.parametrize("case", DAMAGED)
def test_damage_of_golden_stores_is_told_exactly_and_nothing_is_written(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    before = tree(store.parent)
    findings = found_in(store)
    assert told(findings) == sorted(DAMAGED[case])  # type: ignore[type-var]
    assert found_in(store, conf_of(case)) == findings
    assert tree(store.parent) == before


@by_turns(2)
@pytest.mark.parametrize("case", sorted(set(DAMAGED) - {"short-last-file"}))
def test_nothing_is_found_in_a_recovered_store(case: str, golden_copy: Unpacked) -> None:
    store = golden_copy(case)
    recover(StoreLayout(str(store), conf_of(case)), exactly=case == NO_LOG)
    found = {finding.code for finding in found_in(store, conf_of(case))}
    assert found <= ({"index-ghost"} if case == NO_LOG else set())  # where a broker leaves the index


@pytest.mark.parametrize("case", ["clean", "broker", "ipv6", "lmq", "delay", "torn-last-record", "crash"])
def test_the_compiled_way_finds_the_same(case: str, golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = found_in(golden(case))
    monkeypatch.setattr(log, "is_bulk", lambda *_args: True)
    assert found_in(golden(case)) == plain


def test_is_problem_goes_by_severity(golden: Unpacked) -> None:
    assert {is_problem(f) for f in found_in(golden("consumequeue-deleted")) if f.code == "cq-behind"} == {False}


@pytest.mark.parametrize("case", ["broker-5.3.3", "rocksdb-5.3.3"])
def test_what_is_not_understood_of_5_3_is_not_checked_and_no_fault(case: str, golden: Unpacked) -> None:
    for conf in (None, conf_of(case)):
        findings = [finding for finding in found_in(golden(case), conf) if finding.code != "store-role"]
        assert {f.severity for f in findings} <= {"info"}
        assert set(totals(findings)) <= {"not-checked"}
        assert not any("batch" in (finding.actual or "") for finding in findings)
        assert not [
            f for f in findings if "cannot be reached" in f.consequence or any(step.command for step in f.steps)
        ]
    notes = [group.note or "" for group in store_info(StoreLayout(str(golden(case)))).files]
    assert not any("batch" in note for note in notes)


@pytest.mark.parametrize(
    ("case", "advised"), [("broker-5.3.3-crash", [("rmqtool", "recover", "STORE")]), ("rocksdb-5.3.3-crash", [])]
)
def test_no_command_is_advised_that_refuses_a_store_of_5_3(
    case: str, advised: list[tuple[str, ...]], golden: Unpacked
) -> None:
    findings = found_in(golden(case))
    assert {f.code for f in findings if is_problem(f)} == {"abort-present"}
    assert [step.command for f in findings for step in f.steps if step.command] == advised


def test_what_was_never_written_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's 1-GiB file with one message is a hole except for its first page."""
    with Store.create(tmp_path / "store") as store:
        store.append(NewMessage(topic="T", body=b"x"))
    searched: list[int] = []
    search = commit_log.next_record

    def watched(view: memoryview, base: int, at: int, stop: int) -> int:
        searched.append(stop - at)
        return search(view, base, at, stop)

    monkeypatch.setattr(commit_log, "next_record", watched)
    monkeypatch.setattr(log, "next_record", watched)
    assert list(check_store(StoreLayout(str(tmp_path / "store")))) == []
    assert sum(searched) < 1 << 20


def test_messages_of_queues_that_are_not_read_are_counted(golden_copy: Unpacked) -> None:
    """The topic has fewer read queues than before: the others have messages, but no consumer gets them."""
    store = golden_copy("broker")
    path = store / "config" / "topics.json"
    table = json.loads(path.read_text())
    table["topicConfigTable"]["Orders"]["readQueueNums"] = 2
    path.write_text(json.dumps(table))
    result = [finding for finding in check_store(StoreLayout(str(store))) if finding.code == "queue-unread"]
    with Store(store) as opened:
        stored = {
            queue.queueId: queue.maxOffset - queue.minOffset for queue in opened.queues() if queue.topic == "Orders"
        }
    assert {(finding.severity, finding.queueId, finding.count) for finding in result} == {
        ("warning", number, stored[number]) for number in (2, 3)
    }
    assert f"the {stored[2]} messages of this queue" in result[0].consequence
