"""Live clusters in the place of a store directory: which commands take them, and what serves otherwise."""

import os
from collections.abc import Mapping
from typing import Any

from rmqtool.cli.commands import Command
from rmqtool.cli.framework.opening import LIVE
from rmqtool.errors import BadValue

VARIABLE = "RMQTOOL_TARGET"
# command: what serves for a live cluster. A group has one line for those of its commands that have none
_INSTEAD = {
    "check": "rmqtool cluster list shows how brokers are",
    "checkpoint": "rmqtool cluster list shows how far logs go",
    "trace": "rmqtool query-id finds the message",
    "topic latest": "rmqtool consume shows the messages of a topic",
    "topic unused": "rmqtool topic list shows messages and groups of each topic",
    "commitlog": "rmqtool consume shows messages",
    "consumequeue": "rmqtool query-offset reads a queue",
    "index": "rmqtool query-key asks the indexes of brokers",
    "group inflight": "rmqtool group lag shows how far groups are behind",
    "group reset": "mqadmin resetOffsetByTime changes a live group",
    "group clone": "mqadmin cloneGroupOffset changes a live group",
    "group diff": "rmqtool group offsets --output csv makes a file that can be compared",
    "retry list": "rmqtool consume shows the messages of %RETRY%GROUP",
    "dlq": "rmqtool consume shows the messages of %DLQ%GROUP",
    "sql": "rmqtool mirror copies topics into a store",
    "dump-to-parquet": "rmqtool mirror copies topics into a store",
    "report": "rmqtool mirror copies topics into a store",
}
_OF_FILES = ("bak", "broadcast", "scan")  # options


def check_live(command: Command, values: Mapping[str, Any]) -> None:
    """That a command takes a live cluster, where it is given one, and its options go with it.

    Raises:
        BadValue: it needs the files of a store, or one of its options does.
    """
    store = values.get("store")
    if not isinstance(store, str) or not store.startswith(LIVE):
        return
    from rmqtool.admin.target import is_live

    if not is_live(store):
        return
    if not command.live:
        words = _INSTEAD.get(command.name) or _INSTEAD.get(command.name.partition(" ")[0])
        raise BadValue(f"{command.name}: needs the files of a store directory" + (f"; {words}" if words else ""))
    for name in _OF_FILES:
        if values.get(name):
            raise BadValue(f"--{name}: goes with a store directory, not with a live cluster")
    if command.name.startswith("group ") and values.get("broker"):
        raise BadValue("--broker: goes with --broadcast; a row for a live cluster names its broker")


def with_target(command: Command | None, args: list[str], takes_value: set[str]) -> list[str]:
    """The words of a command line, with the target of the environment where they name neither a store nor a target."""
    target = os.environ.get(VARIABLE)
    if not target or command is None or not command.live or {"-h", "--help"} & {*args}:
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
