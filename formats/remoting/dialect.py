"""The JSON of bodies and headers as fastjson writes and reads it: on one line, with bare integer keys and object keys.

An object that is the key of another one is an `ObjectKey`. Numbers with a point keep their characters (`Real`).
"""

import re

from formats.config.write import real_text
from formats.fastjson.values import Key, Value

_NAMED = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')


def dumps(value: Value, *, quote_numbers: bool = False) -> bytes:
    """The text on one line as fastjson writes it.

    Args:
        value: what is written; members that are None are left out, as fastjson does.
        quote_numbers: keys that are integers in quotes (standard JSON), as name servers send routes to newer clients.

    Raises:
        TypeError: a value that JSON does not have.
    """
    out: list[str] = []
    _write(value, quote_numbers, out)
    return "".join(out).encode("utf-8")


def _write(value: Value, quote_numbers: bool, out: list[str]) -> None:
    if isinstance(value, str):
        out.append(quoted(value))
    elif value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, int):
        out.append(str(int(value)))
    elif isinstance(value, float):
        out.append(real_text(value))
    elif isinstance(value, dict):
        before = "{"
        for key, item in value.items():
            if item is None:
                continue
            out.append(before)
            _write_key(key, quote_numbers, out)
            out.append(":")
            _write(item, quote_numbers, out)
            before = ","
        out.append("}" if before == "," else "{}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            out.append("," if index else "[")
            _write(item, quote_numbers, out)
        out.append("]" if value else "[]")
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")


def _write_key(key: Key, quote_numbers: bool, out: list[str]) -> None:
    if isinstance(key, str):
        out.append(quoted(key))
    elif isinstance(key, int):
        out.append(f'"{int(key)}"' if quote_numbers else str(int(key)))
    else:
        _write(dict(key), quote_numbers, out)


def quoted(text: str) -> str:
    """A text as fastjson writes it."""
    if text.isprintable() and '"' not in text and "\\" not in text:  # nearly all are, and this is soon said
        return f'"{text}"'
    return f'"{_SPECIAL.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    return _NAMED.get(char) or f"\\u{ord(char):04X}"
