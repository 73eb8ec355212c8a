"""A client of RocketMQ brokers of 4.9 and 5.3, over the remoting protocol.

It is asynchronous; :mod:`rmqtool.client.sync` has the same interface for programs without asyncio.

async with Producer("127.0.0.1:9876") as producer:
    result = await producer.send(Message("Orders", b"hello", keys=["order-1"]))
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from formats.remoting.shapes import MessageQueue
    from rmqtool.client.cluster.cluster import ClientOptions, Cluster
    from rmqtool.client.consumer.lite import LitePullConsumer
    from rmqtool.client.consumer.options import FlowLimits, From, Later, Ordered, PollOptions, PushOptions, Sql, Suspend
    from rmqtool.client.consumer.pull import PullConsumer
    from rmqtool.client.consumer.push import PushConsumer
    from rmqtool.client.consumer.received import Received
    from rmqtool.client.producing.message import Message, NotSent, SendResult
    from rmqtool.client.producing.producer import Producer, ProducerOptions, by_hash
    from rmqtool.client.producing.replying import NoReply, Replied, reply_to
    from rmqtool.client.producing.transactions import State, TransactionProducer
    from rmqtool.client.tracing.tracer import Tracer
    from rmqtool.remoting.signing import Credentials
    from rmqtool.remoting.tls import client_tls

__all__ = [
    "ClientOptions", "Cluster", "Credentials", "FlowLimits", "From", "Later", "LitePullConsumer", "Message",
    "MessageQueue", "NoReply", "NotSent", "Ordered", "PollOptions", "Producer", "ProducerOptions", "PullConsumer",
    "PushConsumer", "PushOptions", "Received", "Replied", "SendResult", "Sql", "State", "Suspend", "Tracer",
    "TransactionProducer", "by_hash", "client_tls", "reply_to",
]  # fmt: skip
_MODULES = {
    "formats.remoting.shapes": ("MessageQueue",),
    "rmqtool.client.cluster.cluster": ("ClientOptions", "Cluster"),
    "rmqtool.client.consumer.lite": ("LitePullConsumer",),
    "rmqtool.client.consumer.options": (
        "FlowLimits",
        "From",
        "Later",
        "Ordered",
        "PollOptions",
        "PushOptions",
        "Sql",
        "Suspend",
    ),
    "rmqtool.client.consumer.pull": ("PullConsumer",),
    "rmqtool.client.consumer.push": ("PushConsumer",),
    "rmqtool.client.consumer.received": ("Received",),
    "rmqtool.client.producing.message": ("Message", "NotSent", "SendResult"),
    "rmqtool.client.producing.producer": ("Producer", "ProducerOptions", "by_hash"),
    "rmqtool.client.producing.replying": ("NoReply", "Replied", "reply_to"),
    "rmqtool.client.producing.transactions": ("State", "TransactionProducer"),
    "rmqtool.client.tracing.tracer": ("Tracer",),
    "rmqtool.remoting.signing": ("Credentials",),
    "rmqtool.remoting.tls": ("client_tls",),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
