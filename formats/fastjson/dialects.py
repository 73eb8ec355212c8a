"""Sets of options for reading and writing: for files, and for bodies."""

import re
from collections.abc import Mapping
from typing import NamedTuple

# Possessive throughout: no backtracking, so reading is linear for any input.
_COMMENT = r"/\*(?s:.*?)\*/|//[^\n]*+"
_BLANK = re.compile(r"[ \t\r\n]*+")
_ESCAPES = dict(zip("btnvfFr\"'/\\0", "\b\t\n\v\f\f\r\"'/\\\0", strict=True))


class Dialect(NamedTuple):
    """Accepted syntax, and style of output.

    Attributes:
        depth: maximum nesting of objects and lists.
        references: whether ``{"$ref":…}`` is resolved, and written for an object that occurs again (the same ``dict``,
            not an equal one).
        object_keys: whether objects may be keys.
        bytes: whether bytes that are not UTF-8 are kept, and a byte-order mark is skipped.
        blank: allowed between two tokens.
        tail: allowed after the value.
        name: a key without quotes.
        escapes: characters by the character after the backslash.
        unpaired: first and last of the surrogates that are read as U+FFFD if escaped without their other half.
        escaped: characters written as escapes.
        nulls: whether None is written. Otherwise members that are None are left out, as by fastjson.
        converts: whether values are converted between types if nothing is lost.
        integer: the texts accepted for an integer.
        keeps: whether undeclared members are kept and written again.
        tabs: whether output has many lines, indented by tabs.
        quote_keys: whether integer keys are written in quotes.
        quote_large: whether integers beyond a browser's precision are written in quotes.
        strict: whether undeclared members are rejected.
    """

    depth: int
    references: bool
    object_keys: bool
    bytes: bool
    blank: re.Pattern[str]
    tail: re.Pattern[str]
    name: re.Pattern[str]
    escapes: Mapping[str, str]
    unpaired: tuple[str, str]
    escaped: re.Pattern[str]
    nulls: bool
    converts: bool
    integer: re.Pattern[str]
    keeps: bool
    tabs: bool = False
    quote_keys: bool = False
    quote_large: bool = False
    strict: bool = False


FILE = Dialect(
    depth=200,  # the deepest configuration file of any broker has eight
    references=True,
    object_keys=False,
    bytes=True,
    blank=re.compile(rf"(?:[ \t\r\n\f\b]++|{_COMMENT})*+"),
    tail=re.compile(rf"(?:[\x00-\x20\x7f]++|{_COMMENT})*+"),  # fastjson skips any control character there
    name=re.compile(r"(?:[A-Za-z_$]|[^\x00-\x7f])(?:[A-Za-z0-9_$]|[^\x00-\x7f])*+"),
    escapes=_ESCAPES | dict(zip("1234567", "\1\2\3\4\5\6\7", strict=True)),
    unpaired=("\udc80", "\udcff"),  # they represent bytes that are not UTF-8; Java could not write them either
    # U+DC80-U+DCFF are written as the bytes that they represent; other surrogates have no UTF-8 form
    escaped=re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udc7f\udd00-\udfff]'),
    nulls=True,
    converts=True,
    integer=re.compile(r"-?[0-9]{1,40}"),
    keeps=True,
    tabs=True,
)
"""``config/*.json``. Bytes that are not UTF-8 (a 4.9 broker writes in its platform's charset) become U+DC80-U+DCFF,
Python's ``surrogateescape``, so that writing gives the same bytes again."""

BROWSER = FILE._replace(
    escaped=re.compile('["\\\\/\x00-\x1f]|[^\x00-\x7e\udc80-\udcff]'), tabs=False, quote_keys=True, quote_large=True
)
"""The "browser compatible" form of metrics, values in RocksDB and POP messages: non-ASCII is escaped."""

BODY = Dialect(
    depth=64,  # the deepest body of any broker has seven
    references=False,
    object_keys=True,
    bytes=False,
    blank=_BLANK,
    tail=_BLANK,
    name=re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+"),
    escapes=_ESCAPES,
    unpaired=("\ud800", "\udfff"),
    escaped=re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]'),
    nulls=False,
    converts=False,
    integer=re.compile(r"[+-]?[0-9]{1,20}"),
    keeps=False,
)
"""Headers and bodies of requests and responses."""

STANDARD = BODY._replace(quote_keys=True)
"""Standard JSON, in which name servers send routes to newer clients."""
