"""Generates the C header ``layouts.h`` with all sizes, offsets and constants shared between C and Python.

``python -m rmqtool.kernels.build.header`` writes it to stdout; a test checks that the committed header is up to date.
"""

import sys
from collections.abc import Iterator

from formats import primitives
from formats.layouts import codes, derived
from formats.message import build, properties, read
from rmqtool.kernels import index, scan
from rmqtool.kernels.tables import collected, limit, messages

LAYOUTS = (
    "HEAD_V4_V4", "HEAD_V6_V4", "HEAD_V4_V6", "HEAD_V6_V6", "BLANK", "BATCH_ITEM_HEAD", "CQ_ENTRY", "INDEX_SLOT",
    "INDEX_ENTRY",
)  # fmt: skip
NUMBERS = {
    "MAGIC_V1": codes.MAGIC_V1,
    "MAGIC_V2": codes.MAGIC_V2,
    "BORN_V6": codes.BORN_V6,
    "STORE_V6": codes.STORE_V6,
    "MIN_SIZE": read.MIN_SIZE,
    "MAX_TOPIC_V1": build.MAX_TOPIC[1],
    "TOPIC_LENGTH_SIZE_V1": build.TOPIC_LENGTH_SIZE[1],
    "TOPIC_LENGTH_SIZE_V2": build.TOPIC_LENGTH_SIZE[2],
    "MAX_PROPERTIES": build.MAX_PROPERTIES,
    "PROPERTIES_LENGTH_SIZE": build.PROPERTIES_LENGTH_SIZE,
    "NAME_END": properties.NAME_END,
    "ITEM_END": properties.ITEM_END,
    "DONE": collected.DONE,
    "FULL": collected.FULL,
    "ODD": collected.ODD,
    "TRANSACTION_MASK": primitives.TRANSACTION_MASK,
    "TRANSACTION_NONE": primitives.TRANSACTION_NONE,
    "TRANSACTION_COMMIT": primitives.TRANSACTION_COMMIT,
    "TRANSACTION_ROLLBACK": primitives.TRANSACTION_ROLLBACK,
    "VIEW_INLINE": messages.VIEW_INLINE,
    "MOST_NAMES": messages.MOST_NAMES,
    "ID_SPACE": messages.ID_SPACE,
}
# literals at the start of texts and property items; SIZEOF(X) is the length of one
TEXTS = {
    "SCHEDULE_TOPIC": read.SCHEDULE_TOPIC,
    "ITEM_TAGS": properties.TAGS.encode() + b"\x01",
    "ITEM_KEYS": properties.KEYS.encode() + b"\x01",
    "ITEM_UNIQ_KEY": properties.UNIQ_KEY.encode() + b"\x01",
    "ITEM_DELAY": properties.DELAY.encode() + b"\x01",
    "ITEM_INNER_BASE": properties.INNER_BASE.encode() + b"\x01",
    "ITEM_INNER_NUM": properties.INNER_NUM.encode() + b"\x01",
    "ITEM_MULTI_DISPATCH": properties.MULTI_DISPATCH.encode() + b"\x01",
    "INNER": properties.INNER.encode(),
}
# columns of shared tables, by the prefix of their names in C
TABLES: dict[str, tuple[str, ...]] = {
    "ROW": scan.Rows._fields,
    "MESSAGE": messages.MessageColumns._fields,
    "TEXT": messages.TEXT,
    "ANSWER": messages.ANSWER,
    "BATCH": messages.BatchSize._fields[1:],
    "PROPERTY": messages.PROPERTY,
    "NAMED": messages.NAMED,
    "VIEW": messages.VIEW,
    "FIELD": collected.FIELDS,
    "TOPIC": collected.TOPIC_FIELDS,
    "NUMBERS": collected.BatchNumbers._fields,
    "HEADER": index.HEADER_FIELDS,
    "LIMIT": limit.Limit._fields,
}


def source() -> str:
    """Return the content of ``c/layouts.h``."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "/* Sizes, offsets and constants. Written by `python -m rmqtool.kernels.build.header`; do not edit. */"
    yield "#ifndef RMQ_LAYOUTS_H"
    yield "#define RMQ_LAYOUTS_H"
    for name in LAYOUTS:
        layout = getattr(derived, name)
        yield f"\n/* {layout.name} */"
        yield f"#define {name}_SIZE {layout.size}"
        yield from (f"#define {name}_AT_{field.upper()} {at}" for field, at in layout.offsets.items())
    yield ""
    for name, number in NUMBERS.items():
        yield f"#define {name} {f'({number})' if number < 0 else number}"
    yield "\n#define SIZEOF(text) ((int64_t)sizeof(text) - 1)"
    for name, text in TEXTS.items():
        yield f'#define {name} "{_c_text(text)}"'
    for prefix, columns in TABLES.items():
        yield f"\nenum {{ {', '.join(f'{prefix}_{column.upper()}' for column in columns)}, {prefix}_COLUMNS }};"
    yield "\n#endif"


def _c_text(text: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\?' else f"\\{byte:03o}" for byte in text)


if __name__ == "__main__":
    sys.stdout.write(source())
