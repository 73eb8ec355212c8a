"""Errors between a client and a cluster."""

from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.errors import RmqError
from rmqtool.remoting.errors import RemotingError


class ClientError(RmqError):
    """The cluster cannot do what was asked."""


class NoRoute(ClientError):
    """No name server knows the topic, or none of its brokers is usable."""


class NotNameServer(ClientError):
    """A server that was given as a name server is something else, most likely a broker."""


class BadAnswer(RemotingError):
    """A peer's answer is invalid."""


class MasterAway(BadAnswer):
    """A slave answers, which has less of a queue than was read, and its master is away."""


class NotThere(BadAnswer):
    """A broker skips messages that have not expired, in a pull without a filter.

    Attributes:
        next_offset: the offset that it continues at.
    """

    def __init__(self, text: str, next_offset: int) -> None:
        super().__init__(text)
        self.next_offset = next_offset


class BrokerError(ClientError):
    """A peer answered with an error.

    Attributes:
        code: the response code.
        remark: its text.
        address: of the peer.
    """

    def __init__(self, response: Command, address: str) -> None:
        name = ResponseCode(response.code).name if response.code in set(ResponseCode) else "unknown code"
        remark = " ".join((response.remark or "no reason given").split())
        older = " by its release" if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED else ""
        super().__init__(f"{address}: {name} ({response.code}): {remark[:500]}{older}")
        self.code, self.remark, self.address = response.code, response.remark, address
