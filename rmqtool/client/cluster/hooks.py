"""What looks on while a client works (remoting.RPCHook)."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from formats.remoting.frame import Command

log = logging.getLogger(__name__)

T = TypeVar("T")


class RpcHook:
    """Sees every request of this client, and its response (RPCHook)."""

    def before(self, address: str, request: Command) -> Command:
        """The request as it is to go out: the same, or another one in its place."""
        return request

    def after(self, address: str, request: Command, response: Command) -> None:
        """The response to a request that has one."""


def tell_hooks(methods: Iterable[Callable[[T], None]], what: T) -> None:
    """Call methods of hooks; one that fails is logged, and disturbs neither the others nor the work."""
    for method in methods:
        try:
            method(what)
        except Exception:
            log.exception("a hook failed")
