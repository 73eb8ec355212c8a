"""Suggestions for commands that people guess wrong."""

import re

import pytest

from rmqtool.cli.commands import WORDS, Group
from rmqtool.cli.framework import app
from rmqtool.cli.framework.usage import _MEANT
from tests.cli.running import process, rmqtool
from tests.cli.terminal import at_terminal, plain
from tests.conftest import Unpacked


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("lag", "group lag"), ("search", "grep"), ("repair", "recover"), ("find", "query-key"), ("restore", "undo"),
        ("ls", "topic list"), ("tail", "consume"), ("stats", "info"),
        ("LAG", "group lag"), ("recovr", "recover"), ("verify", "check"), ("restore", "backup restore"),
        ("tail", "commitlog dump STORE --follow"), ("topicList", "topic list TARGET"), ("querymsgbykey", "query-key"),
        ("consumerProgress", "group list"), ("resetOffsetByTime", "group reset"), ("reset-offset", "group reset"),
        ("monitor", "group lag STORE --watch 2s"), ("clone", "backup create"),
        ("kafka-topics.sh", "topic list"), ("kafka-consumer-groups", "group list"),
        ("kafka-console-consumer", "consume"), ("kafka-console-producer", "send"),
        ("DumpLogSegments", "commitlog dump"),
        ("mqbroker", "serve"), ("mqadmin", "doctor"), ("resetOffset", "group reset"), ("head", "commitlog dump"),
        ("pull", "consume"), ("diagnose", "check"), ("compact", "clean"), ("examples", "manual"), ("load", "append"),
    ],
)  # fmt: skip
def test_a_word_leads_to_a_command(word: str, command: str) -> None:
    output = rmqtool(word, "store")
    assert (output.code, output.out) == (2, "")
    assert re.search(rf"no such command '{word}' \(did you mean (.*(, | or ))?rmqtool {command}\b", output.err), (
        output.err
    )


@pytest.mark.parametrize("word", ["find", "repair", "tail"])
def test_commands_of_a_suggestion_are_not_broken(word: str) -> None:
    _code, shown = at_terminal(word, "store", columns=60)
    whole = rmqtool(word, "store").err
    commands = re.findall(r"rmqtool [^,()?]+?(?=,|\?| or |$)", whole.strip())
    assert len(commands) > 2
    assert not [command for command in commands if command not in plain(shown)]


def test_a_store_behind_a_group_of_commands(golden: Unpacked) -> None:
    store = golden("clean")
    for group, entry in WORDS.items():
        if not isinstance(entry, Group) or entry.default is not None:
            continue
        first = next(iter(entry.commands))
        assert f"(did you mean rmqtool {group} {first} {store}?)" in rmqtool(group, store).err
    assert "(did you mean rmqtool topic list or rmqtool topic latest?)" in rmqtool("topic", "lst", store).err


def test_dump_without_a_table_leads_to_the_other_dumps(golden: Unpacked) -> None:
    output = rmqtool("dump", golden("broker"))
    assert output.code == 2
    assert (
        "missing argument TABLE (did you mean rmqtool commitlog dump STORE or rmqtool dump-to-parquet STORE OUT?)"
        in output.err
    )


def test_help_is_a_word_too() -> None:
    assert process("help").out == process("--help").out
    assert rmqtool("help", "group", "lag") == rmqtool("group", "lag", "--help")


def test_every_command_that_is_named_is_one() -> None:
    app.load()
    every = process("--help").out
    for _words, commands in _MEANT:
        for command in commands:
            words = [word for word in command.split(" -")[0].split() if word.islower()][:2]
            known = rmqtool(*words, "--help") if not command.startswith("--") else None
            assert known is None or (known.code == 0 and words[0] in every), command


def test_topics_that_are_not_there(golden: Unpacked) -> None:
    store = golden("broker")
    for arguments in (
        ("query-key", store, "orders", "order-1"), ("query-offset", store, "orders", "0", "0"),
        ("query-time", store, "orders", "0", "0"), ("topic", "show", store, "orders"),
        ("topic", "latest", store, "orders"),
    ):  # fmt: skip
        output = rmqtool(*arguments)
        assert (output.code, "the store has no topic orders (did you mean Orders?)" in output.err) == (1, True), output
    assert rmqtool("query-key", store, "Invoices", "x").err == "the store has no topic Invoices\n"
    assert "no message of topic Orders with key x" in rmqtool("query-key", store, "Orders", "x").err


SAME = (
    (("group", "lag", "STORE", "-g", "lab-orderly"), ("group", "lag", "STORE", "lab-orderly")),
    (
        ("group", "offsets", "STORE", "--group", "lab-consumer", "--topic", "Orders"),
        ("group", "offsets", "STORE", "lab-consumer", "Orders"),
    ),
    (("dlq", "list", "STORE", "--group", "lab-consumer"), ("dlq", "list", "STORE", "lab-consumer")),
    (("commitlog", "dump", "STORE", "--topic", "Payments"), ("commitlog", "dump", "STORE", "Payments")),
    (("topic", "list", "STORE", "--topic", "Pay*"), ("topic", "list", "STORE", "Pay*")),
    (("query-key", "STORE", "Orders", "order-10"), ("query-key", "STORE", "--topic", "Orders", "order-10")),
    (("query-key", "STORE", "Orders", "order-10"), ("query-key", "--topic=Orders", "STORE", "order-10")),
    (("query-offset", "STORE", "Orders", "0", "1"), ("query-offset", "STORE", "0", "1", "-t", "Orders")),
    (("topic", "show", "STORE", "Orders"), ("topic", "show", "--topic", "Orders", "STORE")),
    (
        ("group", "reset", "STORE", "lab-consumer", "--to-earliest", "--dry-run"),
        ("group", "reset", "STORE", "--group", "lab-consumer", "--to-earliest", "--dry-run"),
    ),
    (
        ("group", "clone", "STORE", "lab-consumer", "new", "--dry-run"),
        ("group", "clone", "--group", "lab-consumer", "STORE", "new", "--dry-run"),
    ),
    (
        ("dlq", "requeue", "STORE", "lab-consumer", "--dry-run"),
        ("dlq", "requeue", "STORE", "--dry-run", "--group", "lab-consumer"),
    ),
    (
        ("rebalance", "plan", "STORE", "Orders", "--consumer", "a"),
        ("rebalance", "plan", "STORE", "--consumer", "a", "--topic", "Orders"),
    ),
)


@pytest.mark.parametrize(("by_words", "other"), SAME, ids=lambda args: " ".join(args))
def test_group_and_topic_are_words_or_options(
    by_words: tuple[str, ...], other: tuple[str, ...], golden: Unpacked
) -> None:
    store = golden("broker")
    results = [rmqtool(*(store if word == "STORE" else word for word in args)) for args in (by_words, other)]
    assert results[0] == results[1]
    assert results[0].code in (0, 1)
    assert results[0].out


def test_a_topic_is_given_once(golden: Unpacked) -> None:
    output = rmqtool("topic", "show", golden("broker"), "Orders", "--topic", "Payments")
    assert (output.code, output.out) == (2, "")
