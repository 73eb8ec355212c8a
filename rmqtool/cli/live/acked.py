"""``consume --ack``: as a member of a group, commit what was written to stdout."""

import asyncio
import re
import sys
import time
from collections.abc import Sequence
from functools import partial

from formats.remoting.shapes import MessageQueue
from rmqtool.cli.live.common import (
    check_wanted,
    client_options,
    find_readable,
    find_unread,
    has_more,
    note_lost_brokers,
)
from rmqtool.cli.render.messages import message_writer
from rmqtool.cli.render.output import TableWriter
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import parse_time
from rmqtool.cli.serve.running import until_stopped
from rmqtool.client.cluster.attempts import try_often
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import ClientError
from rmqtool.client.consumer.options import From, PushOptions, Sql
from rmqtool.client.consumer.proof import MadeAgain
from rmqtool.client.consumer.puller import Puller
from rmqtool.client.consumer.push import PushConsumer
from rmqtool.client.consumer.received import Received
from rmqtool.contract import BodyForm, message_row
from rmqtool.errors import BadValue
from rmqtool.remoting.errors import RemotingError
from rmqtool.words import command_line

_BATCH = 32
_ERROR_PAUSE = 1.0  # s before a failed pull is tried again
_LOOK, _ASK = 0.2, 2.0  # s between checks whether all is consumed, and whether queues have become shorter


def run(
    namesrv: str,
    topic: str | None,
    group: str,
    *,
    orderly: bool,
    start: str | None,
    follow: bool,
    tags: Sequence[str],
    sql: str | None,
    limit: int | None,
    exit_idle: float | None,
    body: BodyForm,
    tls_config: str | None,
    acl: str | None,
    output: str,
) -> int:
    """Write messages and commit them; 1 when there was none, or a topic cannot be read."""
    check_wanted(topic, tags, sql)
    rows = _Rows(output, body, limit)
    begin, start_time = _beginning(start)
    push = PushOptions(
        orderly=orderly,
        start=begin,
        start_time=start_time,
        batch=1 if limit is not None else _BATCH,
        concurrency=1,
        persist_interval=1.0,
        error_pause=_ERROR_PAUSE,
        shutdown_wait=0.5,
        made_again=rows.end,
    )
    wanted = Sql(sql) if sql is not None else " || ".join(tags) or "*"
    options = client_options(namesrv, tls_config=tls_config, acl=acl)
    return asyncio.run(_consume(options, topic, group, wanted, push, follow, exit_idle, rows))


def _beginning(start: str | None) -> tuple[From, int | None]:
    """Where a new group begins, and the time (ms) of that, as --from says."""
    if start is None or start == "earliest":
        return From.FIRST, None
    if start == "latest":
        return From.LAST, None
    if re.fullmatch("[0-9]{1,11}", start):
        raise BadValue("--from: an offset says nothing where a group begins in several queues; give a time")
    return From.TIMESTAMP, parse_time(start)


class _Rows:
    """The listener: messages count as consumed once they are written to stdout.

    Attributes:
        done: nothing more is to be written, or can be.
        error: why nothing more can be written.
        count: rows written.
    """

    def __init__(self, output: str, body: BodyForm, limit: int | None) -> None:
        self._to, self._body, self._limit = message_writer(output, body), body, limit
        self.done = asyncio.Event()
        self.error: Exception | None = None
        self.count = 0
        self._last = time.monotonic()

    async def listen(self, messages: Sequence[Received]) -> None:
        """Write messages. Once done it never returns, so that later messages are neither consumed nor sent back."""
        if not self.done.is_set():
            try:
                for message in messages:
                    self._to.row(message_row(message.record, message.record.physical_offset, self._body))
                if isinstance(self._to, TableWriter):
                    self._to.begin()
                sys.stdout.flush()
            except OSError as err:
                self.error = err
                self.done.set()
            else:
                self.count += len(messages)
                self._last = time.monotonic()
                if self._limit is not None and self.count >= self._limit:
                    self.done.set()
                return
        await asyncio.Event().wait()

    def end(self, error: Exception) -> None:
        """Stop: a queue is no longer the one that was read."""
        if self.error is None:
            self.error = MadeAgain(
                f"{error}. Nothing of it was committed since then. The same command begins where the group is now; "
                f"{command_line('group', 'reset')} sets it back, so that nothing is passed over"
            )
        self.done.set()

    async def until_idle(self, seconds: float) -> float:
        """Wait until no message has come for this long; returns when the last one came."""
        while (left := self._last + seconds - time.monotonic()) > 0:
            await asyncio.sleep(left)
        return self._last

    def close(self) -> None:
        """End what was written, or say why that cannot be."""
        if isinstance(self.error, OSError):
            raise self.error
        self._to.close()
        if self.error is not None:
            raise self.error


