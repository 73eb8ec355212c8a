"""Generate the manual's page about file formats, with a table for every layout from its declaration.

``python -m formats.explain.page`` writes ``rmqtool/manual/formats.md`` to stdout; a test checks that the committed page
is up to date. Offsets, sizes, types, names and meanings come from :mod:`formats.layouts`, members of config files from
:mod:`formats.config.files`; the text around the tables is in :mod:`formats.explain.page_text`.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from construct import Bytes, Computed, Container, FormatField, Struct

from formats.config.files import NAMES, model_of
from formats.explain.page_text import BIG_ENDIAN, CONFIG, FILES, PLAIN_FILES
from formats.fastjson.declare import Declared, Flag, Items, Kind, Nested, Table, Whole, members_of
from formats.layouts import dledger, index, marks, message, queues, remoting, rocksdb, tiered, timer
from formats.layouts.codes import BORN_V6, MAGIC_V1, MAGIC_V2, STORE_V6
from formats.layouts.docs import Doc, leaf_of
from formats.primitives import flag_names
from formats.variants.rocksdb import PLACES
from formats.versions import Version

_UNITS: dict[str, Struct] = {
    "record 1": message.record(0, MAGIC_V1),
    "record 2": message.record(0, MAGIC_V2),
    "blank": message.BLANK,
    "batch item": message.BATCH_ITEM,
    "queue entry": queues.ENTRY,
    "extension unit": queues.EXT_UNIT,
    "batch entry": queues.BATCH_ENTRY,
    "rocks topic": rocksdb.TOPIC_HEAD,
    "rocks unit key": rocksdb.UNIT_KEY_TAIL,
    "rocks unit": rocksdb.UNIT,
    "rocks offset key": rocksdb.OFFSET_KEY_TAIL,
    "rocks offset": rocksdb.OFFSET,
    "rocks built": rocksdb.BUILT,
    "pop key head": rocksdb.POP_KEY_HEAD,
    "pop key tail": rocksdb.POP_KEY_TAIL,
    "config head": rocksdb.CONFIG_HEAD,
    "config name": rocksdb.CONFIG_NAME,
    "config queue": rocksdb.CONFIG_QUEUE,
    "config offset": rocksdb.CONFIG_OFFSET,
    "config version": rocksdb.CONFIG_VERSION,
    "timeline key head": rocksdb.TIMELINE_KEY_HEAD,
    "timeline value": rocksdb.TIMELINE_VALUE,
    "half key head": rocksdb.HALF_KEY_HEAD,
    "half value": rocksdb.HALF_VALUE,
    "key hour": rocksdb.KEY_HOUR,
    "key tail": rocksdb.KEY_TAIL,
    "position": rocksdb.POSITION,
    "index header": index.HEADER,
    "index slot": index.SLOT,
    "index entry": index.ENTRY,
    "checkpoint": marks.CHECKPOINT,
    "timer slot": timer.SLOT,
    "timer unit": timer.LOG_UNIT,
    "timer blank": timer.LOG_BLANK,
    "timer checkpoint": timer.CHECKPOINT,
    "dledger entry": dledger.ENTRY_HEAD,
    "dledger blank": dledger.BLANK,
    "dledger index": dledger.INDEX_UNIT,
    "tiered index head": tiered.INDEX_HEAD,
    "tiered index slot": tiered.INDEX_SLOT,
    "tiered index item": tiered.INDEX_ITEM,
    "tiered local index item": tiered.LOCAL_INDEX_ITEM,
    "frame head": remoting.FRAME_HEAD,
    "remoting header": remoting.BINARY_HEAD,
}
_HOSTS = {"both IPv4": 0, "born IPv6": BORN_V6, "store IPv6": STORE_V6, "both IPv6": BORN_V6 | STORE_V6}
_FLAGS = (0x1, 0x101, 0x201, 0x2, 0x4, 0x8, 0xC, BORN_V6, STORE_V6, 0x40, 0x80)
_TYPES = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


class Field(NamedTuple):
    """One row of a layout's table."""

    offset: str
    size: str
    type: str
    name: str
    since: str  # first version that has it
    meaning: str


