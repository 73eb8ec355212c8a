"""Access control: rights, changing files, hostile signatures and files."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from formats.fastjson.declare import body_of
from formats.remoting import admin as a
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.fields import from_fields, to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, MessageQueue, SubscriptionData
from rmqtool.errors import BadValue, CorruptFile, RmqError, UnreadableStore
from rmqtool.remoting.client import open_connection
from rmqtool.remoting.signing import Credentials, sign
from rmqtool.server.access import files
from rmqtool.server.access.addresses import address_of, pattern
from rmqtool.server.serve import Served, ServeOptions
from tests.amounts import by_turns
from tests.server.serving import address, pull, send

ADMIN = Credentials("the-admin", "admin-secret")
WRITER = Credentials("the-writer", "writer-secret")
READER = Credentials("the-reader", "reader-secret")
NUMBER = Credentials("the-number", "12345678")
FILE = """
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: the-admin
  secretKey: admin-secret
  admin: true
- accessKey: the-writer
  secretKey: writer-secret
  topicPerms:
  - Orders=PUB
- accessKey: the-reader
  secretKey: reader-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - Orders=SUB
  groupPerms:
  - readers=SUB
- accessKey: the-number
  secretKey: 12345678
  whiteRemoteAddress:
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
Ask = Callable[[Credentials | None, int, dict[str, str] | None, bytes], Awaitable[Command]]
Test = Callable[[Ask, Path], Awaitable[None]]


