"""Where a group is in its queues, in memory until it is written (consumer.store.RemoteBrokerOffsetStore). No I/O."""

from formats.remoting.shapes import MessageQueue


class Offsets:
    """Queue to the next offset to consume."""

    def __init__(self) -> None:
        self._at: dict[MessageQueue, int] = {}

    def at(self, queue: MessageQueue) -> int | None:
        """None where it is not known yet."""
        return self._at.get(queue)

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Whatever it was before."""
        self._at[queue] = offset

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Only forwards: of tasks of one queue, one that began earlier may end later."""
        self._at[queue] = max(offset, self._at.get(queue, 0))

    def forget(self, queue: MessageQueue) -> None:
        """The queue is another consumer's."""
        self._at.pop(queue, None)
