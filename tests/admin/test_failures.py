"""Half of a cluster fails in every way that peers fail: each command reports it in time, and shows the other half."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from formats.fastjson.declare import body_of
from formats.remoting.bodies import ClusterInfo
from formats.remoting.codes import ControllerCode, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.frame import Command
from formats.remoting.shapes import BrokerData
from rmqtool.admin.live import questions
from tests.amounts import by_turns
from tests.cli.running import ROOT, rmqtool
from tests.client.peers import listening, peer, raw_peer, route, serving, tells
from tests.client.test_hostile_commands import BYTES
from tests.interop.serving import Serving

TIMEOUT = 2.0
WORDS = {
    "info": (),
    "topic list": (),
    "topic show": ("Orders",),
    "group list": (),
    "group lag": (),
    "group offsets": (),
    "offsets": (),
    "query-key": ("Orders", "order-65"),
    "query-id": ("FD0000000000000000000000000000020FB630946E09664346B10041",),
    "query-offset": ("Orders", "0", "3", "--broker", "lab-a"),
    "query-time": ("Orders", "0", "2026-11-20T20:34:46Z", "--broker", "lab-a"),
    "config": (),
    "cluster list": (),
    "broker-config show": ("--name", "brokerName"),
    "broker-config diff": ("--defaults",),
    "client list": (),
    "client producers": (),
    "client show": ("lab-consumer",),
    "client stack": ("lab-consumer",),
    "trace": ("FD0000000000000000000000000000020FB630946E09664343CD0000",),
    "retry list": (),
    "dlq list": (),
    "dlq export": (),
    "delay list": (),
    "delay due": ("--all",),
    "transaction list": (),
    "transaction show": ("FD0000000000000000000000000000020FB630946E0966434BAF01EA",),
    "rebalance plan": ("Orders", "--consumer", "one"),
    "doctor": (),
}
OF_ONE_BROKER = ("query-offset", "query-time")  # only the broker in --broker is queried
NO_CLIENTS = ("client list", "client producers", "client stack")  # none is online
NAME = "lab-b"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the healthy half."""
    folder = tmp_path_factory.mktemp("failing") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    with Serving(folder, "--read-only") as served:
        yield served.broker


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "TIMEOUT", TIMEOUT)


def refuses(request: Command) -> Command:
    return request.response(ResponseCode.NO_PERMISSION, "no right, says the broker")


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """A peer that accepts requests and never answers."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass

    async with listening(take) as address:
        yield address


@asynccontextmanager
async def refusing() -> AsyncIterator[str]:
    """A broker that refuses every request for lack of rights."""
    async with peer() as made:
        made.replies = dict.fromkeys([*C, *ControllerCode], refuses)
        yield made.address


@asynccontextmanager
async def wrong() -> AsyncIterator[str]:
    """A broker with well-formed frames and invalid answers."""
    async with peer() as made:
        made.replies = {
            code: lambda request: request.response(body=b'{"table": [1, ') for code in (*C, *ControllerCode)
        }
        yield made.address


@asynccontextmanager
async def gone() -> AsyncIterator[str]:
    """A port without a listener."""
    async with peer() as made:
        address = made.address
    yield address


@asynccontextmanager
async def leaving() -> AsyncIterator[str]:
    """A broker that closes each connection at the first request."""

    def end(request: Command) -> Command:
        for connection in made.connections:
            connection.abort("over")
        return request.response()

    async with peer() as made:
        made.replies = dict.fromkeys([*C, *ControllerCode], end)
        yield made.address


def sends(answer: bytes) -> Callable[[], AbstractAsyncContextManager[str]]:
    return lambda: raw_peer(answer)


@asynccontextmanager
async def huge() -> AsyncIterator[str]:
    """A broker whose answer has 200 MB, and comes."""

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write((200 << 20).to_bytes(4, "big") + (2).to_bytes(4, "big") + b"{}")
        for _ in range(200):
            writer.write(bytes(1 << 20))
            await writer.drain()

    async with listening(pour) as address:
        yield address


FAILURES: dict[str, Callable[[], AbstractAsyncContextManager[str]]] = {
    "gone": gone, "silent": silent, "refusing": refusing, "wrong": wrong, "leaving": leaving, "200 MB": huge,
    "TLS alert": lambda: raw_peer(b"\x15\x03\x01\x00\x02\x02\x28"),
    "half an answer": lambda: raw_peer(b"\0\0\1\0\0\0\0\x10{"),
    **{name: sends(answer) for name, answer in BYTES.items()},
}  # fmt: skip


@asynccontextmanager
async def namesrv_of(healthy: str, failing: str) -> AsyncIterator[str]:
    """A name server with a healthy and a failing broker."""
    async with peer() as namesrv, FAILURES[failing]() as address:
        brokers = {"lab-a": healthy, NAME: address}
        info = ClusterInfo({name: BrokerData("C", name, {0: at}) for name, at in brokers.items()}, {"C": [*brokers]})
        namesrv.replies[C.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(body=body_of(info))
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(*brokers.items())})
        yield namesrv.address


# what changes something, with what it needs for a plan
CHANGES = {
    "topic create": ("New",), "topic update": ("Orders", "--queues", "8"), "topic perm": ("Orders", "R"),
    "topic delete": ("Orders",), "group create": ("new",), "group update": ("lab-consumer", "--no-consume"),
    "group delete": ("lab-orderly",), "group reset": ("lab-consumer", "--to-earliest"),
    "group clone": ("lab-consumer", "lab-orderly"), "broker-config set": ("brokerPermission=4",),
    "dlq requeue": ("lab-consumer",), "group mode": ("lab-consumer", "Orders", "POP"),
    "cold-data set": ("lab-consumer", "1M"), "cold-data remove": ("lab-consumer",),
    "message consume-directly": ("FD0000000000000000000000000000020FB630946E09664346B10041", "lab-consumer"),
    "send-rtt": ("Orders",), "write-perm wipe": (NAME,), "write-perm add": (NAME,),
    "user create": ("billing", "--password-file", "PASSWORD"), "user update": ("billing", "--disable"),
    "user delete": ("billing",), "acl set": ("User:billing", "--resource", "Topic:Orders", "--action", "Sub"),
    "acl delete": ("User:billing",), "apply": ("CLUSTER.YAML",),
    "plain-acl set": ("billing-app", "--admin"), "plain-acl delete": ("billing-app",),
    "plain-acl set-addresses": ("10.0.0.*",), "cluster clean": ("log",),
}  # fmt: skip
# carried out with the other half, and the name servers
NOT_OF_ALL = ("message consume-directly", "send-rtt", "write-perm wipe", "write-perm add")


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    """:data:`CHANGES` with the files that they need."""
    folder = tmp_path_factory.mktemp("files")
    files = {"PASSWORD": "a-password\n", "CLUSTER.YAML": "topics: {Fresh: {}}\n"}
    for name, text in files.items():
        (folder / name).write_text(text)
    return {
        name: tuple(str(folder / word) if word in files else word for word in args) for name, args in CHANGES.items()
    }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A broker with access control."""
    folder = tmp_path_factory.mktemp("guarded")
    shutil.copytree(ROOT / "examples" / "store", folder / "store")
    accounts = [("an-admin", "true"), ("a-reader", "false")]
    lines = [f"- {{accessKey: {name}, secretKey: right-secret, admin: {admin}}}" for name, admin in accounts]
    (folder / "acl.yml").write_text("\n".join(["accounts:", *lines]) + "\n")
    with Serving(folder / "store", "--acl-config", str(folder / "acl.yml")) as served:
        yield served


