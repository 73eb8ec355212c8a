"""Live clusters instead of a store directory: which commands take them, and what to use instead of the others."""

import os
from collections.abc import Mapping
from typing import Any

from rmqtool.cli.commands import Entry
from rmqtool.cli.framework.opening import LIVE, check_scheme
from rmqtool.errors import BadValue
from rmqtool.words import command_line

VARIABLE = "RMQTOOL_TARGET"
# command: the one to use for a live cluster, and what it does. The entry of a group is for its commands without one
_INSTEAD: dict[str, tuple[str | None, str]] = {
    "check": ("doctor", "finds what is wrong in a cluster"),
    "checkpoint": ("cluster list", "shows how far logs go"),
    "topic latest": ("consume", "shows the messages of a topic"),
    "commitlog": ("consume", "shows messages"),
    "consumequeue": ("query-offset", "reads a queue"),
    "index": ("query-key", "asks the indexes of brokers"),
    "group inflight": ("group lag", "shows how far groups are behind"),
    "report": ("mirror", "copies topics into a store"),
}
_OF_FILES = ("bak", "broadcast", "to_broadcast", "scan", "forget")  # options

_BROADCASTS = ("group lag", "group offsets", "group reset", "group clone")  # take a file of a broadcasting client


def check_live(command: Entry, values: Mapping[str, Any]) -> None:
    """Check that a command given a live cluster accepts one, and that its options go with it.

    Raises:
        BadValue: it needs the files of a store, or one of its options does; or a name lacks its scheme.
    """
    words = [values.get("store"), *(values.get("stores") or ())]
    if command.name != "init" and not values.get("create"):
        for word in (*words, values.get("target")):
            if isinstance(word, str):
                check_scheme(word)
    if not any(isinstance(word, str) and _is_live(word) for word in (*words, values.get("other"))):
        return
    if not command.live:
        text = f"{command.name}: needs the files of a store directory"
        instead = _INSTEAD.get(command.name) or _INSTEAD.get(command.name.partition(" ")[0])
        if instead is not None:
            other, does = instead
            text += f"; {does}" if other is None else f"; {command_line(*other.split())} {does}"
        raise BadValue(text)
    for name in _OF_FILES:
        if values.get(name):
            raise BadValue(f"--{name.replace('_', '-')}: goes with a store directory, not with a live cluster")
    if command.name in _BROADCASTS and values.get("broker"):
        raise BadValue("--broker: goes with --broadcast; a row for a live cluster names its broker")


def _is_live(word: str) -> bool:
    if not word.startswith(LIVE):
        return False
    from rmqtool.admin.target import is_live

    return is_live(word)


def with_target(command: Entry | None, args: list[str], takes_value: set[str]) -> list[str]:
    """The words of a command line, with the target where the command expects it.

    That of the environment is put before words that name neither a store nor a target; commands that change something
    need an explicit one. For clients a target among the arguments becomes the value of ``--namesrv``.

    Raises:
        BadValue: a client is given both.
    """
    if command is not None and command.client:
        return _with_name_servers(command, args, takes_value)
    target = os.environ.get(VARIABLE)
    if not target or command is None or not command.live or command.writes or {"-h", "--help"} & {*args}:
        return args
    is_value = False
    for word in args:
        if is_value:
            is_value = False
        elif word.startswith("-") and word != "-":
            is_value = word in takes_value
        elif word.startswith(LIVE) or os.path.lexists(word):
            return args
        else:
            break
    return [target, *args]


def _with_name_servers(command: Entry, args: list[str], takes_value: set[str]) -> list[str]:
    """The words with a target among the arguments as the value of ``--namesrv``."""
    places, is_value = list[int](), False
    for at, word in enumerate(args):
        if word == "--":
            break
        if is_value:
            is_value = False
        elif word.startswith("-") and word != "-":
            is_value = word in takes_value
        else:
            check_scheme(word)
            places.append(at)
    target = next((place for place in places if _is_live(args[place])), None)
    if target is None or (command.arguments == ["store"] and len(places) == 1):
        return args  # what stands alone there is taken for the store
    if any(option.partition("=")[0] == "--namesrv" for option in args):
        raise BadValue(f"{args[target]}: give a target or --namesrv, not both")
    return ["--namesrv", args[target], *args[:target], *args[target + 1 :]]
