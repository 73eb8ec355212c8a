"""A client of RocketMQ brokers of 4.9 and 5.3, over the remoting protocol.

It is asynchronous; :mod:`rmqtool.client.sync` has the same for programs without asyncio.

async with Producer("127.0.0.1:9876") as producer:
    result = await producer.send(Message("Orders", b"hello", keys=["order-1"]))
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from formats.remoting.shapes import MessageQueue
    from rmqtool.client.cluster.cluster import ClientOptions, Cluster
    from rmqtool.client.producing.message import Message, NotSent, SendResult
    from rmqtool.client.producing.producer import Producer, ProducerOptions, by_hash

__all__ = [
    "ClientOptions", "Cluster", "Message", "MessageQueue", "NotSent", "Producer", "ProducerOptions", "SendResult",
    "by_hash",
]  # fmt: skip
_LAZY = {
    "ClientOptions": "rmqtool.client.cluster.cluster",
    "Cluster": "rmqtool.client.cluster.cluster",
    "Message": "rmqtool.client.producing.message",
    "MessageQueue": "formats.remoting.shapes",
    "NotSent": "rmqtool.client.producing.message",
    "Producer": "rmqtool.client.producing.producer",
    "ProducerOptions": "rmqtool.client.producing.producer",
    "SendResult": "rmqtool.client.producing.message",
    "by_hash": "rmqtool.client.producing.producer",
}


def __getattr__(name: str) -> object:
    """A part is loaded when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
