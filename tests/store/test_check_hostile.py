"""Check survives any bytes, and never writes."""

import json
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqtool.store.check.codes.all import CODES
from tests.conftest import Unpacked
from tests.damage import VERBS, damage
from tests.store.findings import found_in
from tests.store.helpers import tree


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(verb=st.sampled_from(sorted(VERBS)), more=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_any_damage_is_survived(verb: str, more: int, seed: int, golden_copy: Unpacked) -> None:
    store = golden_copy("crash")
    damage(Random(seed), store, verb, more)
    before = tree(store)
    for finding in found_in(store):
        assert finding.code in CODES
        assert finding.count > 0
        json.dumps(finding.to_dict())
    assert tree(store) == before


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_files_of_noise_are_survived(data: st.DataObject, golden_copy: Unpacked) -> None:
    store = golden_copy("lmq")
    paths = sorted(p for p in store.rglob("*") if p.is_file())
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=4, unique=True)):
        path.write_bytes(data.draw(st.binary(max_size=300)))
    found_in(store)
