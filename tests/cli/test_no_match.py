"""Selecting commands exit with 1 and one line on stderr if nothing matches."""

from typing import Any

import pytest

from rmqtool.cli.commands import COMMANDS
from tests.amounts import by_turns
from tests.cli.running import rmqtool
from tests.cli.test_help import commands
from tests.conftest import Unpacked

# what no store has; an option is asked of every command that takes it, but for those below
NOTHING: dict[str, str] = {
    "--topic": "no such topic*", "--queue": "4711", "--tag": "no such tag", "--key": "no such key",
    "--group": "no such group*", "--offset": "900000000:900000001", "--queue-offset": "900000:900001",
    "--since": "2100-01-01", "--until": "1971-01-01", "--level": "97",
}  # fmt: skip
# arguments behind the store
ARGUMENTS = {
    "diff": ["STORE"], "group diff": ["STORE"], "grep": [""], "query-key": ["Orders", "user-9"],
    "why": ["Orders", "user-9"],
}  # fmt: skip
# These choose what is written or changed, or where one message is looked for; Spark's have a test of their own
OTHERS = {
    "dump",
    "dump-to-parquet",
    "group reset",
    "group clone",
    "query-id",
    "redact",
    "run",
    "serve",
    "split",
    "commitlog hexdump",
    "topic latest",
}
LIVE = {name for name, command in COMMANDS.items() if command.module.startswith(("live.", "admin."))}


def selecting() -> list[tuple[str, str]]:
    """Every command and each of its selection options."""
    result = []
    for name, command in commands().items():
        if name not in OTHERS | LIVE and not name.startswith("report "):
            options = {option for parameter in command.params for option in parameter.opts}
            result += [(name, option) for option in NOTHING if option in options]
    return result


CASES = selecting()


def test_commands_that_select_are_found() -> None:
    assert {name for name, _option in CASES} >= {
        "commitlog dump", "consumequeue dump", "index dump", "offsets", "topic list", "group lag", "group inflight",
        "group offsets", "group diff", "retry list", "dlq list", "dlq export", "delay due", "transaction list",
        "query-key",
    }  # fmt: skip


def words_of(name: str, store: Any) -> list[Any]:
    return [*name.split(), store, *(store if word == "STORE" else word for word in ARGUMENTS.get(name, ()))]


@by_turns(2)
@pytest.mark.parametrize("form", ["table", "json", "ndjson", "csv"])
@pytest.mark.parametrize(("name", "option"), CASES)
def test_nothing_matches(name: str, option: str, form: str, golden: Unpacked) -> None:
    args = [*words_of(name, golden("broker")), "-o", form]
    result = rmqtool(*args, option, NOTHING[option])
    assert result.code == 1
    assert result.err.splitlines()[-1].startswith(("nothing matches", "no message of topic"))
    assert "error" not in result.err
    if form == "json":
        assert result.out == "[]\n"
    elif form == "ndjson":
        assert result.out == ""
    else:
        assert result.out.count("\n") == 1  # the header


@pytest.mark.parametrize("name", sorted({name for name, _option in CASES} - set(ARGUMENTS)))
def test_what_is_there_matches_all(name: str, golden: Unpacked) -> None:
    """A selection that matches everything changes nothing, including the exit code."""
    args = [*words_of(name, golden("broker")), "-o", "ndjson"]
    options = {option for case, option in CASES if case == name}
    args += ["--system"] if name == "topic list" else []
    wide = {"--topic": "*", "--group": "*", "--offset": "0:", "--queue-offset": "0:", "--since": "0"}
    whole = rmqtool(*args)
    some = rmqtool(*args, *(word for option, value in wide.items() if option in options for word in (option, value)))
    assert some.out == whole.out
    assert some.code == (whole.code if whole.out else 1)


def test_an_empty_list_that_nothing_was_asked_of_is_no_mismatch(golden: Unpacked) -> None:
    for name in ("transaction list", "retry list", "dlq list", "delay due"):
        result = rmqtool(*name.split(), golden("clean"), "-o", "ndjson")
        assert (result.code, result.out, result.err) == (0, "", "there is nothing to list\n")


def test_the_line_names_what_was_asked_for(golden: Unpacked) -> None:
    result = rmqtool("offsets", golden("broker"), "--group", "a", "--group", "b*", "--queue", 3)
    assert (result.code, result.err) == (1, "nothing matches --group a,b* --queue 3\n")


def test_a_name_with_brackets_matches_itself(golden: Unpacked) -> None:
    from rmqtool.cli.framework.choice import matches

    assert matches("a[1]", ["a[1]"])
    assert matches("a1", ["a[1]"])
    assert not matches(None, ["*"])
    assert matches(None, None)


def test_entries_of_queues_by_what_their_messages_have(golden: Unpacked) -> None:
    store = golden("broker")
    messages = rmqtool("commitlog", "dump", store, "--topic", "Orders", "--key", "user-9", "-o", "csv")
    entries = rmqtool("consumequeue", "dump", store, "--topic", "Orders", "--key", "user-9", "-o", "csv")
    assert (messages.code, entries.code) == (0, 0)
    offsets = [sorted(int(line.split(",")[3]) for line in r.out.splitlines()[1:]) for r in (messages, entries)]
    assert offsets[0] == offsets[1]
    assert offsets[0]
