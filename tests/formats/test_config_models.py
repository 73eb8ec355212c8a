"""Models of configuration files declare the members of the Java classes."""

import dataclasses
import re

import pytest

from formats.config.files import (
    BloomFilterData,
    ConsumerFilter,
    ConsumerFilters,
    ConsumerOffsets,
    DelayOffsets,
    LmqConsumerOffsets,
    SubscriptionGroups,
    TopicFilters,
    Topics,
)
from formats.config.files_of_5 import (
    ConsumerOrderInfos,
    LogicQueueMapping,
    MessageRequestMode,
    MessageRequestModes,
    Metric,
    OrderInfo,
    TimerMetrics,
    TopicQueueMapping,
    TopicQueueMappings,
    TransactionMetrics,
)
from formats.fastjson.declare import Bean, Flag, Items, Kind, Nested, Table, Text, Whole, members_of
from formats.model.groups import (
    CustomizedRetry,
    ExponentialRetry,
    GroupRetryPolicy,
    SimpleSubscription,
    SubscriptionGroup,
)
from formats.model.topics import DataVersion, TopicConfig
from formats.versions import V4_9, VERSIONS, Version
from tests.formats.config_samples import GOLDEN

MODELS: dict[str, type[Bean]] = {
    "BloomFilterData": BloomFilterData,
    "ConsumerFilterData": ConsumerFilter,
    "ConsumerOffsetSerializeWrapper": ConsumerOffsets,
    "CustomizedRetryPolicy": CustomizedRetry,
    "DataVersion": DataVersion,
    "DelayOffsetSerializeWrapper": DelayOffsets,
    "ExponentialRetryPolicy": ExponentialRetry,
    "FilterDataMapByTopic": TopicFilters,
    "GroupRetryPolicy": GroupRetryPolicy,
    "LogicQueueMappingItem": LogicQueueMapping,
    "MessageRequestModeSerializeWrapper": MessageRequestModes,
    "Metric": Metric,
    "OrderInfo": OrderInfo,
    "SetMessageRequestModeRequestBody": MessageRequestMode,
    "SimpleSubscriptionData": SimpleSubscription,
    "SubscriptionGroupConfig": SubscriptionGroup,
    "SubscriptionGroupWrapper": SubscriptionGroups,
    "TimerMetricsSerializeWrapper": TimerMetrics,
    "TopicConfig": TopicConfig,
    "TopicConfigSerializeWrapper": Topics,
    "TopicQueueMappingDetail": TopicQueueMapping,
    "TopicQueueMappingSerializeWrapper": TopicQueueMappings,
    "TransactionMetricsSerializeWrapper": TransactionMetrics,
}


def listed(version: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Java class → member → (type, default), with types that this project does not distinguish unified."""
    classes: dict[str, dict[str, tuple[str, str]]] = {}
    for line in (GOLDEN / "members" / f"{version}.tsv").read_text().splitlines():
        owner, name, java, default = line.split("\t")
        java = re.sub(r"Concurrent(Hash)?Map", "Map", re.sub(r"(\w+)\[\]", r"Set<\1>", java))
        java = re.sub(r"\b(AtomicLong|Long)\b", "long", re.sub(r"\bInteger\b", "int", java))
        java = re.sub(r"TopicFilterType|GroupRetryPolicyType|\bMessageRequestMode\b", "String", java)
        classes.setdefault(owner, {})[name] = java, default
    return classes


def java_type(kind: Kind) -> str:
    match kind:
        case Whole():
            return {32: "int", 64: "long"}[kind.bits]
        case Flag():
            return "boolean"
        case Text():
            return "String"
        case Items():
            return f"{'Set' if kind.inline else 'List'}<{java_type(kind.item)}>"
        case Table():
            return f"Map<{java_type(kind.key)}, {java_type(kind.item)}>"
        case Nested():
            return next(java for java, bean in MODELS.items() if bean is kind.declared)
    raise TypeError(kind)


def java_default(value: object) -> str:
    if isinstance(value, Bean | dict | bool):
        return "new" if isinstance(value, Bean) else str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value).replace("None", "null")


def declared(bean: type[Bean], since: tuple[Version, ...] = VERSIONS) -> dict[str, tuple[str, str]]:
    fresh = bean()
    return {
        name: (java_type(member.kind), java_default(getattr(fresh, member.attribute)))
        for name, member in members_of(bean).items()
        if member.since in since
    }


# What a file lacks is empty here where Java has null, and as old as can be where Java has the time of reading.
SAME_DEFAULT = {("null", "new"), ("null", "{}"), ("now", "0")}
ELSEWHERE = {"forbiddenTable"}  # a member of SubscriptionGroupManager, not of what it sends to its slaves


@pytest.mark.parametrize("java", MODELS)
def test_members_types_and_defaults_are_those_of_the_java_class(java: str) -> None:
    ours, theirs = declared(MODELS[java]), listed("5.3.3")[java]
    assert ours.keys() - ELSEWHERE == theirs.keys()
    for name, (kind, default) in theirs.items():
        assert ours[name][0] == kind
        assert default == ours[name][1] or (default, ours[name][1]) in SAME_DEFAULT, name


@pytest.mark.parametrize("java", listed("4.9.8"))
def test_members_that_4_9_has_are_those_of_its_java_class(java: str) -> None:
    ours, theirs = declared(MODELS[java], since=(V4_9,)), listed("4.9.8")[java]
    assert {name: kind for name, (kind, _) in ours.items()} == {name: kind for name, (kind, _) in theirs.items()}


@pytest.mark.parametrize("bean", [*MODELS.values(), LmqConsumerOffsets, ConsumerFilters, ConsumerOrderInfos])
def test_models_are_frozen_slotted_and_take_members_by_name(bean: type[Bean]) -> None:
    fresh = bean()
    with pytest.raises(dataclasses.FrozenInstanceError):
        fresh.extra = {}  # type: ignore[misc]
    assert not hasattr(fresh, "__dict__")
    with pytest.raises(TypeError):
        bean({})  # type: ignore[call-arg]
