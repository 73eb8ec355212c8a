"""Queries that Spark and DuckDB answer alike, so that DuckDB may answer what was not meant for either.

The two differ in quotes, functions, casts and names of columns. A query passes only if each part of it, as DuckDB's own
parser has it, is known to mean the same in both: columns, constants, comparisons, LIKE and the common aggregates, with
WHERE, GROUP BY, HAVING, ORDER BY and LIMIT, on one table.
"""

import json
import re
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from rmqtool.analytics.source.tables import SCHEMAS

RENAMED = {"count_star()": "count(1)"}
"""Names of columns in DuckDB, and in Spark."""

_NUMBER, _TEXT, _TIME, _FLAG, _OTHER = "number", "text", "time", "flag", "other"
_AGGREGATES = ("count_star", "count", "sum", "min", "max", "avg")
_COMPARISONS = ("EQUAL", "NOTEQUAL", "LESSTHAN", "GREATERTHAN", "LESSTHANOREQUALTO", "GREATERTHANOREQUALTO")
_OPERATORS = ("OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "COMPARE_IN", "COMPARE_NOT_IN")
_TIMES = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?")
_UNSUMMED = ("tagsCode", "keyHash")  # hashes, whose sums Spark's bigint and double do not hold


class _Different(Exception):
    """A part that is not known to mean the same."""


def is_answered_alike(query: str) -> bool:
    """Whether DuckDB is installed, and answers a query as Spark does: the same rows, with the same names."""
    if find_spec("duckdb") is None or re.search(r'["`\\]|--|/\*', query):  # Spark takes these otherwise
        return False
    import duckdb

    try:
        with duckdb.connect(":memory:", config={"autoinstall_known_extensions": False}) as session:
            parsed = session.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone()
    except duckdb.Error:
        return False
    statements = json.loads(parsed[0]).get("statements", []) if parsed is not None else []
    try:
        (statement,) = statements
        _Query(statement["node"]).check()
    except (_Different, ValueError, KeyError, TypeError):
        return False
    return True


def _kind_of(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return _NUMBER
    if pa.types.is_string(kind):
        return _TEXT
    return _TIME if pa.types.is_timestamp(kind) else _FLAG if pa.types.is_boolean(kind) else _OTHER


class _Query:
    """One SELECT, as DuckDB's parser has it."""

    def __init__(self, node: dict[str, Any]) -> None:
        self._node = node
        source = node["from_table"]
        self._columns: dict[str, str] = {}
        if source["type"] == "BASE_TABLE":
            _need(source["table_name"] in SCHEMAS and not any(source[part] for part in ("schema_name", "catalog_name")))
            _need(not any(source[part] for part in ("alias", "sample", "column_name_alias", "at_clause")))
            self._columns = {field.name: _kind_of(field.type) for field in SCHEMAS[source["table_name"]]}
        else:
            _need(source["type"] == "EMPTY")
        self._aliases: dict[str, str] = {}

    def check(self) -> None:
        """Check every part.

        Raises:
            _Different: one of them may mean something else to Spark.
        """
        node = self._node
        _need(node["type"] == "SELECT_NODE" and node["aggregate_handling"] == "STANDARD_HANDLING")
        _need(not node["cte_map"]["map"] and not node["sample"] and not node["qualify"] and len(node["group_sets"]) < 2)
        if node["where_clause"] is not None:
            _need(self._expression(node["where_clause"]) == _FLAG)
        aliases: dict[str, str] = {}  # which Spark does not know in WHERE
        for item in node["select_list"]:
            if item["class"] == "STAR":
                _need(not any(item[part] for part in ("relation_name", "exclude_list", "replace_list", "columns",
                                                      "expr", "qualified_exclude_list", "rename_list")))  # fmt: skip
                continue
            kind = self._expression(item)
            if item["alias"]:
                _need(item["alias"] not in self._columns)
                aliases[item["alias"]] = kind
            else:
                named = item["class"] in ("COLUMN_REF", "FUNCTION") or (
                    item["class"] == "CONSTANT" and item["literal"]["kind"] == "INTEGER"
                )
                _need(named and not item.get("is_operator"))
        self._aliases = aliases
        if node["having"] is not None:
            _need(node["group_expressions"] and self._expression(node["having"]) == _FLAG)
        for expression in node["group_expressions"]:
            self._key(expression)
        for modifier in node["modifiers"]:
            self._modifier(modifier)

    def _modifier(self, modifier: dict[str, Any]) -> None:
        if modifier["type"] == "ORDER_MODIFIER":
            for order in modifier["orders"]:
                self._key(order["expression"])
        elif modifier["type"] == "LIMIT_MODIFIER":
            _need(modifier.get("limit_type", "ROW_COUNT") == "ROW_COUNT")
            for number in (modifier["limit"], modifier["offset"]):
                _need(number is None or (number["class"] == "CONSTANT" and number["literal"]["kind"] == "INTEGER"))
        else:
            _need(modifier["type"] == "DISTINCT_MODIFIER" and not modifier["distinct_on_targets"])

    def _key(self, expression: dict[str, Any]) -> None:
        """What rows are grouped or sorted by: a column, a name or number of the list, or an aggregate."""
        kind = self._expression(expression)
        _need(
            kind == _NUMBER if expression["class"] == "CONSTANT" else expression["class"] in ("COLUMN_REF", "FUNCTION")
        )
        _need(kind != _OTHER)

    def _expression(self, part: dict[str, Any]) -> str:
        """The kind of an expression's value."""
        kind, form = part["class"], part["type"]
        if kind == "COLUMN_REF":
            (name,) = part["column_names"]
            _need(name in self._columns or name in self._aliases)
            return self._columns.get(name) or self._aliases[name]
        if kind == "CONSTANT":
            found = {"INTEGER": _NUMBER, "STRING": _TEXT, "BOOLEAN": _FLAG}.get(part["literal"]["kind"])
            _need(found is not None)
            return found or ""
        if kind == "FUNCTION":
            return self._function(part)
        if kind == "CONJUNCTION":
            _need(all(self._expression(child) == _FLAG for child in part["children"]))
        elif kind == "COMPARISON":
            _need(form.removeprefix("COMPARE_") in _COMPARISONS)
            self._compared([part["left"], part["right"]])
        elif kind == "BETWEEN":
            self._compared([part["input"], part["lower"], part["upper"]])
        else:
            _need(kind == "OPERATOR" and form in _OPERATORS)
            if form.startswith("COMPARE"):
                self._compared(part["children"])
            else:
                (child,) = part["children"]
                _need(self._expression(child) == _FLAG or form != "OPERATOR_NOT")
        return _FLAG

    def _compared(self, parts: list[dict[str, Any]]) -> None:
        """Values are compared as they are: each cast has rules of its own."""
        kinds = {self._expression(part) for part in parts}
        if kinds == {_TIME, _TEXT}:
            texts = [part for part in parts if self._expression(part) == _TEXT]
            _need(all(part["class"] == "CONSTANT" and _TIMES.fullmatch(part["literal"]["text"]) for part in texts))
        else:
            _need(len(kinds) == 1 and _OTHER not in kinds)

    def _function(self, part: dict[str, Any]) -> str:
        name, given = part["function_name"], [argument["expression"] for argument in part["arguments"]]
        kinds = [self._expression(argument) for argument in given]
        if name in ("~~", "!~~"):
            _need(kinds == [_TEXT, _TEXT] and given[1]["class"] == "CONSTANT")
            return _FLAG
        _need(name in _AGGREGATES and not part["filter"] and not part["order_bys"]["orders"] and not part["distinct"])
        if name == "count_star":
            return _NUMBER
        (argument,) = given
        _need(argument["class"] == "COLUMN_REF" and argument["column_names"][0] in self._columns)
        _need(kinds[0] != _OTHER)
        if name in ("sum", "avg"):
            _need(kinds == [_NUMBER] and argument["column_names"][0] not in _UNSUMMED)
        return kinds[0] if name in ("min", "max") else _NUMBER


def _need(condition: object) -> None:
    if not condition:
        raise _Different
