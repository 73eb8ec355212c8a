"""Options are consistent: the same name has the same meaning, values, default and short form in every command."""

import re
from collections import defaultdict
from typing import Any

import pytest

from tests.cli.running import rmqtool
from tests.cli.test_help import ALL, commands, top_level
from tests.conftest import Unpacked

# Names that mean another thing by design, with the commands that go their own way, and what is different there
OWN_WAY = {
    ("--client", "lite dispatch"): "one client, by its whole id",
    ("--until", "run"): "when it ends",
    ("--accept-loss", "cluster clean"): "also at a terminal",
    ("--until", "serve"): "when it ends",
    ("--scan", "trace"): "looks further also where the index has an answer",
    ("--name", "backup restore"): "of one backup",
    ("--name", "backup verify"): "of backups",
    ("--rate", "backup create"): "of bytes, not of messages",
    ("--id", "redact"): "of any copy of a message",
    ("--limit", "why"): "messages with one key, which each take many lines",
    ("--broker", "config"): "of a live cluster",
    ("--broker", "compare"): "of a live cluster",
    ("--broker", "group diff"): "of a live cluster",
    ("--broker", "query-offset"): "of a live cluster",
    ("--broker", "query-time"): "of a live cluster",
    ("--broker", "group lag"): "in the file of a broadcasting client",
    ("--broker", "group offsets"): "in the file of a broadcasting client",
    ("--broker", "group reset"): "in the file of a broadcasting client",
    ("--broker", "group clone"): "in the file of a broadcasting client",
    ("--name", "serve"): "of the broker",
    ("--broker", "rebalance plan"): "many brokers, with their queues",
    ("--output", "dlq export"): "whole messages, which a table does not show: ndjson is the default",
    ("--by", "report duplicates"): "what is compared",
    ("--at", "retention"): "when a broker would start",
    ("--broker-conf", "replicas"): "one for each of several stores",
    ("--broker-conf", "salvage"): "one for each of several stores",
    ("--broker-conf", "serve"): "one for each of several stores",
    ("--to", "convert"): "a form of a store",
    ("--queues", "static-topic create"): "of all brokers together",
    ("--topic", "split"): "a pattern, and of a store that is made",
    ("--property", "send"): "what a message is to have",
    ("--by", "du"): "what is added up",
    ("--where", "dump-to-parquet"): "in the SQL of Spark",
    ("--where", "dump"): "in the SQL of Spark",
    ("--runner", "dump"): "local: what is new is little, and no file of a table must be large",
    ("--to", "dump"): "a kind of table",
    ("--by", "report traffic"): "the time that a row is for",
    ("--runner", "dump-to-parquet"): "spark, whatever the size",
    ("--runner", "sql"): "spark or another engine, which each have their own SQL",
    ("--listen", "serve"): "its default is in the broker's properties",
    ("--to", "dlq requeue"): "where dead letters go",
    ("--namesrv", "serve"): "need not be there",
    ("--engine", "send"): "a cluster has no store that says it",
    ("--group", "consume"): "the one that consumes",
    ("--group", "send"): "of the producer, one",
    ("--group", "replay"): "of the producer, one",
    ("--engine", "replay"): "a cluster has no store that says it",
    ("--batch", "replay"): "goes on in rounds of as many",
    ("--queue", "send"): "one, on one of many brokers",
    ("--key", "send"): "what a message is to have",
    ("--tag", "send"): "what a message is to have",
    ("--follow", "serve"): "a store that grows, not topics",
    ("--to", "sql"): "a file",
    ("--to", "salvage"): "a kind of file",
}
# the same in every way but the words: each command says what there is
OWN_WORDS = {"--all", "--state"}
WORD = re.compile(r"[A-Z]+|A:B|HOST:PORT")
# commands that select by what a message has, and those of these options that they take
SELECTION = {"--topic", "--queue", "--tag", "--key", "--offset", "--queue-offset", "--since", "--until", "--limit"}
SELECTING = {
    "commitlog dump": SELECTION,
    "consumequeue dump": SELECTION,
    "index dump": {"--offset", "--since", "--until", "--limit"},  # an entry has nothing else
    "delay due": {"--topic", "--queue", "--since", "--until", "--limit"},
    "retry list": {"--group", "--topic", "--since", "--until", "--limit"},
    "dlq list": {"--group", "--topic", "--since", "--until", "--limit"},
    "dlq export": {"--group", "--topic", "--since", "--until", "--limit"},
    "transaction list": {"--group", "--topic", "--since", "--until", "--limit"},
    "offsets": {"--group", "--topic", "--queue", "--limit"},
    "group lag": {"--group", "--topic", "--queue", "--limit"},
    "group inflight": {"--group", "--topic", "--queue", "--limit"},
    "group offsets": {"--group", "--topic", "--queue", "--limit"},
    "group diff": {"--group", "--topic", "--queue", "--limit"},
    "topic list": {"--topic", "--limit"},
    "topic latest": {"--key", "--limit"},  # of one topic
}


