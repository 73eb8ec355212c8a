"""The user's defaults for options, from the environment or a small file.

The command line takes precedence over the environment (``RMQTOOL_OUTPUT``), and that over the file. Options that make a
command write, or stop it from asking, cannot be set here. The file also names live clusters, in
tables ``[target.NAME]``.
"""

import os
from collections.abc import Mapping, Sequence

from rmqtool.errors import BadValue, UnreadableStore

TYPE_CHECKING = False  # typing takes its time to load
if TYPE_CHECKING:
    from typing import Any

# option: its values, if they are a fixed choice
OPTIONS: dict[str, tuple[str, ...]] = {
    "output": ("text", "table", "json", "ndjson", "csv"),
    "body": ("auto", "utf8", "json", "hex", "base64", "none"),
    "engine": (),  # as completion has them
    "broker-conf": (),
    "tz": (),
    "progress": ("auto", "json", "none"),
}


def read(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Parameter name (``broker_conf``) to its default, if set.

    Raises:
        BadValue: an invalid name or value; the message says where.
        UnreadableStore: the file cannot be read.
    """
    path = _path(environment)
    values = _from_file(path) if path else {}
    for option in OPTIONS:
        name = "RMQTOOL_" + option.replace("-", "_").upper()
        if value := environment.get(name):
            values[option] = _check(option, value, name)
    return {option.replace("-", "_"): value for option, value in values.items()}


def read_profiles(environment: Mapping[str, str] = os.environ) -> "dict[str, dict[str, Any]]":
    """The live clusters that the file names: each table ``[target.NAME]``, its files beside the config file.

    Raises:
        BadValue: they are no tables.
        UnreadableStore: the file cannot be read.
    """
    from rmqtool.admin.target import resolve_files

    path = _path(environment)
    tables = _parse(path).get("target", {}) if path else {}
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise BadValue(f"{path}: target: not tables [target.NAME]")
    return {name: resolve_files(table, os.path.dirname(path or "")) for name, table in tables.items()}


def _path(environment: Mapping[str, str]) -> str | None:
    """The file, if any; one that is named explicitly must exist."""
    if (named := environment.get("RMQTOOL_CONFIG")) is not None:
        return named or None
    home = environment.get("HOME")
    folder = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    path = f"{folder}/rmqtool/config.toml"
    return path if folder and os.path.lexists(path) else None


def _parse(path: str) -> "dict[str, Any]":
    """What stands in the file.

    Raises:
        BadValue: it is not TOML.
        UnreadableStore: it cannot be read.
    """
    import tomllib

    from rmqtool.store.disk.directories import read_small

    data = read_small(path)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as err:
        raise BadValue(f"{path}: not TOML: {err}") from err


def _from_file(path: str) -> dict[str, str]:
    values = {}
    for option, value in _parse(path).items():
        if option == "target":
            continue
        if option not in OPTIONS:
            raise BadValue(f"{path}: {option!r} cannot have a default: {', '.join(OPTIONS)} have")
        if not isinstance(value, str):
            raise BadValue(f"{path}: {option} is not a string")
        values[option] = _check(option, value, f"{path}: {option}")
    if "broker-conf" in values:
        values["broker-conf"] = os.path.join(os.path.dirname(path), os.path.expanduser(values["broker-conf"]))
    return values


def _check(option: str, value: str, where: str) -> str:
    choices: Sequence[str] = OPTIONS[option]
    if option == "engine":
        from rmqtool.cli.commands import words_of

        choices = words_of("recover --engine")
    if choices and value not in choices:
        raise BadValue(f"{where}: {value!r} is not one of {', '.join(choices)}")
    if option == "tz":
        from rmqtool.cli.render.times import zone_of

        try:
            zone_of(value)
        except BadValue as err:
            raise BadValue(f"{where}: {err}") from None
    return value
