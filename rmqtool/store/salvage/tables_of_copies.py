"""Topics, groups and consumer offsets that only some copies of a store know."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from formats.config.file import ConfigFile
from formats.config.files import kind_of
from formats.versions import V4_9, V5_3
from rmqtool.errors import RmqError
from rmqtool.store.config.files import read_config
from rmqtool.store.config.release import release_of
from rmqtool.store.layout.paths import StoreLayout

TABLES = {"topics.json": "topics", "subscriptionGroup.json": "groups", "consumerOffset.json": "offsets"}


def add_unknown(name: str, data: bytes | None, others: Sequence[StoreLayout]) -> tuple[bytes | None, list[str]]:
    """(a config file with what only other copies know in addition, the names that were added).

    What the first copy knows stays as it is.

    Args:
        data: the file of the first copy; None if it has none that can be read.
        others: the other copies, the best one first.
    """
    model, attribute = kind_of(name), TABLES.get(name)
    if model is None or attribute is None:
        return data, []
    table: Any = model.parse(data) if data is not None else None
    added: list[str] = []
    for other in others:
        there: ConfigFile | None = None
        with suppress(RmqError):  # reported with that copy
            there = read_config(other, name)
        if there is None:
            continue
        if table is None:
            table = there
            data = there.build(V5_3 if release_of(other).is_5 else V4_9)
            added += getattr(there, attribute)
            continue
        known = getattr(table, attribute)
        new = {key: value for key, value in getattr(there, attribute).items() if key not in known}
        if new:
            table = replace(table, **{attribute: {**known, **new}})
            data = table.build(V5_3 if release_of(other).is_5 else V4_9)
            added += new
    return data, added
