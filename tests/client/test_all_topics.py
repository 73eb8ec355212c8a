"""consume --all-topics: every ordinary topic of a cluster in one command."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from formats.remoting import headers as h
from formats.remoting.codes import RequestCode as C
from rmqtool.client import ClientOptions
from rmqtool.client.cluster.cluster import Cluster
from rmqtool.testing import TestBroker, broker
from tests.cli.running import Result, rmqtool
from tests.client.peers import run
from tests.client.test_acked import kept
from tests.client.test_consuming import fill

COUNTS = {"First": 40, "Second": 24, "Third": 12}
ACKED = ("--group", "drain", "--ack", "--from", "earliest")


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with broker() as running:
        for topic, count in COUNTS.items():
            fill(running, topic, count)
        yield running


def consume(served: TestBroker, *args: str) -> tuple[Result, Counter[str]]:
    result = rmqtool("consume", "--all-topics", "--namesrv", served.namesrv, "-o", "ndjson", *args)
    return result, Counter(json.loads(line)["topic"] for line in result.out.splitlines())


@pytest.mark.parametrize("args", [(), ("--follow", "--exit-idle", "2", "--from", "earliest")])
def test_all_topics_are_shown(served: TestBroker, args: tuple[str, ...]) -> None:
    done, shown = consume(served, *args)
    assert (done.code, shown) == (0, COUNTS)
    assert done.err == "76 messages of 3 topics\n"


def test_a_group_drains_all_topics(served: TestBroker) -> None:
    done, shown = consume(served, *ACKED)
    assert (done.code, shown) == (0, COUNTS), done.err
    assert done.err.splitlines()[-1] == "76 messages of 3 topics"
    assert {topic: kept(served, "drain", topic) for topic in COUNTS} == COUNTS
    done, shown = consume(served, *ACKED)  # %RETRY%drain is a topic now
    assert (done.code, shown) == (1, {})
    assert done.err.splitlines()[-1] == "0 messages of 3 topics"


def test_limit_and_tags_go_for_all_together(served: TestBroker) -> None:
    assert consume(served, "--limit", "50")[1].total() == 50
    assert consume(served, "--tag", "odd")[1] == {topic: count // 2 for topic, count in COUNTS.items()}


def test_a_store_of_a_real_broker(golden_copy: Callable[[str], Path]) -> None:
    store = golden_copy("broker")
    done = rmqtool("run", store, "--until", "delivered")
    assert done.code == 0, "what is due comes before it is counted"
    listed = rmqtool("topic", "list", store, "-o", "ndjson")
    topics = [json.loads(line) for line in listed.out.splitlines()]
    stored = {row["topic"]: row["messages"] for row in topics if row["kind"] == "normal"}
    with broker(store) as running:
        done, shown = consume(running)
    assert shown == {topic: count for topic, count in stored.items() if count}
    assert done.err.splitlines()[-1] == f"{shown.total()} messages of {len(stored)} topics"


@pytest.mark.parametrize("args", [(), ACKED])
def test_a_topic_that_cannot_be_read_is_named(args: tuple[str, ...]) -> None:
    async def forbid() -> None:
        made = h.CreateTopic(
            topic="Closed", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=2,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        async with Cluster(ClientOptions(namesrv=running.namesrv)) as cluster:
            await cluster.ask(running.address, cluster.request(C.UPDATE_AND_CREATE_TOPIC, made))
            while "Closed" not in await cluster.topics():
                await asyncio.sleep(0.01)

    with broker() as running:
        fill(running, "Open", 8)
        run(forbid)
        done, shown = consume(running, *args)
    assert (done.code, shown) == (1, {"Open": 8})
    assert "Closed: cannot be read: its permission on broker-a forbids it" in done.err
    assert done.err.splitlines()[-1] == "8 messages of 1 topic"


def test_no_topic_at_all() -> None:
    with broker() as running:
        for arguments in ((), ACKED):
            done, shown = consume(running, *arguments)
            assert (done.code, done.err, shown) == (1, "0 messages of 0 topics\n", {})


@pytest.mark.parametrize(("args", "part"), [((), "give TOPIC or --all-topics"), (("T", "--all-topics"), "not both")])
def test_a_topic_or_all_of_them(args: tuple[str, ...], part: str) -> None:
    result = rmqtool("consume", *args)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert part in result.err


def test_a_topic_may_still_be_an_option(served: TestBroker) -> None:
    result = rmqtool("consume", "--topic", "Third", "--namesrv", served.namesrv, "-o", "ndjson")
    assert (result.code, result.out.count("\n")) == (0, COUNTS["Third"])
    assert result.err == "12 messages\n"
