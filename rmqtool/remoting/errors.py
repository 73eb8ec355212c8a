"""Errors between two peers."""

from rmqtool.errors import RmqError


class RemotingError(RmqError):
    """A peer could not be reached, did not answer, or broke the protocol."""


class NotReached(RemotingError):
    """No connection could be made."""


class NoAnswer(RemotingError):
    """A response did not come in time."""


class ConnectionLost(RemotingError):
    """The connection ended, or was closed, before the response came."""
