"""Errors of Click and Pydantic, worded like all others, with what was probably meant."""

import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pkgutil import get_data
from shlex import split
from typing import Any

from rmqtool.cli.commands import INSTEAD
from rmqtool.errors import BadValue
from rmqtool.words import command_line

_NO_COMMAND = re.compile(r"No such command '(.*?)'(?:\.| \(|$)", re.DOTALL)
_ABOUT_VALUES = (
    (r"Input should be a valid integer.*", "not a whole number"),
    (r"Input should be a valid number.*", "not a number"),
    (r"Input should be greater than or equal to (\S+)", r"give a number of at least \1"),
    (r"Input should be less than or equal to (\S+)", r"give a number of at most \1"),
    (r"Input should be greater than (\S+)", r"give a number above \1"),
    (r"Input should be less than (\S+)", r"give a number below \1"),
)
_REST = (
    (r"^Got unexpected extra argument(?:s|\(s\))? \((.*)\)$", r"too many arguments: \1"),
    (r"^Option '(.*)' requires an argument$", r"\1: give a value"),
    (r"^Missing (argument|option) '(.*)'$", r"missing \1 \2"),
    (r"^No such", "no such"),
)
# words: command lines that do what these words suggest
_MEANT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("lag backlog progress", ("group lag STORE",)),
    ("search", ("grep STORE PATTERN", "query-key STORE TOPIC KEY")),
    (
        "find get lookup message messages msg key",
        ("query-key STORE TOPIC KEY", "query-id STORE ID", "grep STORE PATTERN"),
    ),
    ("id", ("query-id STORE ID",)),
    ("repair fix heal", ("check STORE", "recover STORE", "salvage STORE NEWSTORE")),
    ("restore revert rollback", ("undo STORE", "backup restore BACKUP NEWSTORE")),
    ("copy rescue", ("backup create STORE BACKUP", "salvage STORE NEWSTORE")),
    ("snapshot upload download", ("backup create STORE BACKUP",)),
    ("ls list topics", ("topic list STORE", "info STORE")),
    ("cat view print show read", ("commitlog dump STORE", "dump-to-parquet STORE OUT")),
    ("tail follow", ("commitlog dump STORE --follow", "consume TOPIC --follow")),
    ("head first", ("commitlog dump STORE --limit 10", "consume TOPIC --limit 10")),
    ("last latest", ("topic latest STORE TOPIC", "commitlog dump STORE --follow")),
    ("df size sizes count disk space", ("du STORE", "topic list STORE", "info STORE")),
    (
        "stats stat status describe desc summary inspect overview",
        ("info STORE", "topic list STORE", "report traffic STORE"),
    ),
    ("groups consumers consumer subscriptions", ("group list STORE", "group lag STORE")),
    ("offset consumerOffset", ("group offsets STORE", "offsets STORE")),
    ("reset seek", ("group reset STORE GROUP --to-time TIME",)),
    ("verify validate fsck scan test audit damage corrupt corruption", ("check STORE",)),
    ("diagnose health ping", ("check STORE", "doctor TARGET")),
    ("purge expire gc delete rm", ("clean STORE --dry-run",)),
    ("requeue resend", ("dlq requeue STORE GROUP",)),
    ("dead deadletter deadletters dead-letters", ("dlq list STORE",)),
    ("retries", ("retry list STORE",)),
    ("produce publish pub put producer console-producer", ("send TOPIC", "append STORE FILE")),
    ("receive pull pop subscribe sub poll console-consumer", ("consume TOPIC", "commitlog dump STORE")),
    ("dump-log DumpLogSegments decode", ("commitlog dump STORE", "consumequeue dump STORE")),
    ("consumer-groups", ("group list STORE", "group lag STORE")),
    ("load ingest", ("append STORE FILE", "import NEWSTORE FILE")),
    ("compact compaction vacuum shrink", ("clean STORE --dry-run", "salvage STORE NEWSTORE")),
    ("parquet spark hive", ("dump-to-parquet STORE OUT",)),
    ("delta iceberg lakehouse", ("dump STORE TABLE --to delta", "dump STORE TABLE --to iceberg")),
    ("query", ("query-key STORE TOPIC KEY", "sql STORE 'select ...'")),
    ("hexdump hex", ("commitlog hexdump STORE --offset A:B",)),
    ("reindex", ("rebuild STORE index",)),
    ("create new make", ("init STORE",)),
    ("broker mqbroker", ("serve STORE",)),
    ("mqnamesrv", ("namesrv",)),
    ("mqadmin", ("doctor TARGET", "manual mqadmin")),
    ("mqshutdown stop shutdown", ("info STORE",)),
    ("nameserver namesrv-start", ("namesrv",)),
    ("man docs doc tutorial examples guide usage", ("manual", "manual emergencies")),
    ("version", ("--version",)),
    ("history timeline", ("trace STORE ID",)),
    ("settings conf", ("config STORE", "broker-config show TARGET")),
    ("csv json", ("commitlog dump STORE --output csv",)),
    ("mask anonymize anonymise wipe", ("redact STORE",)),
    ("upgrade downgrade", ("check STORE --broker-conf FILE", "convert STORE NEWSTORE")),
    ("cut trim", ("truncate STORE",)),
    ("timer delays schedule", ("delay list STORE",)),
    ("transactions half", ("transaction list STORE",)),
    ("log logs commit-log", ("commitlog dump STORE",)),
    ("queue queues", ("consumequeue dump STORE", "topic show STORE TOPIC")),
    (
        "skip skip-accumulated reset-offset reset-offsets resetOffset resetOffsets set-offset",
        ("group reset STORE GROUP --to-time TIME",),
    ),
    ("monitor watch metrics prometheus top", ("group lag STORE --watch 2s", "doctor")),
    ("start open run-broker up", ("serve STORE",)),
    ("web ui html gui shell", ("browse STORE", "report html STORE OUT")),
    ("peek", ("query-offset STORE TOPIC QUEUE OFFSET", "consume TOPIC")),
    ("sync clone replicate", ("backup create STORE BACKUP", "mirror TOPIC... STORE", "replay STORE")),
    ("convert migrate", ("export STORE NEWSTORE", "salvage STORE NEWSTORE")),
    ("select schema tables", ("sql STORE 'select ...'",)),
)


