"""Words that people try as commands, and the commands that they look for."""

from collections.abc import Sequence
from difflib import get_close_matches

# words: command lines that do what is looked for
_MEANT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("lag backlog progress", ("group lag STORE",)),
    ("grep search", ("query-key STORE TOPIC KEY", "commitlog dump STORE -o ndjson | grep TEXT")),
    ("find get lookup message messages msg key", ("query-key STORE TOPIC KEY", "query-id STORE ID")),
    ("id", ("query-id STORE ID",)),
    ("repair fix heal", ("check STORE, which tells what to do", "recover STORE", "salvage STORE NEWSTORE")),
    ("restore revert rollback", ("undo STORE",)),
    ("backup copy rescue", ("salvage STORE NEWSTORE",)),
    ("ls list topics", ("topic list STORE", "info STORE")),
    ("dump cat view print show read", ("commitlog dump STORE", "dump-to-parquet STORE OUT")),
    ("tail head follow", ("commitlog dump STORE --since -10m", "consume --namesrv HOST:PORT TOPIC --follow")),
    ("du df size sizes count", ("topic list STORE", "info STORE")),
    ("stats stat status describe summary", ("info STORE", "topic list STORE", "report traffic STORE")),
    ("groups consumers consumer subscriptions", ("group list STORE", "group lag STORE")),
    ("offset consumerOffset", ("group offsets STORE", "offsets STORE")),
    ("reset seek", ("group reset STORE GROUP --to-time TIME",)),
    ("verify validate fsck scan test doctor", ("check STORE",)),
    ("purge expire gc retention delete rm", ("clean STORE --dry-run",)),
    ("requeue resend", ("dlq requeue STORE GROUP",)),
    ("dead deadletter dead-letters", ("dlq list STORE",)),
    ("retries", ("retry list STORE",)),
    ("produce publish put", ("send --namesrv HOST:PORT", "append STORE FILE")),
    ("parquet spark", ("dump-to-parquet STORE OUT",)),
    ("query", ("query-key STORE TOPIC KEY", "sql STORE 'select ...'")),
    ("hexdump hex", ("commitlog hexdump STORE --offset A:B",)),
    ("reindex", ("rebuild STORE index",)),
    ("create new", ("init STORE",)),
    ("broker", ("serve STORE",)),
    ("nameserver namesrv-start", ("namesrv",)),
    ("man docs doc", ("manual",)),
    ("version", ("--version",)),
    ("cut", ("truncate STORE",)),
    ("timer delays schedule", ("delay list STORE",)),
    ("transactions", ("transaction list STORE",)),
    ("log commit-log", ("commitlog dump STORE",)),
    ("queue queues", ("consumequeue dump STORE", "topic show STORE TOPIC")),
)


def meant_by(word: str, known: Sequence[str]) -> str:
    """What somebody who typed a word instead of a command was most likely looking for; empty where it is not known.

    Args:
        known: the commands that there are.
    """
    for words, commands in _MEANT:
        if word.lower() in words.lower().split():
            return " or ".join(f"rmqtool {command}" for command in commands)
    near = get_close_matches(word.lower(), known, 3)
    return " or ".join(f"rmqtool {command}" for command in near)


def meant_in(group: str, word: str, known: Sequence[str]) -> str:
    """As :func:`meant_by`, of a word behind a group (``rmqtool topic STORE``): a path is most likely for its first."""
    near = get_close_matches(word.lower(), known, 3)
    if near:
        return " or ".join(f"rmqtool {group} {command}" for command in near)
    path = word if _is_path(word) else "STORE"
    return f"rmqtool {group} {known[0]} {path}"


def _is_path(word: str) -> bool:
    import os

    return "/" in word or os.path.isdir(word)
