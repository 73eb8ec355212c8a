"""Frames: one command and its body (netty.NettyDecoder, protocol.RemotingCommand, RocketMQSerializable)."""

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from formats.errors import BadLength, BadText, FormatError, Truncated
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads_plain
from formats.fastjson.values import Value
from formats.fastjson.write import dumps, quote
from formats.layouts.derived import FRAME_HEAD, REMOTING_HEAD
from formats.remoting.codes import MAX_FRAME, VERSION_5_3_3, CommandFlag, Language, ResponseCode, Serializer

Fields = dict[str, str]

_LENGTH = struct.Struct(">i")
_KEY_LENGTH = struct.Struct(">h")
_INT32 = range(-(1 << 31), 1 << 31)
_INT16 = range(-(1 << 15), 1 << 15)
_ALL_TEXT = {str}
# local copies: an enum operation takes about a microsecond
_RESPONSE, _ONEWAY = int(CommandFlag.RESPONSE), int(CommandFlag.ONEWAY)
_JSON, _BINARY = int(Serializer.JSON), int(Serializer.ROCKETMQ)


@dataclass(slots=True)
class Command:
    """A request or a response.

    Attributes:
        code: request or response code.
        opaque: number of the request, repeated in its response.
        fields: values of the declared header ("extFields"); None if the frame has no such object.
        remark: explanation of the outcome.
        serializer: encoding of the header; a response uses that of its request.
    """

    code: int
    opaque: int = 0
    flag: int = 0  # bits of `Flag`
    fields: Fields | None = None
    body: bytes = field(default=b"", repr=False)
    remark: str | None = None
    language: Language | None = Language.JAVA
    version: int = VERSION_5_3_3
    serializer: Serializer = Serializer.JSON
    names_serializer: bool = True  # the JSON header has serializeTypeCurrentRPC

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & _ONEWAY)

    def response(self, code: int = ResponseCode.SUCCESS, remark: str | None = None, **changes: Any) -> "Command":
        """Return a response to this request, with the same number and header encoding."""
        return Command(code, self.opaque, _RESPONSE, remark=remark, serializer=self.serializer, **changes)

    def request(self, opaque: int, *, oneway: bool) -> "Command":
        """Return this command as a request with the given number."""
        return Command(
            self.code,
            opaque,
            self.flag | _ONEWAY if oneway else self.flag & ~_ONEWAY,
            self.fields,
            self.body,
            self.remark,
            self.language,
            self.version,
            self.serializer,
            self.names_serializer,
        )


def size_of(data: bytes | bytearray | memoryview, limit: int = MAX_FRAME) -> int | None:
    """Return the size of the frame at the start of ``data``, or None if its first four bytes are incomplete.

    Raises:
        BadLength: the length is negative, too small or above ``limit``.
    """
    if len(data) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(data)
    if not _LENGTH.size <= length <= limit:
        raise BadLength(0, f"a frame of {length} bytes; {_LENGTH.size} to {limit} are allowed")
    return _LENGTH.size + int(length)


def parse(data: bytes | bytearray | memoryview, limit: int = MAX_FRAME) -> tuple[Command, int] | None:
    """Parse the frame at the start of ``data``.

    Returns:
        The command and the size of the frame in bytes; None if more bytes are needed.

    Raises:
        FormatError: not a frame, whatever bytes follow. ``at`` counts from the start of the frame.
    """
    size = size_of(data, limit)
    if size is None or len(data) < FRAME_HEAD.size:
        return None
    _, info = FRAME_HEAD.unpack_from(data)
    end = FRAME_HEAD.size + (info & 0xFFFFFF)
    if info >> 24 not in (_JSON, _BINARY):
        raise BadLength(4, f"a header of the unknown form {info >> 24 & 0xFF}")
    if end > size:
        raise BadLength(4, f"a header of {info & 0xFFFFFF} bytes in a frame of {size}")
    if len(data) < size:
        return None
    header = bytes(data[FRAME_HEAD.size : end])
    try:
        command = _json_header(header) if info >> 24 == _JSON else _binary_header(header)
    except FormatError as err:
        raise type(err)(FRAME_HEAD.size + err.at, err.reason) from None
    command.body = bytes(data[end:size])
    return command, size


def build(command: Command) -> bytes:
    """Return the bytes of a frame.

    Raises:
        BadLength: the frame exceeds the maximum length, or a field does not fit its length field.
    """
    header = _build_json(command) if command.serializer == Serializer.JSON else _build_binary(command)
    length = FRAME_HEAD.size - _LENGTH.size + len(header) + len(command.body)
    if length > MAX_FRAME:
        raise BadLength(0, f"a frame of {length} bytes; {MAX_FRAME} are allowed")
    return FRAME_HEAD.pack(length, command.serializer << 24 | len(header)) + header + command.body


