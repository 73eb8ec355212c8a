"""Each configuration file in full, with every member in its place."""

import dataclasses
from typing import Any

from formats.config import files, files_of_5
from formats.fastjson.read import loads
from formats.model import groups
from formats.model.topics import DataVersion, TopicConfig
from formats.versions import V4_9
from tests.formats.config_samples import VERSION, check, text


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
    check(sample, files.ConsumerOffsets(data_version=VERSION, offsets=offsets))


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
    check(
        sample, files.ConsumerOffsets(offsets={"TopicA@GroupA": {0: 12, 1: 5}, "%RETRY%GroupA@GroupA": {0: 7}}), "4.9"
    )


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
    check(
        sample, files.LmqConsumerOffsets(offsets={"TopicA@GroupA": {0: 12}}, lmq_offsets={"%LMQ%a@%LMQ%g": 33}), "4.9"
    )


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
    topics = files.Topics(data_version=VERSION, topics={"OrderEvents": topic})
    check(sample, topics)
    older = [line for line in sample.split("\n") if "stateVersion" not in line]
    first = older.index('      "attributes":{')
    del older[first : first + 3]
    assert topics.build(V4_9) == text("\n".join(older))


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
    group = groups.SubscriptionGroup(
        group_name="billing",
        group_retry_policy=groups.GroupRetryPolicy(
            exponential=groups.ExponentialRetry(), customized=groups.CustomizedRetry(next=(1000, 5000))
        ),
        subscriptions=(
            groups.SimpleSubscription(topic="OrderEvents", expression_type="TAG", expression="*", version=1),
        ),
    )
    table = files.SubscriptionGroups(
        data_version=VERSION, forbidden={"billing": {"OrderEvents": 4}}, groups={"billing": group}
    )
    check(sample, table)
    plain: Any = loads(table.build(V4_9))
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
    offsets = files.DelayOffsets(data_version=VERSION, offsets={1: 120, 3: 7})
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
    assert files.DelayOffsets().build() == b'{\n\t"offsetTable":{}\n}'


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
    consumer_filter = files.ConsumerFilter(
        topic="OrderEvents",
        consumer_group="billing",
        expression="amount > 100",
        expression_type="SQL92",
        born_time=1700000000000,
        client_version=1700000000500,
        bloom_filter_data=files.BloomFilterData(bit_num=112, bit_pos=(3, 77, 101)),
    )
    filters = files.ConsumerFilters(
        topics={"OrderEvents": files.TopicFilters(topic="OrderEvents", groups={"billing": consumer_filter})}
    )
    check(sample, filters)
    check(sample, filters, "4.9")
    assert not consumer_filter.dead
    assert dataclasses.replace(consumer_filter, dead_time=consumer_filter.born_time).dead


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
    mapping = files_of_5.TopicQueueMapping(
        topic="OrderEvents",
        total_queues=4,
        broker_name="broker-a",
        epoch=1700000000123,
        current_ids={0: 0},
        hosted_queues={0: (files_of_5.LogicQueueMapping(broker_name="broker-a"),)},
    )
    mappings = files_of_5.TopicQueueMappings(data_version=VERSION, mappings={"OrderEvents": mapping})
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
    mode = files_of_5.MessageRequestMode(
        topic="OrderEvents", consumer_group="billing", mode="POP", pop_share_queue_num=2
    )
    check(sample, files_of_5.MessageRequestModes(modes={"OrderEvents": {"billing": mode}}))


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
    info = files_of_5.OrderInfo(
        attempt_id="att-1",
        invisible_time=30000,
        last_consume_timestamp=1700000000000,
        offset_list=(100, 1, 5),
        consumed_counts={101: 1},
        next_visible={105: 1700000030000},
        pop_time=1700000000000,
    )
    check(sample, files_of_5.ConsumerOrderInfos(table={"OrderEvents@billing": {2: info}}))
    assert info.queue_offsets == (100, 101, 105)
    assert files_of_5.OrderInfo().queue_offsets == ()


def test_metrics() -> None:
    version = b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},'
    count = b'{"OrderEvents":{"count":5,"timeStamp":1700000000000}}}'
    members: dict[str, Any] = {
        "data_version": DataVersion(timestamp=1700000000000),
        "counts": {"OrderEvents": files_of_5.Metric(count=5, timestamp=1700000000000)},
    }
    for metrics, name in (
        (files_of_5.TimerMetrics(**members), b'"timingCount":'),
        (files_of_5.TransactionMetrics(**members), b'"transactionCount":'),
    ):
        assert metrics.build() == version + name + count
        assert type(metrics).parse(metrics.build()) == metrics
