"""The ``group`` commands that read: groups, their lag, and their offsets."""

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from formats.config.files import ConsumerOffsets, QueueOffset
from formats.errors import FormatError
from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.choice import RowChoice, first, first_of, in_queues, matches, no_match, wanted_of
from rmqtool.cli.framework.opening import live_target, need_log, open_groups, open_to_read
from rmqtool.cli.framework.options import (
    ANY_GROUP,
    LISTING,
    NO_CLIENT_FILE,
    BakOption,
    BrokerConfOption,
    ClientFileOptions,
    GroupChoice,
    Listing,
    Output,
    OutputOption,
    StoreDir,
    StoreOrTarget,
    option,
)
from rmqtool.cli.render.rows import Warnings, names_of, write_rows
from rmqtool.cli.render.text import note
from rmqtool.cli.render.times import parse_span
from rmqtool.contract import PlainRows
from rmqtool.errors import BadValue, CorruptFile, UnreadableStore
from rmqtool.services.consumers.groups import (
    PROBLEMS,
    GroupInfo,
    LagSum,
    OffsetChange,
    compare,
    sums,
)
from rmqtool.services.lookup.configs import FILES, Warn, sort_offsets
from rmqtool.services.lookup.configs import group_offsets as stored_offsets
from rmqtool.services.offsets.files import ClientFile
from rmqtool.store.config.files import read_config
from rmqtool.store.disk.directories import read_small
from rmqtool.store.layout.paths import StoreLayout

if TYPE_CHECKING:
    from rmqtool.admin.subjects import GroupSubject

_WORDS = {"diff": "lag", "retryDiff": "retryLag"}  # the broker's names, and the titles of tables


class LagRow(StrEnum):
    """What a row stands for."""

    queue = "queue"
    topic = "topic"
    group = "group"


@command("group list", "rmqtool group list store --output json")
def group_list(store: StoreOrTarget, output: OutputOption = Output.text, broker_conf: BrokerConfOption = None) -> int:
    """List consumer groups: configured or not, topics, lag, waiting retries, dead letters, impossible offsets."""
    warn = Warnings()
    groups = open_groups(store, broker_conf, warn)
    write_rows(
        output.value,
        GroupInfo,
        groups.infos(),
        _columns(GroupInfo, holding=groups.holds_messages()),
        spare=("configured", "consumeEnable", "retryMaxTimes"),
    )
    return warn.tell()


