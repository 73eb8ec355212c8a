"""The command ``consume``: messages of a live cluster."""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from formats.remoting.shapes import MessageQueue
from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.bodies import body_form
from rmqtool.cli.framework.options import (
    ANY_CONTENT,
    BODIES,
    NAMESRV,
    AclOption,
    BodyOptions,
    ContentChoice,
    LimitOption,
    MessageOptions,
    NamesrvOption,
    Output,
    OutputOption,
    TagOption,
    TlsOption,
    option,
)
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
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.errors import BadAnswer
from rmqtool.client.consumer.pull import PullConsumer
from rmqtool.client.consumer.puller import LOOKING, Puller
from rmqtool.client.consumer.received import Received
from rmqtool.contract import BodyForm, message_row
from rmqtool.errors import BadValue
from rmqtool.rules.sending import check_group

if TYPE_CHECKING:
    from rmqtool.services.lookup.selection import Selection

_POLL = 5.0  # s
_OFFSETS = 100_000_000_000  # a smaller number is an offset, as no message was stored before 1973


@command("consume", "rmqtool consume --namesrv 127.0.0.1:9876 Orders --from -1h --follow")
def consume(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="The topic.")] = None,
    namesrv: NamesrvOption = NAMESRV,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every existing ordinary topic, instead of TOPIC.")
    ] = False,
    start: Annotated[
        str | None, option("--from", "START", "Where to start: earliest, latest, a time, or an offset (below 10^11).")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="Start at the offsets of this group; with --ack, consume in it."
        ),
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Commit what has been written as consumed by --group.")] = False,
    orderly: Annotated[
        bool, typer.Option("--orderly", help="With --ack: consume each queue in order, locked on the broker.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new messages until a signal.")] = False,
    exit_idle: Annotated[
        float | None,
        typer.Option(
            "--exit-idle", metavar="SECONDS", min=0, help="With --follow: end after this time without a message."
        ),
    ] = None,
    tag: TagOption = None,
    sql: Annotated[str | None, option("--sql", "CONDITION", "Only messages that match this SQL92 filter.")] = None,
    content: ContentChoice = ANY_CONTENT,
    limit: LimitOption = None,
    bodies: BodyOptions = BODIES,
    tls_config: TlsOption = None,
    acl: AclOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Show the messages of a live topic, or of all topics.

    Without --ack the command joins no group and moves no offset. It starts at the first messages of the queues, with
    --follow at their ends, with --group at the group's offsets. Queues are shown one after the other, up to their ends
    at the time of the start; with --follow, new messages are shown as they arrive. The rows are those of commitlog
    dump. --sql filters by properties on the broker, which must have enablePropertyFilter=true; --where and --property
    filter here, by all fields of a row.

    With --group and --ack it is a member of the group, beside clients in any language: it gets a share of the queues,
    and the group's retries; --from says where a new group starts. Only messages that stdout has accepted are committed:
    no message is lost if the reader ends or the command is interrupted or killed, but after a kill some may be shown
    twice.

    --all-topics leaves out system topics, retries and dead letters, and topics that are created later. Topics that
    cannot be read are named on stderr and make the exit code 1; otherwise 1 means that there was no message.
    """
    if (topic is None) is not all_topics:
        raise BadValue("give TOPIC or --all-topics" + ("" if topic is None else ", not both"))
    if group is not None or ack or orderly:
        _check_group_options(group, ack=ack, orderly=orderly)
    if ack and (content.property or content.where is not None):
        raise BadValue("--where and --property do not go with --ack: what they leave out would be consumed unseen")
    if exit_idle is not None and not follow:
        raise BadValue("--exit-idle: goes with --follow; without it the end is that of the queues")
    body = body_form(bodies)
    if ack and group is not None:
        from rmqtool.cli.live import acked  # what only --ack needs

        return acked.run(
            namesrv, topic, group, orderly=orderly, start=start, follow=follow, tags=tuple(tag or ()), sql=sql,
            limit=limit, exit_idle=exit_idle, body=body, tls_config=tls_config, acl=acl, output=output.value,
        )  # fmt: skip
    check_wanted(topic, tag or (), sql)
    options = client_options(namesrv, tls_config=tls_config, acl=acl)
    if group is None:
        start = start or ("latest" if follow else "earliest")
    elif start is not None:
        raise BadValue("--from: goes with --group only where it is consumed (--ack); else it begins where the group is")
    from rmqtool.cli.read.run_files import say_unmet, selection

    chosen = selection(MessageOptions(**vars(content)), body)
    looking = _Looking(options, topic, group, start or "earliest", follow, tag or (), sql, exit_idle, chosen)
    code = asyncio.run(looking.write(output.value, body, limit))
    say_unmet(chosen)
    return code


def _check_group_options(group: str | None, *, ack: bool, orderly: bool) -> None:
    """Check that the options go together.

    Raises:
        BadValue: they do not.
    """
    if ack and group is None:
        raise BadValue("--ack: give --group too, the group for which messages are consumed")
    if orderly and not ack:
        raise BadValue("--orderly: goes with --group and --ack; without them messages of a queue are in order anyway")
    if group is not None:
        try:
            check_group(group)
        except ValueError as err:
            raise BadValue(f"--group: {err}") from None


class _Looking:
    def __init__(
        self,
        options: ClientOptions,
        topic: str | None,
        group: str | None,
        start: str,
        follow: bool,
        tags: Sequence[str],
        sql: str | None,
        exit_idle: float | None,
        chosen: "Selection",
    ) -> None:
        self._chosen = chosen
        self._group, self._exit_idle = group, exit_idle
        self._options, self._topic, self._follow, self._tags, self._sql = options, topic, follow, tags, sql
        self._start = start
        self._offset = int(start) if re.fullmatch("[0-9]{1,11}", start) and int(start) < _OFFSETS else None
        named = start in ("earliest", "latest") or self._offset is not None
        self._time = None if named else parse_time(start)

    async def write(self, output: str, body: BodyForm, limit: int | None) -> int:
        async with until_stopped() as stop, Cluster(self._options) as cluster:
            stopped = asyncio.create_task(stop.wait())
            writing = asyncio.create_task(self._write(cluster, output, body, limit))
            await asyncio.wait([stopped, writing], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if writing.done():
                return writing.result()
            writing.cancel()
            await asyncio.wait([writing])
            return 0 if self._follow else stop.exit_code

    async def _write(self, cluster: Cluster, output: str, body: BodyForm, limit: int | None) -> int:
        puller = Puller(cluster, self._group or LOOKING, self._tags, self._sql)
        note_lost_brokers(cluster)
        readable = await find_readable(cluster, self._topic)
        places = {queue: await self._place(puller, queue) for queue in readable.queues}
        to = message_writer(output, body)
        count = 0
        try:
            async with aclosing(self._messages(cluster, puller, places)) as batches:
                async for messages in batches:
                    for message in messages:
                        if self._time is not None and message.record.store_timestamp < self._time:
                            continue
                        if not self._chosen.has(message.record, message.record.physical_offset):
                            continue
                        to.row(message_row(message.record, message.record.physical_offset, body))
                        count += 1
                        if count == limit:
                            return 1 if readable.refused else 0
                    if self._follow and isinstance(to, TableWriter):
                        to.begin()
                    sys.stdout.flush()
        finally:
            to.close()
            note(readable.describe(count))
        return 0 if (count or self._follow) and not readable.refused else 1

    async def _place(self, puller: Puller, queue: MessageQueue) -> tuple[int, int]:
        """(offset to begin at, current end) of a queue."""
        low, high = await puller.offsets(queue)
        if self._group is not None:
            return max(await puller.committed(queue) or 0, low), high
        if self._time is not None:
            return max(await puller.offset_at(queue, self._time), low), high
        if self._offset is not None:
            return max(self._offset, low), high
        return (low if self._start == "earliest" else high), high

    async def _messages(
        self, cluster: Cluster, puller: Puller, places: Mapping[MessageQueue, tuple[int, int]]
    ) -> AsyncGenerator[list[Received], None]:
        if not self._follow:
            for queue, (first, end) in places.items():
                async for messages in _until(puller, queue, first, end):
                    yield messages
            return
        async with PullConsumer(cluster, self._group or LOOKING, tags=self._tags, sql=self._sql) as consumer:
            await consumer.assign({queue: first for queue, (first, _end) in places.items()})

            def positions() -> dict[MessageQueue, int]:
                filtered = self._tags or self._sql is not None
                return {} if filtered else {queue: consumer.position(queue) for queue in places}

            loop, idle = asyncio.get_running_loop(), self._exit_idle
            last, behind = loop.time(), None
            while True:
                wait = _POLL if idle is None else min(max(last + idle - loop.time(), 0), _POLL)
                if messages := await consumer.poll(wait):
                    yield messages
                    last, behind = loop.time(), None
                elif idle is not None and loop.time() - last >= idle:
                    if behind is not None:
                        raise has_more(behind, idle)
                    behind = await find_unread(puller, places, positions)
                    if behind is None:
                        return


async def _until(puller: Puller, queue: MessageQueue, offset: int, end: int) -> AsyncGenerator[list[Received], None]:
    moves = 0
    while offset < end:
        pulled = await puller.pull(queue, offset)
        if pulled.next_offset <= offset:
            moves += 1
            if moves > 1:
                raise BadAnswer(f"{queue}: its broker has nothing at offset {offset}, and {end} is its end")
        if pulled.moved:
            note(f"{queue.broker_name} queue {queue.queue_id}: goes on at offset {pulled.next_offset}, not at {offset}")
        yield [message for message in pulled.messages if message.queue_offset < end]
        offset = pulled.next_offset
