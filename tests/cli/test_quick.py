"""The fast path of single look-ups answers exactly like the full command line, or leaves the call to it."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import typer.main
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqtool.cli.framework import app
from rmqtool.cli.startup import quick
from tests import goldens
from tests.cli.running import Result, rmqtool
from tests.conftest import Unpacked

Call = Callable[[list[str]], tuple[Result, Result]]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command line with and without the fast path."""

    def run(args: list[str]) -> tuple[Result, Result]:
        short = rmqtool(*args)
        with monkeypatch.context() as patched:
            patched.setattr(quick, "parse", lambda *_args: None)
            return short, rmqtool(*args)

    return run


def parameters(command: str) -> dict[str, Any]:
    """Option name → option of a command, from Typer."""
    app.load()
    group = typer.main.get_command(app.app)
    return {name: option for option in group.commands[command].params for name in option.opts}  # type: ignore[attr-defined]


def vectors() -> list[list[str]]:
    """Calls of every kind, with ``STORE`` for a store, and ``KEY`` and ``ID`` for a key and an id in it."""
    plain = [
        ["query-key", "STORE", "Orders", "KEY"],
        ["query-key", "STORE", "Orders", "no such key"],
        ["query-key", "STORE", "no such topic", "KEY"],
        ["query-id", "STORE", "ID"],
        ["query-id", "STORE", "no such id"],
        ["query-key", "/no/such/store", "Orders", "KEY"],
        ["query-id", "/no/such/store", "ID"],
    ]
    options = [
        [], ["-o", "ndjson"], ["--output", "csv"], ["--output=json"], ["-ojson"], ["-o=json"], ["-o", "xml"], ["-o"],
        ["--output="], ["--output", ""], ["--outp", "json"], ["--body", "hex"], ["--body=none"], ["--body", "gbk"],
        ["--limit", "1"], ["--limit", "0"], ["--limit", "-1"], ["--limit", "x"], ["--limit", "+1"], ["--limit", "1_0"],
        ["--limit", "٣"], ["--limit", " 1"], ["--limit", "1.0"], ["--limit", "9" * 30], ["--limit=2"], ["--scan"],
        ["--scan=yes"], ["--scan", "--scan"], ["--no-scan"], ["-o", "csv", "-o", "json"], ["--", "-o"], ["--help"],
        ["-h"], ["--broker-conf", "/no/such/file"], ["--broker-conf", ""], ["--broker-conf=x=y"], ["-"], ["-x"],
        ["--since", "now"], ["--since", "2020-01-01", "-o", "csv"], ["--until", "nonsense"], ["--topic", "Orders"],
        ["extra"], ["--limit", "1", "--scan", "--body", "base64", "-o", "ndjson"],
    ]  # fmt: skip
    calls = [args + more for args, more in itertools.product(plain, options)]
    first = [[args[0], *more, *args[1:]] for args, more in itertools.product(plain[:4:3], options)]
    short = [args[:count] for args in plain[:4:3] for count in range(1, len(args))]
    odd = [
        ["query-key", "STORE", "", "KEY"],
        ["query-key", "STORE", "Orders", ""],
        ["query-key", "", "Orders", "KEY"],
        ["query-key", "STORE", "Orders", "--", "-1"],
        ["query-key", "STORE", "Orders", "-1"],
        ["query-id", "STORE", "-1"],
        ["query-key", "STORE", "\udcff", "\udcff"],
        ["query-id", "STORE", "\udcff", "--scan"],
        ["query-key", "STORE", "a/../b", "KEY"],
    ]
    return calls + first + short + odd


def test_the_same_answers(both: Call, golden: Unpacked) -> None:
    query = next(q for q in goldens.queries("broker") if q["topic"] == "Orders" and q["physicalOffsets"])
    message = next(m["message"] for m in goldens.messages("broker") if m["cqTopic"] == "Orders")
    names = {"STORE": str(golden("broker")), "KEY": query["key"], "ID": message["properties"]["UNIQ_KEY"]}
    taken = 0
    for args in vectors():
        args = [names.get(word, word) for word in args]
        taken += quick.parse(args) is not None
        short, full = both(args)
        assert short == full, args
    assert taken > 100


@pytest.mark.parametrize("case", ["clean", "ipv6"])
def test_the_same_messages(case: str, both: Call, golden: Unpacked) -> None:
    for query in list(goldens.queries(case))[::4]:
        args = ["query-key", str(golden(case)), query["topic"], query["key"], "-o", "ndjson"]
        assert quick.parse(args) is not None
        short, full = both(args)
        assert short == full


def test_its_options_are_the_command_line_s_own() -> None:
    for command, (count, names) in quick.COMMANDS.items():
        known = parameters(command)
        assert names <= set(known)
        arguments = [
            p for p in {id(p): p for p in known.values()}.values() if p.param_type_name == "argument" and p.required
        ]
        assert len(arguments) == count
        for name in names:
            target, kind = quick._OPTIONS[name]
            option = known[name]
            assert option.name == target
            assert option.is_flag is (kind is None)


WORDS = st.sampled_from(
    ["query-key", "query-id", "STORE", "T", "k", "-o", "json", "--output=csv", "--scan", "--limit", "1", "0", "-1",
     "--", "--body", "hex", "--body=", "-oj", "--help", "", "-", "--broker-conf", "\x00", "=", "--limit=1"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=9), st.sampled_from(["query-key", "query-id"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_words_at_all(both: Call, golden: Unpacked, words: list[str], command: str) -> None:
    short, full = both([command, *(str(golden("ipv6")) if word == "STORE" else word for word in words)])
    assert short == full


@pytest.mark.parametrize("args", [[], ["--help"], ["info", "x"], ["query-key"], ["query-time", "s", "t", "0", "0"]])
def test_other_calls_are_left_alone(args: list[str]) -> None:
    assert quick.parse(args) is None