def options() -> dict[str, dict[str, Any]]:
    """Option name → commands with it, and their options."""
    result: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, command in commands().items():
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                result[spelling(parameter)][name] = parameter
    return result


def spelling(parameter: Any) -> str:
    """The long name of an option; an old one comes last."""
    return next(str(name) for name in parameter.opts if name.startswith("--"))


OPTIONS = options()


def nature(parameter: Any) -> tuple[Any, ...]:
    default = getattr(parameter.default, "value", parameter.default)
    return parameter.opts, parameter.metavar, default, parameter.multiple, parameter.is_flag


@pytest.mark.parametrize("option", OPTIONS)
def test_the_same_name_is_the_same_option(option: str) -> None:
    same = {name: parameter for name, parameter in OPTIONS[option].items() if (option, name) not in OWN_WAY}
    assert len({repr(nature(parameter)) for parameter in same.values()}) <= 1, same.keys()
    if option not in OWN_WORDS:
        assert len({parameter.help for parameter in same.values()}) <= 1, same.keys()


def test_who_goes_another_way_does() -> None:
    for option, name in OWN_WAY:
        others = [parameter for other, parameter in OPTIONS[option].items() if (option, other) not in OWN_WAY]
        own = OPTIONS[option][name]
        told = {(repr(nature(parameter)), parameter.help) for parameter in others}
        assert (repr(nature(own)), own.help) not in told


@pytest.mark.parametrize("option", OPTIONS)
def test_values_are_called_by_a_word(option: str) -> None:
    for name, parameter in OPTIONS[option].items():
        if not parameter.is_flag:
            assert parameter.metavar, (name, option)
            assert WORD.fullmatch(parameter.metavar), (name, option)


def test_what_is_asked_for_everywhere() -> None:
    assert set(OPTIONS["--engine"]) == {
        "append", "check", "import", "init", "mirror", "query-offset", "query-time", "recover", "replay", "send",
        "serve",
    }  # fmt: skip
    assert {parameter.default for parameter in OPTIONS["--engine"].values()} == {"auto"}
    assert {parameter.metavar for parameter in OPTIONS["--group"].values()} == {"GROUP"}
    assert {parameter.metavar for parameter in OPTIONS["--offset"].values()} == {"A:B"}
    sizes = [parameter for named in OPTIONS.values() for parameter in named.values() if parameter.metavar == "BYTES"]
    assert {spelling(parameter) for parameter in sizes} == {
        "--row-group-size", "--file-size", "--split-size", "--rate", "--most", "--size",
    }  # fmt: skip


@pytest.mark.parametrize("name", SELECTING)
def test_commands_that_select_have_the_options_that_fit(name: str) -> None:
    assert {option for option in OPTIONS if name in OPTIONS[option]} >= SELECTING[name]


def test_a_command_that_selects_has_a_limit() -> None:
    selecting = {name for option in SELECTION - {"--limit", "--until"} for name in OPTIONS[option]}
    others = {
        "query-key",
        "query-id",
        "group reset",
        "redact",
        "group clone",
        "commitlog hexdump",
        "dump",
        "dump-to-parquet",
        "send",
        "consume",
        "replay",
        "split",
    }
    assert selecting - others <= OPTIONS["--limit"].keys()


def test_old_spellings_go_on_working() -> None:
    dump = {name: p for p in commands()["dump-to-parquet"].params for name in p.opts}
    assert dump["--engine"] is dump["--runner"]
    assert dump["--split-mb"].hidden
    for word in ("4", "4.9", "4.9.8", "5", "5.3", "5.3.3", "auto"):
        from rmqtool.cli.framework.opening import chosen_release
        from rmqtool.rules.releases import RELEASES

        assert chosen_release(word) in (None, *RELEASES.values())


@pytest.mark.parametrize("name", [*ALL, *(name for name, c in top_level().items() if hasattr(c, "commands"))])
def test_help_fits_eighty_columns(name: str) -> None:
    lines = rmqtool(*name.split(), "--help").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "[[" not in lines[0]
    assert not [line for line in lines if re.search(r"<[a-z]|\.\.\.\.|[a-z]\.\.\.$", line)]


def test_times_by_the_rules_of_the_store(golden: Unpacked) -> None:
    args = ["query-time", golden("broker"), "Orders", 3, "1795206885s", "-o", "csv"]
    assert rmqtool(*args) == rmqtool(*args, "--engine", "4.9") != rmqtool(*args, "--engine", "5.3")


def test_an_id_in_some_topics(golden: Unpacked) -> None:
    args = ["query-id", golden("broker"), "FD0000000000000000000000000000020FB630946E09664347930066", "-o", "csv"]
    whole = rmqtool(*args)
    topics = {line.split(",")[0] for line in whole.out.splitlines()[1:]}
    assert topics
    for topic in topics:
        some = rmqtool(*args, "-t", topic[:-1] + "?")
        assert [line.split(",")[0] for line in some.out.splitlines()[1:]]
        assert {line.split(",")[0] for line in some.out.splitlines()[1:]} <= topics
    assert rmqtool(*args, "-t", "nowhere").code == 1
