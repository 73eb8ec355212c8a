"""Changes while one of two brokers fails: nothing is half done that is not told."""

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
from tests.cli.running import ROOT, Result, rmqtool
from tests.client.peers import peer, route, serving, tells
from tests.interop.serving import Serving

READS = (C.GET_ALL_TOPIC_CONFIG, C.GET_TOPIC_STATS_INFO, C.GET_ALL_CONSUMER_OFFSET, C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
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
            answer = await client.call(second, client.request(C(request.code)), 5)
            return request.response(answer.code, answer.remark, fields=answer.fields, body=answer.body)

        async def change(request: Command) -> Command:
            nonlocal gone
            if way == "refuses":
                return request.response(ResponseCode.NO_PERMISSION, "no right, says the broker")
            if way == "lies":
                return request.response()
            gone = way == "is gone after it"
            if way != "says nothing":
                again = client.request(C(request.code))
                await client.call(second, Command(again.code, fields=request.fields, body=request.body), 5)
            await asyncio.sleep(60)
            return request.response()

        for code in READS:
            broken.replies[code] = forward
        broken.replies[C.UPDATE_AND_CREATE_TOPIC] = change
        addresses = {"lab-a": first, "lab-b": second if way is None else broken.address}
        info = ClusterInfo(
            {name: BrokerData("C", name, {0: address}) for name, address in addresses.items()}, {"C": [*addresses]}
        )
        namesrv.replies[C.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(body=body_of(info))
        namesrv.replies[C.GET_ROUTEINFO_BY_TOPIC] = tells({"Orders": route(*addresses.items())})
        yield namesrv.address


def rows(result: Result) -> dict[str, dict[str, Any]]:
    """By broker."""
    assert result.out, result.err
    return {row["server"]: row for row in json.loads(result.out)["changes"]}


@pytest.mark.parametrize("way", WAYS)
def test_what_one_of_two_brokers_does_not_do_is_told(way: str, brokers: tuple[str, str]) -> None:
    with serving(cluster(*brokers, way)) as namesrv:
        done = rmqtool("topic", "perm", f"rocketmq://{namesrv}", "Orders", "R", "--yes", "-o", "json")
    told = rows(done)
    assert told["lab-a"]["state"] == "done"
    state, reason = told["lab-b"]["state"], told["lab-b"]["reason"]
    if way == "does it and says nothing":
        assert (done.code, state) == (0, "done")
    else:
        assert done.code == 1
        assert state == ("unknown" if way == "is gone after it" else "not-done")
        assert {
            "refuses": "no right, says the broker", "says nothing": "no answer", "is gone after it": "no answer",
            "lies": "did not stick",
        }[way] in reason  # fmt: skip
        assert "lab-b: topic Orders" in done.err
    with serving(cluster(*brokers)) as namesrv:
        # the name server is another one, so that the journal is found by its path alone
        target = f"rocketmq://{namesrv}"
        back = rmqtool("topic", "perm", target, "Orders", "RW", "--yes")
        assert back.code == 0, back.err
        (orders,) = json.loads(rmqtool("topic", "list", target, "Orders", "-o", "json").out)
        assert orders["perm"] == "RW"


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "perm", "TARGET", "Orders", "R"), ("topic", "delete", "TARGET", "Orders"),
        ("group", "delete", "TARGET", "lab-orderly"), ("group", "reset", "TARGET", "lab-consumer", "--to-earliest"),
        ("broker-config", "set", "TARGET", "brokerPermission=4"), ("kv", "set", "TARGET", "a", "b", "c"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_nothing_is_begun_while_a_broker_is_gone(
    words: tuple[str, ...], brokers: tuple[str, str], tmp_path: Path
) -> None:
    with serving(cluster(brokers[0], "127.0.0.1:1")) as namesrv:
        target = f"rocketmq://{namesrv}"
        done = rmqtool(*(target if word == "TARGET" else word for word in words), "--yes")
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
