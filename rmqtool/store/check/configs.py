"""Check that config files are readable, and agree with each other and with the queues."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from formats.config.file import ConfigFile
from formats.config.files import NAMES, ConsumerOffsets, DelayOffsets, SubscriptionGroups, Topics, kind_of
from formats.config.rocksdb import ACCOUNTS
from formats.errors import FormatError
from formats.message.read import SCHEDULE_TOPIC
from formats.topics import LMQ_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS
from rmqtool.errors import CorruptFile, MissingRuntime, RmqError, UnreadableStore
from rmqtool.store.check.codes.all import INFO, WARNING
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.queues.delayed import was_delivered
from rmqtool.store.config.files import config_place, parse_config, read_accounts, read_config
from rmqtool.store.disk.directories import exists, read_small
from rmqtool.store.dispatch.light import is_light
from rmqtool.words import counted

T = TypeVar("T")
_LATE = 60_000  # ms after which a due message counts as delivered, with its offset written
_SYSTEM_TOPIC, _SYSTEM_GROUP = SYSTEM_PREFIX, "CID_RMQ_SYS_"  # a broker needs no configuration for them
_DELAY_TOPIC = SCHEDULE_TOPIC.decode()
_TABLES_BESIDE_TOPICS = (SubscriptionGroups, ConsumerOffsets)  # a store without them has not been a broker's


def check_configs(ctx: Context, *, queues: bool) -> None:
    """Check every file below ``config/``.

    Args:
        queues: whether ``ctx.queues_seen.ends`` has all queues.
    """
    tables = {name: table for name in NAMES if (table := _check_file(ctx, name)) is not None}
    for file in ctx.layout.entries("config"):
        if file.name.endswith(".tmp") and kind_of(file.name) is not None:
            ctx.found.add("config-tmp", _path(file.name))
    for name in ACCOUNTS:
        _check_database(ctx, _path(name), partial(read_accounts, ctx.layout, name))
    topics, groups = tables.get("topics.json"), tables.get("subscriptionGroup.json")
    offsets = [table for table in tables.values() if isinstance(table, ConsumerOffsets)]
    if isinstance(groups, SubscriptionGroups):
        _check_groups(ctx, groups, offsets)
    if not queues:
        return
    if isinstance(topics, Topics):
        _check_topics(ctx, topics)
    elif not ctx.log_seen.absent and _has_no_file(ctx, "topics.json"):
        _check_without_topics(ctx)
    for name, table in tables.items():
        if isinstance(table, ConsumerOffsets):
            path = _path(name)
            for topic, group, entries in table.tables():
                if topic in ctx.queues_seen.deleted:
                    continue  # 4.9 keeps the offsets of deleted topics
                for queue_id, offset in entries.items():
                    _check_offset(ctx, path, topic, group, queue_id, offset)
    delays = tables.get("delayOffset.json")
    if isinstance(delays, DelayOffsets):
        _check_delays(ctx, delays)
    elif delays is None and not exists(ctx.layout.path("config", "delayOffset.json")):
        _check_delays(ctx, DelayOffsets())


def _path(name: str) -> str:
    return os.path.join("config", name)


def _read(ctx: Context, name: str) -> tuple[ConfigFile | None, str | None, int | None]:
    """(table, why it cannot be read, position); all None if the file does not exist."""
    model = kind_of(name)
    assert model is not None
    path = ctx.layout.path("config", name)
    try:
        data = read_small(path)
    except RmqError as err:
        return None, str(err), None
    if data is None:
        return None, None, None
    if not data.strip():
        return None, "empty", 0
    try:
        return parse_config(model, path, data), None, None
    except FormatError as err:
        return None, err.reason, err.at


def _check_database(ctx: Context, place: str, read: Callable[[], T]) -> T | None:
    """What a database below ``config/`` holds; None if it cannot be read, which is reported."""
    try:
        return read()
    except CorruptFile as err:
        ctx.found.add("config-database", place, actual=err.reason)
    except UnreadableStore as err:
        ctx.found.add("file-unreadable", place, actual=str(err))
    except MissingRuntime as err:
        ctx.found.add("not-checked", place, actual=f"a RocksDB database: {err}")
    return None


def _check_file(ctx: Context, name: str) -> ConfigFile | None:
    """The table that a broker would start with; None without one."""
    findings = ctx.found
    if (place := config_place(ctx.layout, name)) is not None:
        return _check_database(ctx, place, partial(read_config, ctx.layout, name))
    table, why, at = _read(ctx, name)
    before, bak_why, bak_at = _read(ctx, name + ".bak")
    if table is not None:
        if bak_why:
            findings.add("config-bak-broken", _path(name + ".bak"), offset=bak_at, actual=bak_why)
        return table
    if why is None:
        if before is not None or bak_why:
            bak = "the .bak is good" if before is not None else f"the .bak is broken too: {bak_why}"
            findings.add("config-missing", _path(name), actual=bak)
        return before
    if before is not None:
        bak = "the broker starts with the .bak, the previous version"
    elif bak_why:
        bak = f"the broker does not start: the .bak is broken too ({bak_why})"
    else:
        bak = "the broker starts with an empty table: there is no .bak"
    findings.add("config-broken", _path(name), offset=at, actual=why, consequence=bak)
    return before


def _queues_to_configure(ctx: Context) -> Iterator[tuple[str, int]]:
    """Queues with entries whose topic needs settings, in order."""
    for (topic, queue_id), end in sorted(ctx.queues_seen.ends.items()):
        made_by_broker = is_light(topic) or topic.lower().startswith(_SYSTEM_TOPIC)
        if end and not made_by_broker and topic not in ctx.queues_seen.deleted:
            yield topic, queue_id


def _has_no_file(ctx: Context, name: str) -> bool:
    files = any(exists(ctx.layout.path("config", file)) for file in (name, f"{name}.bak"))
    return not files and config_place(ctx.layout, name) is None


def _check_without_topics(ctx: Context) -> None:
    topics = (topic for topic, _queue_id in _queues_to_configure(ctx) if topic not in SYSTEM_TOPICS)
    if names := list(dict.fromkeys(topics)):
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        lost = any(kind_of(file.name) in _TABLES_BESIDE_TOPICS for file in ctx.layout.entries("config"))
        ctx.found.add(
            "topics-missing",
            _path("topics.json"),
            count=len(names),
            actual=f"messages of {shown}",
            severity=WARNING if lost else INFO,
        )


def _check_topics(ctx: Context, topics: Topics) -> None:
    for topic, queue_id in _queues_to_configure(ctx):
        config = topics.topics.get(topic)
        if config is None:
            ctx.found.add("topic-unknown", _path("topics.json"), topic=topic, queueId=queue_id, expected=topic)
        elif queue_id >= config.read_queue_nums and topic != _DELAY_TOPIC:
            key = topic, queue_id
            about: dict[str, Any] = {"actual": f"readQueueNums {config.read_queue_nums}", "severity": INFO}
            if (unread := ctx.end_of(key) - ctx.begin_of(key)) > 0:
                consequence = f"Consumers do not get the {counted(unread, 'message')} of this queue."
                about |= {"severity": WARNING, "count": unread, "consequence": consequence}
            ctx.found.add("queue-unread", _path("topics.json"), topic=topic, queueId=queue_id, **about)


def _check_groups(ctx: Context, groups: SubscriptionGroups, offsets: list[ConsumerOffsets]) -> None:
    named = {entry.group for table in offsets for entry in table.tables()}
    for group in sorted(named - set(groups.groups)):
        if group and not group.startswith((LMQ_PREFIX, _SYSTEM_GROUP)):
            ctx.found.add("group-unknown", _path("subscriptionGroup.json"), expected=group)


def _check_offset(ctx: Context, path: str, topic: str, group: str, queue_id: int, offset: int) -> None:
    """Check one offset; texts are only built for listed findings, as there may be millions."""
    end = ctx.end_of((topic, queue_id))
    if offset > end:
        ctx.found.many(
            "offset-ahead",
            path,
            1,
            lambda _i: {
                "queueOffset": offset,
                "expected": f"at most {end}",
                "actual": f"group {group}: {offset}",
                "consequence": f"group {group} is {counted(offset - end, 'message')} ahead of the queue",
            },
            topic=topic,
            queueId=queue_id,
        )
        return
    begin = ctx.begin_of((topic, queue_id))
    if 0 <= offset < begin:
        ctx.found.many(
            "offset-expired",
            path,
            1,
            lambda _i: {
                "queueOffset": offset,
                "expected": f"at least {begin}",
                "actual": f"group {group}: {offset}",
            },
            topic=topic,
            queueId=queue_id,
        )


def _check_delays(ctx: Context, delays: DelayOffsets) -> None:
    name = _path("delayOffset.json")
    for level, offset in delays.offsets.items():
        end = ctx.queues_seen.ends.get((_DELAY_TOPIC, level - 1), 0)
        if offset > end:
            ctx.found.add(
                "delay-offset-ahead",
                name,
                topic=_DELAY_TOPIC,
                queueId=level - 1,
                queueOffset=offset,
                expected=f"level {level}: at most {end}",
                actual=offset,
            )
    # An offset is written when the first message is delivered; without one a broker begins at the queue's beginning.
    # A due message proves nothing: others may have been stored later without a running delay service.
    queues = ctx.queues_seen
    for level, due in sorted(queues.first_due.items()):
        if level not in delays.offsets and is_overdue(ctx, due) and was_delivered(ctx.log, queues.first_delayed[level]):
            ctx.found.add(
                "delay-offset-lost",
                name,
                topic=_DELAY_TOPIC,
                queueId=level - 1,
                expected=f"an offset of level {level}, whose first message was due at {due} and was delivered",
                actual="none",
            )


def is_overdue(ctx: Context, due: int, late: int = _LATE) -> bool:
    """Whether a message was due ``late`` ms before the end of the log; a tag hash in place of a time is small."""
    return 2**31 <= due < (ctx.log_seen.last_timestamp or 0) - late
