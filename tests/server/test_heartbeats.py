"""Heartbeats of 5.x that omit what was sent before (heartbeat v2)."""

from pathlib import Path

import pytest

from formats.errors import BadText
from formats.fastjson.declare import body_of, read_body
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, SubscriptionData
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import V4_9, V5_3
from tests.server.serving import pull, send, serving


async def beat(client: Connection, fingerprint: int, *topics: str) -> h.HeartbeatAnswer:
    """A heartbeat; a short one without topics."""
    subscriptions = [SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics]
    consumer = ConsumerData("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", subscriptions)
    data = b.HeartbeatData("c", [], [consumer], heartbeat_fingerprint=fingerprint, without_sub=not topics)
    response = await client.call(Command(C.HEART_BEAT, body=body_of(data)))
    assert response.code == ResponseCode.SUCCESS
    return from_fields(h.HeartbeatAnswer, response.fields)


def test_short_heartbeats_keep_what_was_said(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        assert (await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))).code == ResponseCode.SUCCESS

        async def pulled() -> int:
            fields = pull(0, sys_flag=0)  # by what the heartbeat said
            return (await client.call(Command(C.PULL_MESSAGE, fields=fields))).code

        # before the long one, as after this broker has taken another one's place
        assert await beat(client, 7) == h.HeartbeatAnswer(is_support_heart_beat_v2=True, is_sub_change=True)
        assert await pulled() == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert await beat(client, 7, "Orders") == h.HeartbeatAnswer(is_support_heart_beat_v2=True, is_sub_change=False)
        for _ in range(2):
            assert not (await beat(client, 7)).is_sub_change
            assert await pulled() == ResponseCode.SUCCESS
        assert (await beat(client, 8, "Orders", "Others")).is_sub_change
        assert not (await beat(client, 8)).is_sub_change
        assert (await beat(client, 0, "Orders")).is_sub_change  # one that knows no fingerprints

    serving(tmp_path / "store", test, create=True, release=V5_3)


@pytest.mark.parametrize("fingerprint", [0, 7])
def test_a_broker_of_4_9_says_nothing_of_them(tmp_path: Path, fingerprint: int) -> None:
    async def test(client: Connection) -> None:
        assert await beat(client, fingerprint, "Orders") == h.HeartbeatAnswer()

    serving(tmp_path / "store", test, create=True, release=V4_9)


def test_numbers_stand_for_names_as_clients_in_c_plus_plus_write_them() -> None:
    body = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":0,'
        b'"subscriptionDataSet":[{"codeSet":[0],"subString":"a","subVersion":"17","tagsSet":["a"],"topic":"T"}]}],'
        b'"producerDataSet":[{"groupName":"p"}]}'
    )
    (consumer,) = read_body(b.HeartbeatData, body).consumer_data_set
    assert (consumer.consume_type, consumer.message_model) == ("CONSUME_PASSIVELY", "BROADCASTING")
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.subscription_data_set[0].sub_version == 17
    for wrong in (b"3", b"-1", b"true", b"1.0"):
        with pytest.raises(BadText, match=r"consumeType.* where text must be"):
            read_body(b.HeartbeatData, body.replace(b'"consumeType":1', b'"consumeType":' + wrong))
