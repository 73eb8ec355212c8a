"""Object code laid out to be run: its sections one behind the other, the distances between them filled in.

To load LLVM for its linker takes longer than many a command needs for its work. Kernels use nothing but themselves, and
what they say of themselves are distances: so they run wherever they lie. The format is ELF's of 64 bits, as the System
V ABI has it, with its supplement for x86-64.
"""

import struct
from typing import NamedTuple

_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16xHH20xQ10xHHH")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")
_RELOCATABLE, _X86_64 = 1, 62
_PROGRAM, _SYMBOLS, _RELOCATIONS = 1, 2, 4
_WRITTEN, _LOADED = 1, 2
_DISTANCE = (2, 4)  # R_X86_64_PC32, R_X86_64_PLT32


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    at: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


_SECTION = struct.Struct("<IIQQQQIIQQ")


def laid_out(code: bytes, function: str) -> tuple[bytes, int] | None:
    """(code, where in it a function begins); None for object code that needs a real linker, or another machine's."""
    if not code.startswith(_IDENT) or len(code) < _HEADER.size:
        return None
    kind, machine, at, _size, count, _names = _HEADER.unpack_from(code)
    if (kind, machine) != (_RELOCATABLE, _X86_64):
        return None
    sections = [_Section(*_SECTION.unpack_from(code, at + number * _SECTION.size)) for number in range(count)]
    made, places = bytearray(), dict[int, int]()
    for number, section in enumerate(sections):
        # what lies beside the code is for those who unwind it; and nothing in this memory can be written to
        if section.flags & (_WRITTEN | _LOADED) == _LOADED and section.kind == _PROGRAM:
            made += bytes(-len(made) % max(section.align, 1))
            places[number] = len(made)
            made += code[section.at : section.at + section.size]
    (table,) = (section for section in sections if section.kind == _SYMBOLS)
    symbols = list(_SYMBOL.iter_unpack(code[table.at : table.at + table.size]))
    names_at = sections[table.link].at
    start = None
    for name, _info, _other, number, value, _size in symbols:
        if number in places and code.startswith(function.encode() + b"\0", names_at + name):
            start = places[number] + value
    for section in sections:
        if section.kind != _RELOCATIONS or section.info not in places:
            continue
        for at, how, which, addend in _RELOCATION.iter_unpack(code[section.at : section.at + section.size]):
            _name, _info, _other, number, value, _size = symbols[which]
            if how not in _DISTANCE or number not in places:
                return None
            here = places[section.info] + at
            struct.pack_into("<i", made, here, places[number] + value + addend - here)
    return None if start is None else (bytes(made), start)
