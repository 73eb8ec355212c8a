"""Whoever does what is advised, in its order, arrives: no command sends to another that refuses."""

import shutil
from pathlib import Path
from random import Random

import pytest

from rmqtool.store.check import check_store
from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.reading.reading import Reader
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from tests import damage, goldens
from tests.amounts import every, some
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.advised import ASKING, commands_of, conf_file
from tests.store.helpers import conf_of
from tests.whole import VERBS, Base, make_bases, words

MOST = 4  # commands
ALL_VERBS = damage.VERBS | VERBS


def walk(store: Path, room: Path, conf: BrokerConf | None) -> list[str]:
    """What was done and what is left, where following the advice leads nowhere; empty where it arrives."""
    at, done = store, list[str]()
    options = ["--broker-conf", str(conf_file(conf, room))] if conf else []
    for number in range(MOST + 1):
        reader, situation = Reader(), Situation()
        findings = list(check_store(StoreLayout(str(at), conf), situation=situation))
        for finding in findings:
            reader.take(finding)
        if not any(map(is_problem, findings)):
            return []
        way = commands_of(reader.reading(situation).steps)
        if not way:  # what is left is named, and no command mends it
            return []
        if number == MOST:
            break
        new = room / f"new-{number}"
        places = {"STORE": at, "NEWSTORE": new, "FILE": room / f"out-{number}"}
        asked = [str(places.get(word, word)) for word in way[0][1:]]
        result = rmqtool(*asked, *options, *(["--yes"] if asked[0] in ASKING else []))
        done.append(f"{' '.join(way[0])}: {result.code} {result.err}")
        if result.code > 1:
            break
        if new.is_dir():
            at = new
    return [*done, *(f"left: {words(finding)}" for finding in findings if is_problem(finding))]


@pytest.mark.parametrize("case", every(3, [*goldens.cases(), *goldens.cases_of_5()]))
def test_of_golden_stores(case: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    assert walk(golden_copy(case), tmp_path, conf_of(case)) == []


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    """Not yet the one with compacted topics: rebuild consumequeue has their queues end with the log's messages."""
    return [base for base in make_bases(tmp_path_factory.mktemp("bases")) if not base.name.startswith("compaction")]


@pytest.mark.parametrize("seed", range(some(24, 400)))
def test_of_random_damages(seed: int, bases: list[Base], tmp_path: Path) -> None:
    """Beside the log, and in every third case of the log too."""
    rng, store = Random(f"walk {seed}"), tmp_path / "store"
    base = rng.choice(bases)
    shutil.copytree(base.path, store)
    # not yet: salvage leaves gaps in light queues, whose messages it does not number anew
    verbs = ALL_VERBS if seed % 3 == 2 and not base.conf.flag("enableLmq", False) else VERBS
    done = [base.name]
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(sorted(verbs))
        done.append(f"{name}: {verbs[name](rng, store)}")
    if rng.random() < 0.5:
        (store / "abort").touch()
        done.append("abort")
    assert walk(store, tmp_path, base.conf) == [], done
