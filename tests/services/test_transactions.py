"""Transactions: the golden broker's eighteen, and situations that did not occur there."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from formats.message.ids import offset_id
from formats.topics import GIVEN_UP, HALF, OP
from rmqtool.services.transactions.half_messages import TransactionInfo, Transactions
from tests.conftest import Unpacked
from tests.services import lab
from tests.services.build import HOST, TIME, Builder, log_of, never


def of(store: Path, warn: Any = never) -> list[TransactionInfo]:
    return list(Transactions(log_of(store), warn).all())


@pytest.mark.parametrize("case", ["broker", "broker-crash"])
def test_the_golden_ones(case: str, golden: Unpacked) -> None:
    traced = of(golden(case))
    assert {info.keys: (info.state, info.checkTimes) for info in traced} == lab.TRANSACTIONS
    assert len(traced) == 18
    for info in traced:
        assert info.producerGroup == "lab-tx"
        assert info.topic == "Payments"
        assert info.note is None
        assert info.checkTimes is not None
        assert len(info.copies) == 1 + info.checkTimes
        assert [copy.checkTimes for copy in info.copies] == list(range(1 + info.checkTimes))
        assert (info.commitPhysicalOffset is not None) == (info.state == "committed")
        assert (info.opQueueOffset is None) == (info.state == "given-up") == (info.givenUpPhysicalOffset is not None)
        assert info.endTimestamp is not None
        assert info.endTimestamp >= info.copies[-1].storeTimestamp


@pytest.mark.parametrize("lost", ["index", "an index file", "both queues of Payments that are first"])
def test_the_index_only_makes_it_faster(lost: str, golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    if lost == "index":
        shutil.rmtree(store / "index")
    elif lost == "an index file":
        min((store / "index").iterdir()).write_bytes(b"\xff" * 16840)
    else:
        for number in (0, 1):
            shutil.rmtree(store / "consumequeue" / "Payments" / str(number))
    assert {info.keys: (info.state, info.checkTimes) for info in of(store)} == lab.TRANSACTIONS


def test_a_commit_that_neither_index_nor_queue_has_looks_rolled_back(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    shutil.rmtree(store / "index")
    shutil.rmtree(store / "consumequeue" / "Payments")
    assert Counter(info.state for info in of(store)) == {"rolled-back": 17, "given-up": 1}


def half(builder: Builder, unique: str | None, **properties: str) -> int:
    """Add a half message for queue 0 of Pay."""
    names = {"REAL_TOPIC": "Pay", "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "p", **properties}
    own = {"UNIQ_KEY": unique} if unique else {}
    return builder.put(HALF, properties=own | names, born_timestamp=TIME)


def op(builder: Builder, body: bytes, tag: str = "d") -> None:
    builder.put(OP, body=body, properties={"TAGS": tag})


def commit(builder: Builder, prepared: int, unique: str) -> int:
    return builder.put(
        "Pay", properties={"UNIQ_KEY": unique}, sys_flag=8, prepared_transaction_offset=prepared, born_timestamp=TIME
    )


def test_batched_op_messages_of_5_x(tmp_path: Path) -> None:
    builder = Builder()
    halves = [half(builder, f"u{n}") for n in range(5)]
    commit(builder, halves[1], "u1")
    commit(builder, halves[3], "u3")
    builder.put("Pay", properties={"UNIQ_KEY": "noise"})
    op(builder, b"0,1,3,")
    op(builder, b"2")
    traced = of(builder.write(tmp_path))
    states = ["rolled-back", "committed", "rolled-back", "committed", "pending"]
    assert [(info.msgId, info.state) for info in traced] == [(f"u{n}", state) for n, state in enumerate(states)]
    assert [info.opQueueOffset for info in traced] == [0, 0, 1, 0, None]


def test_what_names_no_half_message_is_passed_over(tmp_path: Path) -> None:
    builder = Builder()
    half(builder, "u0")
    for body in (b"", b",", b"x", b"0x0", b"-", b"9" * 40, b"\xff\xfe", b"1 ", b"0,x"):
        op(builder, body)
    op(builder, b"0", tag="e")
    warnings: list[str] = []
    (info,) = of(builder.write(tmp_path), warnings.append)
    assert info.state == "pending"
    assert warnings == [f"{OP} queue 0: 10 messages that name no half message: passed over"]


def test_pending_passed_and_given_up(tmp_path: Path) -> None:
    builder = Builder()
    half(builder, "done-without-a-trace")
    half(builder, "given-up", TRANSACTION_CHECK_TIMES="15")
    half(builder, "resumed", TRANSACTION_CHECK_TIMES="15")
    for name in ("given-up", "resumed"):
        builder.put(GIVEN_UP, properties={"UNIQ_KEY": name, "TRANSACTION_CHECK_TIMES": "15"})
    half(builder, "resumed", TRANSACTION_CHECK_TIMES="0")
    half(builder, "open")
    offsets = f'{{"offsetTable":{{"{HALF}@CID_RMQ_SYS_TRANS":{{0:3}}}}}}'
    traced = of(builder.write(tmp_path, {"consumerOffset.json": offsets}))
    assert {info.msgId: info.state for info in traced} == {
        "done-without-a-trace": "passed",
        "given-up": "given-up",
        "resumed": "pending",
        "open": "pending",
    }
    assert len(traced) == 4


def test_a_commit_without_its_op_message(tmp_path: Path) -> None:
    """The broker was killed between the two writes: it will check, and the message may appear twice."""
    builder = Builder()
    at = half(builder, "u0")
    committed = commit(builder, at, "u0")
    op(builder, b"7")
    store = builder.write(tmp_path)
    (info,) = of(store)
    assert info.state == "pending"  # without an index nothing leads there
    from rmqtool.store.layout.paths import StoreLayout
    from rmqtool.store.repair.rebuild import rebuild

    rebuild(StoreLayout(str(store)), ("index",))
    (info,) = of(store)
    assert (info.state, info.commitPhysicalOffset) == ("committed", committed)
    assert info.note is not None
    assert "again" in info.note


def test_an_end_that_came_for_an_old_copy(tmp_path: Path) -> None:
    builder = Builder()
    half(builder, "u0")
    half(builder, "u0", TRANSACTION_CHECK_TIMES="1")
    op(builder, b"0")
    (info,) = of(builder.write(tmp_path))
    assert info.state == "rolled-back"
    assert info.note == "its copy at half-queue offset 1 is open: it will be checked again"


def test_without_unique_ids(tmp_path: Path) -> None:
    builder = Builder()
    at = half(builder, None)
    half(builder, None, TRANSACTION_CHECK_TIMES="1")
    (info,) = of(builder.write(tmp_path))
    assert (info.msgId, info.checkTimes, info.state) == (offset_id(HOST, 10911, at), 1, "pending")


def test_a_copy_whose_original_has_expired(tmp_path: Path) -> None:
    builder = Builder()
    half(builder, "u0", TRANSACTION_CHECK_TIMES="3")
    half(builder, "u0", TRANSACTION_CHECK_TIMES="4")
    half(builder, "u1", TRAN_PREPARED_QUEUE_OFFSET="77")
    traced = of(builder.write(tmp_path))
    assert [(info.msgId, len(info.copies), info.checkTimes) for info in traced] == [("u0", 2, 4), ("u1", 1, 0)]


def test_entries_that_lead_nowhere(golden_copy: Unpacked) -> None:
    store = golden_copy("broker")
    path = store / "consumequeue" / HALF / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[3 * 20 : 3 * 20 + 8] = (200_000).to_bytes(8, "big")  # tx-3
    data[18 * 20 : 18 * 20 + 8] = (0).to_bytes(8, "big")  # the copy of tx-2 that was committed: a message of Orders
    path.write_bytes(data)
    warnings: list[str] = []
    result = {info.keys: info.state for info in of(store, warnings.append)}
    assert "tx-3" not in result
    assert result["tx-2"] == "passed"
    assert len(result) == 17
    assert warnings == [f"{HALF} queue 0: 2 entries without a message, the first at queue offset 3: skipped"]
