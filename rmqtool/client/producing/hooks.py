"""What looks on while messages are sent (client.hook). Every method may be left as it is.

A hook that fails is logged; the message is sent all the same.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.hooks import tell_hooks
from rmqtool.client.producing.message import SendResult
from rmqtool.client.producing.requests import Outgoing


@dataclass(kw_only=True)
class Sending:
    """One request that sends something (SendMessageContext).

    Attributes:
        topics, properties, bodies: of each message in it.
        half: the message waits for the end of a transaction.
        began: ms since the epoch.
        took: ms, once it is answered, or has failed.
        results: one for each message, where it was stored.
        error: why it was not.
    """

    group: str
    queue: MessageQueue
    address: str
    properties: Sequence[dict[str, str]]
    bodies: Sequence[bytes]
    half: bool = False
    began: int = 0
    took: int = 0
    results: Sequence[SendResult] = ()
    error: Exception | None = None
    more: dict[object, Any] = field(default_factory=dict)  # for the hooks


class SendHook:
    """Sees each attempt to send (SendMessageHook)."""

    def before(self, sending: Sending) -> None:
        """It is about to go out."""

    def after(self, sending: Sending) -> None:
        """It was answered, or has failed."""


class SendHooks:
    """Those of one producer.

    Args:
        group: as the application knows it.
    """

    def __init__(self, group: str, hooks: Sequence[object]) -> None:
        self._group = group
        self._hooks = [hook for hook in hooks if isinstance(hook, SendHook)]

    def before(self, outgoing: Outgoing, queue: MessageQueue, address: str) -> Sending | None:
        """An attempt is about to be made; None where nobody looks on."""
        if not self._hooks:
            return None
        sending = Sending(
            group=self._group,
            queue=queue,
            address=address,
            properties=[dict(named) for _message, named in outgoing.messages],
            bodies=[message.body for message, _named in outgoing.messages],
            half=outgoing.half,
            began=time.time_ns() // 1_000_000,
        )
        tell_hooks([hook.before for hook in self._hooks], sending)
        return sending

    def after(
        self, sending: Sending | None, results: Sequence[SendResult] = (), error: Exception | None = None
    ) -> None:
        """It was made."""
        if sending is not None:
            sending.took, sending.results, sending.error = time.time_ns() // 1_000_000 - sending.began, results, error
            tell_hooks([hook.after for hook in self._hooks], sending)


@dataclass(kw_only=True)
class EndTransactionContext:
    """How a transaction was said to have ended (EndTransactionContext).

    Attributes:
        state: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
        checked: the broker had asked.
    """

    group: str
    topic: str
    properties: dict[str, str]
    message_id: str
    transaction_id: str | None
    address: str
    state: str
    checked: bool


class EndHook:
    """Sees how transactions end (EndTransactionHook)."""

    def ended(self, ending: EndTransactionContext) -> None:
        """The end of a transaction goes to the broker."""
