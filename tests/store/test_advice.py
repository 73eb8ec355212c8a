"""The advice of check, followed literally, never loses a message that another advised way keeps, and helps."""

import os
from pathlib import Path
from random import Random

import pytest

from rmqtool.store.check import CODES, check_store
from rmqtool.store.layout import StoreLayout
from tests import goldens
from tests.conftest import Unpacked
from tests.damage import VERBS, damage
from tests.store.advised import lost_by_advice
from tests.store.helpers import conf_of

BASES = ("clean", "crash", "broker", "delay", "lmq")
FIRST = int(os.environ.get("RMQTOOL_ADVICE_FROM", "0"))
SEEDS = int(os.environ.get("RMQTOOL_ADVICE_SEEDS", "12"))


@pytest.mark.parametrize("case", goldens.cases())
def test_of_golden_stores(case: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    assert lost_by_advice(golden_copy(case), tmp_path, conf_of(case)) == []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_of_damaged_stores(seed: int, golden_copy: Unpacked, tmp_path: Path) -> None:
    """More with RMQTOOL_ADVICE_SEEDS."""
    random = Random(seed)
    case = random.choice(BASES)
    store = golden_copy(case)
    verbs = sorted(VERBS)
    done = damage(random, store, verbs[seed % len(verbs)], random.choice((0, 0, 1, 2)))
    assert lost_by_advice(store, tmp_path, conf_of(case)) == [], (case, done)
