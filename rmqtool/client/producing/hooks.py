"""Hooks that observe sending (client.hook). Override the methods you need.

An error in a hook is logged; the message is sent nevertheless.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from formats.remoting.shapes import MessageQueue
from rmqtool.client.cluster.hooks import tell_hooks
from rmqtool.client.producing.message import Outgoing, SendResult


@dataclass(kw_only=True)
class SendAttempt:
    """One send request (SendMessageContext).

    Attributes:
        topics, properties, bodies: of each message in the request.
        half: the message is a half message of a transaction.
        began: ms since the epoch.
        took: duration in ms, once it was answered or has failed.
        results: one per message, if stored.
        error: the error otherwise.
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
    """Observes each attempt to send (SendMessageHook)."""

    def before(self, sending: SendAttempt) -> None:
        """Called before the request is sent."""

    def after(self, sending: SendAttempt) -> None:
        """Called after it was answered or has failed."""


class SendHooks:
    """The hooks of one producer.

    Args:
        group: the application's name of the group, without namespace.
    """

    def __init__(self, group: str, hooks: Sequence[object]) -> None:
        self._group = group
        self._hooks = [hook for hook in hooks if isinstance(hook, SendHook)]

    def call_before(self, outgoing: Outgoing, queue: MessageQueue, address: str) -> SendAttempt | None:
        """Call the hooks before an attempt; None if there are none."""
        if not self._hooks:
            return None
        sending = SendAttempt(
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

    def call_after(
        self, sending: SendAttempt | None, results: Sequence[SendResult] = (), error: Exception | None = None
    ) -> None:
        """Call the hooks after the attempt."""
        if sending is not None:
            sending.took, sending.results, sending.error = time.time_ns() // 1_000_000 - sending.began, results, error
            tell_hooks([hook.after for hook in self._hooks], sending)


@dataclass(kw_only=True)
class EndTransactionContext:
    """The reported outcome of a transaction (EndTransactionContext).

    Attributes:
        state: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
        checked: the report answers a broker's check.
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
    """Observes the ends of transactions (EndTransactionHook)."""

    def before_end(self, ending: EndTransactionContext) -> None:
        """Called before the outcome is sent to the broker."""