def serving(tmp_path: Path, test: Test, text: str = FILE, **options: Any) -> None:
    """Run a test against a new store served with these accounts."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)

    async def run() -> None:
        given = {"listen": ("127.0.0.1", 0), "namesrv_listen": ("127.0.0.1", 0), "name": "lab-a", "acl": str(path)}
        async with (
            asyncio.timeout(60),
            Served(str(tmp_path / "store"), ServeOptions(**{**given, "create": True, **options})) as served,
            open_connection(*address(served.broker_address)) as client,
        ):

            async def ask(
                who: Credentials | None, code: int, fields: dict[str, str] | None = None, body: bytes = b""
            ) -> Command:
                request = Command(code, fields=fields, body=body)
                return await client.call(request if who is None else sign(request, who))

            await test(ask, path)

    asyncio.run(run())


def said(response: Command) -> str:
    assert response.code == ResponseCode.SYSTEM_ERROR, response
    return (response.remark or "").removeprefix("org.apache.rocketmq.acl.common.AclException: ")


def heartbeat(group: str, topic: str) -> bytes:
    subscription = SubscriptionData(topic=topic, sub_string="*", sub_version=1)
    consumer = ConsumerData(
        group_name=group, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET", subscription_data_set=[subscription],
    )  # fmt: skip
    return body_of(b.HeartbeatData(client_id="c", consumer_data_set=[consumer]))


def test_who_may_do_what(tmp_path: Path) -> None:
    async def test(ask: Ask, _path: Path) -> None:
        assert said(await ask(None, C.SEND_MESSAGE_V2, send(), b"x")) == "No accessKey is configured"
        assert said(await ask(None, C.HEART_BEAT, None, b"")) == "No accessKey is configured"
        nobody = Credentials("nobody", "nothing")
        assert said(await ask(nobody, C.SEND_MESSAGE_V2, send(), b"x")) == "No acl config for nobody"
        wrong = Credentials("the-writer", "another")
        text = "Check signature failed for accessKey=the-writer"
        assert said(await ask(wrong, C.SEND_MESSAGE_V2, send(), b"x")) == text
        for code in (C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE):
            assert (await ask(WRITER, code, send(), b"x")).code == ResponseCode.SUCCESS
            assert said(await ask(READER, code, send(), b"x")) == "No default permission for topic:Orders"
            assert said(await ask(WRITER, code, send("Others"), b"x")) == "No default permission for topic:Others"
        await ask(ADMIN, C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"readers"}')
        mine = pull(0, consumer_group="readers")
        for code in (C.PULL_MESSAGE, C.LITE_PULL_MESSAGE):
            assert (await ask(READER, code, mine)).code == ResponseCode.SUCCESS
            assert said(await ask(WRITER, code, mine)) == "No default permission for topic:Orders"
            theirs = pull(0, consumer_group="others")
            assert said(await ask(READER, code, theirs)) == "No default permission for group:others"
        assert (await ask(READER, C.HEART_BEAT, None, heartbeat("readers", "Orders"))).code == ResponseCode.SUCCESS
        assert said(await ask(READER, C.HEART_BEAT, None, heartbeat("readers", "Others"))).endswith("topic:Others")
        assert said(await ask(READER, C.HEART_BEAT, None, heartbeat("others", "Orders"))).endswith("group:others")
        assert (await ask(NUMBER, C.SEND_MESSAGE_V2, send("Any"), b"x")).code == ResponseCode.SUCCESS
        for code in (C.UPDATE_BROKER_CONFIG, C.GET_ALL_TOPIC_CONFIG, C.GET_ALL_CONSUMER_OFFSET, C.GET_BROKER_CONFIG):
            text = f"Need admin permission for request code={code:d}, but accessKey=the-number is not"
            assert said(await ask(NUMBER, code)) == text
        assert (await ask(ADMIN, C.GET_ALL_TOPIC_CONFIG)).code == ResponseCode.SUCCESS
        assert (await ask(ADMIN, 9999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        trace = send("RMQ_SYS_TRACE_TOPIC")
        assert (await ask(READER, C.SEND_MESSAGE_V2, trace, b"x")).code != ResponseCode.NO_PERMISSION

    serving(tmp_path, test)


def test_what_brokers_of_4_9_leave_open_is_closed(tmp_path: Path) -> None:
    """An account must not be able to circumvent its rights with a different request."""

    async def test(ask: Ask, _path: Path) -> None:
        sent = from_fields(h.Sent, (await ask(ADMIN, C.SEND_MESSAGE_V2, send("Secret"), b"x")).fields)
        at = str(int(sent.msg_id[16:], 16))
        assert said(await ask(READER, C.VIEW_MESSAGE_BY_ID, {"offset": at})) == "No default permission for topic:Secret"
        back = {"offset": at, "group": "readers", "delayLevel": "1", "originTopic": "Orders"}
        assert said(await ask(READER, C.CONSUMER_SEND_MSG_BACK, back)) == "No default permission for topic:Secret"
        half = send("Secret", properties="TRAN_MSG\x01true\x02PGROUP\x01p")
        prepared = from_fields(h.Sent, (await ask(ADMIN, C.SEND_MESSAGE_V2, half, b"x")).fields)
        end = {
            "producerGroup": "p", "tranStateTableOffset": "0", "commitLogOffset": str(int(prepared.msg_id[16:], 16)),
            "commitOrRollback": "8", "msgId": "x",
        }  # fmt: skip
        assert said(await ask(WRITER, C.END_TRANSACTION, end)) == "No default permission for topic:Secret"
        # both names of a field: what is checked is what is used
        whole = {"producerGroup": "p", "topic": "Orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
                 "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"}  # fmt: skip
        assert (await ask(WRITER, C.SEND_MESSAGE, whole, b"x")).code == ResponseCode.SUCCESS
        assert said(await ask(WRITER, C.SEND_MESSAGE, {**whole, "b": "Secret"}, b"x")).endswith("topic:Secret")
        retry = {**send("%RETRY%others"), "a": "readers"}
        assert said(await ask(READER, C.SEND_MESSAGE_V2, retry, b"x")) == "No default permission for group:others"
        reply = send("Secret", properties="REPLY_TO_CLIENT\x01c")
        assert said(await ask(WRITER, C.SEND_REPLY_MESSAGE_V2, reply, b"x")).endswith("topic:Secret")
        lock = body_of(b.LockRequest("others", "c", [MessageQueue("Orders", "lab-a", 0)]))
        assert said(await ask(READER, C.LOCK_BATCH_MQ, None, lock)) == "No default permission for group:others"
        query = {"topic": "Secret", "queueId": "0", "index": "0", "count": "1"}
        assert said(await ask(READER, C.QUERY_CONSUME_QUEUE, query)).endswith("topic:Secret")
        assert said(await ask(READER, C.GET_MAX_OFFSET, {"topic": "Secret", "queueId": "0"})).endswith("topic:Secret")
        batch = b'{"acks":[{"t":"Orders","c":"readers"},{"t":"Secret","c":"readers"}]}'
        assert said(await ask(READER, C.BATCH_ACK_MESSAGE, None, batch)).endswith("topic:Secret")
        ack = {"consumerGroup": "readers", "queueId": "0", "topic": "Secret", "extraInfo": "", "offset": "0"}
        assert said(await ask(READER, C.ACK_MESSAGE, ack)).endswith("topic:Secret")
        again = {**ack, "topic": "%RETRY%readers_Orders"}
        assert "permission" not in (await ask(READER, C.ACK_MESSAGE, again)).remark
        pop = {**again, **dict.fromkeys(("maxMsgNums", "invisibleTime", "pollTime", "bornTime", "initMode"), "1")}
        assert said(await ask(READER, C.POP_MESSAGE, pop)).endswith("group:readers_Orders")
        for code in (C.UPDATE_AND_CREATE_ACL_CONFIG, C.DELETE_ACL_CONFIG, C.GET_BROKER_CLUSTER_ACL_INFO):
            assert said(await ask(READER, code, {"accessKey": "the-admin"})).startswith("Need admin permission")

    serving(tmp_path, test)


def test_what_cannot_be_read_is_refused_and_tells_nothing(tmp_path: Path) -> None:
    async def test(ask: Ask, _path: Path) -> None:
        for code, fields, body in (
            (C.SEND_MESSAGE_V2, {"b": "Orders"}, b""), (C.HEART_BEAT, None, b"\xff"), (C.HEART_BEAT, None, b"[" * 9000),
            (C.LOCK_BATCH_MQ, None, b"{}"), (C.BATCH_ACK_MESSAGE, None, b'{"acks":7}'),
            (C.PULL_MESSAGE, {"topic": "Orders"}, b""),
            (C.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "g", "msgId": "zz"}, b""),
            (C.QUERY_ASSIGNMENT, None, b"[]"),
        ):  # fmt: skip
            assert (await ask(NUMBER, code, fields, body)).code == ResponseCode.SYSTEM_ERROR
        for key in ("", "the-admin", "\ud800", "x" * 30_000):
            unsigned = await ask(None, C.GET_BROKER_CONFIG, {"AccessKey": key, "Signature": "\ud800é"})
            assert not unsigned.body
            assert said(unsigned)

    serving(tmp_path, test)


@by_turns(7)
def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    async def test(ask: Ask, path: Path) -> None:
        async def until(who: Credentials, code: int) -> None:
            while (await ask(who, C.SEND_MESSAGE_V2, send(), b"x")).code != code:
                await asyncio.sleep(0.05)

        await until(READER, ResponseCode.SYSTEM_ERROR)
        path.write_text(FILE.replace("Orders=SUB", "Orders=PUB|SUB"))
        await until(READER, ResponseCode.SUCCESS)
        path.write_text("accounts: [")  # torn: what was known stays
        await asyncio.sleep(1.2)
        await until(READER, ResponseCode.SUCCESS)
        path.write_text(FILE)
        await until(READER, ResponseCode.SYSTEM_ERROR)
        more = path.parent / "acl" / "team"
        more.mkdir(parents=True)
        (more / "one.yaml").write_text("accounts: [{accessKey: another, secretKey: another-secret, admin: true}]")
        await until(Credentials("another", "another-secret"), ResponseCode.SUCCESS)
        (more / "one.yaml").unlink()
        await until(Credentials("another", "another-secret"), ResponseCode.SYSTEM_ERROR)
        path.write_text("globalWhiteRemoteAddresses: ['127.0.0.{1,2}']")
        while (await ask(None, C.SEND_MESSAGE_V2, send(), b"x")).code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.05)

    serving(tmp_path, test)


def test_tools_change_accounts(tmp_path: Path) -> None:
    async def test(ask: Ask, path: Path) -> None:
        path.chmod(0o600)
        account = a.AccessAccount(
            access_key="new-account", secret_key="new-secret", default_topic_perm="PUB", topic_perms="A=SUB,B=PUB|SUB"
        )
        assert (await ask(ADMIN, C.UPDATE_AND_CREATE_ACL_CONFIG, to_fields(account))).code == ResponseCode.SUCCESS
        new = Credentials("new-account", "new-secret")
        assert (await ask(new, C.SEND_MESSAGE_V2, send(), b"x")).code == ResponseCode.SUCCESS
        assert path.stat().st_mode & 0o777 == 0o600
        kept = path.with_name(path.name + ".bak")
        assert kept.read_text() == FILE
        assert kept.stat().st_mode & 0o777 == 0o600
        content = yaml.safe_load(path.read_text())
        assert content["accounts"][-1] == {
            "accessKey": "new-account", "secretKey": "new-secret", "admin": False, "defaultTopicPerm": "PUB",
            "topicPerms": ["A=SUB", "B=PUB|SUB"],
        }  # fmt: skip
        assert [row["accessKey"] for row in content["accounts"]][:-1] == [
            "the-admin", "the-writer", "the-reader", "the-number",
        ]  # fmt: skip
        told = await ask(ADMIN, C.GET_BROKER_CLUSTER_ACL_INFO)
        version = from_fields(a.AccessVersion, told.fields)
        assert '"counter":1' in version.version
        assert str(path) in (version.all_acl_file_version or "")
        for wrong in (
            replace(account, access_key="short"), replace(account, secret_key=None), replace(account, topic_perms="A"),
            replace(account, topic_perms="A=WHAT"), replace(account, white_remote_address="1.2.3"),
        ):  # fmt: skip
            refused = await ask(ADMIN, C.UPDATE_AND_CREATE_ACL_CONFIG, to_fields(wrong))
            assert refused.code == 209, wrong
        assert (await ask(ADMIN, C.DELETE_ACL_CONFIG, {"accessKey": "new-account"})).code == ResponseCode.SUCCESS
        assert said(await ask(new, C.SEND_MESSAGE_V2, send(), b"x")) == "No acl config for new-account"
        assert (await ask(ADMIN, C.DELETE_ACL_CONFIG, {"accessKey": "new-account"})).code == 210
        whites = {"globalWhiteAddrs": "10.1.1.1,127.0.0.1"}
        for other in ("/etc/passwd", str(path.with_name("no.yml"))):
            refused = await ask(ADMIN, C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {**whites, "aclFileFullPath": other})
            assert refused.code == 211
        assert (await ask(ADMIN, C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "x"})).code == 211
        assert (await ask(ADMIN, C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, whites)).code == ResponseCode.SUCCESS
        assert (await ask(None, C.GET_BROKER_CONFIG)).code == ResponseCode.SUCCESS

    serving(tmp_path, test)


def test_without_access_control_tools_are_told_so(tmp_path: Path) -> None:
    async def test(ask: Ask, _path: Path) -> None:
        assert (await ask(None, C.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "x"})).code == 209
        assert (await ask(None, C.GET_BROKER_CLUSTER_ACL_INFO)).code == ResponseCode.SYSTEM_ERROR

    serving(tmp_path, test, acl=None)


@pytest.mark.parametrize("where", ["home", "beside"])
def test_the_broker_file_turns_it_on(tmp_path: Path, where: str) -> None:
    """Through ROCKETMQ_HOME, rocketmqHome, or a file beside the broker's."""
    conf = tmp_path / "broker.conf"
    conf.write_text("aclEnable=true\n" + (f"rocketmqHome={tmp_path}/home\n" if where == "home" else ""))
    (tmp_path / "home/conf").mkdir(parents=True)
    if where == "home":
        (tmp_path / "home/conf/plain_acl.yml").write_text(FILE)

    async def test(ask: Ask, _path: Path) -> None:
        assert (await ask(None, C.GET_BROKER_CONFIG)).code == ResponseCode.SYSTEM_ERROR
        assert (await ask(ADMIN, C.GET_BROKER_CONFIG)).code == ResponseCode.SUCCESS

    serving(tmp_path, test, FILE, acl=None, broker_conf=str(conf))


