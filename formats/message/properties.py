"""Message properties: ``name 0x01 value`` items separated by ``0x02``.

Source: common.message.MessageDecoder; store-formats 2.7, 2.8.
"""

from collections.abc import Mapping, Sequence

from formats.errors import BadLength, BadText

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
DELAY = "DELAY"
WAIT = "WAIT"
SHARDING_KEY = "__SHARDINGKEY"
PRIORITY = "_SYS_MSG_PRIORITY_"  # 5.4
LITE_TOPIC = "__LITE_TOPIC"  # 5.5
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER = "INNER_"  # prefix of all properties that are numeric in every topic
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
BATCH_NUMBERS = (
    (INNER_BASE.encode(), 64),
    (INNER_NUM.encode(), 16),
)  # properties that 5.x parses as numbers, with their widths in bits

NAME_END = 1  # the byte between a name and its value
ITEM_END = 2  # the byte between items
_item = chr(NAME_END).join
CRC32_NAME = b"__CRC32#"
CRC32_SIZE = 20  # size of the whole-record CRC property at the end of the record, bytes


def parse_raw(data: bytes) -> dict[bytes, bytes]:
    """Return names and values as bytes, parsed like Java of 4.9.1 and later.

    Items that are shorter than three bytes or have no name or no value are skipped; a value may contain ``0x01``; of
    duplicate names the last wins.
    """
    items: dict[bytes, bytes] = {}
    for item in data.split(b"\x02"):
        name, sep, value = item.partition(b"\x01")
        if name and sep and value:
            items[name] = value
    return items


def parse(data: bytes) -> dict[str, str]:
    """As :func:`parse_raw`, decoded; malformed UTF-8 becomes U+FFFD, as in Java."""
    return {n.decode("utf-8", "replace"): v.decode("utf-8", "replace") for n, v in parse_raw(data).items()}


def parse_text(text: str) -> dict[str, str]:
    """As :func:`parse`, for the output of :func:`build` before encoding."""
    if not text.isascii():
        return parse(text.encode("utf-8", "surrogatepass"))
    items: dict[str, str] = {}
    for item in text.split("\x02"):
        name, _sep, value = item.partition("\x01")
        if name and value:
            items[name] = value
    return items


def build(properties: Mapping[str, str], *, trailing_separator: bool = False) -> bytes:
    """Return the stored form. 4.9.1 to 5.1.4 write no separator after the last item; other versions do.

    Raises:
        BadText: a name contains a separator, or a value the item separator, so it would parse as another property.
        BadLength: longer than 32,767 bytes, the maximum of the two-byte length field.
    """
    try:
        data = "\x02".join(map(_item, properties.items())).encode()
    except TypeError:  # values that are not strings
        data = "\x02".join([f"{name}\x01{value}" for name, value in properties.items()]).encode()
    count = len(properties)
    if data.count(NAME_END) != count or data.count(ITEM_END) + 1 != count:
        for name, value in properties.items():
            if "\x01" in name or "\x02" in name or "\x02" in str(value):
                raise BadText(0, f"property {name[:80]!r} holds a separator of properties, U+0001 or U+0002")
    if trailing_separator and data:
        data += b"\x02"
    if len(data) > 0x7FFF:
        raise BadLength(0, f"properties of {len(data)} bytes, at most 32767 fit")
    return data


def build_many(many: Sequence[Mapping[str, str]], *, trailing_separator: bool = False) -> list[bytes]:
    """As :func:`build` for each of many, but faster than calling it repeatedly."""
    try:
        texts = ["\x02".join(map(_item, properties.items())) for properties in many]
    except TypeError:
        texts = []
    joined = "\x02".join(texts)
    items = sum(map(len, many))
    plain = joined.isascii() and all(texts) and max(map(len, texts), default=0) < 0x7FFF
    if not plain or joined.count("\x01") != items or joined.count("\x02") != items - 1:
        return [build(properties, trailing_separator=trailing_separator) for properties in many]
    end = "\x02" if trailing_separator else ""
    return [(text + end).encode() for text in texts]


def split_keys(keys: str) -> list[str]:
    """Split the application's keys at single spaces and drop empty ones (store.index.IndexService)."""
    return [key for key in keys.split(" ") if key]


def crc_property(crc: int) -> bytes:
    """Return the 20-byte property ``__CRC32#`` (5.2 and later): decimal digits, least significant first, padded."""
    return CRC32_NAME + b"\x01" + str(crc)[::-1].ljust(10, "0").encode() + b"\x02"
