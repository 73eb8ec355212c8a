"""What looks on while messages are consumed (client.hook). Every method may be left as it is.

A hook that fails is logged; the message is consumed all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from formats.remoting.shapes import MessageQueue
from rmqtool.client.pulling.pull import Received


@dataclass(kw_only=True)
class Consumption:
    """Messages that a listener has at a time (ConsumeMessageContext).

    Attributes:
        began: ms since the epoch.
        took: ms, once the listener has returned.
        success: they need not come again.
        outcome: SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL or FAILED (ConsumeReturnType).
    """

    group: str
    queue: MessageQueue
    messages: Sequence[Received]
    began: int = 0
    took: int = 0
    success: bool = False
    outcome: str = "FAILED"
    more: dict[object, Any] = field(default_factory=dict)  # for the hooks


class ConsumeHook:
    """Sees what listeners get, and what they make of it (ConsumeMessageHook)."""

    def before(self, consumption: Consumption) -> None:
        """The listener is about to get them."""

    def after(self, consumption: Consumption) -> None:
        """It has returned."""
