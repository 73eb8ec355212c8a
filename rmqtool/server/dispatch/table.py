"""The table of requests: code -> header, body, right, first release, handler.

A handler is a method that declares its request in one place: codes, right and release in its decorator, header and
body in the type of its argument::

    @handles(C.GET_MAX_OFFSET, right=use_topic)
    def find_max_offset(self, call: Call[h.Queue, None]) -> Command:
        return call.answer(h.Offset(offset=...))

`collect` makes one table of several classes of handlers, and `bind` looks up the handlers of one server.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any, Generic, TypeAlias, TypeVar, get_args

from formats.fastjson.declare import Bean, Declared, body_of, read_body
from formats.model.topics import DataVersion
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.fields import from_fields, short_names, to_fields
from formats.remoting.frame import Command
from rmqtool.remoting.connection import Answer, Connection, Handler
from rmqtool.rules.releases import V4_9, Release

H = TypeVar("H")
B = TypeVar("B")

_SHORT_NAMES = short_names(h.Send)
_LONG_NAMED = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)  # newer versions use one-letter names


@dataclass(slots=True)
class Call(Generic[H, B]):
    """A request, as a handler gets it.

    Attributes:
        header: as declared by the handler; None if it declares none.
        body: the declared object; for ``bytes`` the raw body, None if the handler declares none.
    """

    connection: Connection
    request: Command
    header: H
    body: B

    def answer(
        self,
        header: Declared | None = None,
        body: Declared | bytes | None = None,
        *,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
    ) -> Command:
        """The response.

        Args:
            header: its fields; None for none.
            body: bytes, or an object to write as JSON.
        """
        data = body if isinstance(body, bytes) else b"" if body is None else body_of(body)
        fields = {} if header is None else to_fields(header)
        return self.request.response(code, remark, fields=fields, body=data)


Right: TypeAlias = Callable[[Any, Call[Any, Any]], Iterable[tuple[str, int]]]
"""What a caller needs: topics and groups, each with the permissions of which it needs one."""
_Method: TypeAlias = Callable[[Any, Call[Any, Any]], Answer]
M = TypeVar("M", bound=_Method)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One row of the table.

    Attributes:
        header, body: their types; None if it is not read.
        right: None for administrators only.
        since: the first release that has it.
        handler: a method.
    """

    code: RequestCode
    header: type[Any] | None
    body: type[Any] | None
    right: Right | None
    since: Release
    handler: _Method
    read_header: Callable[[Mapping[str, str] | None], Any]
    read_body: Callable[[bytes], Any]

    def read(self, connection: Connection, request: Command) -> Call[Any, Any]:
        """Read the call for the handler.

        Raises:
            FormatError: the header or body does not parse as declared.
        """
        return Call(connection, request, self.read_header(request.fields), self.read_body(request.body))

    def bound(self, owner: object) -> Handler:
        """The handler as a method of its owner, which reads a request before it answers."""
        handler, read_header, read_body = partial(self.handler, owner), self.read_header, self.read_body
        return lambda connection, request: handler(
            Call(connection, request, read_header(request.fields), read_body(request.body))
        )


ROWS: dict[Callable[..., Any], list[RequestRow]] = {}
"""All rows by handler, of whatever server."""


def handles(*codes: RequestCode, right: Right | None = None, since: Release = V4_9) -> Callable[[M], M]:
    """Mark a method as the handler of requests.

    Args:
        right: what a caller needs under access control; without it only administrators may ask.
        since: the first release that has the requests.
    """

    def enter(handler: M) -> M:
        header, body = (None if kind is NoneType else kind for kind in get_args(handler.__annotations__["call"]))
        ROWS[handler] = [
            RequestRow(
                code=code,
                header=header,
                body=body,
                right=right,
                since=since,
                handler=handler,
                read_header=_header_reader(code, header),
                read_body=_body_reader(body),
            )
            for code in codes
        ]
        return handler

    return enter


def _header_reader(code: int, header: type[Any] | None) -> Callable[[Mapping[str, str] | None], Any]:
    if header is None:
        return lambda _fields: None
    if code in _LONG_NAMED:
        return lambda fields: from_fields(
            header, {_SHORT_NAMES.get(name, name): value for name, value in (fields or {}).items()}
        )
    return partial(from_fields, header)


def _body_reader(body: type[Any] | None) -> Callable[[bytes], Any]:
    if body is None:
        return lambda _data: None
    if body is bytes:
        return lambda data: data
    # what goes into files is read as files are
    return body.parse if issubclass(body, Bean) and body is not DataVersion else partial(read_body, body)


def rows_of(owner: type) -> list[RequestRow]:
    """The requests that the methods of a class handle."""
    return [row for member in vars(owner).values() if callable(member) for row in ROWS.get(member, ())]


def collect(*owners: type) -> dict[int, RequestRow]:
    """The table of the requests that classes handle.

    Raises:
        TypeError: two handlers for one request.
    """
    rows = [row for owner in owners for row in rows_of(owner)]
    table: dict[int, RequestRow] = {row.code: row for row in rows}
    if len(table) < len(rows):
        raise TypeError(f"two handlers for one request of {owners}")
    return table


def bind(owners: Iterable[object], release: Release) -> dict[int, Handler]:
    """The handlers of a server of a release, by request code.

    Args:
        owners: objects of the classes that handle requests.
    """
    return {
        row.code: row.bound(owner)
        for owner in owners
        for row in rows_of(type(owner))
        if release.version >= row.since.version
    }


def refuse_unknown(request: Command) -> Command:
    """The answer to a request that has no handler."""
    return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")
