"""Properties files, in which brokers and clients have their settings (java.util.Properties)."""

import re

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes | str) -> dict[str, str]:
    """Parse names and values: comments, ``=``, ``:`` or blank, continuation lines, escapes.

    Args:
        data: the file, in UTF-8 as read by brokers; invalid UTF-8 becomes U+FFFD.
    """
    values: dict[str, str] = {}
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    lines = iter(text.splitlines())
    for line in lines:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while len(line) - len(line.rstrip("\\")) & 1:
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
        if match:
            values[_unescape(match[1])] = _unescape(match[2])
    return values


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))",
        lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPES.get(m[2], m[2]),
        text,
    )