# -- addresses and files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("", [], ["127.0.0.1"]),
        ("*", ["1.2.3.4", "::1"], []),
        ("*.*.*.*", ["1.2.3.4"], []),
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.4", "::1"]),
        ("10.1.2.3,10.1.2.5", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.2.{3,5}", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.1", "10.1.20.1"]),
        ("10.1.*.*", ["10.1.9.9"], ["10.2.9.9"]),
        ("10.1.5-9.*", ["10.1.5.1", "10.1.9.255"], ["10.1.4.1", "10.1.10.1"]),
        ("10.1.2.5-9", ["10.1.2.5"], ["10.1.2.10"]),
        ("2001:db8::1", ["2001:db8::1", "2001:DB8:0:0:0:0:0:1"], ["2001:db8::2"]),
        ("2001:db8::{1,2}", ["2001:db8::2"], ["2001:db8::3"]),
        ("2001:db8::5:*", ["2001:db8::5:77"], ["2001:db8::6:77"]),
        ("2001:db8::10-20", ["2001:db8::1f"], ["2001:db8::21"]),
    ],
)
def test_patterns_of_addresses(text: str, yes: list[str], no: list[str]) -> None:
    matches = pattern(text)
    for host in yes + no:
        result = address_of(f"[{host}]:80" if ":" in host else f"{host}:80")
        assert result is not None
        assert matches(result) == (host in yes), host


