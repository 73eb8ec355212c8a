"""What a check says of the shape of a log: files, damage, and where the next start ends it."""

from random import Random

import pytest

from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.run import check_store
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord
from rmqtool.store.log.shape import LogShape
from tests import damage, goldens
from tests.amounts import some
from tests.conftest import Unpacked

DAMAGED = [case for case in goldens.cases() if goldens.has(case, "recovered.json")]


def shape_of(layout: StoreLayout) -> tuple[LogShape, Situation]:
    situation = Situation()
    for _finding in check_store(layout, situation=situation):
        pass
    assert situation.log is not None
    return situation.log, situation


@pytest.mark.parametrize("case", DAMAGED)
def test_the_log_ends_where_the_engine_ended_it(case: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(case)))
    shape, situation = shape_of(layout)
    answer = goldens.recovered(case)
    if answer["loadOk"] and shape.cut is not None:
        assert shape.cut == answer["afterLoad"]["maxPhyOffset"]
    assert (shape.cut is not None) == (situation.cuts > 0)
    assert [span.base for span in shape.files] == [file.base for file in CommitLog(layout).segments]


def test_some_of_them_are_cut() -> None:
    assert {"magic-broken-last-file", "size-field-negative", "body-bit-flip-last-file"} <= {*DAMAGED}


@pytest.mark.parametrize("case", ["magic-broken-last-file", "size-field-negative", "body-bit-flip-last-file"])
def test_what_follows_damage_is_cut(case: str, golden: Unpacked) -> None:
    layout = StoreLayout(str(golden(case)))
    shape, situation = shape_of(layout)
    assert shape.cut == min(each.physical_offset for each in shape.damaged)
    behind = [
        item
        for item in CommitLog(layout).walk()
        if isinstance(item, LocatedRecord) and item.physical_offset > shape.cut
    ]
    assert len(behind) == situation.cuts > 0
    assert shape.end == behind[-1].end


@pytest.mark.parametrize("seed", range(some(10, 60)))
def test_damaged_ranges_are_those_of_a_walk(seed: int, golden_copy: Unpacked) -> None:
    rng = Random(seed)
    store = golden_copy("broker")
    for _ in range(rng.randint(1, 3)):
        rng.choice((damage.zero_log_range, damage.garbage_in_log, damage.zero_record))(rng, store)
    layout = StoreLayout(str(store))
    shape, _situation = shape_of(layout)
    walked = [item for item in CommitLog(layout).walk(crc=False) if isinstance(item, Damage)]
    inside = [(item.physical_offset, item.length) for item in walked if item.physical_offset < shape.end]
    result = [each[:2] for each in shape.damaged if each.code in ("log-damage", "log-blank-missing", "log-blank-size")]
    assert [each for each in result if each not in inside] == []
    assert [each for each in inside if each not in result] == []


def test_an_intact_log_has_no_damage(golden: Unpacked) -> None:
    layout = StoreLayout(str(golden("broker")))
    shape, _situation = shape_of(layout)
    assert (shape.damaged, shape.cut) == ([], None)
    assert shape.end == CommitLog(layout).end()[0]