@command("group lag", "rmqtool group lag store --group 'lab-*' --by topic")
def group_lag(
    store: StoreOrTarget,
    choice: GroupChoice = ANY_GROUP,
    by: Annotated[LagRow, option("--by", "FIELD", "One row for each queue, topic or group.")] = LagRow.queue,
    lagging: Annotated[bool, typer.Option("--lagging", help="Only rows with lag or messages in flight.")] = False,
    watch: Annotated[
        str | None, option("--watch", "TIME", "Again after this time (2s, 1m), with rates; repaints on a terminal.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, metavar="N", help="End --watch after so many rounds.")
    ] = None,
    prometheus: Annotated[
        str | None, option("--prometheus", "FILE", "Metrics for the node exporter's text collector; HOST:PORT: a page.")
    ] = None,
    client: ClientFileOptions = NO_CLIENT_FILE,
    listing: Listing = LISTING,
) -> int:
    """Show the lag of groups as the broker counts it, and offsets that cannot be right.

    Messages held by POP consumers lie below the offset and are not part of diff: see inFlight, and group inflight.

    --watch shows rows with messages stored and consumed per second, the time until nothing is left, and when the oldest
    unread message was stored; NDJSON has a line for each row and round. --prometheus replaces FILE in each round, and
    ends after one without --watch; with HOST:PORT or :PORT it serves a page with the newest round until the end.

    Exit code 1: an offset lies beyond the end of its queue (ahead), or the message at it has expired (expired); or no
    offset matches.
    """
    if watch is not None or prometheus is not None:
        from rmqtool.cli.consumers.watch import watch_lag

        return watch_lag(
            lambda warn: open_groups(
                store, listing.broker_conf, warn, wanted_of(choice), client=_client_file(client), in_rounds=True
            ),
            lambda row: not choice.queue or row.queueId in choice.queue,
            by=by.value, pause=parse_span(watch) if watch is not None else None, rounds=rounds, lagging=lagging,
            limit=listing.limit, output=listing.output.value, prometheus=prometheus,
        )  # fmt: skip
    if rounds is not None:
        raise BadValue("--rounds: goes with --watch")
    warn = Warnings()
    groups = open_groups(store, listing.broker_conf, warn, wanted_of(choice), client=_client_file(client))
    lags = _Lags(groups, choice.queue or ())
    rows = iter(lags)
    if by is LagRow.queue:
        shown = first_of(_lagging(rows) if lagging else rows, listing.limit)
        spare = ("minOffset", "lastTimestamp", "brokerOffset", "consumerOffset")
        names = _columns(groups.lag_row, holding=lags.holding)
        count = write_rows(listing.output.value, groups.lag_row, shown, names, spare=spare)
    else:
        of = "topic" if by is LagRow.topic else "topics"
        names = _columns(
            LagSum, ("group", of, "queues", "diff", "lastTimestamp", "problems", "inFlight"), holding=lags.holding
        )
        totals = (row for row in sums(rows, by_topic=by is LagRow.topic) if row.diff or row.inFlight or not lagging)
        count = write_rows(listing.output.value, LagSum, first(totals, listing.limit), names, spare=("lastTimestamp",))
    deque(rows, 0)  # a limit hides rows, not problems
    if lagging and lags.rows and not count:
        note(_nobody_behind(lags.groups))
    code = warn.tell() or (1 if lags.problems else 0)
    return no_match(lags.rows, code, **vars(choice))


@command("group inflight", "rmqtool group inflight store --group billing")
def group_inflight(store: StoreDir, choice: GroupChoice = ANY_GROUP, listing: Listing = LISTING) -> int:
    """List the messages that POP consumers hold and have not acked, from checkpoints and acks.

    State invisible: no other consumer can get it yet; due: the broker will move it to the retry topic when it runs
    again. Ordered groups come from consumerOrderInfo.json. Exit code 1: nothing matches.
    """
    import time

    from rmqtool.services.popping.in_flight import InFlight, MessagesInFlight

    warn = Warnings()
    popped = MessagesInFlight(need_log(store, listing.broker_conf), int(time.time() * 1000), warn)
    chosen = RowChoice(vars(choice))
    names = (
        *("group", "state", "topic", "queueId", "queueOffset", "popTimestamp", "visibleTimestamp", "reconsumeTimes"),
        *("msgId", "keys"),
    )
    write_rows(listing.output.value, InFlight, chosen(popped.in_flight(), listing.limit), names, wide=("keys",))
    return chosen.ends(warn.tell())


@command("group offsets", "rmqtool group offsets store --group lab-consumer --output csv")
def group_offsets(
    store: StoreOrTarget,
    choice: GroupChoice = ANY_GROUP,
    client: ClientFileOptions = NO_CLIENT_FILE,
    listing: Listing = LISTING,
) -> int:
    """List the stored offsets without looking at queues; the CSV output can be given to group reset.

    Exit code 1: no offset matches.
    """
    warn = Warnings()
    groups = open_groups(store, listing.broker_conf, warn, wanted_of(choice), client=_client_file(client), log=False)
    rows = in_queues(groups.stored_row, groups.offsets(), choice.queue)
    count = write_rows(listing.output.value, groups.stored_row, first_of(rows, listing.limit))
    return no_match(count, warn.tell(), **vars(choice))


@command("group diff", "rmqtool group diff store /backup/store --group lab-consumer")
def group_diff(
    store: StoreOrTarget,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[OTHER]", help="Another store or cluster, its consumerOffset.json, or a CSV file of offsets."
        ),
    ] = None,
    choice: GroupChoice = ANY_GROUP,
    bak: BakOption = False,
    every: Annotated[bool, typer.Option("--all", help="Also offsets that are equal.")] = False,
    broker: Annotated[str | None, option("--broker", "NAME", "The broker, if a cluster has several.")] = None,
    listing: Listing = LISTING,
) -> int:
    """Compare the offsets of two stores, clusters or snapshots, or with --bak those of a store with their previous
    generation.

    change is how far OTHER is ahead. Exit code 1: they differ, or neither has a matching offset.
    """
    warn = Warnings()
    if (other is None) != bak:
        raise BadValue("give either OTHER or --bak")
    tables: list[Iterable[QueueOffset]] = []
    if (live := _live_offsets(store, choice, broker, warn)) is not None:
        tables.append(live)
    else:
        layout = open_to_read(store, listing.broker_conf)
        tables.append(sort_offsets(stored_offsets(layout, warn)))
    tables.append(_generation_before(layout) if other is None else _snapshot(other, choice, broker, warn))
    chosen = [[entry for entry in table if _is_chosen(entry, choice)] for table in tables]
    rows, compared = list(compare(*chosen, equal=every)), sum(map(len, chosen))
    write_rows(listing.output.value, OffsetChange, first(rows, listing.limit))
    if compared and not rows:
        note("no offset differs")
    code = warn.tell() or (1 if any(row.offset != row.otherOffset for row in rows) else 0)
    return no_match(compared, code, **vars(choice))


def _client_file(options: ClientFileOptions) -> ClientFile | None:
    """The offsets of a broadcasting client, if they are asked for."""
    return ClientFile(options.broadcast, options.broker) if options.broadcast is not None else None


def _is_chosen(entry: QueueOffset, choice: GroupChoice) -> bool:
    in_queue = not choice.queue or entry.queue_id in choice.queue
    return in_queue and matches(entry.group, choice.group) and matches(entry.topic, choice.topic)


