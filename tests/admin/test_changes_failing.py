"""Changes while one of two brokers fails: whatever is half done is reported."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from formats.fastjson.declare import body_of
from formats.remoting.bodies import ClusterInfo
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import BrokerData
from rmqtool.admin.changes import run
from rmqtool.admin.changes.plans import Where, plan_topic, topic_edit
from rmqtool.admin.live import questions
from rmqtool.admin.live.questions import Questions
from rmqtool.admin.target import parse_target
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.errors import Refused
from tests.amounts import by_turns
from tests.cli.running import ROOT, rmqtool
from tests.client.peers import peer, route, serving, tells
from tests.interop.serving import Serving

# what a command is given, and the request that it writes by
CHANGES = {
    "topic perm": (("Orders", "R"), C.UPDATE_AND_CREATE_TOPIC),
    "topic create": (("Fresh", "--queues", "2"), C.UPDATE_AND_CREATE_TOPIC),
    "group update": (("lab-orderly", "--no-consume"), C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
    "group delete": (("lab-orderly",), C.DELETE_SUBSCRIPTIONGROUP),
    "group reset": (("lab-orderly", "--to-earliest"), C.UPDATE_CONSUMER_OFFSET),
    "broker-config set": (("brokerPermission=4",), C.UPDATE_BROKER_CONFIG),
    "apply": (("CLUSTER.YAML",), C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
}
WRITES = {code for _words, code in CHANGES.values()}
WAYS = ("refuses", "says nothing", "does it and says nothing", "is gone after it", "lies")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("failing")
    for name in "ab":
        shutil.copytree(ROOT / "examples" / "store", folder / name)
    with Serving(folder / "a") as first, Serving(folder / "b") as second:
        yield first.broker, second.broker


@pytest.fixture(autouse=True)
def hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(questions, "TIMEOUT", 2.0)
    monkeypatch.setattr(run, "PATIENCE", 0.5)


@asynccontextmanager
async def cluster(first: str, second: str, way: str | None = None) -> AsyncIterator[str]:
    """The address of a name server of two brokers. The second one is behind a peer that fails in some way when it is
    asked to change a topic.
    """
    async with peer() as namesrv, peer() as broken, Cluster(ClientOptions(namesrv=namesrv.address)) as client:
        gone = False

        async def forward(request: Command) -> Command:
            if gone:
                await asyncio.sleep(60)
            again = Command(request.code, fields=request.fields, body=request.body)
            answer = await client.call(second, again, 5)
            return request.response(answer.code, answer.remark, fields=answer.fields, body=answer.body)

        async def change(request: Command) -> Command:
            nonlocal gone
            if way == "refuses":
                return request.response(ResponseCode.NO_PERMISSION, "no right, says the broker")
            if way == "lies":
                return request.response()
            gone = way == "is gone after it"
            if way != "says nothing":
                await client.call(second, Command(request.code, fields=request.fields, body=request.body), 5)
            await asyncio.sleep(60)
            return request.response()

        for code in C:
            broken.replies[code] = change if code in WRITES else forward
        addresses = {"lab-a": first, "lab-b": second if way is None else broken.address}
        info = ClusterInfo(
            {name: BrokerData("C", name, {0: address}) for name, address in addresses.items()}, {"C": [*addresses]}
        )
        namesrv.replies[C.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(body=body_of(info))
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(*addresses.items())})
        yield namesrv.address


# what brokers change by themselves, as they deliver delayed messages meanwhile
_MOVING = {"messages", "lastStoreTimestamp", "lastStoreTime", "diff", "lag", "brokerOffset"}


def values(target: str) -> dict[str, Any]:
    """Settings and offsets of both brokers."""
    result = {}
    for line in ("topic list", "group list", "group offsets", "broker-config show --name brokerPermission"):
        name, _, more = line.partition(" --")
        done = rmqtool(*name.split(), target, *(f"--{more}".split() if more else ()), "-o", "json")
        assert done.code == 0, done.err
        rows = json.loads(done.out)
        result[name] = [{key: value for key, value in row.items() if key not in _MOVING} for row in rows]
    return result


@by_turns(11)
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_what_one_of_two_brokers_does_not_do_is_told(
    way: str, name: str, brokers: tuple[str, str], tmp_path: Path
) -> None:
    """The other half is done; the state and the reason of what is not are told; undo puts everything back."""
    file = tmp_path / "cluster.yaml"
    file.write_text("groups: {lab-orderly: {retryMaxTimes: 3}, billing: {}}\n")
    args = [str(file) if word == "CLUSTER.YAML" else word for word in CHANGES[name][0]]
    with serving(cluster(*brokers)) as namesrv:
        before = values(f"rocketmq://{namesrv}")
    with serving(cluster(*brokers, way)) as namesrv:
        target = f"rocketmq://{namesrv}"
        done = rmqtool(*name.split(), target, *args, "--yes", "-o", "json")
        assert done.out, done.err
        result = json.loads(done.out)
        told = [row for row in result.get("changes", []) if row["state"] != "same"]
        if name == "group reset":  # has its own rows, in the fields of a store, and states on stderr alone
            assert done.code == int(way != "does it and says nothing"), done.err
            lines = [line for line in done.err.splitlines() if line.startswith(("not-done: ", "unknown: "))]
            assert bool(lines) is bool(done.code)
            assert all(": lab-b: offset lab-orderly Sequenced " in f": {line.split(': ', 1)[1]}" for line in lines)
            told = [
                {"server": server, "state": state, "reason": done.err}
                for server, state in (("lab-a", "done"), ("lab-b", lines[0].split(":")[0] if lines else "done"))
            ]
        assert {row["state"] for row in told if row["server"] == "lab-a"} == {"done"}, told
        ours = [row for row in told if row["server"] == "lab-b"]
        if way == "does it and says nothing":
            assert (done.code, {row["state"] for row in ours}) == (0, {"done"}), told
        else:
            assert done.code == 1
            state = "unknown" if way == "is gone after it" else "not-done"
            assert state in {row["state"] for row in ours}, told
            reasons = " ".join(row["reason"] or "" for row in ours)
            assert {
                "refuses": "no right, says the broker", "says nothing": "no answer", "is gone after it": "no answer",
                "lies": "did not stick",
            }[way] in reasons  # fmt: skip
            assert "lab-b: " in done.err
        assert "Traceback" not in done.err
    (journal,) = tmp_path.rglob("rmqtool/*.json")
    with serving(cluster(*brokers)) as namesrv:
        target = f"rocketmq://{namesrv}"  # a name server with another address, but the same brokers
        content = json.loads(journal.read_text())
        journal.write_text(json.dumps({**content, "namesrv": [namesrv]}))
        back = rmqtool("undo", target, "--yes")
        assert back.code in (0, 1), back.err
        assert values(target) == before, back.err


@pytest.mark.parametrize(
    "args",
    [
        ("topic", "perm", "TARGET", "Orders", "R"), ("topic", "delete", "TARGET", "Orders"),
        ("group", "delete", "TARGET", "lab-orderly"), ("group", "reset", "TARGET", "lab-consumer", "--to-earliest"),
        ("broker-config", "set", "TARGET", "brokerPermission=4"), ("kv", "set", "TARGET", "a", "b", "c"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_nothing_is_begun_while_a_broker_is_gone(
    args: tuple[str, ...], brokers: tuple[str, str], tmp_path: Path
) -> None:
    with serving(cluster(brokers[0], "127.0.0.1:1")) as namesrv:
        target = f"rocketmq://{namesrv}"
        done = rmqtool(*(target if word == "TARGET" else word for word in args), "--yes")
        assert done.code == 3, done.err
        assert "nothing was changed" in done.err
        assert not list(tmp_path.rglob("*.json")), "and no journal is begun"
        (orders,) = json.loads(rmqtool("topic", "list", target, "Orders", "-o", "json").out)
        assert orders["perm"] == "RW"


def test_a_plan_that_is_too_old_is_not_carried_out(brokers: tuple[str, str], tmp_path: Path) -> None:
    with serving(cluster(*brokers)) as namesrv:
        target = parse_target(f"rocketmq://{namesrv}")
        edit = topic_edit(read=6, write=None, perm=None, attributes={})

        async def work(asked: Questions) -> run.Plan:
            return await plan_topic(asked, Where(target=target), "Orders", edit, create=False, command="topic update")

        plan = run.make_plan(target, work, pytest.fail)
        assert rmqtool("topic", "perm", target.text, "Orders", "R", "--yes").code == 0
        with pytest.raises(Refused, match="has changed since the plan was made"):
            run.carry_out_plan(target, plan, str(tmp_path), pytest.fail)
        assert rmqtool("undo", target.text, "--yes").code == 0
