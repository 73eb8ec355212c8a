"""Whoever does what is advised, in its order, arrives: no command sends to another that refuses."""

from pathlib import Path

import pytest

from rmqtool.store.check import check_store
from rmqtool.store.check.advice.advice import Situation
from rmqtool.store.check.reading.reading import Reader
from rmqtool.store.check.run import is_problem
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from tests import goldens
from tests.amounts import every
from tests.cli.running import rmqtool
from tests.conftest import Unpacked
from tests.store.advised import ASKING, commands_of, conf_file
from tests.store.helpers import conf_of
from tests.whole import words

MOST = 4  # commands


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
