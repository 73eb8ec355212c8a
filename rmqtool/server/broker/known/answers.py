"""Requests and answers in the form that handlers need."""

from typing import Any, TypeVar

from formats.fastjson.declare import Declared, body_of, read_body
from formats.remoting import headers as h
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, short_names, to_fields
from formats.remoting.frame import Command

T = TypeVar("T", bound=Declared)
_SHORT = short_names(h.Send)


class Failed(Exception):
    """A request that is answered with an error, which is nobody's fault but its sender's.

    Attributes:
        code: of the answer.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code

    def answer(self, request: Command) -> Command:
        """The response."""
        return request.response(self.code, str(self))


def header_of(declared: type[T], request: Command) -> T:
    """The declared header of a request.

    Raises:
        BadText: a field is missing, or not of its type.
    """
    return from_fields(declared, request.fields)


def send_header(request: Command, *, old: int) -> h.Send:
    """The header of a request to send.

    Args:
        old: code of the request whose fields have their whole names.
    """
    if request.code != old:
        return header_of(h.Send, request)
    fields = {_SHORT.get(name, name): value for name, value in (request.fields or {}).items()}
    return from_fields(h.Send, fields)


def content_of(declared: type[T], request: Command) -> T:
    """The declared body of a request.

    Raises:
        BadText: it does not hold what is declared.
    """
    return read_body(declared, request.body)


def answer(
    request: Command,
    header: Declared | None = None,
    body: Declared | bytes | None = None,
    *,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
) -> Command:
    """The response to a request.

    Args:
        header: its fields; None for none.
        body: bytes, or what is to be written as JSON.
    """
    data = body if isinstance(body, bytes) else b"" if body is None else body_of(body)
    fields = {} if header is None else to_fields(header)
    return request.response(code, remark, fields=fields, body=data)


def number(text: Any) -> int | None:
    """A whole number of a text, None for anything else."""
    try:
        return int(text)
    except (TypeError, ValueError):
        return None
