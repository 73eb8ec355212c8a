"""All damage to files of 5.x made by tests, in one list: each has a code, and each code is fully described.

The tests that make the damage check that exactly these codes are reported.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqtool.cli.read.run_explain import run_explain
from rmqtool.store.check.codes.all import CODES
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store import test_check_batches as batches
from tests.store import test_check_compaction as compaction
from tests.store import test_check_rocks as rocks
from tests.store import test_check_timer as timers
from tests.store.findings import Told


def broken_order_info(store: Path) -> list[Told]:
    """Break the state of ordered POP."""
    (store / "config" / "consumerOrderInfo.json").write_bytes(b'{"table":{')
    return [("config-broken", "config/consumerOrderInfo.json", None, 1)]


def revive_queue_gone(store: Path) -> list[Told]:
    """Delete a queue with checkpoints and acks of POP groups."""
    (queue,) = (store / "consumequeue").glob("rmq_sys_REVIVE_LOG_*/0")
    for path in queue.iterdir():
        path.unlink()
    return [("cq-missing", f"consumequeue/{queue.parent.name}/0", None, 1)]


POP: list[Callable[[Path], list[Told]]] = [broken_order_info, revive_queue_gone]


def all_damages(copy: Unpacked) -> Iterator[tuple[str, str, set[str]]]:
    """(what is damaged, how, expected codes) of every damage."""
    for family, case, damages in (
        ("batch queue", "broker-5.3.3", batches.DAMAGES),
        ("timer", "broker-5.3.3", timers.DAMAGES),
        ("POP", "broker-5.3.3", POP),
        ("compaction", compaction.CASE, compaction.DAMAGES),
    ):
        for damage in damages:
            yield family, damage.__name__, {code for code, *_rest in damage(copy(case))}
    for name, (_what, codes) in rocks.DAMAGES.items():
        if codes:  # of what a broker does not mind there is nothing to tell
            yield "RocksDB", name, set(codes)


def test_every_damage_has_a_code_and_every_code_says_all(
    golden_copy: Unpacked, capsys: pytest.CaptureFixture[str]
) -> None:
    damages = list(all_damages(golden_copy))
    of_code: dict[str, set[str]] = defaultdict(set)
    for family, name, codes in damages:
        assert codes, (family, name)
        for code in codes:
            of_code[code].add(family)
    assert len(damages) >= 90
    assert len(of_code) >= 45
    assert set().union(*of_code.values()) == {"batch queue", "timer", "POP", "compaction", "RocksDB"}
    for family in ("bcq-", "timer-", "compaction-", "rcq-"):
        # of these the tests of check tell that are not about one damage to a healthy store
        left = {code for code in CODES if code.startswith(family)} - of_code.keys()
        assert left <= {"bcq-behind", "timer-expired", "compaction-behind", "rcq-behind", "rcq-unreadable"}
    explained = {row["code"]: row for row in json.loads(rmqtool("explain", "--output", "json").out)}
    for code in of_code:
        row = explained[code]
        assert row["severity"] in ("error", "warning", "info"), code
        for name in ("title", "meaning", "cause", "broker", "fix"):
            assert len(row[name]) >= len("Damage."), (code, name)
        assert row["steps"], code
        assert all(step["does"] for step in row["steps"]), code
        assert run_explain(code, "table") == 0
        shown = " ".join(capsys.readouterr().out.split())
        for arguments in (row["meaning"], row["broker"], row["steps"][0]["does"]):
            assert arguments.lower() in shown.lower(), code


@pytest.mark.parametrize("damage", POP, ids=lambda damage: damage.__name__)
def test_damage_to_what_pop_groups_need(damage: Callable[[Path], list[Told]], golden_copy: Unpacked) -> None:
    store = golden_copy("broker-5.3.3")
    expected = {code for code, *_rest in damage(store)}
    parsed = json.loads(rmqtool("check", store, "--output", "json").out)
    rows = parsed["findings"] if isinstance(parsed, dict) else parsed
    told = {row["code"] for row in rows if row["severity"] != "info"}
    assert expected <= told <= {*expected, "index-missing"}
    assert all(row["consequence"] and row["fix"] for row in rows if row["code"] in expected)
