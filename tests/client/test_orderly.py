"""Orderly consumption, against a broker with scripted locks."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from formats.fastjson.declare import body_of, read_body
from formats.remoting.bodies import LockRequest, LockResponse
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.client import Later, Ordered, PushConsumer, PushOptions, Received, Suspend
from rmqtool.rules.releases import RELEASES
from tests.client.peers import run
from tests.client.test_consuming_hostile import OPTIONS, QUEUE, Store, consuming, fields_of, until

ORDERLY = replace(OPTIONS, orderly=True, suspend_pause=0.01, lock_interval=0.05, rebalance_interval=0.05)


class Locks:
    """The owner of the lock: this client, unless it is another."""

    def __init__(self, store: Store) -> None:
        self.store, self.anothers, self.unlocked = store, False, 0
        store.one.replies |= {C.LOCK_BATCH_MQ: self.lock, C.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, request: Command) -> Command:
        wanted = read_body(LockRequest, request.body)
        assert (wanted.client_id, wanted.consumer_group) == ("me", "g")
        return request.response(body=body_of(LockResponse([] if self.anothers else wanted.mq_set)))

    def unlock(self, request: Command) -> Command:
        assert read_body(LockRequest, request.body).mq_set == [QUEUE]
        self.unlocked += 1
        return request.response()


@asynccontextmanager
async def orderly(
    count: int, listener: Any = None, options: PushOptions = ORDERLY, prepare: Callable[[Store], None] | None = None
) -> AsyncIterator[tuple[Store, Locks, PushConsumer, list[int]]]:
    made: list[Locks] = []

    def lock(store: Store) -> None:
        made.append(Locks(store))
        if prepare is not None:
            prepare(store)

    async with consuming(count, listener, options, lock) as (store, consumer, got):
        yield store, made[0], consumer, got


def test_one_at_a_time_in_order_and_the_lock_is_given_back() -> None:
    async def test() -> None:
        running, seen = 0, []

        async def listen(messages: Sequence[Received]) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            seen.append(messages[0].queue_offset)
            running -= 1

        async with orderly(100, listen) as (store, locks, _consumer, _got):
            await until(lambda: store.committed == 100)
            assert seen == list(range(100))
            codes = store.one.codes()
            assert codes.index(C.LOCK_BATCH_MQ) < codes.index(C.QUERY_CONSUMER_OFFSET) < codes.index(C.PULL_MESSAGE)
            await until(lambda: codes.count(C.LOCK_BATCH_MQ) < store.one.codes().count(C.LOCK_BATCH_MQ))
        assert locks.unlocked == 1
        codes = store.one.codes()
        assert codes[-2:] == [C.UNLOCK_BATCH_MQ, C.UNREGISTER_CLIENT]
        assert codes[-3] == C.UPDATE_CONSUMER_OFFSET

    run(test)


def test_a_queue_that_another_has_is_waited_for() -> None:
    async def test() -> None:
        async with orderly(5, prepare=lambda store: None) as (store, locks, consumer, got):
            await until(lambda: len(got) == 5)
            locks.anothers = True  # it is lost: the other one may be further already
            await until(lambda: not consumer.queues())
            store.committed, store.end = 7, 9
            updates = len(store.one.of(C.UPDATE_CONSUMER_OFFSET))
            await asyncio.sleep(0.3)
            assert len(got) == 5
            assert len(store.one.of(C.UPDATE_CONSUMER_OFFSET)) == updates
            locks.anothers = False
            await until(lambda: got == [0, 1, 2, 3, 4, 7, 8])

    run(test)


@pytest.mark.parametrize(
    "expected", [Suspend(), Suspend(0.01), Later(), "nonsense", ValueError("no"), Ordered.ROLLBACK]
)
def test_what_fails_comes_again_and_nothing_behind_it_before(expected: Any) -> None:
    async def test() -> None:
        seen: list[tuple[int, int]] = []

        async def listen(messages: Sequence[Received]) -> Any:
            (message,) = messages
            seen.append((message.queue_offset, message.reconsume_times))
            if message.queue_offset == 3 and len(seen) < 7:
                if isinstance(expected, Exception):
                    raise expected
                return expected
            return None

        options = replace(ORDERLY, auto_commit=expected is not Ordered.ROLLBACK)
        async with orderly(6, listen, options) as (_store, _locks, _consumer, _got):
            await until(lambda: bool(seen) and seen[-1][0] == 5)
        if expected is Ordered.ROLLBACK:  # of all that was not committed
            assert [offset for offset, _ in seen] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
            assert {times for _, times in seen} == {0}
        else:
            assert seen == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3), (4, 0), (5, 0)]

    run(test)


def test_commits_are_the_listeners_where_it_says_so() -> None:
    async def test() -> None:
        async def listen(messages: Sequence[Received]) -> Ordered | None:
            return Ordered.COMMIT if messages[-1].queue_offset == 5 else None

        async with orderly(8, listen, replace(ORDERLY, auto_commit=False)) as (store, _locks, _consumer, _got):
            await until(lambda: store.committed == 6)
        assert store.committed == 6

    run(test)


@pytest.mark.parametrize(("engine", "times"), [("4.9", "2"), ("5.3", "3")])
def test_what_fails_too_often_goes_to_the_retry_topic_which_brokers_make_dead_letters_of(
    engine: str, times: str
) -> None:
    async def test() -> None:
        seen: list[int] = []
        sent: list[Command] = []
        refused = True

        def send(request: Command) -> Command:
            nonlocal refused
            sent.append(request)
            if refused:
                refused = False
                return request.response(ResponseCode.SYSTEM_BUSY, "not now")
            return request.response(fields={"msgId": "1", "queueId": "0", "queueOffset": "0"})

        def prepare(store: Store) -> None:
            store.one.replies[C.SEND_MESSAGE_V2] = send

        async def listen(messages: Sequence[Received]) -> None:
            seen.append(messages[0].queue_offset)
            if messages[0].queue_offset == 1:
                raise ValueError("never")

        options = replace(ORDERLY, max_tries=2)
        async with orderly(3, listen, options, prepare) as (store, _locks, consumer, _got):
            object.__setattr__(consumer.cluster.options, "release", RELEASES[engine])
            await until(lambda: store.committed == 3)
        # the third time it is sent away, which fails once
        assert seen == [0, 1, 1, 1, 1, 2]
        header = fields_of(sent[0])
        assert (header["b"], header["l"]) == ("%RETRY%g", "2")
        assert header["j"] == times
        assert f"RECONSUME_TIME\x01{times}" in header["i"]
        assert "RETRY_TOPIC\x01T" in header["i"]
        assert sent[0].body == b"1"

    run(test)


def test_a_queue_is_not_given_to_others_while_a_listener_works_on_it() -> None:
    """Neither in a rebalance nor at the end, when its thread cannot be stopped."""

    async def test() -> None:
        began, end = threading.Event(), threading.Event()

        def listen(messages: Sequence[Received]) -> None:
            began.set()
            end.wait(30)

        options = replace(ORDERLY, shutdown_wait=0.05)
        async with orderly(3, listen, options) as (store, locks, consumer, _got):
            await asyncio.to_thread(began.wait, 30)
            store.members = ["another"]
            store.one.connections[0].tell(Command(C.NOTIFY_CONSUMER_IDS_CHANGED, fields={"consumerGroup": "g"}))
            await asyncio.sleep(1.5)
            assert (locks.unlocked, consumer.queues()) == (0, [QUEUE])
        assert locks.unlocked == 0
        end.set()

    run(test)


def test_without_an_answer_about_locks_nothing_is_given_to_the_listener_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rmqtool.client.consumer.process_queue.LOCK_LIFE", 0.3)

    async def test() -> None:
        async with orderly(5) as (store, locks, _consumer, got):
            await until(lambda: len(got) == 5)
            store.one.replies[C.LOCK_BATCH_MQ] = lambda request: request.response(ResponseCode.SYSTEM_ERROR, "no")
            del locks
            began = time.monotonic()
            while time.monotonic() - began < 0.5:
                await asyncio.sleep(0.01)
            store.end = 9
            await asyncio.sleep(0.2)
            assert len(got) == 5

    run(test)


def test_offsets_that_are_reset_while_queues_are_shared_anew_stay_reset() -> None:
    async def test() -> None:
        async with orderly(10) as (store, _locks, consumer, got):
            await until(lambda: store.committed == 10)
            await asyncio.gather(consumer._held.reset({QUEUE: 0}), consumer._held.apply("T", [QUEUE]))
            await until(lambda: len(got) == 20)
            assert got == list(range(10)) * 2
            await until(lambda: store.committed == 10)

    run(test)


def test_a_lock_is_given_back_by_who_ends_before_the_queue_is_taken() -> None:
    async def test() -> None:
        def silent(store: Store) -> None:
            store.one.replies[C.QUERY_CONSUMER_OFFSET] = lambda _request: None

        async with orderly(10, prepare=silent) as (store, locks, consumer, _got):
            await until(lambda: C.QUERY_CONSUMER_OFFSET in store.one.codes())
            assert consumer.queues() == []
        assert locks.unlocked == 1

    run(test)
