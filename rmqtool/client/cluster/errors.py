"""What can go wrong between a client and a cluster."""

from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.errors import RmqError
from rmqtool.remoting.errors import RemotingError


class ClientError(RmqError):
    """The cluster cannot do what it was asked for."""


class NoRoute(ClientError):
    """No name server knows where the topic is, or none of its brokers can be used."""


class BadAnswer(RemotingError):
    """A peer answered with something that is no answer to the request."""


class NotThere(BadAnswer):
    """A broker passes over messages of a queue that has not lost them by expiry, and of which all were asked for.

    Attributes:
        next_offset: where it goes on.
    """

    def __init__(self, words: str, next_offset: int) -> None:
        super().__init__(words)
        self.next_offset = next_offset


class BrokerError(ClientError):
    """A peer answered with an error.

    Attributes:
        code: the response code.
        remark: its words.
        address: who answered.
    """

    def __init__(self, response: Command, address: str) -> None:
        name = ResponseCode(response.code).name if response.code in set(ResponseCode) else "unknown code"
        remark = " ".join((response.remark or "no reason given").split())
        super().__init__(f"{address}: {name} ({response.code}): {remark[:500]}")
        self.code, self.remark, self.address = response.code, response.remark, address
