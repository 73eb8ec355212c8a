"""Fast path for look-ups, which scripts call thousands of times: without loading Typer.

Only the plainest calls are handled here: known options, each at most once, well-formed. Everything else, usage errors
and help included, goes to the Typer application, which gives the same answers (a test compares them).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

_FORMATS = ("text", "table", "json", "ndjson", "csv")
_BODIES = ("auto", "utf8", "json", "hex", "base64", "none")
_OPTIONS: dict[str, tuple[str, Any]] = {
    "--output": ("output", _FORMATS),
    "-o": ("output", _FORMATS),
    "--body": ("body", _BODIES),
    "--limit": ("limit", int),
    "--broker-conf": ("broker_conf", str),
    "--scan": ("scan", None),
}
# command: its number of arguments, and which of these options it takes
COMMANDS: dict[str, tuple[int, frozenset[str]]] = {
    "query-key": (3, frozenset(_OPTIONS)),
    "query-id": (2, frozenset(_OPTIONS)),
}


def parse(
    argv: list[str], defaults: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[..., int], list[str], dict[str, Any]] | None:
    """(function, positional arguments, options) of a plain call, or None.

    Args:
        defaults: the user's own.
    """
    if not argv or argv[0] not in COMMANDS or "tz" in defaults:
        return None
    count, allowed = COMMANDS[argv[0]]
    arguments: list[str] = []
    options: dict[str, Any] = {}
    rest = iter(argv[1:])
    for word in rest:
        if not word.startswith("-"):
            arguments.append(word)
            continue
        name, equals, value = word.partition("=")
        if name not in allowed or (equals and not name.startswith("--")):
            return None
        target, kind = _OPTIONS[name]
        if target in options:
            return None
        if kind is None:
            if equals:
                return None
            options[target] = True
            continue
        if not equals:
            value = next(rest, "")
        if not value or value.startswith("-"):
            return None
        if kind is int:
            if not (value.isdecimal() and value.isascii() and len(value) < 19) or int(value) < 1:
                return None
            options[target] = int(value)
        elif kind is str or value in kind:
            options[target] = value
        else:
            return None
    if len(arguments) != count or not all(arguments) or arguments[0].startswith(("rocketmq://", "@")):
        return None
    from rmqtool.cli.read import lookups

    functions: dict[str, Callable[..., int]] = {
        "query-key": lookups.run_query_key,
        "query-id": lookups.run_query_id,
    }
    for name in ("output", "body", "broker_conf"):
        if name in defaults:
            options.setdefault(name, defaults[name])
    return functions[argv[0]], arguments, options