async def _consume(
    options: ClientOptions,
    topic: str | None,
    group: str,
    wanted: str,
    push: PushOptions,
    follow: bool,
    exit_idle: float | None,
    rows: _Rows,
) -> int:
    async with until_stopped() as stop, Cluster(options) as cluster:
        puller = Puller(cluster, group)
        note_lost_brokers(cluster)
        readable = await find_readable(cluster, topic)
        if not readable.topics:
            rows.close()
            note(readable.describe(0))
            return 1
        try:
            ends = {queue: await try_often(partial(puller.end, queue), stop, note) for queue in readable.queues}
        except (ClientError, RemotingError):
            if not stop.is_set():
                raise
            rows.close()
            note(readable.describe(0))
            return 0 if follow else stop.exit_code
        async with PushConsumer(cluster, group, dict.fromkeys(readable.topics, wanted), rows.listen, push) as consumer:
            waits: list[asyncio.Task[bool]]
            waits = [asyncio.create_task(_until(event)) for event in (stop, rows.done)]
            if not follow:
                waits.append(asyncio.create_task(_until_consumed(consumer, puller, ends, stop)))
            if exit_idle is not None:
                waits.append(
                    asyncio.create_task(_until_idle(rows, exit_idle, consumer, puller, readable.queues, wanted))
                )
            finished, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in others:
                wait.cancel()
    for wait in finished:
        if isinstance(error := wait.exception(), MadeAgain):
            rows.end(error)
        else:
            wait.result()
    rows.close()
    note(readable.describe(rows.count))
    if stop.is_set() and not follow and not rows.done.is_set():
        return stop.exit_code
    return 0 if (rows.count or follow) and not readable.refused else 1


async def _until(event: asyncio.Event) -> bool:
    await event.wait()
    return True


async def _until_idle(
    rows: _Rows,
    seconds: float,
    consumer: PushConsumer,
    puller: Puller,
    queues: Sequence[MessageQueue],
    wanted: str | Sql,
) -> bool:
    """Wait until no message has come for this long, and brokers have no more of them.

    Raises:
        ClientError, RemotingError: a broker does not answer, or does not give what it has.
    """
    while True:
        last = await rows.until_idle(seconds)
        queue = await find_unread(puller, queues, consumer.positions if wanted == "*" else dict)
        if queue is None:
            return True
        if await rows.until_idle(seconds) == last:
            raise has_more(queue, seconds)


async def _until_consumed(
    consumer: PushConsumer, puller: Puller, ends: dict[MessageQueue, int], stop: asyncio.Event
) -> bool:
    """Wait until the group has consumed everything that was there when this process began."""
    await consumer.joined()
    left, asked = dict(ends), time.monotonic()
    while left:
        own = consumer.positions()
        for queue, end in list(left.items()):
            at = own[queue] if queue in own else await try_often(partial(puller.committed, queue), stop, note)
            if (at or 0) >= end:
                del left[queue]
        if left and time.monotonic() - asked > _ASK:
            for queue, end in left.items():
                await _check_end(puller, queue, end, stop)
            asked = time.monotonic()
        await asyncio.sleep(_LOOK if left else 0)
    return True


async def _check_end(puller: Puller, queue: MessageQueue, end: int, stop: asyncio.Event) -> None:
    """Check that a queue has not become shorter: its old end would never be reached.

    Raises:
        MadeAgain: it has.
    """
    now = await try_often(partial(puller.end, queue), stop, note)
    if now < end and puller.is_master(queue):
        raise MadeAgain(f"{queue}: ended at offset {end}, and ends at {now} now")
