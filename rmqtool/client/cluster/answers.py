"""Validate answers of peers."""

from typing import TypeVar

from formats.errors import FormatError
from formats.fastjson.declare import Declared, read_body
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields
from formats.remoting.frame import Command
from rmqtool.client.cluster.errors import BadAnswer, BrokerError

T = TypeVar("T", bound=Declared)
SEND_STATUSES: dict[int, str] = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}
"""Response codes of messages that are stored, by their names (SendStatus)."""


def require_success(response: Command, address: str) -> Command:
    """Return the response if it is a success.

    Raises:
        BrokerError: it has another code.
    """
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError(response, address)
    return response


def header_from(declared: type[T], response: Command, address: str) -> T:
    """The declared header of a response.

    Raises:
        BadAnswer: its fields do not match the declaration.
    """
    try:
        return from_fields(declared, response.fields)
    except FormatError as err:
        raise BadAnswer(f"{address}: not an answer to the request: {err}") from None


def body_from(declared: type[T], response: Command, address: str) -> T:
    """The declared JSON body of a response.

    Raises:
        BadAnswer: it does not match the declaration.
    """
    try:
        return read_body(declared, response.body)
    except FormatError as err:
        raise BadAnswer(f"{address}: not an answer to the request: {err}") from None