def test_an_ipv4_peer_of_an_ipv6_socket_is_ipv4() -> None:
    result = address_of("[::ffff:10.1.2.3]:4711")
    assert result is not None
    assert pattern("10.1.2.*")(result)
    assert address_of("unknown") is None


@pytest.mark.parametrize("text", ["x", "1.2.3", "*.1.2.3", "1.2.3.300", "1.2.9-5.*", "1.2.3.-5", "1.2.3.4}", "a:*:b:*"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        pattern(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accounts: [", "line 1"),
        ("[1, 2]", "no settings"),
        ("accounts: 7", "accounts is no list"),
        ("accounts: [7]", "accounts is no list"),
        ("accounts: [{accessKey: abcdefg}]", "longer than 6"),
        ("accounts: [{accessKey: abcdefg, secretKey: 2026-01-01}]", "quote it"),
        ("accounts: [{accessKey: abcdefg, secretKey: abcdefg, topicPerms: [A]}]", "Parse resource permission failed"),
        ("accounts: [{accessKey: abcdefg, secretKey: abcdefg, whiteRemoteAddress: x}]", "Netaddress"),
        ("globalWhiteRemoteAddresses: {a: 1}", "no list"),
        ("a: &a {x: 1}\nb: {<<: *a}", "merge keys"),
        ("a: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("[" * 5000, "nested too deeply"),
        ("\x00", "special characters"),
        ("x: 2026-99-99", "month"),
        ("#" * (1 << 20) + "#", "larger than"),
    ],
)
def test_files_that_no_broker_takes(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)
    with pytest.raises(CorruptFile, match=message) as told:
        files.read(str(path))
    assert str(path) in str(told.value)


def test_hostile_references_cost_nothing(tmp_path: Path) -> None:
    """Each line refers ten times to the previous one: 10^30 texts if expanded."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 31)]
    path = tmp_path / "plain_acl.yml"
    path.write_text("\n".join(lines) + "\naccounts: *a30\n")
    with pytest.raises(RmqError):
        files.read(str(path))


def test_a_store_is_not_touched_where_accounts_are_wrong(tmp_path: Path) -> None:
    async def test(_ask: Ask, _path: Path) -> None:
        raise AssertionError("it was served")

    with pytest.raises(CorruptFile):
        serving(tmp_path, test, "accounts: 7")
    with pytest.raises(UnreadableStore):
        serving(tmp_path, test, acl=str(tmp_path / "plain.yml"))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "value", ["*topsecret", "!topsecret x", "%topsecret", "@topsecret", "a: topsecret", '"topsecret']
)
def test_an_error_in_a_file_shows_nothing_of_it(value: str, tmp_path: Path) -> None:
    """YAML takes a key that begins with ``*`` or ``!`` for an alias or a tag, and quotes it in errors."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(f"accounts:\n- accessKey: shop\n  secretKey: {value}\n")
    with pytest.raises(CorruptFile, match=r"line \d: ") as caught:
        files.read(str(path))
    assert "topsecret" not in str(caught.value)


def test_an_error_in_a_file_names_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text("%topsecret\naccounts: []\n")
    with pytest.raises(CorruptFile, match=r"line 2: expected '<document start>', but found '<[a-z ]+>'"):
        files.read(str(path))
