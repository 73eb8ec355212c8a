"""The report of ``info`` for people."""

from typing import TYPE_CHECKING

from rich.console import Console

from rmqtool.cli.render.console import console, facts_table, table, text
from rmqtool.cli.render.output import Column
from rmqtool.cli.render.text import size_text
from rmqtool.cli.render.times import time_text
from rmqtool.words import command_line

if TYPE_CHECKING:
    from rmqtool.admin.live.info import ClusterFacts
    from rmqtool.services.lookup.info import StoreInfo

_MANY, _LARGEST = 40, 20  # of more topics, only this many are shown
INFO_FIELDS = ("topic", "queues", "messages", "configured")
INFO_COLUMNS = tuple(Column(name) for name in INFO_FIELDS)


def show(info: "StoreInfo", form: str) -> None:
    """Print it."""
    out = console(form)
    state = "not stopped cleanly, or running (abort is there)" if info.abort else "stopped cleanly (no abort)"
    if info.abortPid is not None:
        state += f", process {info.abortPid}"
    lock = {"absent": "never started here", "free": "free", "held": "HELD"}[info.lock]
    if info.lockPid:
        lock += f" by process {info.lockPid}"
    times = [time_text(t) if t is not None else "-" for t in (info.firstStoreTimestamp, info.lastStoreTimestamp)]
    rows = [
        ("store", info.store),
        *(("role" if number == 0 else "", fact.words) for number, fact in enumerate(info.roles)),
        ("version", f"{info.version}: {info.versionReason}"),
        ("state", state),
        ("lock", lock),
        ("physical offsets", f"{info.minPhyOffset} to {info.maxPhyOffset}"),
        ("store time", f"{times[0]} to {times[1]}"),
    ]
    for field, number in (info.checkpoint or {}).items():
        if number:
            rows.append((f"checkpoint {field}", time_text(number) if field.endswith("Timestamp") else str(number)))
    if info.checkpoint is None:
        rows.append(("checkpoint", "none"))
    if info.identity is not None:
        rows.append(("broker identity", info.identity))
    rows += [(f"epoch {epoch['epoch']}", f"begins at physical offset {epoch['startOffset']}") for epoch in info.epochs]
    out.print(facts_table(rows))
    files = table("files", "count", "size", "file size", "note", right=("count", "size", "file size"))
    for group in info.files:
        file_size = size_text(group.fileSize) if group.fileSize else ""
        files.add_row(text(group.kind), str(group.files), size_text(group.bytes), file_size, text(group.note or ""))
    out.print()
    out.print(files)
    _show_topics(out, info)
    if info.tiered:
        right = ("queue", "min offset", "max offset", "segments", "size")
        tiers = table("tiered storage", *right, "store time", right=right)
        for queue in info.tiered[: _MANY if len(info.tiered) <= _MANY else _LARGEST]:
            numbers = (queue.queueId, queue.minOffset, queue.maxOffset, queue.segments)
            known = [time_text(t) for t in (queue.firstStoreTimestamp, queue.lastStoreTimestamp) if t is not None]
            tiers.add_row(text(queue.topic), *map(str, numbers), size_text(queue.bytes), text(" to ".join(known)))
        out.print()
        out.print(tiers)
        if len(info.tiered) > _MANY:
            out.print(text(f"and {len(info.tiered) - _LARGEST:,} more queues; all: info --output json"))
    _show_groups(out, info)


def show_cluster(facts: "ClusterFacts", form: str) -> None:
    """Print what is known of a live cluster."""
    out = console(form)
    offsets = "of several masters" if facts.maxPhyOffset is None else f"{facts.minPhyOffset} to {facts.maxPhyOffset}"
    times = [time_text(t) if t is not None else "-" for t in (facts.firstStoreTimestamp, facts.lastStoreTimestamp)]
    out.print(
        facts_table(
            [
                ("cluster", facts.store),
                ("version", facts.version or "brokers differ"),
                ("physical offsets", offsets),
                ("store time", f"{times[0]} to {times[1]}"),
            ]
        )
    )
    brokers = table("broker", "id", "role", "address", "version", right=("id",))
    for broker in facts.brokers:
        cells = (broker.brokerName, broker.brokerId, broker.role, broker.address, broker.version or "does not answer")
        brokers.add_row(*map(text, cells))
    out.print()
    out.print(brokers)
    _show_topics(out, facts)
    _show_groups(out, facts)


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _show_groups(out: Console, info: "StoreInfo | ClusterFacts") -> None:
    if info.groups:
        shown = info.groups if len(info.groups) <= _MANY else info.groups[:_LARGEST]
        more = len(info.groups) - len(shown)
        names = " ".join(shown) + (f" and {more:,} more: {command_line('group', 'list', info.store)}" if more else "")
        out.print()
        out.print(facts_table([("groups", names)]))


def _show_topics(out: Console, info: "StoreInfo | ClusterFacts") -> None:
    """Show each topic; of many, the largest and the totals."""
    topics = info.topics
    if len(topics) > _MANY:
        topics = sorted(topics, key=lambda topic: topic.messages or 0, reverse=True)[:_LARGEST]
    tiered = ("in tier alone",) if any(topic.inTierAlone for topic in topics) else ()
    rows = table("topic", "queues", "messages", *tiered, "kind", right=("queues", "messages", *tiered))
    for topic in topics:
        alone = (str(topic.inTierAlone),) if tiered else ()
        kind = ", ".join(topic.nature)
        rows.add_row(text(topic.topic), _number(topic.queues), _number(topic.messages), *alone, text(kind))
    out.print()
    out.print(rows)
    if len(topics) < len(info.topics):
        queues, messages = sum(t.queues or 0 for t in info.topics), sum(t.messages or 0 for t in info.topics)
        out.print(
            text(
                f"the {len(topics)} largest of {len(info.topics):,} topics, which have {messages:,} messages in "
                f"{queues:,} queues; all: {command_line('topic', 'list', info.store)}"
            )
        )
