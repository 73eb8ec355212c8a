"""Queries of configuration files, and errors in them with their path."""

from typing import Any

import pytest

from formats.config.file import ConfigFile
from formats.config.files import (
    NAMES,
    ConsumerFilters,
    ConsumerOffsets,
    DelayOffsets,
    LmqConsumerOffsets,
    QueueOffset,
    SubscriptionGroups,
    Topics,
    kind_of,
    model_of,
    split_key,
)
from formats.config.files_of_5 import ConsumerOrderInfos, TopicQueueMappings
from formats.errors import BadText
from formats.model.groups import CustomizedRetry
from formats.model.topics import TopicConfig
from formats.versions import V4_9, V5_3, Version
from tests.formats.config_samples import GOLDEN, text


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
    assert b"groupTopicMap" in table.with_offset("TopicA", "GroupA", 0, 99).build(V5_3)
    assert b"groupTopicMap" not in table.with_offset("TopicB", "GroupA", 0, 99).build(V5_3)
    assert b"groupTopicMap" not in table.build(V4_9)
    for broken in (b"5", b'{"g":5}', b'{"g":[[]]}', b"[]"):
        edited = ConsumerOffsets.parse(b'{"groupTopicMap":' + broken + b',"offsetTable":{"t@g":{}}}')
        assert b"groupTopicMap" not in edited.build(V5_3)


@pytest.mark.parametrize("name", NAMES)
def test_the_kind_of_a_file_is_known_by_its_name(name: str) -> None:
    assert kind_of(name) is kind_of(name + ".bak") is kind_of(name + ".tmp") is model_of(name)


@pytest.mark.parametrize("name", ["", "topics", "topics.json.old", "topics.jsonl", "tieredStore.json", ".bak"])
def test_other_files_have_no_kind(name: str) -> None:
    assert kind_of(name) is None


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
    assert topics.build(V4_9) == raw


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
    with pytest.raises(ValueError, match=r"5\.0 is not one of 4\.9, 5\.3"):
        Topics().build(Version(5, 0))


def test_what_json_has_not_is_not_built() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested deeper"):
        Topics(extra={"x": endless}).build()
