"""Hooks that observe a client's requests (remoting.RPCHook)."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from formats.remoting.frame import Command

log = logging.getLogger(__name__)

T = TypeVar("T")


class RpcHook:
    """Called with every request of this client and its response (RPCHook)."""

    def before(self, address: str, request: Command) -> Command:
        """Return the request to send: the same or another."""
        return request

    def after(self, address: str, request: Command, response: Command) -> None:
        """Called with the response, if there is one."""


def tell_hooks(methods: Iterable[Callable[[T], None]], what: T) -> None:
    """Call hooks; errors are logged and disturb nothing."""
    for method in methods:
        try:
            method(what)
        except Exception:
            log.exception("a hook failed")
