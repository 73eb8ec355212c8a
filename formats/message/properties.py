"""Message properties: ``name 0x01 value`` items joined by ``0x02``.

Source: common.message.MessageDecoder; store-formats 2.7, 2.8.
"""

from collections.abc import Mapping, Sequence

from formats.errors import BadLength, BadText

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
DELAY = "DELAY"
WAIT = "WAIT"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER = "INNER_"  # begins the names of all properties that are numbers whatever the topic is
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
BATCH_NUMBERS = ((INNER_BASE.encode(), 64), (INNER_NUM.encode(), 16))  # which 5.x takes for numbers of so many bits

NAME_END = 1  # the byte between a name and its value
ITEM_END = 2  # and the one between items
_item = chr(NAME_END).join
CRC32_NAME = b"__CRC32#"
CRC32_SIZE = 20  # bytes that the whole-record CRC property takes at the end of the record


def parse_raw(data: bytes) -> dict[bytes, bytes]:
    """Name to value as bytes, by Java's own rule of 4.9.1 and later.

    Items shorter than three bytes, without a name or without a value are passed over; a value may hold ``0x01``; of
    equal names the last wins.
    """
    items: dict[bytes, bytes] = {}
    for item in data.split(b"\x02"):
        name, sep, value = item.partition(b"\x01")
        if name and sep and value:
            items[name] = value
    return items


def parse(data: bytes) -> dict[str, str]:
    """As :func:`parse_raw`, decoded; malformed UTF-8 becomes U+FFFD as it does in Java."""
    return {n.decode("utf-8", "replace"): v.decode("utf-8", "replace") for n, v in parse_raw(data).items()}


def parse_text(text: str) -> dict[str, str]:
    """As :func:`parse` for what :func:`build` gives, before it is encoded."""
    if not text.isascii():
        return parse(text.encode("utf-8", "surrogatepass"))
    items: dict[str, str] = {}
    for item in text.split("\x02"):
        name, _sep, value = item.partition("\x01")
        if name and value:
            items[name] = value
    return items


def build(properties: Mapping[str, str], *, trailing_separator: bool = False) -> bytes:
    """The stored form. 4.9.1 to 5.1.4 write no separator after the last item, earlier and later versions do.

    Raises:
        BadText: a name holds a separator, or a value the one between items: it would read as another property.
        BadLength: longer than the 32,767 bytes that the two-byte length field can say.
    """
    try:
        data = "\x02".join(map(_item, properties.items())).encode()
    except TypeError:  # values that are no texts
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
    """As :func:`build` for each of many, which takes less than one by one."""
    try:
        texts = ["\x02".join(map(_item, properties.items())) for properties in many]
    except TypeError:
        texts = []
    whole = "\x02".join(texts)
    items = sum(map(len, many))
    plain = whole.isascii() and all(texts) and max(map(len, texts), default=0) < 0x7FFF
    if not plain or whole.count("\x01") != items or whole.count("\x02") != items - 1:
        return [build(properties, trailing_separator=trailing_separator) for properties in many]
    end = "\x02" if trailing_separator else ""
    return [(text + end).encode() for text in texts]


def split_keys(keys: str) -> list[str]:
    """The application's keys: separated by one space, empty ones dropped (store.index.IndexService)."""
    return [key for key in keys.split(" ") if key]


def crc_property(crc: int) -> bytes:
    """The 20 bytes of the property ``__CRC32#`` (5.2 and later): decimal digits, least significant first, padded."""
    return CRC32_NAME + b"\x01" + str(crc)[::-1].ljust(10, "0").encode() + b"\x02"
