"""A field has the same type in the JSON and NDJSON of all commands."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.amounts import by_turns
from tests.cli.running import ROOT, rmqtool
from tests.conftest import Unpacked

COMMANDS = (
    "info STORE", "check STORE", "trace STORE ID", "why STORE ID", "topic list STORE", "topic show STORE TOPIC",
    "topic unused STORE", "topic latest STORE Profiles", "query-key STORE TOPIC KEY", "query-id STORE ID",
    "query-offset STORE TOPIC 0 0", "query-time STORE TOPIC 0 1795392041325", "commitlog dump STORE --limit 60",
    "grep STORE order --limit 20", "consumequeue dump STORE TOPIC", "index dump STORE", "checkpoint STORE",
    "offsets STORE", "diff STORE OTHER", "du STORE", "retention STORE", "recover STORE --dry-run",
    "clean STORE --dry-run", "group list STORE", "group lag STORE", "group lag STORE --by topic",
    "group inflight STORE", "group offsets STORE", "dlq list STORE", "dlq export STORE", "retry list STORE",
    "delay list STORE", "delay due STORE --at 2030-01-01", "transaction list STORE", "tier list STORE",
    "rebalance plan STORE TOPIC --consumer a", "report lag STORE", "report traffic STORE", "report sizes STORE",
    "report producers STORE", "report duplicates STORE", "report unconsumed STORE", "replicas STORE OTHER",
    "undo STORE --dry-run", "rebuild STORE config --dry-run",
)  # fmt: skip
_KINDS = {"int": "number", "float": "number", "NoneType": ""}


def note_types(value: Any, command: str, seen: dict[str, dict[str, set[str]]]) -> None:
    """Add the types of all fields below a value; null is of any type."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "properties":
                continue  # names of an application
            kind = _KINDS.get(type(inner).__name__, type(inner).__name__)
            if kind:
                seen[name][kind].add(command)
            note_types(inner, command, seen)
    elif isinstance(value, list):
        for inner in value:
            note_types(inner, command, seen)


def excepted() -> set[str]:
    """The names of which the manual says that they may be a number or a list."""
    text = " ".join((ROOT / "rmqtool/manual/machine-output.md").read_text(encoding="utf-8").split())
    sentence = re.search(r"Fields of reports need not: [^.]*", text)
    assert sentence is not None
    return set(re.findall(r"`(\w+)`", sentence[0]))


@by_turns(2)
@pytest.mark.parametrize("case", ["broker", "broker-5.3.3"])
def test_a_name_has_one_type(case: str, golden: Unpacked, tmp_path: Path) -> None:
    store, seen = golden(case), defaultdict[str, dict[str, set[str]]](lambda: defaultdict(set))
    first = json.loads(rmqtool("commitlog", "dump", store, "--topic", "Orders", "--limit", "1", "-o", "ndjson").out)
    words = {
        "STORE": store, "OTHER": golden("clean"), "TOPIC": "Orders", "ID": first["msgId"], "KEY": first["keys"][0],
    }  # fmt: skip
    for command in COMMANDS:
        for form in ("json", "ndjson"):
            result = rmqtool(*(words.get(word, word) for word in command.split()), "-o", form)
            assert result.code in (0, 1), (command, result.err)
            lines = result.out.splitlines() if form == "ndjson" else [result.out] * bool(result.out)
            for line in lines:
                note_types(json.loads(line), f"{command} -o {form}", seen)
    several = {name: dict(kinds) for name, kinds in seen.items() if len(kinds) > 1}
    assert not several.keys() - excepted(), several