class _Lags:
    """The rows of ``group lag``, by the thousand: there may be millions.

    Attributes:
        rows: how many came.
        problems: how many of them cannot be right.
        groups: of the rows that came.
        holding: POP consumers hold messages of a queue that was asked for.
    """

    def __init__(self, groups: "GroupSubject", queue_ids: Collection[int]) -> None:
        self.rows = self.problems = 0
        self.groups: set[str] = set()
        self._groups, self._queue_ids = groups, queue_ids
        self.holding = groups.holds_messages(queue_ids)

    def __iter__(self) -> Iterator[PlainRows]:
        for rows in in_queues(self._groups.lag_row, self._groups.lag_rows(), self._queue_ids):
            self.rows += len(rows.values)
            self.problems += sum(map(rows.column("state").count, PROBLEMS))
            self.groups.update(rows.column("group"))
            yield rows


def _lagging(batches: Iterable[PlainRows]) -> Iterator[PlainRows]:
    """The rows with lag or messages in flight."""
    for rows in batches:
        lagging = [
            values
            for values, diff, held in zip(rows.values, rows.column("diff"), rows.column("inFlight"), strict=True)
            if diff or held
        ]
        if lagging:
            yield PlainRows(rows.kind, lagging)


def _nobody_behind(groups: Set[str]) -> str:
    """The note when no group lags."""
    who = f"group {min(groups)} is not" if len(groups) == 1 else f"none of {len(groups)} groups is"
    return f"{who} behind: no messages to consume, and none in flight"


def _columns(kind: type, names: Sequence[str] = (), *, holding: bool) -> tuple[str, ...]:
    """The columns of a table: those about POP only when a POP consumer holds messages."""
    chosen = (_WORDS.get(name, name) for name in names or names_of(kind) if name not in _WORDS.values())
    return tuple(name for name in chosen if holding or name != "inFlight")


def _generation_before(layout: StoreLayout) -> list[QueueOffset]:
    tables = [read_config(layout, name, bak=True) for name in FILES]
    if all(table is None for table in tables):
        raise UnreadableStore(f"{layout.path('config', FILES[0])}.bak: no such file")
    return [entry for table in tables if isinstance(table, ConsumerOffsets) for entry in table.entries()]


def _live_offsets(word: str, choice: GroupChoice, broker: str | None, warn: Warn) -> list[QueueOffset] | None:
    """Offsets of one broker of a live cluster; None if the word names none.

    Raises:
        BadValue: it has several brokers.
        ClientError, RemotingError: the broker does not answer, so that it is unknown which offsets it has.
    """
    target = live_target(word)
    if target is None:
        return None
    from rmqtool.admin.live.groups import LiveGroups
    from rmqtool.client.cluster.errors import ClientError

    missing: list[str] = []
    rows = LiveGroups(target, missing.append, note, wanted_of(choice)).offsets()
    if missing and broker not in {row.brokerName for row in rows}:
        raise ClientError("; ".join(missing))
    for text in missing:
        warn(text)
    entries = [(row.brokerName, QueueOffset(row.topic, row.group, row.queueId, row.consumerOffset)) for row in rows]
    return _of_broker(word, entries, broker)


def _of_broker(source: str, entries: Sequence[tuple[str | None, QueueOffset]], broker: str | None) -> list[QueueOffset]:
    """The offsets of one broker, of which others may have queues with the same ids.

    Raises:
        BadValue: there are several, and none is chosen; or another one.
    """
    names = sorted({name for name, _entry in entries if name is not None})
    if broker is None and len(names) > 1:
        raise BadValue(f"{source}: has several brokers: give --broker, one of {', '.join(names)}")
    if broker is not None and names and broker not in names:
        raise BadValue(f"{source}: no offset of broker {broker}, only of {', '.join(names)}")
    return [entry for name, entry in entries if name is None or broker in (None, name)]


def _snapshot(path: str, choice: GroupChoice, broker: str | None, warn: Warn) -> Iterable[QueueOffset]:
    """Offsets of a store, of a live cluster, of a ``consumerOffset.json``, or of a CSV file."""
    if (live := _live_offsets(path, choice, broker, warn)) is not None:
        return live
    if os.path.isdir(path):
        return sort_offsets(stored_offsets(StoreLayout(path), warn))
    if path.endswith(".csv"):
        from rmqtool.services.consumers.offset_plan import read_rows

        rows = [(row.broker, QueueOffset(*row.key, row.offset)) for row in read_rows(path, brokers=True)]
        return _of_broker(path, rows, broker)
    data = read_small(path)
    if data is None:
        raise UnreadableStore(f"{path}: no such file")
    try:
        return list(ConsumerOffsets.parse(data).entries())
    except FormatError as err:
        raise CorruptFile(path, err.at, err.reason) from err
