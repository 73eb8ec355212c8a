"""The typed configuration files: a broker's bytes come back as they were, and what is wrong is named by its path."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.config.beans import Bean, Nested
from formats.config.files import (
    KINDS,
    BloomFilterData,
    ConfigFile,
    ConsumerFilter,
    ConsumerFilters,
    ConsumerOffsets,
    ConsumerOrderInfos,
    CustomizedRetry,
    DataVersion,
    DelayOffsets,
    ExponentialRetry,
    GroupRetryPolicy,
    LmqConsumerOffsets,
    LogicQueueMapping,
    MessageRequestMode,
    MessageRequestModes,
    Metric,
    OrderInfo,
    QueueOffset,
    SimpleSubscription,
    SubscriptionGroup,
    SubscriptionGroups,
    TimerMetrics,
    TopicConfig,
    TopicFilters,
    TopicQueueMapping,
    TopicQueueMappings,
    Topics,
    TransactionMetrics,
    kind_of,
    split_key,
)
from formats.config.json import Real, loads
from formats.config.kinds import Flag, Items, Kind, Numbered, Table, Text, Whole
from formats.errors import BadText, FormatError

GOLDEN = Path(__file__).parents[1] / "golden" / "config"
WRITTEN_BY = {"4.9-broker": "4.9", "4.9-clean": "4.9", "5.3-managers": "5.3"}
FILES = [path for folder in WRITTEN_BY for path in sorted((GOLDEN / folder).iterdir())]
VERSION = DataVersion(counter=3, timestamp=1700000000123)


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def model(path: Path) -> type[ConfigFile]:
    kind = kind_of(path.name)
    assert kind is not None
    return kind


# --- golden files -----------------------------------------------------------------------------------------------------


def test_the_golden_files_have_every_kind() -> None:
    assert {kind_of(path.name) for path in FILES} == set(KINDS.values())


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_that_a_broker_wrote_reads_and_rebuilds_byte_for_byte(path: Path) -> None:
    raw = path.read_bytes()
    assert model(path).parse(raw).build(engine=WRITTEN_BY[path.parent.name]) == raw


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_keeps_its_meaning_in_the_newest_version(path: Path) -> None:
    read = model(path).parse(path.read_bytes())
    assert model(path).parse(read.build(engine="5.3")) == read


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_member_of_a_broker_file_is_known(path: Path) -> None:
    def unknown(value: object) -> list[object]:
        if isinstance(value, dict):
            return [found for item in value.values() for found in unknown(item)]
        if isinstance(value, tuple):
            return [found for item in value for found in unknown(item)]
        if isinstance(value, Bean):
            inner = (getattr(value, field.name) for field in dataclasses.fields(value) if field.name != "extra")
            return [*value.extra, *(found for item in inner for found in unknown(item))]
        return []

    assert set(unknown(model(path).parse(path.read_bytes()))) <= {"groupTopicMap"}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    raw = path.read_bytes()
    for length in range(len(raw)):
        with pytest.raises(BadText):
            model(path).parse(raw[:length])


def test_a_shared_map_is_built_in_full() -> None:
    raw = (GOLDEN / "fastjson-1.2.83" / "references.json").read_bytes()
    topics = Topics.parse(raw)
    assert raw.count(b"$ref") == 2
    for name in ("%RETRY%copy-of_order", "Third", "OrderEvents"):
        assert topics.topics[name].attributes == {"message.type": "FIFO"}
    built = topics.build(engine="5.3")
    assert b"$ref" not in built  # a broker would read it as an attribute of that name
    assert built.count(b'"message.type":"FIFO"') == 3
    assert Topics.parse(built) == topics


# --- the shapes of each file, in full ---------------------------------------------------------------------------------


def text(lines: str) -> bytes:
    """Sample text with two spaces for a TAB."""
    stripped = lines.strip("\n").split("\n")
    return "\n".join("\t" * ((len(line) - len(line.lstrip())) // 2) + line.lstrip() for line in stripped).encode()


def check(sample: str, expected: ConfigFile, engine: str = "5.3") -> None:
    raw = text(sample)
    assert type(expected).parse(raw) == expected
    assert expected.build(engine=engine) == raw


def test_consumer_offset_of_5() -> None:
    sample = """
{
  "dataVersion":{
    "counter":3,
    "stateVersion":0,
    "timestamp":1700000000123
  },
  "offsetTable":{
    "%RETRY%GroupA@GroupA":{0:7
    },
    "Empty@GroupB":{},
    "TopicA@GroupA":{0:12,1:5
    }
  }
}
"""
    offsets = {"%RETRY%GroupA@GroupA": {0: 7}, "Empty@GroupB": {}, "TopicA@GroupA": {0: 12, 1: 5}}
    check(sample, ConsumerOffsets(data_version=VERSION, offsets=offsets))


def test_consumer_offset_of_4() -> None:
    sample = """
{
  "offsetTable":{
    "TopicA@GroupA":{0:12,1:5
    },
    "%RETRY%GroupA@GroupA":{0:7
    }
  }
}
"""
    check(sample, ConsumerOffsets(offsets={"TopicA@GroupA": {0: 12, 1: 5}, "%RETRY%GroupA@GroupA": {0: 7}}), "4.9")


def test_lmq_consumer_offset() -> None:
    sample = """
{
  "lmqOffsetTable":{
    "%LMQ%a@%LMQ%g":33
  },
  "offsetTable":{
    "TopicA@GroupA":{0:12
    }
  }
}
"""
    check(sample, LmqConsumerOffsets(offsets={"TopicA@GroupA": {0: 12}}, lmq_offsets={"%LMQ%a@%LMQ%g": 33}), "4.9")


def test_topics() -> None:
    sample = """
{
  "dataVersion":{
    "counter":3,
    "stateVersion":0,
    "timestamp":1700000000123
  },
  "topicConfigTable":{
    "OrderEvents":{
      "attributes":{
        "message.type":"FIFO"
      },
      "order":false,
      "perm":6,
      "readQueueNums":8,
      "topicFilterType":"SINGLE_TAG",
      "topicName":"OrderEvents",
      "topicSysFlag":0,
      "writeQueueNums":8
    }
  }
}
"""
    topic = TopicConfig(
        topic_name="OrderEvents", read_queue_nums=8, write_queue_nums=8, attributes={"message.type": "FIFO"}
    )
    topics = Topics(data_version=VERSION, topics={"OrderEvents": topic})
    check(sample, topics)
    older = [line for line in sample.split("\n") if "stateVersion" not in line]
    first = older.index('      "attributes":{')
    del older[first : first + 3]
    assert topics.build(engine="4.9") == text("\n".join(older))


def test_subscription_groups() -> None:
    sample = """
{
  "dataVersion":{
    "counter":3,
    "stateVersion":0,
    "timestamp":1700000000123
  },
  "forbiddenTable":{
    "billing":{
      "OrderEvents":4
    }
  },
  "subscriptionGroupTable":{
    "billing":{
      "attributes":{},
      "brokerId":0,
      "consumeBroadcastEnable":true,
      "consumeEnable":true,
      "consumeFromMinEnable":true,
      "consumeMessageOrderly":false,
      "consumeTimeoutMinute":15,
      "groupName":"billing",
      "groupRetryPolicy":{
        "customizedRetryPolicy":{
          "next":[1000,5000]
        },
        "exponentialRetryPolicy":{
          "initial":5000,
          "max":7200000,
          "multiplier":2
        },
        "type":"CUSTOMIZED"
      },
      "groupSysFlag":0,
      "notifyConsumerIdsChangedEnable":true,
      "retryMaxTimes":16,
      "retryQueueNums":1,
      "subscriptionDataSet":[{
        "expression":"*",
        "expressionType":"TAG",
        "topic":"OrderEvents",
        "version":1
      }],
      "whichBrokerWhenConsumeSlowly":1
    }
  }
}
"""
    group = SubscriptionGroup(
        group_name="billing",
        group_retry_policy=GroupRetryPolicy(
            exponential=ExponentialRetry(), customized=CustomizedRetry(next=(1000, 5000))
        ),
        subscriptions=(SimpleSubscription(topic="OrderEvents", expression_type="TAG", expression="*", version=1),),
    )
    groups = SubscriptionGroups(
        data_version=VERSION, forbidden={"billing": {"OrderEvents": 4}}, groups={"billing": group}
    )
    check(sample, groups)
    plain: Any = loads(groups.build(engine="4.9"))
    assert list(plain) == ["dataVersion", "subscriptionGroupTable"]
    assert list(plain["subscriptionGroupTable"]["billing"]) == [
        "brokerId",
        "consumeBroadcastEnable",
        "consumeEnable",
        "consumeFromMinEnable",
        "groupName",
        "notifyConsumerIdsChangedEnable",
        "retryMaxTimes",
        "retryQueueNums",
        "whichBrokerWhenConsumeSlowly",
    ]


def test_delay_offset() -> None:
    offsets = DelayOffsets(data_version=VERSION, offsets={1: 120, 3: 7})
    sample = """
{
  "dataVersion":{
    "counter":3,
    "stateVersion":0,
    "timestamp":1700000000123
  },
  "offsetTable":{1:120,3:7
  }
}
"""
    check(sample, offsets)
    assert offsets.build() == b'{\n\t"offsetTable":{1:120,3:7\n\t}\n}'
    assert DelayOffsets().build() == b'{\n\t"offsetTable":{}\n}'


def test_consumer_filter() -> None:
    sample = """
{
  "filterDataByTopic":{
    "OrderEvents":{
      "groupFilterData":{
        "billing":{
          "bloomFilterData":{
            "bitNum":112,
            "bitPos":[3,77,101]
          },
          "bornTime":1700000000000,
          "clientVersion":1700000000500,
          "consumerGroup":"billing",
          "dead":false,
          "deadTime":0,
          "expression":"amount > 100",
          "expressionType":"SQL92",
          "topic":"OrderEvents"
        }
      },
      "topic":"OrderEvents"
    }
  }
}
"""
    one = ConsumerFilter(
        topic="OrderEvents",
        consumer_group="billing",
        expression="amount > 100",
        expression_type="SQL92",
        born_time=1700000000000,
        client_version=1700000000500,
        bloom_filter_data=BloomFilterData(bit_num=112, bit_pos=(3, 77, 101)),
    )
    filters = ConsumerFilters(topics={"OrderEvents": TopicFilters(topic="OrderEvents", groups={"billing": one})})
    check(sample, filters)
    check(sample, filters, "4.9")
    assert not one.dead
    assert dataclasses.replace(one, dead_time=one.born_time).dead


def test_topic_queue_mapping() -> None:
    sample = """
{
  "dataVersion":{
    "counter":3,
    "stateVersion":0,
    "timestamp":1700000000123
  },
  "topicQueueMappingInfoMap":{
    "OrderEvents":{
      "bname":"broker-a",
      "currIdMap":{0:0
      },
      "dirty":false,
      "epoch":1700000000123,
      "hostedQueues":{0:[
          {
            "bname":"broker-a",
            "endOffset":-1,
            "gen":0,
            "logicOffset":0,
            "queueId":0,
            "startOffset":0,
            "timeOfEnd":-1,
            "timeOfStart":-1
          }
        ]
      },
      "scope":"__global__",
      "topic":"OrderEvents",
      "totalQueues":4
    }
  }
}
"""
    mapping = TopicQueueMapping(
        topic="OrderEvents",
        total_queues=4,
        broker_name="broker-a",
        epoch=1700000000123,
        current_ids={0: 0},
        hosted_queues={0: (LogicQueueMapping(broker_name="broker-a"),)},
    )
    mappings = TopicQueueMappings(data_version=VERSION, mappings={"OrderEvents": mapping})
    check(sample, mappings)
    check(sample, mappings, "4.9")  # 4.9 has no such file, so there is but one form


def test_message_request_mode() -> None:
    sample = """
{
  "messageRequestModeMap":{
    "OrderEvents":{
      "billing":{
        "consumerGroup":"billing",
        "mode":"POP",
        "popShareQueueNum":2,
        "topic":"OrderEvents"
      }
    }
  }
}
"""
    mode = MessageRequestMode(topic="OrderEvents", consumer_group="billing", mode="POP", pop_share_queue_num=2)
    check(sample, MessageRequestModes(modes={"OrderEvents": {"billing": mode}}))


def test_consumer_order_info() -> None:
    sample = """
{
  "table":{
    "OrderEvents@billing":{2:{
        "a":"att-1",
        "cm":0,
        "i":30000,
        "l":1700000000000,
        "o":[
          100,
          1,
          5
        ],
        "oc":{101:1
        },
        "ot":{105:1700000030000
        },
        "popTime":1700000000000
      }
    }
  }
}
"""
    info = OrderInfo(
        attempt_id="att-1",
        invisible_time=30000,
        last_consume_timestamp=1700000000000,
        offset_list=(100, 1, 5),
        consumed_counts={101: 1},
        next_visible={105: 1700000030000},
        pop_time=1700000000000,
    )
    check(sample, ConsumerOrderInfos(table={"OrderEvents@billing": {2: info}}))
    assert info.queue_offsets == (100, 101, 105)
    assert OrderInfo().queue_offsets == ()


def test_metrics() -> None:
    version = b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},'
    count = b'{"OrderEvents":{"count":5,"timeStamp":1700000000000}}}'
    members: dict[str, Any] = {
        "data_version": DataVersion(timestamp=1700000000000),
        "counts": {"OrderEvents": Metric(count=5, timestamp=1700000000000)},
    }
    for metrics, name in (
        (TimerMetrics(**members), b'"timingCount":'),
        (TransactionMetrics(**members), b'"transactionCount":'),
    ):
        assert metrics.build() == version + name + count
        assert type(metrics).parse(metrics.build()) == metrics


# --- what the models declare ------------------------------------------------------------------------------------------

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
    """Java class → member → (type, default), types without what this project does not tell apart."""
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
        case Items():
            return f"{'Set' if kind.inline else 'List'}<{java_type(kind.item)}>"
        case Numbered():
            return f"Map<{java_type(kind.number)}, {java_type(kind.item)}>"
        case Table():
            return f"Map<String, {java_type(kind.item)}>"
        case Nested():
            return next(java for java, bean in MODELS.items() if bean is kind.bean)
    return {Flag: "boolean", Text: "String"}[type(kind)]


def java_default(value: object) -> str:
    if isinstance(value, Bean | dict | bool):
        return "new" if isinstance(value, Bean) else str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value).replace("None", "null")


def declared(bean: type[Bean], since: tuple[str, ...] = ("4.9", "5.3")) -> dict[str, tuple[str, str]]:
    fresh = bean()
    return {
        field.metadata["name"]: (java_type(field.metadata["kind"]), java_default(getattr(fresh, field.name)))
        for field in dataclasses.fields(bean)
        if field.metadata and field.metadata["since"] in since
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
    ours, theirs = declared(MODELS[java], since=("4.9",)), listed("4.9.8")[java]
    assert {name: kind for name, (kind, _) in ours.items()} == {name: kind for name, (kind, _) in theirs.items()}


@pytest.mark.parametrize("bean", [*MODELS.values(), LmqConsumerOffsets, ConsumerFilters, ConsumerOrderInfos])
def test_models_are_frozen_slotted_and_take_members_by_name(bean: type[Bean]) -> None:
    fresh = bean()
    with pytest.raises(dataclasses.FrozenInstanceError):
        fresh.extra = {}  # type: ignore[misc]
    assert not hasattr(fresh, "__dict__")
    with pytest.raises(TypeError):
        bean({})  # type: ignore[call-arg]


# --- accessors --------------------------------------------------------------------------------------------------------


def test_keys_split_at_the_last_at_sign() -> None:
    assert split_key("TopicA@GroupA") == ("TopicA", "GroupA")
    assert split_key("%RETRY%g@g") == ("%RETRY%g", "g")
    assert split_key("a@b@c") == ("a@b", "c")
    assert split_key("alone") == ("alone", "")


def test_offsets_as_entries() -> None:
    table = ConsumerOffsets(offsets={"b@g": {1: 5, 0: 12}, "e@g": {}, "a@h": {0: -1}})
    assert list(table.entries()) == [("b", "g", 1, 5), ("b", "g", 0, 12), ("a", "h", 0, -1)]
    assert next(table.entries()) == QueueOffset(topic="b", group="g", queue_id=1, offset=5)
    assert table.offset("b", "g", 0) == 12
    assert table.offset("b", "g", 2) is None
    assert table.offset("nothing", "g", 0) is None


def test_one_offset_can_be_set() -> None:
    table = ConsumerOffsets(offsets={"b@g": {1: 5, 0: 12}, "a@h": {0: 1}})
    changed = table.with_offset("b", "g", 1, 6).with_offset("c", "g", 3, 0)
    assert repr(changed.offsets) == repr({"b@g": {1: 6, 0: 12}, "a@h": {0: 1}, "c@g": {3: 0}})
    assert table.offset("b", "g", 1) == 5


def test_lmq_groups_have_their_own_table() -> None:
    table = LmqConsumerOffsets(offsets={"a@g": {0: 1}}, lmq_offsets={"%LMQ%a@%LMQ%g": 33})
    assert list(table.entries()) == [("a", "g", 0, 1), ("%LMQ%a", "%LMQ%g", 0, 33)]
    assert table.offset("%LMQ%a", "%LMQ%g", 0) == 33
    assert table.offset("a", "g", 0) == 1
    changed = table.with_offset("%LMQ%b", "%LMQ%g", 0, 4).with_offset("a", "g", 0, 2)
    assert changed.lmq_offsets == {"%LMQ%a@%LMQ%g": 33, "%LMQ%b@%LMQ%g": 4}
    assert changed.offsets == {"a@g": {0: 2}}


def test_the_derived_topics_of_groups_are_written_while_they_are_true() -> None:
    raw = (GOLDEN / "5.3-managers" / "consumerOffset.json").read_bytes()
    table = ConsumerOffsets.parse(raw)
    assert b"groupTopicMap" in table.with_offset("TopicA", "GroupA", 0, 99).build(engine="5.3")
    assert b"groupTopicMap" not in table.with_offset("TopicB", "GroupA", 0, 99).build(engine="5.3")
    assert b"groupTopicMap" not in table.build(engine="4.9")
    for broken in (b"5", b'{"g":5}', b'{"g":[[]]}', b"[]"):
        edited = ConsumerOffsets.parse(b'{"groupTopicMap":' + broken + b',"offsetTable":{"t@g":{}}}')
        assert b"groupTopicMap" not in edited.build(engine="5.3")


@pytest.mark.parametrize("name", KINDS)
def test_the_kind_of_a_file_is_known_by_its_name(name: str) -> None:
    assert kind_of(name) is kind_of(name + ".bak") is kind_of(name + ".tmp") is KINDS[name]


@pytest.mark.parametrize("name", ["", "topics", "topics.json.old", "topics.jsonl", "tieredStore.json", ".bak"])
def test_other_files_have_no_kind(name: str) -> None:
    assert kind_of(name) is None


# --- reading what is not quite right ----------------------------------------------------------------------------------


def test_missing_and_null_members_have_the_default_of_the_java_class() -> None:
    assert Topics.parse(b"{}") == Topics()
    assert Topics.parse(b'{"topicConfigTable":null,"dataVersion":null}') == Topics()
    assert Topics.parse(b'{"topicConfigTable":{"T":{}}}').topics["T"] == TopicConfig(
        read_queue_nums=16, write_queue_nums=16, perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False
    )
    group = SubscriptionGroups.parse(b'{"subscriptionGroupTable":{"g":{"groupRetryPolicy":{"type":null}}}}').groups["g"]
    assert (group.retry_max_times, group.retry_queue_nums, group.which_broker_when_consume_slowly) == (16, 1, 1)
    assert (group.consume_enable, group.consume_from_min_enable, group.consume_broadcast_enable) == (True, True, True)
    assert (group.consume_message_orderly, group.group_sys_flag, group.consume_timeout_minute) == (False, 0, 15)
    assert (group.group_retry_policy.type, group.subscriptions, group.attributes) == ("CUSTOMIZED", None, {})
    assert len(CustomizedRetry().next) == 18
    assert CustomizedRetry().next[-1] == 7_200_000


def test_unknown_members_are_kept_and_written_in_order() -> None:
    raw = text("""
{
  "aNew":{1:[
      2.50
    ]
  },
  "dataVersion":{
    "counter":3,
    "later":"x",
    "timestamp":1700000000123
  },
  "topicConfigTable":{
    "T":{
      "order":false,
      "perm":6,
      "quota":{},
      "readQueueNums":1,
      "topicFilterType":"SOME_TAG",
      "topicName":"T",
      "topicSysFlag":0,
      "writeQueueNums":1
    }
  },
  "zNew":null
}
""")
    topics = Topics.parse(raw)
    assert topics.extra == {"aNew": {1: [2.5]}, "zNew": None}
    assert topics.data_version.extra == {"later": "x"}
    assert topics.build(engine="4.9") == raw


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        (b'{0:"12"}', {0: 12}),
        (b'{"0":-1}', {0: -1}),
        (b'{"-1":1,}', {-1: 1}),
        (b'{0:1.0,1:"7",2:1E3}', {0: 1, 1: 7, 2: 1000}),
        (b'{0:1,"0":2}', {0: 2}),
        (b"{/**/'3':9223372036854775807}", {3: 2**63 - 1}),
    ],
)
def test_offsets_may_come_in_other_clothes(queues: bytes, expected: dict[int, int]) -> None:
    assert ConsumerOffsets.parse(b'{offsetTable:{"t@g":' + queues + b"}}").offsets == {"t@g": expected}


@pytest.mark.parametrize(
    ("member", "attribute", "expected"),
    [
        (b'"perm":"6"', "perm", 6),
        (b'"order":1', "order", True),
        (b'"order":0', "order", False),
        (b'"order":"TRUE"', "order", True),
        (b'"order":"false"', "order", False),
        (b'"order":true', "order", True),
        (b'"topicName":5', "topic_name", "5"),
        (b'"topicName":true', "topic_name", "true"),
        (b'"topicName":false', "topic_name", "false"),
        (b'"topicName":1.50', "topic_name", "1.50"),
        (b'"attributes":{"a":5}', "attributes", {"a": "5"}),
    ],
)
def test_members_may_come_in_other_clothes(member: bytes, attribute: str, expected: object) -> None:
    topic = Topics.parse(b'{"topicConfigTable":{"T":{' + member + b"}}}").topics["T"]
    assert repr(getattr(topic, attribute)) == repr(expected)


WRONG: list[tuple[type[ConfigFile], bytes, bytes, str]] = [
    (ConsumerOffsets, b"[]", b"[", "$: a list where an object must be"),
    (ConsumerOffsets, b" null", b"null", "$: null where an object must be"),
    (ConsumerOffsets, b"5", b"5", "$: a number where an object must be"),
    (ConsumerOffsets, b'{"offsetTable": []}', b"[]", "$.offsetTable: a list where an object must be"),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":[1]}}', b"[1]", '$.offsetTable["t@g"]: a list where an object must be'),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":null}}', b"null", '$.offsetTable["t@g"]: null where an object must be'),
    (ConsumerOffsets, b'{"offsetTable":{7:{}}}', b"{}}}", "$.offsetTable[7]: its key is a bare number where text must"),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{x:7}}}', b"7", '$.offsetTable["t@g"].x: its key is not an integer'),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{"":7}}}', b"7", '$.offsetTable["t@g"][""]: its key is not an integer'),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{" 1":7}}}', b"7", '$.offsetTable["t@g"][" 1"]: its key is not an int'),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{4294967296:7}}}', b"7}", "its key is not an integer of 32 bits"),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{0:null}}}', b"null", '$.offsetTable["t@g"][0]: null where an integer'),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{0:"x"}}}', b'"x"', "text where an integer must be"),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{0:""}}}', b'""', "empty text where an integer must be"),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{0:1.7}}}', b"1.7", "1.7 where an integer must be"),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{0:1e999}}}', b"1e999", "1e999 where an integer must be"),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{0:true}}}', b"true", "true where an integer must be"),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{0:9223372036854775808}}}', b"922", "does not fit into 64 bits"),
    (ConsumerOffsets, b'{"offsetTable":{"t@g":{0:{}}}}', b"{}", "an object where an integer must be"),
    (ConsumerOffsets, b'{"dataVersion":{"counter":[]}}', b"[]", "$.dataVersion.counter: a list where an integer"),
    (LmqConsumerOffsets, b'{"lmqOffsetTable":{"a@b":{0:1}}}', b"{0", '$.lmqOffsetTable["a@b"]: an object where an int'),
    (Topics, b'{"topicConfigTable":{"T":null}}', b"null", "$.topicConfigTable.T: null where an object must be"),
    (Topics, b'{"topicConfigTable":{"T":{"perm":2147483648}}}', b"214", "$.topicConfigTable.T.perm: an integer that"),
    (Topics, b'{"topicConfigTable":{"T":{"order":2}}}', b"2", "a number where true or false must be"),
    (Topics, b'{"topicConfigTable":{"T":{"order":"x"}}}', b'"x"', "text where true or false must be"),
    (Topics, b'{"topicConfigTable":{"T":{"order":[]}}}', b"[]", "a list where true or false must be"),
    (Topics, b'{"topicConfigTable":{"T":{"topicName":{}}}}', b"{}}", "an object where text must be"),
    (Topics, b'{"topicConfigTable":{"\xe8\xae\xa2":{"topicName":[]}}}', b"[]", "$.topicConfigTable.订.topicName: a"),
    (Topics, b'{"topicConfigTable":{"\xff":{"perm":[]}}}', b"[]", '$.topicConfigTable["\\xff"].perm: a list'),
    (Topics, b'{"topicConfigTable":{"T":{"attributes":{"a":null}}}}', b"null", ".attributes.a: null where text"),
    (DelayOffsets, b'{"offsetTable":{"a":1}}', b"1", "$.offsetTable.a: its key is not an integer of 32 bits"),
    (ConsumerFilters, b'{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bloomFilterData":{"bitPos":[3,"x"]}}}}}}',
     b'"x"', "$.filterDataByTopic.T.groupFilterData.g.bloomFilterData.bitPos[1]: text where an integer must be"),
    (ConsumerOrderInfos, b'{"table":{"t@g":{0:{"o":5}}}}', b"5", '$.table["t@g"][0].o: a number where a list must be'),
    (TopicQueueMappings, b'{"topicQueueMappingInfoMap":{"T":{"hostedQueues":{0:[{},[]]}}}}', b"[]", "Queues[0][1]"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "raw", "at", "reason"), WRONG, ids=[case[1].decode("latin-1") for case in WRONG])
def test_a_wrong_value_is_named_by_path_and_byte(kind: type[ConfigFile], raw: bytes, at: bytes, reason: str) -> None:
    with pytest.raises(BadText) as caught:
        kind.parse(raw)
    assert reason in caught.value.reason
    assert caught.value.at == raw.index(at)


def test_a_reference_to_a_container_is_refused() -> None:
    with pytest.raises(BadText, match="contains it"):
        Topics.parse(b'{"topicConfigTable":{"T":{"new":{"$ref":".."}}}}')


def test_only_two_versions_can_be_built_for() -> None:
    with pytest.raises(ValueError, match=r"'5' is not one of 4.9, 5.3"):
        Topics().build(engine="5")


def test_what_json_has_not_is_not_built() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested deeper"):
        Topics(extra={"x": endless}).build()


# --- properties -------------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter(lambda name: name != "$ref")
EXTRA = st.dictionaries(
    NAMES.map("x-".__add__),
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | NAMES | st.lists(NAMES, max_size=2),
    max_size=2,
)


def values_of(kind: Kind) -> st.SearchStrategy[Any]:
    match kind:
        case Whole():
            return st.integers(-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1)
        case Flag():
            return st.booleans()
        case Text():
            return NAMES
        case Items():
            return st.lists(values_of(kind.item), max_size=3).map(tuple)
        case Numbered():
            return st.dictionaries(values_of(kind.number), values_of(kind.item), max_size=3)
        case Table():
            return st.dictionaries(NAMES, values_of(kind.item), max_size=3)
        case Nested():
            return beans(kind.bean)
    raise TypeError(kind)


def beans(bean: type[Bean]) -> st.SearchStrategy[Any]:
    members = {
        field.name: values_of(field.metadata["kind"]) | (st.none() if field.default is None else st.nothing())
        for field in dataclasses.fields(bean)
        if field.metadata
    }
    return st.builds(bean, extra=EXTRA, **members)


ANY_FILE = st.sampled_from(sorted(KINDS.values(), key=str)).flatmap(beans)


@given(ANY_FILE)
def test_what_is_built_for_5_reads_as_it_was(file: ConfigFile) -> None:
    built = file.build(engine="5.3")
    again = type(file).parse(built)
    assert again == file
    assert again.build(engine="5.3") == built


@given(ANY_FILE)
def test_what_is_built_for_4_has_all_that_4_knows(file: ConfigFile) -> None:
    built = file.build(engine="4.9")
    again = type(file).parse(built)
    assert again.build(engine="4.9") == built
    if file.SINCE != "4.9":
        assert again == file
        return
    assert b'"stateVersion"' not in built
    assert b'"attributes"' not in built
    for field in dataclasses.fields(file):
        if field.metadata.get("since") == "4.9" and not isinstance(field.metadata["kind"], Nested):
            assert list(getattr(again, field.name)) == list(getattr(file, field.name))


def reads_or_is_refused(kind: type[ConfigFile], raw: bytes) -> None:
    try:
        file = kind.parse(raw)
    except FormatError as err:
        refused: FormatError | None = err
    else:
        refused = None
        assert kind.parse(file.build(engine="5.3")).build() == file.build()
    assert refused is None or (type(refused) is BadText and 0 <= refused.at <= len(raw))


@given(st.sampled_from(sorted(KINDS.values(), key=str)), st.binary())
def test_random_bytes_read_or_are_refused(kind: type[ConfigFile], raw: bytes) -> None:
    reads_or_is_refused(kind, raw)
    reads_or_is_refused(kind, b'{"offsetTable":' + raw + b"}")


@given(st.sampled_from(FILES), st.data())
def test_a_damaged_file_reads_or_is_refused(path: Path, data: st.DataObject) -> None:
    raw = bytearray(path.read_bytes())
    pieces = st.sampled_from(
        [b"null", b"[]", b"{}", b'"7"', b"7", b"1.5", b'{"$ref":"$"}', b"", b",", b"}", b'"', b"\xff"]
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 12))] = data.draw(pieces)
    reads_or_is_refused(model(path), bytes(raw))


@given(st.sampled_from(FILES), st.data())
def test_a_file_with_a_strange_value_reads_or_is_refused(path: Path, data: st.DataObject) -> None:
    raw = path.read_bytes()
    places = [at for at, char in enumerate(raw) if char == ord(":") and raw[at + 1 : at + 2].isdigit()]
    if not places:
        return
    at = data.draw(st.sampled_from(places)) + 1
    end = next(end for end in range(at, len(raw) + 1) if not raw[end : end + 1].isdigit())
    strange = data.draw(st.sampled_from([b"null", b"[]", b"{}", b'"7"', b"1e400", b"-1", b"9" * 30, b"true", b"''"]))
    reads_or_is_refused(model(path), raw[:at] + strange + raw[end:])


def test_numbers_with_a_point_keep_their_characters_in_unknown_members() -> None:
    assert b'"x":0.10' in Topics(extra={"x": Real("0.10")}).build()
