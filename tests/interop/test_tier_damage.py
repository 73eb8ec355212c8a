"""Damaged tiers beside real brokers; random damage is a separate program: :mod:`tests.interop.tier_damage`."""

from pathlib import Path

import pytest

from tests.amounts import some, whole_by_turns
from tests.interop import broker as brokers
from tests.interop.broker import Broker
from tests.interop.tier_damage import CASES, at_random, prepared

pytestmark = [pytest.mark.interop, whole_by_turns(4, 7)]


@pytest.mark.parametrize("release", [pytest.param(r, marks=pytest.mark.xdist_group(f"broker-{r}")) for r in CASES])
def test_what_a_broker_serves_of_a_damaged_tier_is_read(release: str, tmp_path: Path) -> None:
    if reason := brokers.available(release):
        pytest.skip(reason)
    node = prepared(CASES[release], tmp_path / "whole")
    with Broker(release) as broker:
        for seed in range(some(2, 30)):
            at_random(seed, broker, CASES[release], node, tmp_path / str(seed))
