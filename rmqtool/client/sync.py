"""The client for programs without asyncio: the same names, each call returns when it is done.

Every object has an event loop in a thread of its own, and may be used from any thread. Its methods are those of the
asynchronous class of the same name, with the same arguments and errors.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.cluster.loop import Face, calls, starts, waits
from rmqtool.client.consumer import lite, pull, push
from rmqtool.client.consumer.options import Listener, PollOptions, PushOptions
from rmqtool.client.consumer.puller import LOOKING
from rmqtool.client.consumer.received import Received
from rmqtool.client.producing import producer, transactions
from rmqtool.client.producing.producer import ProducerOptions
from rmqtool.client.producing.transactions import Check

__all__ = ["LitePullConsumer", "Producer", "PullConsumer", "PushConsumer", "TransactionProducer"]

Reader = TypeVar("Reader", bound=pull.QueueReader)


class Producer(Face[producer.Producer]):
    """As :class:`rmqtool.client.producing.producer.Producer`. Use as a context manager, or call :meth:`close`.

    ``send_async`` and ``request_async`` return at once: the result is there when the future is done.
    """

    def __init__(
        self, client: str | ClientOptions, group: str = "rmqtool-producer", options: ProducerOptions | None = None
    ) -> None:
        super().__init__(lambda: producer.Producer(client, group, options))

    queues = waits(producer.Producer.queues)
    send = waits(producer.Producer.send)
    send_async = starts(producer.Producer.send_async)
    request = waits(producer.Producer.request)
    request_async = starts(producer.Producer.request)
    send_batch = waits(producer.Producer.send_batch)
    send_oneway = waits(producer.Producer.send_oneway)
    recall = waits(producer.Producer.recall)


class TransactionProducer(Producer):
    """As :class:`rmqtool.client.producing.transactions.TransactionProducer`."""

    def __init__(
        self, client: str | ClientOptions, group: str, check: Check, options: ProducerOptions | None = None
    ) -> None:
        Face.__init__(self, lambda: transactions.TransactionProducer(client, group, check, options))

    send_in_transaction = waits(transactions.TransactionProducer.send_in_transaction)


class QueueReader(Face[Reader]):
    """As :class:`rmqtool.client.consumer.pull.QueueReader`."""

    def __iter__(self) -> Iterator[Received]:
        while True:
            yield from self.poll()

    poll = waits(pull.QueueReader.poll)
    committed = waits(pull.QueueReader.committed)
    position = calls(pull.QueueReader.position)
    offset_at = waits(pull.QueueReader.offset_at)
    seek_to_begin = waits(pull.QueueReader.seek_to_begin)
    seek_to_end = waits(pull.QueueReader.seek_to_end)
    pause = calls(pull.QueueReader.pause)
    resume = calls(pull.QueueReader.resume)
    paused = calls(pull.QueueReader.paused)


class PullConsumer(QueueReader[pull.PullConsumer]):
    """As :class:`rmqtool.client.consumer.pull.PullConsumer`. Use as a context manager, or call :meth:`close`."""

    def __init__(
        self,
        client: str | ClientOptions,
        group: str = LOOKING,
        *,
        tags: Sequence[str] = (),
        sql: str | None = None,
        batch: int = 32,
    ) -> None:
        super().__init__(lambda: pull.PullConsumer(client, group, tags=tags, sql=sql, batch=batch))

    queues = waits(pull.PullConsumer.queues)
    offsets = waits(pull.PullConsumer.offsets)
    assign = waits(pull.PullConsumer.assign)
    assigned = calls(pull.PullConsumer.assigned)
    filter = calls(pull.PullConsumer.filter)
    seek = calls(pull.PullConsumer.seek)
    commit = waits(pull.PullConsumer.commit)


class LitePullConsumer(QueueReader[lite.LitePullConsumer]):
    """As :class:`rmqtool.client.consumer.lite.LitePullConsumer`. Use as a context manager, or call :meth:`close`.

    Watchers of queues are called in the thread of the consumer.
    """

    def __init__(self, client: str | ClientOptions, group: str, options: PollOptions | None = None) -> None:
        super().__init__(lambda: lite.LitePullConsumer(client, group, options))

    subscribe = waits(lite.LitePullConsumer.subscribe)
    unsubscribe = waits(lite.LitePullConsumer.unsubscribe)
    assign = waits(lite.LitePullConsumer.assign)
    assignment = calls(lite.LitePullConsumer.assignment)
    queues = waits(lite.LitePullConsumer.queues)
    on_queues_changed = waits(lite.LitePullConsumer.on_queues_changed)
    seek = waits(lite.LitePullConsumer.seek)
    commit = waits(lite.LitePullConsumer.commit)


class PushConsumer(Face[push.PushConsumer]):
    """As :class:`rmqtool.client.consumer.push.PushConsumer`. Use as a context manager, or call :meth:`close`.

    The listener runs in threads of its own, up to ``PushOptions.concurrency`` at a time.
    """

    def __init__(
        self,
        client: str | ClientOptions,
        group: str,
        topics: Mapping[str, str],
        listener: Listener,
        options: PushOptions | None = None,
    ) -> None:
        super().__init__(lambda: push.PushConsumer(client, group, topics, listener, options))

    queues = calls(push.PushConsumer.queues)
    popped_queues = calls(push.PushConsumer.popped_queues)
    positions = calls(push.PushConsumer.positions)
    joined = waits(push.PushConsumer.joined)
    pause = calls(push.PushConsumer.pause)
    resume = calls(push.PushConsumer.resume)