def tell(error: Any, word: str | None) -> int:
    """Raise the error as one line.

    Args:
        word: the command, if it exists.

    Returns:
        The exit code after showing help, if the line is only the name of a group.

    Raises:
        BadValue: in any other case.
    """
    text = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(text.rstrip("\n") + "\n")
        return int(error.exit_code)
    if (unknown := _NO_COMMAND.match(text)) is not None:
        text = _no_command(unknown[1], error.ctx)
    text = " ".join(text.split()).replace("Value error, ", "").removesuffix(".")
    text = re.sub(r"\. Did you mean (.*)\?$|\(Possible options?: (.*)\)$", _did_you_mean, text)
    text = re.sub(r"^Invalid value for (.*?): (.*)$", _about_value, text)
    for pattern, wording in _REST:
        text = re.sub(pattern, wording, text)
    if word in INSTEAD and text.startswith("missing argument"):
        text += f" (did you mean {_either(INSTEAD[word])}?)"
    path = f"rmqtool {word}" if word is not None else "rmqtool"
    if getattr(error, "ctx", None) is not None:
        path = error.ctx.command_path
    raise BadValue(f"{text}; see {command_line(*path.split()[1:], '--help')}")


def _no_command(word: str, ctx: Any) -> str:
    known = ctx.command.list_commands(ctx)
    group = "" if ctx.parent is None else ctx.info_name
    meant = meant_in(group, word, known) if group else meant_by(word, known)
    return f"no such command {word!r}" + (f" (did you mean {meant}?)" if meant else "")


def _did_you_mean(match: re.Match[str]) -> str:
    return f" (did you mean {match[1]}?)" if match[1] else f"(did you mean {match[2]}?)"


def _about_value(match: re.Match[str]) -> str:
    name, why = match[1].replace("'", "").strip("[]"), match[2]
    if known := re.fullmatch(r"('.*') is not one of (.*)", why):
        return f"{name}: {known[1]} is not one of {known[2].replace(chr(39), '')}"
    for pattern, text in _ABOUT_VALUES:
        why = re.sub(pattern, text, why)
    return f"{name}: {why}"


def meant_by(word: str, known: Sequence[str]) -> str:
    """Commands that a person who typed an unknown word probably wanted; may be empty.

    Args:
        known: the existing commands.
    """
    guess = word.lower().removeprefix("kafka-").removesuffix(".sh")
    for words, commands in _MEANT:
        if guess in words.lower().split():
            return _either(commands)
    if commands := _counterparts(word):
        return _either(commands)
    return _either(get_close_matches(word.lower(), known, 3))


def _counterparts(word: str) -> tuple[str, ...]:
    """The counterparts of a command of mqadmin, by the page ``mqadmin`` of the manual."""
    page = (get_data("rmqtool", "manual/mqadmin.md") or b"").decode()
    row = re.search(rf"^\| `{re.escape(word)}` \|([^|]*)\|", page, re.MULTILINE | re.IGNORECASE)
    return tuple(re.findall(r"`rmqtool ([^`]+)`", row[1])) if row is not None else ()


def meant_in(group: str, word: str, known: Sequence[str]) -> str:
    """As :func:`meant_by`, for a word after a group (``rmqtool topic STORE``): a path is for its first."""
    near = get_close_matches(word.lower(), known, 3)
    if near:
        return _either([f"{group} {command}" for command in near])
    return command_line(group, known[0], word if _is_path(word) else "STORE")


def _either(commands: Sequence[str]) -> str:
    """Command lines as choices: ``A, B or C``."""
    lines = [command_line(*split(command)) for command in commands]
    return " or ".join([", ".join(lines[:-1]), lines[-1]]) if len(lines) > 1 else "".join(lines)


def _is_path(word: str) -> bool:
    return "/" in word or os.path.isdir(word)
