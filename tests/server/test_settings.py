"""Settings that administrators change at run time."""

import time
from pathlib import Path

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from rmqtool.remoting.connection import Connection
from rmqtool.rules.releases import V5_3
from tests.server.serving import CONF, pull, send, serving


def test_settings_change_while_a_store_is_served(tmp_path: Path) -> None:
    async def test(client: Connection) -> None:
        async def change(text: str) -> Command:
            return await client.call(Command(C.UPDATE_BROKER_CONFIG, body=text.encode()))

        assert (await change("brokerPermission=4\nregionId=Here\n")).code == ResponseCode.SUCCESS
        refused = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        assert refused.code == ResponseCode.NO_PERMISSION
        told = (await client.call(Command(C.GET_BROKER_CONFIG))).body.decode()
        assert "brokerPermission=4\n" in told
        for wrong in ("brokerPermission=9", "brokerPermission=x", "flushDiskType=SYNC_FLUSH", "nosuch=1"):
            assert (await change(f"regionId=There\n{wrong}")).code == ResponseCode.SYSTEM_ERROR
        assert (await change("brokerPermission=6\nautoCreateTopicEnable=false")).code == ResponseCode.SUCCESS
        sent = await client.call(Command(C.SEND_MESSAGE_V2, fields=send("New"), body=b"x"))
        assert sent.code == ResponseCode.TOPIC_NOT_EXIST
        assert (await change("autoCreateTopicEnable=true")).code == ResponseCode.SUCCESS
        sent = await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        assert from_fields(h.Sent, sent.fields).queue_offset >= 0

    serving(tmp_path / "store", test, create=True)


def test_what_clients_of_5_change_is_taken(tmp_path: Path) -> None:
    """RocketMQ's own tests change these at run time."""

    async def test(client: Connection) -> None:
        lines = (
            "enablePopBufferMerge=true", "shortPollingTimeMills=250", "enableSingleTopicRegister=true",
            "enableSplitRegistration=true", "enableNotifyAfterPopOrderLockRelease=false", "longPollingEnable=false",
        )  # fmt: skip
        changed = await client.call(Command(C.UPDATE_BROKER_CONFIG, body="\n".join(lines).encode()))
        assert changed.code == ResponseCode.SUCCESS, changed.remark
        told = (await client.call(Command(C.GET_BROKER_CONFIG))).body.decode().splitlines()
        assert set(lines) <= set(told)
        await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        begin = time.monotonic()
        fields = pull(1, sys_flag=6, suspend_timeout_millis=20_000)
        got = await client.call(Command(C.PULL_MESSAGE, fields=fields), 30)
        assert got.code == ResponseCode.PULL_NOT_FOUND
        assert 0.2 <= time.monotonic() - begin <= 4

    serving(tmp_path / "store", test, create=True, release=V5_3)


def test_who_resets_offsets_follows_the_setting(tmp_path: Path) -> None:
    """With useServerSideResetOffset=false the clients of a group move themselves, as with 4.9."""
    reset = to_fields(h.ResetOffset(topic="Orders", group="g", timestamp=-1, is_force=True))

    async def test(client: Connection) -> None:
        async def change(text: str) -> None:
            changed = await client.call(Command(C.UPDATE_BROKER_CONFIG, body=text.encode()))
            assert changed.code == ResponseCode.SUCCESS, changed.remark
            assert f"\n{text}\n" in (await client.call(Command(C.GET_BROKER_CONFIG))).body.decode()

        async def ask_reset() -> int:
            return (await client.call(Command(C.INVOKE_BROKER_TO_RESET_OFFSET, fields=reset))).code

        told = (await client.call(Command(C.GET_BROKER_CONFIG))).body.decode()
        assert "useServerSideResetOffset=false\n" in told
        await client.call(Command(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"g"}'))
        for _ in range(2):
            await client.call(Command(C.SEND_MESSAGE_V2, fields=send(), body=b"x"))
        for queue_id in range(8):
            fields = h.Commit(consumer_group="g", topic="Orders", queue_id=queue_id, commit_offset=0)
            await client.call(Command(C.UPDATE_CONSUMER_OFFSET, fields=to_fields(fields)))
        assert await ask_reset() == ResponseCode.CONSUMER_NOT_ONLINE
        await change("useServerSideResetOffset=true")
        assert await ask_reset() == ResponseCode.SUCCESS
        got = await client.call(Command(C.PULL_MESSAGE, fields=pull(0)))
        assert got.code == ResponseCode.PULL_OFFSET_MOVED
        assert await ask_reset() == ResponseCode.SUCCESS
        await change("useServerSideResetOffset=false")
        assert await ask_reset() == ResponseCode.CONSUMER_NOT_ONLINE
        got = await client.call(Command(C.PULL_MESSAGE, fields=pull(0)))
        assert got.code == ResponseCode.SUCCESS  # nobody waits for a pending reset any more

    conf = {"useServerSideResetOffset": "false"}
    serving(tmp_path / "store", test, create=True, release=V5_3, broker_conf=conf)


def test_secrets_are_not_reported(tmp_path: Path) -> None:
    """A real broker returns its credentials to anybody who requests its settings."""
    conf = {
        "innerClientAuthenticationCredentials": '{"accessKey":"rocketmq","secretKey":"12345678"}',
        "initAuthenticationUser": '{"username":"admin","password":"12345678"}',
        "metricsGrpcExporterHeader": "Authorization:12345678",
        "tieredStoreObjectStoreAccessKey": "12345678",
        "tieredStoreObjectStoreSecretKey": "12345678",
    }

    async def test(client: Connection) -> None:
        told = (await client.call(Command(C.GET_BROKER_CONFIG))).body.decode().splitlines()
        assert {f"{name}=******" for name in conf} <= set(told)
        assert "autoCreateTopicEnable=true" in told
        assert not any("12345678" in line for line in told)

    serving(tmp_path / "store", test, create=True, release=V5_3, broker_conf=conf)


def test_a_setting_is_taken_that_has_this_value(tmp_path: Path) -> None:
    """Tools send all settings of a form; what cannot change is refused only where it would."""

    async def test(client: Connection) -> None:
        async def change(text: str) -> int:
            return (await client.call(Command(C.UPDATE_BROKER_CONFIG, body=text.encode()))).code

        for here in ("flushDiskType=ASYNC_FLUSH", "timerWheelEnable= TRUE ", "maxHashSlotNum=500", "deleteWhen=04"):
            assert await change(here) == ResponseCode.SUCCESS, here
        for other in ("flushDiskType=SYNC_FLUSH", "timerWheelEnable=false", "maxHashSlotNum=501", "deleteWhen=05"):
            assert await change(other) == ResponseCode.SYSTEM_ERROR, other

    serving(tmp_path / "store", test, create=True, release=V5_3, broker_conf=CONF | {"maxHashSlotNum": "500"})
