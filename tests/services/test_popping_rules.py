"""Sends, pops, acks, changes, waits and kills in any order: unacked messages are never lost, and acked or invisible
ones are not delivered again, except for what a broker forgets in a kill.
"""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from formats.variants.pop_handle import Handle, real_topic
from tests.services.popping_lab import PopLab

_INVISIBLE = 10_000


class Popping(RuleBasedStateMachine):
    """A group's messages by body: sent, acked, and invisible until when."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.lab = PopLab(Path(self.folder.name), queues=2)
        self.sent: set[str] = set()
        self.acked: set[str] = set()
        self.handles: dict[str, tuple[Handle, int]] = {}  # the last one of each, and until when it holds
        self.forgetful = False  # after a kill messages may come once more

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self.lab.store.close()
            self.folder.cleanup()

    # -- what is done -------------------------------------------------------------------------------------------------

    @rule(queue_id=st.integers(0, 1), count=st.integers(1, 5))
    def send(self, queue_id: int, count: int) -> None:
        for _ in range(count):
            body = f"m{len(self.sent)}"
            self.lab.send(body, queue_id=queue_id)
            self.sent.add(body)

    @rule(most=st.integers(1, 8), queue_id=st.sampled_from([-1, 0, 1]))
    def pop(self, most: int, queue_id: int) -> None:
        got = self.lab.pop(most=most, queue_id=queue_id, invisible=_INVISIBLE)
        assert len(got.bodies) <= most
        for body, handle in zip(got.bodies, got.handles, strict=True):
            assert body in self.sent
            if not self.forgetful:
                assert body not in self.acked
                assert body not in self.handles or self.handles[body][1] <= self.lab.now
            self.handles[body] = handle, self.lab.now + _INVISIBLE

    def _held(self) -> list[str]:
        """Messages whose handle is valid for long enough to ack them in time."""
        return sorted(
            body for body, (_handle, until) in self.handles.items() if body not in self.acked and until > self.lab.now
        )

    @precondition(lambda self: self._held())
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(self._held()))
        handle = self.handles[body][0]
        self.lab.ack(handle, real_topic("T", "g", handle.origin))
        self.acked.add(body)

    @precondition(lambda self: self._held())
    @rule(data=st.data(), ms=st.sampled_from([1_000, 5_000, 40_000]))
    def change(self, data: st.DataObject, ms: int) -> None:
        body = data.draw(st.sampled_from(self._held()))
        handle = self.handles[body][0]
        topic = real_topic("T", "g", handle.origin)
        changed = self.lab.service.finishing.change(topic, "g", handle, handle.queue_offset, ms)
        assert changed is not None
        made = Handle(
            start_offset=handle.queue_offset,
            pop_time=changed.pop_time,
            invisible_time=changed.invisible_time,
            revive_queue=changed.revive_queue,
            origin=handle.origin,
            broker_name=handle.broker_name,
            queue_id=handle.queue_id,
            queue_offset=handle.queue_offset,
        )
        self.handles[body] = made, self.lab.now + ms

    @rule(ms=st.sampled_from([100, 1_000, 3_000, 12_000]))
    def wait(self, ms: int) -> None:
        self.lab.wait(ms)

    @rule()
    def persist(self) -> None:
        self.lab.state.persist()

    @rule(kill=st.booleans())
    def again(self, kill: bool) -> None:
        if kill:
            self.forgetful = True
        else:
            self.lab.timer.finish()
            self.lab.persist()
        self.lab.again()

    # -- what must be so ----------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Consume everything: all unacked messages must arrive."""
        got: set[str] = set()
        for _ in range(40):
            self.lab.wait(4_000)
            for _ in range(3):
                result = self.lab.pop(invisible=100_000)
                for body, handle in zip(result.bodies, result.handles, strict=True):
                    got.add(body)
                    self.lab.ack(handle, real_topic("T", "g", handle.origin))
            if got >= self.sent - self.acked:
                break
        assert got >= self.sent - self.acked
        if not self.forgetful:
            assert not got & self.acked


TestPopping = Popping.TestCase
TestPopping.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
