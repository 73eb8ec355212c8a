"""checkpoint, abort, lock, timercheck."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import checkpoint, marks
from formats.errors import BadText
from formats.layouts import marks as layouts
from formats.layouts.derived import CHECKPOINT_HEAD, TIMER_CHECKPOINT
from formats.variants import timer
from tests import goldens
from tests.conftest import Unpacked
from tests.formats.strategies import examples, values_of


@pytest.mark.parametrize("case", goldens.cases())
def test_every_checkpoint_rebuilds(golden: Unpacked, case: str) -> None:
    path = golden(case) / "checkpoint"
    if "checkpoint-deleted" in case or case.endswith("no-checkpoint"):
        assert not path.exists()
        return
    raw = path.read_bytes()
    point = checkpoint.parse(raw)

    assert len(raw) == checkpoint.SIZE
    assert checkpoint.build(point) == raw
    assert point == tuple(layouts.CHECKPOINT.parse(raw)[name] for name in checkpoint.Checkpoint._fields)
    if case == "checkpoint-zeroed":
        assert point == checkpoint.Checkpoint()
    else:
        assert 0 < point.min_timestamp < point.logics_msg_timestamp
        assert point.master_flushed_offset == point.confirm_phy_offset == 0  # 4.9.8 does not know them


@examples
@given(values=values_of(CHECKPOINT_HEAD), rest=st.binary(max_size=5000))
def test_a_checkpoint_reads_as_it_was_built(values: tuple[int, ...], rest: bytes) -> None:
    raw = checkpoint.build(checkpoint.Checkpoint(*values, rest))

    assert len(raw) == max(4096, 48 + len(rest))
    point = checkpoint.parse(raw)
    assert point[:6] == values
    assert point.rest.startswith(rest)
    assert not any(point.rest[len(rest) :])
    assert checkpoint.build(point) == raw


@given(raw=st.binary(max_size=100))
def test_a_short_checkpoint_reads_as_if_zeros_followed(raw: bytes) -> None:
    assert checkpoint.parse(raw) == checkpoint.parse(raw + bytes(4096 - len(raw)))


def test_an_absent_checkpoint_is_all_zero() -> None:
    assert checkpoint.parse(b"") == checkpoint.Checkpoint()
    assert checkpoint.build(checkpoint.Checkpoint()) == bytes(4096)


@pytest.mark.parametrize(
    ("physic", "logics", "indexed", "plain", "with_index"),
    [
        (10_000, 9_000, 50_000, 6_000, 6_000),
        (9_000, 10_000, 5_000, 6_000, 5_000),
        (2_999, 10_000, 0, 0, 0),
        (10_000, -5, 7, 0, 0),
        (10_000, 10_000, -7, 7_000, -7),
    ],
)
def test_the_times_that_recovery_goes_back_to(
    physic: int, logics: int, indexed: int, plain: int, with_index: int
) -> None:
    point = checkpoint.Checkpoint(physic, logics, indexed)

    assert point.min_timestamp == plain
    assert point.min_timestamp_index == with_index


@examples
@given(values=values_of(TIMER_CHECKPOINT), cut=st.integers(0, 4096))
def test_a_timer_checkpoint_reads_as_it_was_built(values: tuple[int, ...], cut: int) -> None:
    raw = timer.build_checkpoint(timer.TimerCheckpoint(*values))

    assert len(raw) == 4096
    assert timer.parse_checkpoint(raw) == (*values, bytes(4040))
    assert timer.build_checkpoint(timer.parse_checkpoint(raw[:cut])) == raw[:cut].ljust(4096, b"\0")
    assert timer.build_checkpoint(timer.parse_checkpoint(raw + b"more")) == raw + b"more"


def test_an_absent_timer_checkpoint_is_all_zero() -> None:
    assert timer.parse_checkpoint(b"") == timer.TimerCheckpoint()
    assert timer.build_checkpoint(timer.TimerCheckpoint()) == bytes(4096)


@pytest.mark.parametrize(
    ("content", "process_id"), [(b"", None), (b"1", 1), (b"4194304", 4194304), (b"1" * 20, int("1" * 20))]
)
def test_abort(content: bytes, process_id: int | None) -> None:
    assert marks.parse_abort(content) == process_id


@pytest.mark.parametrize("content", [b"\n", b"12\n", b"-3", b"x", b"\xff", b"1" * 21, "١".encode()])
def test_an_abort_file_of_other_content(content: bytes) -> None:
    with pytest.raises(BadText):
        marks.parse_abort(content)


@pytest.mark.parametrize("case", goldens.cases())
def test_abort_and_lock_of_real_stores(golden: Unpacked, case: str) -> None:
    abort = golden(case) / "abort"

    assert marks.is_lock((golden(case) / "lock").read_bytes())
    if abort.exists():
        assert marks.parse_abort(abort.read_bytes()) is None  # 4.9.8


@pytest.mark.parametrize(("content", "ours"), [(b"lock", True), (b"", True), (b"lock\n", False), (b"loc", False)])
def test_lock(content: bytes, ours: bool) -> None:
    assert marks.is_lock(content) is ours
