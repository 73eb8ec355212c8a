"""SQL92 filters over message properties, as evaluated by brokers (filter.parser.SelectorParser and the expressions in
filter.expression of 4.9.8 and 5.3.3).

All rules are those of the broker, including the surprising ones: NOT binds tighter than a comparison; properties are
text, and if one is compared with a number but is not numeric, the whole filter does not match; a bare property never
matches.

>>> compile_filter("amount > 100 AND region IN ('eu', 'us')")({"amount": "150", "region": "eu"})
True
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from formats.sql92.values import INT, LONG, Long, NotComparable, Value, compare, double

Properties: TypeAlias = Mapping[str, str] | Mapping[str, Value]
Evaluate: TypeAlias = Callable[[Properties], Value]
Matches: TypeAlias = Callable[[Properties], bool]

MOST_NESTED = 50  # nesting of parentheses and signs; Java's stack overflows at some thousand levels
_NAME = r"[A-Z_$][A-Z0-9_$]*"
_PATH = rf"{_NAME}(?:\.[A-Z0-9_$]+)*"
_TOKEN, _TOKEN_WITH_PATHS = (
    re.compile(
        r"(?P<blank>[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\r|\n)|/\*.*?\*/)"
        r"|(?P<float>[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+)"
        r"|(?P<int>[1-9][0-9]*L?|0)"
        r"|(?P<text>'(?:''|[^'])*')"
        rf"|(?P<word>{word})"
        r"|(?P<sign><>|>=|<=|[=<>(),+-])",
        re.DOTALL | re.IGNORECASE | re.ASCII,
    )
    for word in (_NAME, _PATH)
)
_WORDS = {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}
_OF_5 = {"CONTAINS", "STARTSWITH", "ENDSWITH"}


class BadFilter(ValueError):
    """The broker would reject this filter."""


class _Node(NamedTuple):
    """A subexpression.

    Attributes:
        kind: "constant", "property", "boolean" (evaluates to true, false or unknown) or "value".
        constant: its value if it is a constant.
        logical: whether Java treats it as boolean, as it does TRUE, FALSE and NULL.
    """

    evaluate: Evaluate
    kind: str
    constant: Value = None
    logical: bool = False


@lru_cache(maxsize=256)
def compile_filter(text: str, *, wide: bool = True, local: bool = False) -> Matches:
    """Compile a filter into a predicate over a message's properties.

    Properties are text; values of other types are compared as they are.

    Args:
        text: the subscription expression.
        wide: accept CONTAINS, STARTSWITH and ENDSWITH, which were added in 5.0.
        local: accept names joined by dots, as ``a.b.0``, which brokers do not, and reject what brokers accept although
            it cannot be meant: a name alone, which never matches, and words after a complete expression.

    Raises:
        BadFilter: it is not an expression; unless it is local, a broker rejects it, too.
    """
    evaluate = _Parser(_tokens(text, wide, _TOKEN_WITH_PATHS if local else _TOKEN), local=local).whole()

    def matches(properties: Properties) -> bool:
        try:
            return evaluate(properties) is True
        except NotComparable:
            return False

    return matches


class _Token(NamedTuple):
    kind: str  # float, int, text, name, end, bad, or the keyword or operator itself
    text: str
    at: int


def _tokens(text: str, wide: bool, pattern: re.Pattern[str]) -> list[_Token]:
    keywords = _WORDS | _OF_5 if wide else _WORDS
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = pattern.match(text, at)
        if match is None:
            return [*tokens, _Token("bad", text[at : at + 20], at)]
        kind, part = str(match.lastgroup), match[0]
        if kind == "word":
            kind = part.upper() if part.upper() in keywords else "name"
        elif kind == "sign":
            kind = part
        if kind != "blank":
            tokens.append(_Token(kind, part, at))
        at = match.end()
    return [*tokens, _Token("end", "", at)]


class _Parser:
    """Recursive descent: OR, AND, equality, comparison, sign or NOT, operand."""

    def __init__(self, tokens: list[_Token], *, local: bool) -> None:
        self._tokens, self._local = tokens, local
        self._at = self._deep = 0

    def whole(self) -> Evaluate:
        """Parse a complete expression; trailing input is ignored, as in Java, unless the expression is local."""
        node = self._logical(self._or())
        if self._local:
            self._need_end()
        return node.evaluate

    def _next(self, ahead: int = 0) -> str:
        token = self._tokens[self._at + ahead]
        if token.kind == "bad":
            raise BadFilter(f"character {token.at + 1}: {token.text!r}")
        return token.kind

    def _take(self, *kinds: str) -> bool:
        """Consume the next tokens if they are of these kinds."""
        if not all(self._next(ahead) == kind for ahead, kind in enumerate(kinds)):
            return False
        self._at += len(kinds)
        return True

    def _need(self, kind: str) -> _Token:
        token = self._tokens[self._at]
        if self._next() != kind:
            actual = repr(token.text[:20]) if token.text else "the end"
            raise BadFilter(f"character {token.at + 1}: {actual} where {kind} should be")
        self._at += 1
        return token

    def _need_end(self) -> None:
        if self._next() != "end":
            token = self._tokens[self._at]
            raise BadFilter(f"character {token.at + 1}: {token.text[:20]!r} after the condition: AND or OR joins two")

    def _refuse(self, words: str) -> BadFilter:
        return BadFilter(f"character {self._tokens[max(self._at - 1, 0)].at + 1}: {words}")

    def _logical(self, node: _Node) -> _Node:
        """Return the node as one that evaluates to true, false or unknown."""
        if node.logical:
            return node
        if node.kind == "property":
            if self._local:
                raise self._refuse("a name alone is no condition: compare it, or ask for IS NOT NULL")
            return _boolean(lambda properties: None if node.evaluate(properties) is None else False)
        raise self._refuse("neither true nor false")

    def _or(self) -> _Node:
        left = self._and()
        if self._next() != "OR":
            return left
        parts = [self._logical(left)]
        while self._take("OR"):
            parts.append(self._logical(self._and()))
        return _join(parts, ends=True)

    def _and(self) -> _Node:
        left = self._equality()
        if self._next() != "AND":
            return left
        parts = [self._logical(left)]
        while self._take("AND"):
            parts.append(self._logical(self._equality()))
        return _join(parts, ends=False)

    def _equality(self) -> _Node:
        left = self._comparison()
        for _ in range(MOST_NESTED):
            if self._take("="):
                left = self._equal(left, self._comparison())
            elif self._take("<>"):
                left = _negate(self._equal(left, self._comparison()))
            elif self._take("IS", "NULL"):
                left = _equal(left, _NULL)
            elif self._take("IS", "NOT", "NULL"):
                left = _negate(_equal(left, _NULL))
            elif self._next() == "IS":
                self._at += 1
                raise self._refuse("IS takes NULL or NOT NULL")
            else:
                return left
        raise self._refuse(f"more than {MOST_NESTED} comparisons of one another")

    def _equal(self, left: _Node, right: _Node) -> _Node:
        for node in (left, right):
            if node.kind == "constant" and node.constant is None:
                raise self._refuse("NULL cannot be compared: IS NULL asks for it")
        if left.kind == right.kind == "constant" and left.logical and not right.logical:
            raise self._refuse("TRUE and FALSE cannot be compared with that")
        return _equal(left, right)

    def _comparison(self) -> _Node:
        left = self._unary()
        for _ in range(MOST_NESTED):
            sign = self._next()
            if sign in _ORDERS:
                self._at += 1
                left = self._compare(sign, left, self._unary())
            elif self._take("BETWEEN"):
                low, high = self._limits()
                if low.kind == high.kind == "constant" and compare(high.constant, low.constant) < 0:
                    raise self._refuse("BETWEEN takes the lower value first")
                left = _join([self._compare(">=", left, low), self._compare("<=", left, high)], ends=False)
            elif self._take("NOT", "BETWEEN"):
                low, high = self._limits()
                left = _join([self._compare("<", left, low), self._compare(">", left, high)], ends=True)
            elif self._take("IN"):
                left = self._among(left, wanted=True)
            elif self._take("NOT", "IN"):
                left = self._among(left, wanted=False)
            elif (search := self._parse_search(left)) is not None:
                left = search
            elif sign == "NOT":
                self._at += 1
                raise self._refuse("NOT stands before BETWEEN or IN here")
            else:
                return left
        raise self._refuse(f"more than {MOST_NESTED} comparisons of one another")

    def _limits(self) -> tuple[_Node, _Node]:
        low = self._unary()
        self._need("AND")
        high = self._unary()
        for node in (low, high):
            self._orderable(node)
        return low, high

    def _orderable(self, node: _Node) -> None:
        number = isinstance(node.constant, (int, float)) and not isinstance(node.constant, bool)
        if node.logical or (node.kind == "constant" and not number):
            raise self._refuse("has no order: <, <=, >, >= and BETWEEN take numbers and properties")

    def _compare(self, sign: str, left: _Node, right: _Node) -> _Node:
        self._orderable(left)
        self._orderable(right)
        fits = _ORDERS[sign]

        def evaluate(properties: Properties) -> Value:
            first = left.evaluate(properties)
            if first is None or (second := right.evaluate(properties)) is None:
                return None
            if isinstance(first, str) and isinstance(second, str):
                first, second = double(first), double(second)
            return fits(compare(first, second))

        return _boolean(evaluate)

    def _among(self, left: _Node, *, wanted: bool) -> _Node:
        if left.kind != "property":
            raise self._refuse("IN takes a property")
        self._need("(")
        values = {self._text()}
        while self._take(","):
            values.add(self._text())
        self._need(")")

        def evaluate(properties: Properties) -> Value:
            value = left.evaluate(properties)
            return None if value is None else (str(value) in values) == wanted

        return _boolean(evaluate)

    def _parse_search(self, left: _Node) -> _Node | None:
        """Parse CONTAINS, STARTSWITH or ENDSWITH, with or without NOT."""
        for word, fits in _SEARCHES.items():
            if self._take(word):
                return _search(left, self._text(), fits, wanted=True)
            if self._take("NOT", word):
                return _search(left, self._text(), fits, wanted=False)
        return None

    def _text(self) -> str:
        return self._need("text").text[1:-1].replace("''", "'")

    def _unary(self) -> _Node:
        self._deep += 1
        if self._deep > MOST_NESTED:
            raise self._refuse(f"nested deeper than {MOST_NESTED}")
        if self._take("+"):
            node = self._unary()
        elif self._take("-"):
            node = _minus(self._unary())
        elif self._take("NOT"):
            node = _negate(self._logical(self._unary()))
        else:
            node = self._operand()
        self._deep -= 1
        return node

    def _operand(self) -> _Node:
        if self._take("("):
            node = self._or()
            self._need(")")
            return node
        kind = self._next()
        if kind == "text":
            return _constant(self._text())
        if kind in ("TRUE", "FALSE", "NULL"):
            self._at += 1
            return {"TRUE": _TRUE, "FALSE": _FALSE, "NULL": _NULL}[kind]
        if kind == "int":
            number = int(self._need("int").text.rstrip("lL"))
            if number >= LONG:
                raise self._refuse("beyond 64 bits")
            return _constant(number if number < INT else Long(number))
        if kind == "float":
            value = float(self._need("float").text)
            if not 0 < value < float("inf"):
                raise self._refuse("not a number that Java has as a constant: brokers refuse 0.0 too")
            return _constant(value)
        name = self._need("name").text
        return _Node(lambda properties: properties.get(name), "property")


def _constant(value: Value, *, logical: bool = False) -> _Node:
    return _Node(lambda _properties: value, "constant", value, logical)


_TRUE, _FALSE, _NULL = (_constant(value, logical=True) for value in (True, False, None))


def _boolean(evaluate: Evaluate) -> _Node:
    return _Node(evaluate, "boolean", logical=True)


def _negate(node: _Node) -> _Node:
    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        return None if value is None else not value

    return _boolean(evaluate)


def _join(parts: list[_Node], *, ends: bool) -> _Node:
    """Join parts by OR, which stops at the first true part, or by AND, which stops at the first false one."""

    def evaluate(properties: Properties) -> Value:
        all_known = True
        for part in parts:
            value = part.evaluate(properties)
            if value is ends:
                return ends
            all_known = all_known and value is not None
        return not ends if all_known else None

    return _boolean(evaluate)


def _equal(left: _Node, right: _Node) -> _Node:
    def evaluate(properties: Properties) -> Value:
        first, second = left.evaluate(properties), right.evaluate(properties)
        if first is None or second is None:
            return True if first is second else None if first is None else False
        return compare(first, second) == 0

    return _boolean(evaluate)


def _minus(node: _Node) -> _Node:
    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        if isinstance(value, (bool, str)) or value is None:
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return _Node(evaluate, "value")


def _search(node: _Node, text: str, fits: Callable[[str, str], bool], *, wanted: bool) -> _Node:
    def evaluate(properties: Properties) -> Value:
        value = node.evaluate(properties)
        return isinstance(value, str) and bool(text) and fits(value, text) == wanted

    return _boolean(evaluate)


_ORDERS: dict[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}
_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda value, text: text in value,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
