"""Texts inside records, compiled: where they end, whether two are the same, and Java's hash of them.

No ASCII text is gone through byte by byte, and nothing depends on where its last whole word ends: what does not fill a
word is read as the end of a word that begins before the text. A record has a head in front of any text, so that there
always are bytes to read.
"""

from typing import Any

import numpy as np

from formats.jit import byte_at, matches_at, part, trailing_zeros, word_at

MARKED = 64  # bytes that are looked at at once; so many can be read before the end of each text
_NOT_ASCII = -0x7F7F7F7F7F7F7F80  # the high bit of each byte
_EACH_PAIR, _EACH_FOUR = 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF
_POWERS = np.array([31**n & 0xFFFFFFFF for n in range(9)], np.int64)
_P2, _P4, _P8 = int(_POWERS[2]), int(_POWERS[4]), int(_POWERS[8])


@part
def last_word(stop: Any, count: Any) -> Any:
    """The last 1 to 8 bytes before an address as a word: the first of them lowest, behind zeros."""
    others = np.uint64(64 - 8 * count)
    return np.int64(word_at(stop - 8) >> others << others)


@part
def marks_in(at: Any, stop: Any, byte: Any) -> Any:
    """Which of the first 64 bytes of [at, stop), or of all, are that byte: a bit each, the first one lowest.

    The range is not empty.
    """
    if stop - at >= MARKED:
        return matches_at(at, byte)
    return matches_at(stop - MARKED, byte) >> np.uint64(MARKED - (stop - at))


@part
def first_in(at: Any, stop: Any, byte: Any) -> Any:
    """Address of the first such byte in [at, stop), or ``stop``; the range is not empty."""
    while stop - at > MARKED:
        marks = matches_at(at, byte)
        if marks != 0:
            return at + trailing_zeros(marks)
        at += MARKED
    marks = marks_in(at, stop, byte)
    return at + trailing_zeros(marks) if marks != 0 else stop


@part
def same_text(a: Any, b: Any, length: Any) -> Any:
    """Whether the texts of that length at two addresses are the same."""
    while length >= 8:
        if word_at(a) != word_at(b):
            return False
        a, b, length = a + 8, b + 8, length - 8
    return length == 0 or last_word(a + length, length) == last_word(b + length, length)


@part
def character(at: Any, stop: Any) -> Any:
    """(bytes, code point) of the character at an address; 0 bytes where UTF-8 is malformed."""
    first = byte_at(at)
    if first < 0x80:
        return 1, first
    if first < 0xC2 or first > 0xF4:
        return 0, 0
    size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    if at + size > stop:
        return 0, 0
    code = first & (0x7F >> size)
    for i in range(1, size):
        following = byte_at(at + i)
        if following & 0xC0 != 0x80:
            return 0, 0
        code = code << 6 | (following & 0x3F)
    if size == 3 and (code < 0x800 or 0xD800 <= code <= 0xDFFF):
        return 0, 0
    if size == 4 and (code < 0x10000 or code > 0x10FFFF):
        return 0, 0
    return size, code


@part
def _hash_of_word(word: Any) -> Any:
    """Of eight ASCII characters; zeros in front of fewer do not count.

    Characters are put together by twos, these by twos, and these: three multiplications that each serve a whole word,
    instead of eight that wait for each other.
    """
    pairs = (word & _EACH_PAIR) * 31 + (word >> 8 & _EACH_PAIR)
    fours = (pairs & _EACH_FOUR) * _P2 + (pairs >> 16 & _EACH_FOUR)
    return (fours & 0xFFFFFFFF) * _P4 + (fours >> 32)


@part
def _hash_by_characters(before: Any, at: Any, stop: Any) -> Any:
    value = before
    while at < stop:
        size, code = character(at, stop)
        if size == 0:
            return False, value
        at += size
        if code >= 0x10000:  # two UTF-16 units
            value = value * 31 + 0xD7C0 + (code >> 10)
            code = 0xDC00 + (code & 0x3FF)
        value = value * 31 + code
    return True, value


@part
def hash_on(before: Any, at: Any, stop: Any) -> Any:
    """(whether well-formed, Java's hash in its low 32 bits) of a text whose beginning has the hash ``before``."""
    value = before
    while stop - at >= 8:
        word = np.int64(word_at(at))
        if word & _NOT_ASCII:
            return _hash_by_characters(value, at, stop)
        value = value * _P8 + _hash_of_word(word)
        at += 8
    left = stop - at
    if left > 0:
        word = last_word(stop, left)
        if word & _NOT_ASCII:
            return _hash_by_characters(value, at, stop)
        value = value * _POWERS[left] + _hash_of_word(word)
    return True, value


@part
def signed(value: Any) -> Any:
    """The low 32 bits as Java's int."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


@part
def index_hash(value: Any) -> Any:
    """Of a key, as the index stores it: no hash is negative, and the one without a positive counterpart is 0."""
    return abs(signed(value)) & 0x7FFFFFFF