def rows(layout: Struct, since: str) -> list[Field]:
    """The fields of a layout; a length given by another field is shown as a capital letter.

    Raises:
        TypeError: a field without fixed type, or whose length is not the previous field.
    """
    at, lengths, fields, previous = 0, "", list[Field](), ""
    for named in layout.subcons:
        leaf = leaf_of(named)
        if isinstance(leaf, Computed):
            continue
        offset = f"{at}{lengths}"
        if isinstance(leaf, FormatField):
            size, kind = str(leaf.length), _TYPES[leaf.length]
            at += leaf.length
        elif not isinstance(leaf, Bytes):
            raise TypeError(f"{named!r} is neither a number nor bytes")
        elif isinstance(leaf.length, int):
            size, kind = str(leaf.length), "bytes"
            at += leaf.length
        else:
            if leaf.length(Container({previous: 7})) != 7:
                raise TypeError(f"{named!r} does not have the length that {previous} says")
            size, kind = previous[0].upper(), "bytes"
            lengths += f"+{size}"
            fields[-1] = fields[-1]._replace(meaning=f"{size}: {fields[-1].meaning}")
        version = named.docs.since if isinstance(named.docs, Doc) else since
        fields.append(Field(offset, size, kind, f"`{named.name}`", version, str(named.docs)))
        previous = named.name
    return fields


def table(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table; all columns except the last are padded."""
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)][:-1]
    for row in (titles, ["-" * width for width in widths] + ["---"], *cells):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield f"| {' | '.join([*padded, row[-1]])} |".rstrip()
    yield ""


def _unit(name: str, since: str) -> Iterator[str]:
    fields = rows(_UNITS[name], since)
    if name == "record 2":  # identical to version 1 up to the body
        fields = [row for row in fields if "+" in row.offset]
    yield from table(("offset", "size", "type", "field", "since", "meaning"), fields)
    if name == "record 1":
        yield from _hosts()
        yield from _flags()


def _hosts() -> Iterator[str]:
    yield "The addresses have 16 bytes instead of 4 where `sys_flag` says so. Then these fields begin at:"
    yield ""
    starts = {title: {row.name: row.offset for row in rows(message.HEADS[bits], "")} for title, bits in _HOSTS.items()}
    first, *others = starts.values()
    moved = [name for name in first if any(other[name] != first[name] for other in others)]
    yield from table(("field", *starts), [(name, *(start[name] for start in starts.values())) for name in moved])


def _flags() -> Iterator[str]:
    yield "Bits of `sys_flag` (the kind of compression counts only with bit 0x1):"
    yield ""
    yield from table(("bits", "name"), [(f"0x{bits:03X}", " ".join(flag_names(bits))) for bits in _FLAGS])


def kind_text(kind: Kind) -> str:
    """The type of a config file's member."""
    if isinstance(kind, Table):
        return f"map of {'number' if isinstance(kind.key, Whole) else 'text'} to {kind_text(kind.item)}"
    if isinstance(kind, Items):
        return f"list of {kind_text(kind.item)}"
    if isinstance(kind, Nested):
        return kind.declared.__name__
    if isinstance(kind, Whole):
        return "int" if kind.bits == 32 else "long"
    return "boolean" if isinstance(kind, Flag) else "text"


def _beans(kind: Kind) -> Iterator[type[Declared]]:
    """The beans contained in a member."""
    if isinstance(kind, Table | Items):
        yield from _beans(kind.item)
    elif isinstance(kind, Nested):
        yield kind.declared


def _config() -> Iterator[str]:
    yield "## Config files"
    yield ""
    yield CONFIG.strip()
    yield ""
    todo: list[tuple[str, type[Declared], Version]] = [
        (f"config/{name}", model_of(name), model_of(name).SINCE) for name in NAMES
    ]
    seen: set[type[Declared]] = set()
    for title, model, first in todo:
        if model in seen:
            continue
        seen.add(model)
        members = members_of(model).values()
        yield f"### {title}"
        yield ""
        cells = [(f"`{member.name}`", str(max(first, member.since)), kind_text(member.kind)) for member in members]
        yield from table(("member", "since", "type"), cells)
        todo += [(bean.__name__, bean, max(first, member.since)) for member in members for bean in _beans(member.kind)]


def page() -> str:
    """The complete page."""
    lines = ["# File formats", "", "Every file of a store: offset, size, type, name and meaning of each field.", ""]
    lines += [BIG_ENDIAN.strip(), ""]
    for file in FILES:
        lines += [f"## {file.title}", "", f"- files: {file.files}", f"- size: {file.size}", f"- source: {file.source}"]
        lines += ["", file.text.strip(), ""]
        for unit in file.units:
            lines += [f"### {unit.title}", ""]
            lines += [unit.text.strip(), ""] if unit.text else []
            lines += _unit(unit.layout, unit.since or file.since)
    lines += [PLAIN_FILES.strip(), ""]
    lines += table(
        ("place", "since", "holds"), [(f"`{place}/`", form.since, form.holds) for place, form in PLACES.items()]
    )
    lines += _config()
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