@pytest.mark.parametrize(
    ("key", "secret"),
    [(None, None), ("an-admin", "wrong-secret"), ("nobody", "right-secret"), ("a-reader", "right-secret")],
)
def test_the_wrong_key(
    key: str | None,
    secret: str | None,
    guarded: Serving,
    changes: dict[str, tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No key, a wrong one, and one without rights: every command ends with one clear line, and code 3."""
    if key is not None and secret is not None:
        monkeypatch.setenv("RMQTOOL_ACCESS_KEY", key)
        monkeypatch.setenv("RMQTOOL_SECRET_KEY", secret)
    # a reader may look for messages, but not at tables
    looking = {"query-key", "query-offset", "query-time"} if key == "a-reader" else set()
    for name, args in (WORDS | {name: (*args, "--dry-run") for name, args in changes.items()}).items():
        if name in looking or name in ("write-perm wipe", "write-perm add", "send-rtt"):  # name servers have no keys
            continue
        started = time.monotonic()
        result = rmqtool(*name.split(), f"rocketmq://{guarded.namesrv}", *args, "-o", "ndjson")
        assert time.monotonic() - started < 10 * TIMEOUT, name
        assert "Traceback" not in result.err
        assert result.code in (1, 3), (name, result)
        assert "127.0.0.1:" in result.err, (name, result.err)
        assert "right-secret" not in result.out + result.err
        assert "wrong-secret" not in result.out + result.err


@by_turns(13)
@pytest.mark.parametrize("failing", FAILURES)
def test_half_of_the_brokers_fail(failing: str, broker: str) -> None:
    with serving(namesrv_of(broker, failing)) as namesrv:
        for name, args in WORDS.items():
            started = time.monotonic()
            result = rmqtool(*name.split(), f"rocketmq://{namesrv}", *args, "-o", "ndjson")
            assert time.monotonic() - started < 20 * TIMEOUT, f"{name}: each request has its time, and no broker two"
            assert "Traceback" not in result.err, result.err
            assert result.out or name in NO_CLIENTS, f"{name}: the other half is shown"
            if name in OF_ONE_BROKER:
                assert result.code == 0, (name, result.err)
                continue
            assert result.code == 1, (name, result)
            lines = [line for line in result.err.splitlines() if line.startswith(("warning: ", "problem: "))]
            assert lines, (name, result.err)
            assert all("127.0.0.1:" in line and "missing" in line for line in lines), lines
            if failing == "refusing":
                assert "NO_PERMISSION (16): no right, says the broker" in result.err


@by_turns(13)
@pytest.mark.parametrize("failing", FAILURES)
def test_nothing_is_changed_while_half_of_the_brokers_fail(
    failing: str, broker: str, changes: dict[str, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One clear line with the reason, code 3, in time; no journal is begun, and the other half is as before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with serving(namesrv_of(broker, failing)) as namesrv:
        for name, args in changes.items():
            if name in NOT_OF_ALL:
                continue
            started = time.monotonic()
            result = rmqtool(*name.split(), f"rocketmq://{namesrv}", *args, "--yes", "-o", "json")
            assert time.monotonic() - started < 20 * TIMEOUT, name
            assert result.code == 3, (name, result)
            assert "Traceback" not in result.err, result.err
            last = result.err.splitlines()[-1]
            assert "127.0.0.1:" in last, (name, result.err)
            assert "nothing was changed" in last or name == "dlq requeue", (name, result.err)
            assert not list(tmp_path.rglob("*.json")), name


@by_turns(3)
def test_what_needs_one_broker_names_what_fails(
    broker: str, changes: dict[str, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for failing in ("gone", "silent", "refusing", "wrong", "200 MB"):
        with serving(namesrv_of(broker, failing)) as namesrv:
            target = f"rocketmq://{namesrv}"
            sent = rmqtool("send-rtt", target, "Orders", "--messages", "2", "--yes", "-o", "json")
            assert sent.code == 1, sent
            rows = {row["brokerName"]: row for row in json.loads(sent.out)}
            assert (rows[NAME]["sent"], rows[NAME]["failed"]) == (0, 2)
            assert "127.0.0.1:" in rows[NAME]["reason"]
            args = changes["message consume-directly"]
            done = rmqtool("message", "consume-directly", target, *args, "--yes")
            assert (done.code, "Traceback" in done.err) == (3, False), done.err


@pytest.mark.parametrize("failing", ["gone", "silent", "refusing", "wrong", "leaving", "200 MB"])
def test_a_store_beside_a_broker_that_fails(failing: str) -> None:
    with serving(namesrv_of("127.0.0.1:1", failing)) as namesrv:
        started = time.monotonic()
        done = rmqtool("compare", ROOT / "examples" / "store", f"rocketmq://{namesrv}", "--broker", NAME, "-o", "json")
        assert time.monotonic() - started < 20 * TIMEOUT
    assert done.code in (1, 3), done
    assert "127.0.0.1:" in done.err, done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("name", WORDS)
def test_no_broker_answers(name: str) -> None:
    with serving(namesrv_of("127.0.0.1:1", "refusing")) as namesrv:
        result = rmqtool(*name.split(), f"rocketmq://{namesrv}", *WORDS[name], "-o", "ndjson")
    assert result.code in (1, 3), result
    assert "127.0.0.1:1" in result.err
    if name == "cluster list":
        return  # answered by name servers
    if name != "info":
        assert "null" not in result.out
    assert result.code == 3 or not result.out, "nothing is taken for a fact"


@pytest.mark.parametrize("answer", BYTES.values(), ids=list(BYTES))
def test_a_name_server_that_sends_nonsense(answer: bytes) -> None:
    with serving(raw_peer(answer)) as namesrv:
        for name, args in WORDS.items():
            result = rmqtool(*name.split(), f"rocketmq://{namesrv}", *args)
            assert (result.code, result.out) == (3, ""), (name, result)
            assert result.err.splitlines()[-1].startswith("error: "), result.err


def test_a_name_server_that_is_silent() -> None:
    with serving(silent()) as namesrv:
        started = time.monotonic()
        result = rmqtool("topic", "list", f"rocketmq://{namesrv},{namesrv}")
        assert time.monotonic() - started < 10 * TIMEOUT
    assert (result.code, result.out) == (3, "")
    assert "no response within 2 s" in result.err or "no name server answers" in result.err


def test_the_second_name_server_is_asked(broker: str) -> None:
    for failing in ("gone", "silent", "text"):
        with (
            serving(FAILURES[failing]()) as bad,
            serving(namesrv_of(broker, "refusing")) as good,
        ):
            result = rmqtool("cluster", "list", f"rocketmq://{bad},{good}", "-o", "ndjson")
        assert len(result.out.splitlines()) == 2, result.err


def test_no_name_server_knows_a_broker() -> None:
    @asynccontextmanager
    async def empty() -> AsyncIterator[str]:
        async with peer() as namesrv:
            namesrv.replies[C.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(body=body_of(ClusterInfo()))
            yield namesrv.address

    with serving(empty()) as namesrv:
        result = rmqtool("topic", "list", f"rocketmq://{namesrv}")
    assert result.code == 3
    assert "no broker is registered" in result.err


def test_keys_that_are_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[target.a]\nnamesrv = "127.0.0.1:1"\naccess-key-env = "NOKEY"\nsecret-key-env = "NOSECRET"\n')
    monkeypatch.setenv("RMQTOOL_CONFIG", str(config))
    result = rmqtool("topic", "list", "@a")
    assert result.code == 2
    assert "NOKEY and NOSECRET are not set" in result.err
