"""What is wrong with a static topic (5.x), from the parts of its queues that brokers hold. No I/O."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from formats.config.files_of_5 import TopicQueueMapping
from rmqtool.rules.static_topics import chains_of, is_pending
from rmqtool.store.check.codes.code import WARNING

_MOST_NAMED = 8  # queues


class StaticFinding(NamedTuple):
    """Something that is wrong with a static topic.

    Attributes:
        broker: on which broker; None if on several, or none.
        severity: if it is not that of the code.
    """

    code: str
    actual: str
    broker: str | None = None
    severity: str | None = None


def judge(
    parts: Mapping[str, TopicQueueMapping], ordinary: Collection[str], masters: Collection[str], *, complete: bool
) -> list[StaticFinding]:
    """The findings of one topic.

    Args:
        parts: by broker.
        ordinary: brokers that have it as an ordinary topic.
        masters: brokers with a registered master.
        complete: every master has answered; if not, another part may be there.
    """
    chains = chains_of(parts.values())
    total = max(mapping.total_queues for mapping in parts.values())
    findings = _judge_versions(parts, ordinary)
    missing = [queue_id for queue_id in range(total) if queue_id not in chains]
    if missing and complete:
        findings.append(StaticFinding("static-incomplete", f"{_queues(missing)} of {total}: on no broker"))
    leads, holds = defaultdict[str, list[int]](list), defaultdict[str, set[int]](set)
    for queue_id, chain in chains.items():
        leader = chain[-1].broker_name or ""
        if leader not in masters:
            leads[leader].append(queue_id)
        elif is_pending(queue_id, chain, parts) and (leader in parts or complete):
            findings.append(StaticFinding("static-unfinished", f"{_queues([queue_id])} moves to it", leader))
        for name in {item.broker_name or "" for item in chain[:-1]} - {leader, *masters}:
            holds[name].add(queue_id)
    for name, queues in sorted(leads.items()):
        findings.append(StaticFinding("static-broker-away", f"leads {_queues(queues)}", name))
    for name, held in sorted(holds.items()):
        what = f"holds earlier messages of {_queues(sorted(held))}"
        findings.append(StaticFinding("static-broker-away", what, name, WARNING))
    return findings


def _judge_versions(parts: Mapping[str, TopicQueueMapping], ordinary: Collection[str]) -> list[StaticFinding]:
    findings = []
    for what, values in (
        ("epoch", {name: mapping.epoch for name, mapping in parts.items()}),
        ("queues", {name: mapping.total_queues for name, mapping in parts.items()}),
    ):
        if len(set(values.values())) > 1:
            each = ", ".join(f"{name} {value}" for name, value in sorted(values.items()))
            findings.append(StaticFinding("static-differs", f"{what}: {each}"))
    findings += [StaticFinding("static-differs", "it is an ordinary topic there", name) for name in sorted(ordinary)]
    return findings


def _queues(queue_ids: list[int]) -> str:
    shown = ", ".join(map(str, queue_ids[:_MOST_NAMED]))
    more = f" and {len(queue_ids) - _MOST_NAMED} more" if len(queue_ids) > _MOST_NAMED else ""
    return f"queue{'s' if len(queue_ids) > 1 else ''} {shown}{more}"
