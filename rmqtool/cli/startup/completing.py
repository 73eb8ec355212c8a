"""Completion without loading the commands: their names, and topics, groups, queues, codes and files of a store.

Shells ask through environment variables, with the scripts that ``--install-completion`` installs (scripts and variables
are Typer's). They complete file names themselves.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqtool.cli.commands import WORDS, Entry, Group, options_of, words_of
from rmqtool.cli.defaults import OPTIONS

if TYPE_CHECKING:
    from rmqtool.store.layout.paths import StoreLayout

# Patterns that find names in the broker's files; the codecs would take too long to load
_SAID: dict[str, tuple[tuple[str, bytes], ...]] = {
    "topic": (("topics.json", rb'"topicName"\s*:\s*"([^"\\]+)"'),),
    "group": (
        ("subscriptionGroup.json", rb'"groupName"\s*:\s*"([^"\\]+)"'),
        ("consumerOffset.json", rb'"[^"@]*@([^"@\\]+)"\s*:\s*\{'),
    ),
}
_LIVE = ("rocketmq://", "@")  # what the words that name live clusters begin with
_KINDS = ("topic", "group", "queue", "code", "config-file", "broker")
_ROOT = ("--help", "-h", "--version", "--no-pager")
VALUES = {"--topic": "topic", "-t": "topic", "--group": "group", "-g": "group", "--queue": "queue", "-q": "queue"}
VALUES |= {"--clients-of": "group", "--broker": "broker", "--client": "client"}
# options with the same choices in all commands; others are in the generated table
CHOICES = {"--output": OPTIONS["output"], "-o": OPTIONS["output"], "--body": OPTIONS["body"]}
CHOICES |= {"--progress": OPTIONS["progress"]}
# shells evaluate the answers or insert them unquoted, and names in a store may be anything
_HARMLESS = re.compile(r"[A-Za-z0-9_%@.:+-][A-Za-z0-9_%@.:+#-]*")


def complete() -> bool:
    """Answer a shell's request for completion; False if it cannot be answered here."""
    shell = os.environ.get("_RMQTOOL_COMPLETE", "").removeprefix("complete_")
    asked = _read_words(shell)
    if asked is None:
        return False
    words, begun, before = asked
    fitting = candidates(words, begun)
    chosen = sorted({word for word in fitting if word.startswith(begun) and _HARMLESS.fullmatch(word)})
    chosen = [word.removeprefix(before) for word in chosen]
    if shell == "zsh":
        quoted = " ".join(word.replace(":", "\\:") for word in chosen)
        sys.stdout.write(f"_arguments '*: :(({quoted}))'\n" if chosen else "_files\n")
    elif shell == "fish" and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        sys.exit(0 if chosen else 1)  # tells fish to offer no files
    else:
        sys.stdout.writelines(word + "\n" for word in chosen)
    return True


def _read_words(shell: str) -> tuple[list[str], str, str] | None:
    """(complete words after the program's name, word being completed, part of it that the shell keeps apart)."""
    if shell == "bash":
        words, at = _split(os.environ.get("COMP_WORDS", "")), os.environ.get("COMP_CWORD", "")
        if not at.isdecimal():
            return None
        before, begun = words[1 : int(at)], words[int(at)] if int(at) < len(words) else ""
        if before[-1:] == ["@"]:
            return _rejoin(before[:-1]), f"@{begun}", "@"
        return _rejoin(before), begun, ""
    if shell in ("zsh", "fish"):
        line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
        words = _split(line)[1:]
        return (words, "", "") if not words or line.endswith(" ") else (words[:-1], words[-1], "")
    return None


def _rejoin(words: list[str]) -> list[str]:
    """Put targets together again: bash takes ``@`` and colons for words of their own."""
    joined: list[str] = []
    for word in words:
        last = joined[-1] if joined else ""
        begins = last == "rocketmq" and word == ":"
        goes_on = last.startswith("rocketmq:") and (word == ":" or last.endswith(":"))
        if begins or goes_on or last == "@":
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _split(line: str) -> list[str]:
    for end in ("", "'", '"'):  # an unclosed quote
        try:
            return shlex.split(line + end)
        except ValueError:
            continue
    return line.split()


