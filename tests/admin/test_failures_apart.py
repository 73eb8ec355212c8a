"""The rest of the matrix of failures: what servers of 4.9 do not have, name servers, controllers; and that no command
of the table is missing in it.
"""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from formats.fastjson.declare import body_of
from formats.remoting.bodies import ClusterInfo
from formats.remoting.codes import ControllerCode as K
from formats.remoting.codes import RequestCode as C
from formats.remoting.controller import Metadata
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import BrokerData
from rmqtool.admin.live import questions
from rmqtool.cli.commands import COMMANDS
from rmqtool.testing import broker
from tests.admin.test_failures import CHANGES, FAILURES, NAME, TIMEOUT, WORDS, namesrv_of
from tests.admin.test_lite import prepare
from tests.amounts import by_turns
from tests.cli.running import ROOT, rmqtool
from tests.client.peers import peer, route, serving, tells
from tests.interop.serving import Serving
from tests.server.test_lite import CONF

# of brokers of 5.x
NEWER = {"cluster replicas": (), "cold-data list": (), "static-topic list": (), "static-topic show": ("Ledger",)}
LITE = {
    "lite brokers": (), "lite list": (), "lite show": ("Parent", "one"), "lite lag": ("readers",),
    "lite client": ("readers", "c1"), "lite dispatch": ("readers", "--yes"),
}  # fmt: skip
# of use only if every broker answers
WHOLE = {"topic unused": (), "group diff": (str(ROOT / "examples/store/config/consumerOffset.json"),)}
USERS = {"user list": (), "acl list": ()}
ACCOUNTS = {"plain-acl list": (), "plain-acl addresses": (), "plain-acl files": ()}
STATIC = {"static-topic create": ("Fresh", "--queues", "2"), "static-topic remap": ("Ledger", "--broker", "lab-a")}
CONTROLLERS = {"controller list": (), "controller replicas": (), "controller-config show": ()}
CONTROLLED = {
    "controller elect": ("lab-a", "2"), "controller forget": ("lab-a", "3"),
    "controller-config set": ("electMasterMaxRetryCount=3",),
}  # fmt: skip
NAME_SERVERS = {"kv show": ("NS",), "order-conf show": (), "namesrv-config show": ()}
NAMED = {
    "kv set": ("NS", "key", "value"), "kv delete": ("NS", "known"), "order-conf set": ("Orders", "lab-a:4"),
    "order-conf delete": ("Ordered",), "namesrv-config set": ("orderMessageEnable=true",),
}  # fmt: skip
# with tests of their own below; dump and sql read by the same source
ALONE = {"undo", "dump-to-parquet", "dump", "sql"}


