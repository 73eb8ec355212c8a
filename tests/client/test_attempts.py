"""Retries, fault tolerance and changes of routes, against a simulated cluster and its clock."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from formats.remoting.shapes import MessageQueue
from rmqtool.client import ClientOptions, Cluster, Message, NotSent, Producer, ProducerOptions, SendResult
from rmqtool.client.cluster.errors import NoRoute
from rmqtool.client.cluster.routes import Route
from rmqtool.client.producing.choice import QueueChoice
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.errors import ConnectionLost, NoAnswer, NotReached
from rmqtool.rules.queue_selection import unavailable
from rmqtool.rules.releases import RELEASES

OK, REFUSED, GONE, SILENT, LOST = "stored", "refused", "not reached", "no answer", "lost"
ENDS = {  # code of an answer: whether 4.9 tries again, and whether 5.3 does
    1: (True, True), 14: (True, True), 16: (True, True), 17: (True, True), 204: (True, True), 205: (True, True),
    2: (False, True), 1500: (False, True), 13: (False, False), 25: (False, False), 206: (False, False),
}  # fmt: skip
Outcome = tuple[str, int]
outcomes = st.one_of(
    st.sampled_from([(OK, 0), (OK, 10), (OK, 11), (OK, 12), (GONE, 0), (SILENT, 0), (LOST, 0)]),
    st.sampled_from([(REFUSED, code) for code in ENDS]),
)


def routed(names: Sequence[str], queues: int = 2) -> Route:
    return Route(
        "T",
        tuple(MessageQueue("T", name, queue) for name in names for queue in range(queues)),
        (),
        {name: {0: f"{name}:1"} for name in names},
        dict.fromkeys(names, queues),
    )


@dataclass
class Attempt:
    broker: str
    unique_id: str
    outcome: Outcome


@dataclass
class Script:
    """Scripted results of attempts, and routes by number of previous attempts."""

    ends: Sequence[Outcome]
    routes: Sequence[Sequence[str]]
    attempts: list[Attempt] = field(default_factory=list)


class Simulated(Cluster):
    def __init__(self, script: Script, engine: str) -> None:
        super().__init__(ClientOptions(namesrv="127.0.0.1:1", release=RELEASES[engine]))
        self.script = script

    async def publish_route(self, topic: str, template: str = "", queue_nums: int = 4) -> Route:
        names = self.script.routes[min(len(self.script.attempts), len(self.script.routes) - 1)]
        if not names:
            raise NoRoute("T: no broker takes messages for it")
        return routed(names)

    def address(self, broker_name: str, broker_id: int = 0) -> str:
        return f"{broker_name}:1"

    async def call(
        self, address: str, request: Command, timeout: float | None = None, *, over: Connection | None = None
    ) -> Command:
        assert request.code == RequestCode.SEND_MESSAGE_V2
        fields = request.fields or {}
        end = self.script.ends[len(self.script.attempts)]
        unique = fields["i"].split("UNIQ_KEY\x01")[1].split("\x02")[0]
        self.script.attempts.append(Attempt(address.partition(":")[0], unique, end))
        kind, code = end
        if kind == GONE:
            raise NotReached("not reached")
        if kind == SILENT:
            raise NoAnswer("no answer")
        if kind == LOST:
            raise ConnectionLost("lost")
        place = {"msgId": "00", "queueId": fields["e"], "queueOffset": "7"}
        return request.response(code, fields=place if kind == OK else None)


async def sent(script: Script, engine: str, options: ProducerOptions) -> SendResult | NotSent:
    producer = Producer(Simulated(script, engine), "g", options)
    try:
        return await producer.send(Message("T", b"x"))
    except NotSent as err:
        return err


@settings(max_examples=150, deadline=None)
@given(
    ends=st.lists(outcomes, min_size=6, max_size=6),
    routes=st.lists(st.lists(st.sampled_from("abc"), max_size=3, unique=True), min_size=1, max_size=4),
    engine=st.sampled_from(["4.9", "5.3"]),
    retries=st.integers(0, 5),
    not_stored=st.booleans(),
)
def test_attempts_go_by_the_rules(
    ends: list[Outcome], routes: list[list[str]], engine: str, retries: int, not_stored: bool
) -> None:
    script = Script(ends, routes)
    result = asyncio.run(sent(script, engine, ProducerOptions(retries=retries, retry_not_stored=not_stored)))
    attempts = script.attempts
    assert len(attempts) <= 1 + retries
    assert len({attempt.unique_id for attempt in attempts}) <= 1
    for number, (before, after) in enumerate(itertools.pairwise(attempts), 1):
        kind, code = before.outcome
        if kind == OK:
            assert not_stored
            assert code != 0
        elif kind == REFUSED:
            assert ENDS[code][engine != "4.9"]
        names = script.routes[min(number, len(routes) - 1)]
        if set(names) - {before.broker}:
            assert after.broker != before.broker
    stored = [attempt for attempt in attempts if attempt.outcome[0] == OK]
    if isinstance(result, SendResult):
        assert stored
        assert result.queue.broker_name in {attempt.broker for attempt in stored}
        assert (result.status == "SEND_OK") == any(attempt.outcome[1] == 0 for attempt in stored)
        last = max(number for number, attempt in enumerate(attempts) if attempt.outcome[0] == OK)
        others = attempts[:last] + attempts[last + 1 :]
        maybe = [attempt.broker for attempt in others if attempt.outcome[0] in (OK, SILENT, LOST)]
        assert sorted(queue.broker_name for queue in result.maybe_in) == sorted(maybe)
    else:
        assert not stored, "what was stored is never told as not sent"
        assert result.maybe_stored == any(attempt.outcome[0] in (SILENT, LOST) for attempt in attempts)
    if attempts and not stored and len(attempts) < 1 + retries:  # it was given up before: there was a reason
        kind, code = attempts[-1].outcome
        no_route = not routes[min(len(attempts), len(routes) - 1)]
        assert no_route or (kind == REFUSED and not ENDS[code][engine != "4.9"])


events = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(["answered", "failed", "refused", "unasked"]), st.integers(0, 20_000),
        st.integers(0, 40_000),
    ),
    max_size=30,
)  # fmt: skip


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
@settings(max_examples=150, deadline=None)
@given(happened=events, detected=st.booleans(), last=st.sampled_from([None, "a", "b", "c"]))
def test_brokers_that_failed_are_left_out_as_long_as_the_table_says(
    engine: str, happened: list[tuple[str, str, int, int]], detected: bool, last: str | None
) -> None:
    now = 1_000_000
    choice = QueueChoice(RELEASES[engine], tolerant=True, detected=detected, clock=lambda: now)
    until = dict.fromkeys("abc", 0)
    unreachable: set[str] = set()
    isolated = 600_000 if engine == "4.9" else 10_000
    for name, what, took, passed in happened:
        if what == "answered":
            choice.note_answer(name, took)
            end = now + unavailable(took, RELEASES[engine])
            unreachable.discard(name)
        else:
            choice.note_failure(name, took, refused=what == "refused", unasked=what == "unasked")
            end = now + (unavailable(took, RELEASES[engine]) if what == "unasked" and engine != "4.9" else isolated)
            unreachable.discard(name)
            if engine != "4.9" and (what == "refused" or (detected and what != "unasked")):
                unreachable.add(name)
        until[name] = end if engine == "4.9" else max(end, until[name])
        assert choice.remaining_pause(name) == max(until[name] - now, 0)
        now += passed
    route = routed("abc")
    chosen = {choice.select(route, last).broker_name for _ in range(12)}
    available = {name for name in "abc" if now >= until[name]}
    if engine == "4.9":
        if available:
            assert chosen <= available
    elif available - {last}:
        assert chosen <= available - {last}
    elif set("abc") - unreachable - {last}:
        assert chosen <= set("abc") - unreachable - {last}
    assert choice.unreachable == sorted(unreachable)