def candidates(words: list[str], begun: str) -> Iterable[str]:
    """Candidates for the next word; none where a file name or free text is expected.

    Args:
        words: the words before.
        begun: the beginning of the word.
    """
    if not words:
        return ("--help", "--version") if begun.startswith("-") else WORDS
    entry = WORDS.get(words[0])
    if isinstance(entry, Group):
        if len(words) == 1:
            return entry.commands
        entry, rest = entry.commands.get(words[1]), words[2:]
    else:
        rest = words[1:]
    arguments, option = _arguments(rest)
    name = "" if entry is None else entry.name
    if begun.startswith("-") and option is None:
        return [word.removesuffix("=") for word in options_of(name)]
    if option is not None:
        if option in CHOICES:
            return CHOICES[option]
        if option in VALUES and arguments:
            return _of_store(VALUES[option], arguments, _group_in(entry, arguments))
        return words_of(f"{name} {option}")
    kinds = [] if entry is None else entry.arguments
    if kinds and len(arguments) >= len(kinds) and kinds[-1].endswith("..."):
        kind = kinds[-1]
    else:
        kind = kinds[len(arguments)] if len(arguments) < len(kinds) else ""
    if kind in ("page", "part", "part..."):
        return words_of(f"{name} {kind}")
    if not arguments and begun.startswith("@") and entry is not None and (entry.live or entry.client):
        return _profiles()
    return _of_store(kind, arguments) if kind in _KINDS else ()


def _group_in(command: Entry | None, arguments: list[str]) -> str | None:
    """The group among the arguments of a command; None if there is none yet."""
    kinds = [] if command is None else command.arguments
    at = kinds.index("group") if "group" in kinds else len(arguments)
    return arguments[at] if at < len(arguments) else None


def _flags() -> set[str]:
    """Options without a value, of any command."""
    from rmqtool.cli.option_names import TEXT

    return {*_ROOT, *(word for word in TEXT.split() if word[0] == "-" and word[-1] != "=")}


def _arguments(words: list[str]) -> tuple[list[str], str | None]:
    """(arguments so far, the option whose value is expected)."""
    arguments: list[str] = []
    option, flags = None, _flags()
    for word in words:
        if option is not None:
            option = None
        elif not word.startswith("-") or word == "-":
            arguments.append(word)
        elif word not in flags and "=" not in word:
            option = word
    return arguments, option


def _of_store(kind: str, arguments: list[str], group: str | None = None) -> Iterable[str]:
    """Names of a kind; none if the store cannot be read.

    Args:
        group: whose clients count.
    """
    from rmqtool.errors import RmqError

    try:
        if kind == "code":
            from rmqtool.cli.option_names import CODES

            return CODES.split()
        return _names(kind, arguments, group)
    except (OSError, RmqError):
        return ()


def _names(kind: str, arguments: list[str], group: str | None) -> Iterable[str]:
    if arguments[0].startswith(_LIVE) and not os.path.lexists(arguments[0]):
        return _in_cluster(kind, arguments[0], group)
    if kind in ("broker", "client"):
        return ()
    from rmqtool.store.layout.paths import StoreLayout

    layout = StoreLayout(os.path.expanduser(arguments[0]))
    if kind == "config-file":
        return [entry.name for entry in layout.entries("config")]
    if kind == "queue":
        return [
            str(queue) for topic, queue, _path in layout.queue_dirs() if len(arguments) < 2 or topic == arguments[1]
        ]
    known = _in_databases(kind, layout) if _has_databases(layout) else _in_files(kind, layout)
    return {*known, *(entry.name for entry in layout.entries("consumequeue"))} if kind == "topic" else known


def _in_cluster(kind: str, text: str, group: str | None) -> Iterable[str]:
    """Topics, groups, brokers, and clients of a group, of a live cluster that answers in time."""
    if kind not in ("topic", "group", "broker", "client"):
        return ()
    from rmqtool.admin.live.names import names_of
    from rmqtool.admin.target import parse_target
    from rmqtool.cli.defaults import read_profiles

    return names_of(parse_target(text, read_profiles() if text.startswith("@") else None), kind, group)


def _profiles() -> Iterable[str]:
    """Targets that the config file names."""
    from rmqtool.cli.defaults import read_profiles
    from rmqtool.errors import RmqError

    try:
        return [f"@{name}" for name in read_profiles()]
    except (OSError, RmqError):
        return ()


def _has_databases(layout: "StoreLayout") -> bool:
    return any(
        os.path.isdir(layout.path("config", name))
        for name in ("topics", "subscriptionGroups", "consumerOffsets", "rdb")
    )


def _in_files(kind: str, layout: "StoreLayout") -> set[str]:
    from rmqtool.store.disk.directories import read_small

    names: set[str] = set()
    for file, pattern in _SAID[kind]:
        for end in ("", ".bak"):
            matches = re.findall(pattern, read_small(layout.path("config", file + end)) or b"")
            if matches:
                names |= {name.decode("utf-8", "replace") for name in matches}
                break
    return names


def _in_databases(kind: str, layout: "StoreLayout") -> set[str]:
    from rmqtool.services.lookup.configs import group_offsets, groups_of, topics_of

    if kind == "topic":
        settings = topics_of(layout, _silent)
        return set(settings.topics if settings is not None else ())
    groups = groups_of(layout, _silent)
    return {*(groups.groups if groups is not None else ()), *(entry.group for entry in group_offsets(layout, _silent))}


def _silent(_text: str) -> None:
    """Ignore warnings: completion must only offer names."""
