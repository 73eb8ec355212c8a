"""Two or three of our brokers at one name server, with real clients, one broker killed and restarted."""

import asyncio
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.remoting.client import open_connection
from tests.amounts import by_turns, some
from tests.client.test_replay import messages
from tests.interop.broker import Broker
from tests.interop.serving import Serving
from tests.interop.test_popping import conf_of

pytestmark = pytest.mark.interop
_TOPIC, _GROUP = "Several", "several"


def make(address: str) -> None:
    """Create the topic on one broker."""
    fields = {
        "topic": _TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip

    async def ask() -> None:
        host, _, port = address.rpartition(":")
        async with open_connection(host, int(port)) as client:
            answer = await client.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields=fields))
            assert answer.code == 0, answer.remark

    asyncio.run(ask())


@by_turns(23)
@pytest.mark.parametrize("count", some([3], [2, 3]))
@pytest.mark.parametrize("popping", [False, True], ids=["shared", "popped"])
def test_none_is_lost_when_one_is_killed_and_comes_back(
    broker: Broker, tmp_path: Path, count: int, popping: bool
) -> None:
    if popping and broker.engine == "4.9":
        pytest.skip("4.9 does not pop")
    conf, _settings = conf_of(tmp_path)
    options = ("--create", "--engine", broker.engine, "--broker-conf", str(conf))
    acknowledged: set[str] = set()

    def send(prefix: str, number: int) -> None:
        given = {"topic": _TOPIC, "count": number, "threads": 8, "how": "sync", "prefix": prefix}
        sent = broker.ask("sendMany", **given)
        acknowledged.update(row["keys"] for row in sent if row.get("status") == "SEND_OK")

    def consume(instance: str) -> None:
        more = {"pop": 10_000} if popping else {}
        broker.ask("consume", group=_GROUP, topic=_TOPIC, failures=0, most=3, level=1, instance=instance, **more)

    with ExitStack() as stack:
        first = stack.enter_context(Serving(tmp_path / "a", *options))
        joined = [*options, "--namesrv", first.namesrv]
        others = [
            stack.enter_context(Serving(tmp_path / name, *joined, "--name", f"lab-{name}"))
            for name in ("b", "c")[: count - 1]
        ]
        broker.connect(first.namesrv, first.broker)
        for each_broker in (first, *others):
            make(each_broker.broker)
            if popping:
                args = ["setConsumeMode", "-b", each_broker.broker, "-t", _TOPIC, "-g", _GROUP, "-m", "POP", "-q", "8"]
                answer = broker.ask("admin", arguments=args, seconds=60)
                assert answer["ended"], answer
        consume("one")
        send("before-", 200)
        consume("two")
        dying = others[-1]
        killer = threading.Timer(0.2, dying.process.kill)
        killer.start()
        send("meanwhile-", 2_000)
        killer.join()
        dying.process.wait()
        name = ("b", "c")[count - 2]
        again = Serving(tmp_path / name, *joined[1:], "--name", f"lab-{name}", listen=dying.broker)
        stack.enter_context(again)
        broker.ask("leave", instance="one")
        send("behind-", 200)
        assert {row.partition("-")[0] for row in acknowledged} == {"before", "meanwhile", "behind"}
        seen = broker.wait_for(lambda rows: acknowledged <= {row["keys"] for row in rows}, 120)
        missing = acknowledged - {row["keys"] for row in seen}
        assert not missing, (len(missing), sorted(missing)[:10])
        broker.stop()
        for each_broker in (again, *others[:-1], first):
            assert each_broker.end()[0] == 0
    for name in ("a", "b", "c")[:count]:
        assert messages(str(tmp_path / name), _TOPIC), f"{name} has had none"