@pytest.fixture(autouse=True)
def hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "TIMEOUT", TIMEOUT)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A broker of 5.3 with a static topic, and its name server with an entry and an ordered topic."""
    folder = tmp_path_factory.mktemp("newer") / "store"
    shutil.copytree(ROOT / "examples" / "store", folder)
    with Serving(folder, "--engine", "5.3") as served:
        target = f"rocketmq://{served.namesrv}"
        for line in (
            f"static-topic create {target} Ledger --queues 2",
            f"kv set {target} NS known value",
            f"order-conf set {target} Ordered lab-a:4",
        ):
            done = rmqtool(*line.split(), "--yes", "--backup", folder.parent)
            assert done.code == 0, (line, done.err)
        yield served


@pytest.fixture(scope="module")
def lite_broker() -> Iterator[str]:
    """The address of a broker of 5.5 with lite topics."""
    with broker(settings=CONF) as served:
        asyncio.run(prepare(served.address))
        yield served.address


@asynccontextmanager
async def guarded(failing: str, controller: str | None = None, *, alone: bool = False) -> AsyncIterator[str]:
    """A name server of a broker with users and a controller that leads, and of a failing broker.

    Args:
        controller: address of another controller.
        alone: there is no other than that one.
    """
    async with peer() as namesrv, peer() as healthy, peer() as leader, FAILURES[failing]() as address:
        controllers = ";".join(address for address in (None if alone else leader.address, controller) if address)
        settings = f"brokerName=lab-a\nenableControllerMode=true\ncontrollerAddr={controllers}\n"
        metadata = Metadata(group="g", controller_leader_id="n0", controller_leader_address=leader.address,
                            is_leader=True, peers=f"n0:{leader.address}")  # fmt: skip
        users = b'[{"username":"billing","userType":"Normal","userStatus":"enable"}]'
        entry = b'{"resource":"Topic:Orders","actions":["Sub"],"decision":"Allow"}'
        rules = b'[{"subject":"User:billing","policies":[{"policyType":"Custom","entries":[%b]}]}]' % entry
        healthy.replies |= {
            C.GET_BROKER_CONFIG: lambda request: request.response(body=settings.encode()),
            C.AUTH_LIST_USER: lambda request: request.response(body=users),
            C.AUTH_LIST_ACL: lambda request: request.response(body=rules),
        }
        leader.replies |= {
            K.CONTROLLER_GET_METADATA_INFO: lambda request: request.response(fields=to_fields(metadata)),
            K.GET_CONTROLLER_CONFIG: lambda request: request.response(body=b"enableElectUncleanMaster=false\n"),
            K.CONTROLLER_GET_SYNC_STATE_DATA: lambda request: request.response(body=b'{"replicasInfoTable":{}}'),
        }
        brokers = {"lab-a": healthy.address, NAME: address}
        info = ClusterInfo({name: BrokerData("C", name, {0: at}) for name, at in brokers.items()}, {"C": [*brokers]})
        namesrv.replies[C.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(body=body_of(info))
        yield namesrv.address


def check_shown(namesrv: str, words: Mapping[str, tuple[str, ...]], empty: tuple[str, ...] = ()) -> None:
    """The healthy half is shown, the other one named; in time."""
    for name, args in words.items():
        started = time.monotonic()
        result = rmqtool(*name.split(), f"rocketmq://{namesrv}", *args, "-o", "ndjson")
        assert time.monotonic() - started < 20 * TIMEOUT, name
        assert "Traceback" not in result.err, result.err
        assert result.code == 1, (name, result)
        assert result.out or name in empty, (name, result)
        lines = [line for line in result.err.splitlines() if line.startswith("warning: ")]
        assert lines, (name, result.err)
        assert all("127.0.0.1:" in line and "missing" in line for line in lines), lines


def check_unchanged(target: str, changes: Mapping[str, tuple[str, ...]], state: Path) -> None:
    """One clear line with the reason, code 3, in time; no journal is begun."""
    for name, args in changes.items():
        started = time.monotonic()
        result = rmqtool(*name.split(), target, *args, "--yes", "-o", "json")
        assert time.monotonic() - started < 20 * TIMEOUT, name
        assert result.code == 3, (name, result)
        assert "Traceback" not in result.err, result.err
        assert "127.0.0.1:" in result.err.splitlines()[-1], (name, result.err)
        assert not list(state.rglob("*.json")), name


def test_every_command_is_in_the_matrix() -> None:
    reads, changes = (
        WORDS | NEWER | LITE | WHOLE | USERS | ACCOUNTS | CONTROLLERS | NAME_SERVERS,
        CHANGES | STATIC | CONTROLLED | NAMED,
    )
    assert not reads.keys() & changes.keys()
    live = {name for name, command in COMMANDS.items() if command.live}
    assert live == reads.keys() | changes.keys() | ALONE
    assert all(COMMANDS[name].writes for name in changes)


@by_turns(5)
@pytest.mark.parametrize("failing", FAILURES)
def test_half_of_the_newer_brokers_fail(failing: str, newer: Serving, tmp_path: Path) -> None:
    with serving(namesrv_of(newer.broker, failing)) as namesrv:
        check_shown(namesrv, NEWER, empty=("cold-data list",))
        check_unchanged(f"rocketmq://{namesrv}", STATIC, tmp_path)
        gone = rmqtool("static-topic", "show", f"rocketmq://{namesrv}", "NoSuch")
        assert (gone.code, "no static topic of the brokers that answer" in gone.err) == (1, True), gone


@by_turns(5)
@pytest.mark.parametrize("failing", FAILURES)
def test_half_of_the_brokers_with_lite_topics_fail(failing: str, lite_broker: str) -> None:
    with serving(namesrv_of(lite_broker, failing)) as namesrv:
        check_shown(namesrv, LITE)


@by_turns(11)
@pytest.mark.parametrize("failing", FAILURES)
def test_half_of_the_brokers_with_users_fail(failing: str, tmp_path: Path) -> None:
    with serving(guarded(failing)) as namesrv:
        check_shown(namesrv, USERS)
        check_shown(namesrv, dict.fromkeys(("controller list", "controller-config show"), ()))
        done = rmqtool("controller", "replicas", f"rocketmq://{namesrv}")
        assert (done.code, "127.0.0.1:" in done.err, "Traceback" in done.err) == (1, True, False), done
    with serving(FAILURES[failing]()) as controller, serving(guarded("gone", controller)) as namesrv:
        check_shown(namesrv, dict.fromkeys(("controller list", "controller-config show"), ()))
        change = {"controller-config set": CONTROLLED["controller-config set"]}  # the others need the leader alone
        check_unchanged(f"rocketmq://{namesrv}", change, tmp_path)
    with serving(FAILURES[failing]()) as controller, serving(guarded("gone", controller, alone=True)) as namesrv:
        check_unchanged(f"rocketmq://{namesrv}", CONTROLLED, tmp_path)


@by_turns(5)
@pytest.mark.parametrize("failing", FAILURES)
def test_a_broker_that_fails_may_have_what_no_other_has(failing: str, newer: Serving, tmp_path: Path) -> None:
    with serving(namesrv_of(newer.broker, failing)) as namesrv:
        for name, args in (CONTROLLERS | ACCOUNTS).items():
            result = rmqtool(*name.split(), f"rocketmq://{namesrv}", *args, "-o", "ndjson")
            assert (result.code, result.out) == (3, ""), (name, result)
            last = result.err.splitlines()[-1]
            assert "no broker that answers has" in last, (name, last)
            assert last.count("127.0.0.1:") >= 2, "the name server's address, and that of the broker"
        check_unchanged(f"rocketmq://{namesrv}", CONTROLLED, tmp_path)


@by_turns(7)
@pytest.mark.parametrize("failing", FAILURES)
def test_what_is_only_known_if_all_brokers_answer(failing: str, newer: Serving) -> None:
    with serving(namesrv_of(newer.broker, failing)) as namesrv:
        for name, args in WHOLE.items():
            started = time.monotonic()
            result = rmqtool(*name.split(), f"rocketmq://{namesrv}", *args, "-o", "ndjson")
            assert time.monotonic() - started < 20 * TIMEOUT, name
            assert (result.code, result.out) == (3, ""), (name, result)
            assert "127.0.0.1:" in result.err.splitlines()[-1], (name, result.err)
        (offsets,) = WHOLE["group diff"]
        result = rmqtool("group", "diff", f"rocketmq://{namesrv}", offsets, "--broker", "lab-a")
        assert (result.code, "missing" in result.err, "no offset differs" in result.err) == (1, True, True), result


@by_turns(5)
@pytest.mark.parametrize("failing", FAILURES)
def test_half_of_the_name_servers_fail(failing: str, newer: Serving, tmp_path: Path) -> None:
    with serving(FAILURES[failing]()) as bad:
        for target in (f"{newer.namesrv},{bad}", f"{bad},{newer.namesrv}"):
            check_shown(target, NAME_SERVERS)
            check_unchanged(f"rocketmq://{target}", NAMED, tmp_path)
    entries = rmqtool("kv", "show", f"rocketmq://{newer.namesrv}", "NS", "-o", "json")
    assert [(row["key"], row["value"]) for row in json.loads(entries.out)] == [("known", "value")]


@by_turns(5)
@pytest.mark.parametrize("failing", FAILURES)
def test_every_name_server_fails(failing: str, tmp_path: Path) -> None:
    with serving(FAILURES[failing]()) as bad:
        for name, args in (NEWER | LITE | WHOLE | USERS | ACCOUNTS | CONTROLLERS | NAME_SERVERS).items():
            result = rmqtool(*name.split(), f"rocketmq://{bad}", *args, "-o", "ndjson")
            assert (result.code, result.out) == (3, ""), (name, result)
            assert "127.0.0.1:" in result.err.splitlines()[-1], (name, result.err)
        check_unchanged(f"rocketmq://{bad}", STATIC | CONTROLLED | NAMED, tmp_path)


@asynccontextmanager
async def named(brokers: dict[str, str]) -> AsyncIterator[str]:
    """A name server of these brokers, as they are when it is asked."""
    async with peer() as namesrv:

        def answer(request: Command) -> Command:
            table = {name: BrokerData("C", name, {0: address}) for name, address in brokers.items()}
            return request.response(body=body_of(ClusterInfo(table, {"C": [*table]})))

        namesrv.replies[C.GET_BROKER_CLUSTER_INFO] = answer
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(*brokers.items())})
        yield namesrv.address


@by_turns(5)
@pytest.mark.parametrize("failing", FAILURES)
def test_undo_while_the_broker_fails(failing: str, newer: Serving) -> None:
    """Nothing is changed, and the journal is there for the next run."""
    brokers = {"lab-a": newer.broker}
    with serving(FAILURES[failing]()) as bad, serving(named(brokers)) as namesrv:
        target = f"rocketmq://{namesrv}"
        assert rmqtool("group", "update", target, "lab-orderly", "--no-consume", "--yes").code == 0
        brokers["lab-a"] = bad
        started = time.monotonic()
        failed = rmqtool("undo", target, "--yes")
        assert time.monotonic() - started < 20 * TIMEOUT
        assert (failed.code, "Traceback" in failed.err, "127.0.0.1:" in failed.err) == (3, False, True), failed
        brokers["lab-a"] = newer.broker
        assert rmqtool("undo", target, "--yes").code == 0


@by_turns(5)
@pytest.mark.parametrize("failing", FAILURES)
def test_no_dump_lacks_what_a_broker_does_not_give(failing: str, newer: Serving, tmp_path: Path) -> None:
    with serving(namesrv_of(newer.broker, failing)) as namesrv:
        started = time.monotonic()
        done = rmqtool("dump-to-parquet", f"rocketmq://{namesrv}", tmp_path / "out", "--runner", "local")
        assert time.monotonic() - started < 20 * TIMEOUT
    assert done.code in (1, 3), done
    assert "Traceback" not in done.err
    assert "127.0.0.1:" in done.err or NAME in done.err, done.err
    assert not list((tmp_path / "out").glob("**/_SUCCESS")), "what lacks a broker is no whole dump"


def test_tls_where_there_is_none(newer: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tls.properties").write_text("tls.client.authServer=false\n")
    config = tmp_path / "config.toml"
    config.write_text(f'[target.a]\nnamesrv = "{newer.namesrv}"\ntls-config = "{tmp_path}/tls.properties"\n')
    monkeypatch.setenv("RMQTOOL_CONFIG", str(config))
    reads = WORDS | NEWER | LITE | WHOLE | USERS | ACCOUNTS | CONTROLLERS | NAME_SERVERS
    for name, args in reads.items():
        started = time.monotonic()
        result = rmqtool(*name.split(), "@a", *args, "-o", "ndjson")
        assert time.monotonic() - started < 20 * TIMEOUT, name
        assert (result.code, result.out) == (3, ""), (name, result)
        last = result.err.splitlines()[-1]
        assert "TLS" in last, last
