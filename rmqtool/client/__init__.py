"""A client of RocketMQ brokers of 4.9 and 5.3, over the remoting protocol.

It is asynchronous; :mod:`rmqtool.client.sync` has the same for programs without asyncio.

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
_LAZY = {
    "ClientOptions": "rmqtool.client.cluster.cluster",
    "Cluster": "rmqtool.client.cluster.cluster",
    "FlowLimits": "rmqtool.client.consumer.options",
    "From": "rmqtool.client.consumer.options",
    "Later": "rmqtool.client.consumer.options",
    "Message": "rmqtool.client.producing.message",
    "MessageQueue": "formats.remoting.shapes",
    "Credentials": "rmqtool.remoting.signing",
    "NoReply": "rmqtool.client.producing.replying",
    "Replied": "rmqtool.client.producing.replying",
    "Tracer": "rmqtool.client.tracing.tracer",
    "reply_to": "rmqtool.client.producing.replying",
    "NotSent": "rmqtool.client.producing.message",
    "LitePullConsumer": "rmqtool.client.consumer.lite",
    "PollOptions": "rmqtool.client.consumer.options",
    "Ordered": "rmqtool.client.consumer.options",
    "Sql": "rmqtool.client.consumer.options",
    "Suspend": "rmqtool.client.consumer.options",
    "PullConsumer": "rmqtool.client.consumer.pull",
    "PushConsumer": "rmqtool.client.consumer.push",
    "PushOptions": "rmqtool.client.consumer.options",
    "Received": "rmqtool.client.consumer.received",
    "Producer": "rmqtool.client.producing.producer",
    "ProducerOptions": "rmqtool.client.producing.producer",
    "SendResult": "rmqtool.client.producing.message",
    "State": "rmqtool.client.producing.transactions",
    "TransactionProducer": "rmqtool.client.producing.transactions",
    "by_hash": "rmqtool.client.producing.producer",
    "client_tls": "rmqtool.remoting.tls",
}


def __getattr__(name: str) -> object:
    """A part is loaded when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