def _json_header(data: bytes) -> Command:
    header = loads_plain(data)
    if not isinstance(header, dict):
        raise BadText(0, "a header that is not a JSON object")
    language = header.get("language", "JAVA")
    if not isinstance(language, str | None):
        raise BadText(0, "a language that is not text")
    return Command(
        _number(header, "code"),
        _number(header, "opaque"),
        _number(header, "flag"),
        _texts(header.get("extFields")),
        remark=_optional_text(header.get("remark")),
        language=Language.__members__.get(language or ""),  # unknown languages become None, as in Java
        version=_number(header, "version"),
        names_serializer="serializeTypeCurrentRPC" in header,
    )


def _number(header: dict[Any, Value], name: str) -> int:
    value = header.get(name, 0)
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise BadText(0, f"a header whose {name} is no 32-bit number")
    return value


def _optional_text(value: Value) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise BadText(0, "a remark that is not text")


def _texts(value: Value) -> Fields | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadText(0, "extFields that are not a JSON object")
    if {*map(type, value), *map(type, value.values())} <= _ALL_TEXT:  # the common case
        return cast(Fields, value)
    texts: Fields = {}
    for key, item in value.items():
        if not isinstance(key, str) or isinstance(item, list | dict):
            raise BadText(0, "extFields that are not text")
        if item is not None:
            texts[key] = item if isinstance(item, str) else dumps(item, BODY).decode()
    return texts


_quoted_name = lru_cache(1024)(quote)  # there are few distinct declared names


def _build_json(command: Command) -> bytes:
    """Same output as `formats.fastjson.write.dumps`; written out because every response needs it."""
    parts = [f'{{"code":{int(command.code)}']
    if command.fields is not None:
        fields = ",".join([f"{_quoted_name(key)}:{quote(value)}" for key, value in command.fields.items()])
        parts.append(f'"extFields":{{{fields}}}')
    parts.append(f'"flag":{int(command.flag)}')
    if command.language is not None:
        parts.append(f'"language":"{command.language.name}"')
    parts.append(f'"opaque":{command.opaque}')
    if command.remark is not None:
        parts.append(f'"remark":{quote(command.remark)}')
    if command.names_serializer:
        parts.append(f'"serializeTypeCurrentRPC":"{command.serializer.name}"')
    parts.append(f'"version":{command.version}}}')
    return ",".join(parts).encode("utf-8")


def _binary_header(data: bytes) -> Command:
    if len(data) < REMOTING_HEAD.size:
        raise Truncated(len(data), "a header that ends too early")
    code, language, version, opaque, flag = REMOTING_HEAD.unpack_from(data)
    remark, at = _take(data, REMOTING_HEAD.size, len(data), _LENGTH)
    raw, end = _slice(data, at, len(data), _LENGTH)
    if end != len(data):
        raise BadLength(end, "bytes follow the end of the header")
    at = end - len(raw)
    fields: Fields = {}
    while at < end:
        key, at = _take(data, at, end, _KEY_LENGTH)
        value, at = _take(data, at, end, _LENGTH)
        fields[key] = value
    known_language = Language(language) if language in set(Language) else None
    return Command(
        code,
        opaque,
        flag,
        fields if fields else None,
        remark=remark or None,
        language=known_language,
        version=version,
        serializer=Serializer.ROCKETMQ,
    )


def _slice(data: bytes, at: int, end: int, width: struct.Struct) -> tuple[bytes, int]:
    if at + width.size > end:
        raise Truncated(at, "a header that ends too early")
    (length,) = width.unpack_from(data, at)
    start = at + width.size
    if not 0 <= length <= end - start:
        raise BadLength(at, f"a text of {length} bytes where {end - start} are left")
    return data[start : start + length], start + length


def _take(data: bytes, at: int, end: int, width: struct.Struct) -> tuple[str, int]:
    raw, after = _slice(data, at, end, width)
    try:
        return raw.decode("utf-8"), after
    except UnicodeDecodeError as err:
        raise BadText(after - len(raw) + err.start, "bytes that are not UTF-8") from None


def _build_binary(command: Command) -> bytes:
    if command.code not in _INT16:
        raise BadLength(0, f"the code {command.code} does not fit a binary header")
    fields = b"".join(
        _text(key, _KEY_LENGTH, _INT16) + _text(value, _LENGTH, _INT32)
        for key, value in (command.fields or {}).items()
    )  # fmt: skip
    head = REMOTING_HEAD.pack(
        command.code, command.language or 0, command.version, command.opaque, command.flag
    )  # fmt: skip
    return head + _text(command.remark or "", _LENGTH, _INT32) + _LENGTH.pack(len(fields)) + fields


def _text(text: str, width: struct.Struct, allowed: range) -> bytes:
    raw = text.encode("utf-8")
    if len(raw) not in allowed:
        raise BadLength(0, f"a text of {len(raw)} bytes does not fit its length field")
    return width.pack(len(raw)) + raw
