"""SQL92 filters: ours compared with the broker's, on random expressions."""

import random

import pytest

from formats.sql92.filter import BadFilter, compile_filter
from tests.interop.broker import Broker

pytestmark = pytest.mark.interop
_NAMES = ("a", "b", "missing", "_x1", "TAGS", "$y")
_CONSTANTS = (
    "1", "0", "5", "-5", "+5", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "7L", "0.5", "1.0",
    "1e3", ".5", "3.", "'1'", "'x'", "'it''s'", "''", "'true'", "TRUE", "FALSE", "'1.0'", "0.0", "007", "1e400",
)  # fmt: skip
_TEXTS = ("'1'", "'x'", "'it''s'", "''", "'abc'", "'b'", "'true'")
_VALUES = (
    "1", "5", "-5", "+5", "0", "2147483647", "2147483648", "9223372036854775808", "0.5", "1.0", "1e3", " 1", "1 ", "1d",
    "NaN", "-0", "-0.0", "Infinity", "0x1p3", "x", "it's", "", "true", "TRUE", "abc", "b", "1_0", "\u0661",
)  # fmt: skip


def expression(source: random.Random, deep: int = 3) -> str:
    def operand() -> str:
        return source.choice((*_NAMES, *_NAMES, *_CONSTANTS))

    def text() -> str:
        return source.choice(_TEXTS)

    if deep == 0:
        kind = source.randrange(12)
        if kind < 5:
            return f"{operand()} {source.choice(('=', '<>', '<', '<=', '>', '>='))} {operand()}"
        if kind == 5:
            return f"{operand()} {source.choice(('', 'NOT '))}BETWEEN {operand()} AND {operand()}"
        if kind == 6:
            return f"{operand()} {source.choice(('', 'not '))}in ({text()}, {text()})"
        if kind == 7:
            return f"{operand()} IS {source.choice(('', 'NOT '))}NULL"
        if kind == 8:
            word = source.choice(("CONTAINS", "StartsWith", "endswith"))
            return f"{operand()} {source.choice(('', 'NOT '))}{word} {text()}"
        return operand()
    kind = source.randrange(7)
    left, right = expression(source, deep - 1), expression(source, source.randrange(deep))
    if kind < 2:
        return f"{left} AND {right}"
    if kind < 4:
        return f"{left} OR {right}"
    if kind == 4:
        return f"NOT ({left})"
    if kind == 5:
        return f"NOT {left}"
    return f"({left}) {source.choice(('=', '<>', '<', 'AND', 'OR'))} ({right})"


def broken(source: random.Random, text: str) -> str:
    """The expression with a character or word added or removed."""
    at = source.randrange(len(text) + 1)
    more = source.choice(("", "", " ", "'", "(", ")", " NOT ", " = ", "%", "--x\n", "/* c */", ","))
    return text[:at] + more + text[at + source.randrange(2) :]


def test_ours_says_what_the_broker_says(broker: Broker) -> None:
    source = random.Random(95)
    made = [expression(source, source.randrange(4)) for _ in range(4000)]
    made += [broken(source, text) for text in made[:2000]]
    rows = [{name: source.choice(_VALUES) for name in ("a", "b", "_x1", "TAGS", "$y")} for _ in range(12)] + [{}]
    answer = broker.ask("filter", expressions=made, properties=rows)
    wrong, refused, hits = [], 0, 0
    for text, wanted in zip(made, answer, strict=True):
        try:
            matches = compile_filter(text, wide=broker.engine != "4.9")
            got: object = [matches(row) for row in rows]
        except BadFilter:
            got = "refused"
        refused += got == "refused"
        hits += isinstance(got, list) and any(got) and not all(got)
        if got != wanted:
            rest = [(row, want) for row, want, has in zip(rows, wanted, got, strict=False) if want != has]
            wrong.append((text, rest[:1], got == "refused"))
    assert not wrong, "\n".join(f"{text}: {wanted} {got}" for text, wanted, got in wrong[:5])
    assert refused > 500
    assert hits > 200
