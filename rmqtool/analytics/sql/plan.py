"""Determines the columns and conditions that a query needs of each table, using Spark's own planner.

The query is planned over empty Parquet files with the schemas of the tables. Spark prunes columns and pushes filters
down to the scans; both are extracted from the plan.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rmqtool.analytics.source.filter import Condition

_SCAN = "FileSourceScanExec"
_NO_STORE = {
    "LocalTableScanExec",
    "RangeExec",
    "OneRowRelationExec",
    "RDDScanExec",
    "ReusedExchangeExec",
    "EmptyRelationExec",
}
_OPS = {"EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">="}
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Need:
    """What a query needs of one table; ``columns`` is None for all columns."""

    columns: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] = ()


def needs(plan: Any, folders: dict[str, str]) -> dict[str, Need]:
    """Return what an executed plan (of the JVM) needs, by table; tables that are not needed are omitted.

    Args:
        folders: directory of each table's Parquet files.
    """
    nodes = list(_nodes(plan))
    if any(not node.children().nonEmpty() and _name(node) not in {_SCAN, *_NO_STORE} for node in nodes):
        return dict.fromkeys(folders, Need())
    tables = {folder: table for table, folder in folders.items()}
    needed: dict[str, Need] = {}
    for node in nodes:
        if _name(node) != _SCAN:
            continue
        (path,) = _each(node.relation().location().rootPaths())
        table = tables[path.toUri().getPath()]
        columns = tuple(node.requiredSchema().fieldNames())
        conditions = tuple(c for expression in _each(node.dataFilters()) for c in conditions_of(expression.toJSON()))
        previous = needed.get(table)
        if previous is not None:  # another scan of the same table: keep only common conditions
            columns = tuple(dict.fromkeys((*(previous.columns or ()), *columns)))
            conditions = tuple(condition for condition in conditions if condition in previous.conditions)
        needed[table] = Need(columns, conditions)
    return needed


def _name(node: Any) -> str:
    name: str = node.getClass().getSimpleName()
    return name


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for inner in (*_each(plan.children()), *_each(plan.subqueries())):
        yield from _nodes(inner)


@dataclass(frozen=True)
class _Expression:
    kind: str
    fields: dict[str, Any]
    children: "list[_Expression]"


def conditions_of(text: str) -> list[Condition]:
    """Return the conditions in an expression in Catalyst's JSON form; unsupported ones are ignored."""
    return list(_conditions(_tree(iter(json.loads(text)))))


def _tree(nodes: Iterator[dict[str, Any]]) -> _Expression:
    """Build a tree from its nodes in pre-order."""
    node = next(nodes)
    return _Expression(node["class"].rpartition(".")[2], node, [_tree(nodes) for _ in range(node["num-children"])])


def _conditions(expression: _Expression) -> Iterable[Condition]:
    kind, parts = expression.kind, expression.children
    if kind == "And":
        yield from (condition for part in parts for condition in _conditions(part))
        return
    try:
        if kind in _OPS and [part.kind for part in parts] == ["AttributeReference", "Literal"]:
            yield Condition(parts[0].fields["name"], _OPS[kind], _value(parts[1]))
        elif kind in _OPS and [part.kind for part in parts] == ["Literal", "AttributeReference"]:
            yield Condition(parts[1].fields["name"], _FLIPPED[_OPS[kind]], _value(parts[0]))
        elif kind == "In" and parts[0].kind == "AttributeReference":
            if all(part.kind == "Literal" for part in parts[1:]):
                yield Condition(parts[0].fields["name"], "in", tuple(map(_value, parts[1:])))
        elif kind == "ArrayContains" and [part.kind for part in parts] == ["AttributeReference", "Literal"]:
            yield Condition(parts[0].fields["name"], "has", _value(parts[1]))
    except ValueError:
        return  # a literal that readers cannot use


def _value(literal: _Expression) -> Any:
    """Return the value of a literal. The time zone of the session is UTC."""
    kind, text = literal.fields["dataType"], literal.fields["value"]
    if text is None or kind == "string":
        return text
    if kind in ("byte", "short", "integer", "long"):
        return int(text)
    if kind == "timestamp":
        return datetime.fromisoformat(text + "+00:00")
    raise ValueError(kind)
