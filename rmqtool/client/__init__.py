"""A client of RocketMQ brokers of 4.9 and 5.3, over the remoting protocol.

It is asynchronous; :mod:`rmqtool.client.sync` has the same for programs without asyncio.

async with Producer("127.0.0.1:9876") as producer:
    result = await producer.send(Message("Orders", b"hello", keys=["order-1"]))
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from formats.remoting.shapes import MessageQueue
    from rmqtool.client.cluster.cluster import ClientOptions, Cluster
    from rmqtool.client.consuming.consumer import PushConsumer
    from rmqtool.client.consuming.options import From, Later, PushOptions
    from rmqtool.client.consuming.process_queue import FlowLimits
    from rmqtool.client.producing.message import Message, NotSent, SendResult
    from rmqtool.client.producing.producer import Producer, ProducerOptions, by_hash
    from rmqtool.client.producing.transactions import State, TransactionProducer
    from rmqtool.client.pulling.consumer import PullConsumer
    from rmqtool.client.pulling.pull import Received
    from rmqtool.remoting.tls import client_tls

__all__ = [
    "ClientOptions", "Cluster", "FlowLimits", "From", "Later", "Message", "MessageQueue", "NotSent", "Producer",
    "ProducerOptions", "PullConsumer", "PushConsumer", "PushOptions", "Received", "SendResult", "State",
    "TransactionProducer", "by_hash", "client_tls",
]  # fmt: skip
_LAZY = {
    "ClientOptions": "rmqtool.client.cluster.cluster",
    "Cluster": "rmqtool.client.cluster.cluster",
    "FlowLimits": "rmqtool.client.consuming.process_queue",
    "From": "rmqtool.client.consuming.options",
    "Later": "rmqtool.client.consuming.options",
    "Message": "rmqtool.client.producing.message",
    "MessageQueue": "formats.remoting.shapes",
    "NotSent": "rmqtool.client.producing.message",
    "PullConsumer": "rmqtool.client.pulling.consumer",
    "PushConsumer": "rmqtool.client.consuming.consumer",
    "PushOptions": "rmqtool.client.consuming.options",
    "Received": "rmqtool.client.pulling.pull",
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
