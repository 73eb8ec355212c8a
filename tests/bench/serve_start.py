"""Starts of the real broker and ours on a large healthy store: time to the first answer, and memory with idle
consumers.

Run as ``python -m tests.bench.serve_start [--release 4.9.8|5.3.3] [--gigabytes N] [--consumers N]``. Each start is a
separate process with its own name server. Both have started on the store and stopped once before the measurement.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from formats.fastjson.declare import body_of
from formats.remoting import bodies as b
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from formats.remoting.shapes import ConsumerData, SubscriptionData
from rmqtool import NewMessage, Store
from rmqtool.remoting.client import open_connection
from rmqtool.rules.releases import RELEASES
from tests.interop.broker import VERSIONS, Broker
from tests.interop.hostile import memory
from tests.interop.serving import Serving

ROUNDS = 3
MOST_MEMORY = 300  # MB, with 2,000 idle consumers
_TOPIC, _QUEUES, _BODY, _BATCH = "Large", 8, 4000, 1000
_SUSPEND, _SUBSCRIBED = 2, 4  # bits of a pull


def write_store(folder: Path, size: int, engine: str) -> int:
    """Write a healthy store with about ``size`` bytes of messages; returns their number."""
    count = 0
    batch = [NewMessage(topic=_TOPIC, queue_id=number % _QUEUES, body=bytes(_BODY)) for number in range(_BATCH)]
    with Store.create(folder, release=RELEASES[engine]) as store:
        while count * _BODY < size:
            store.append_many(batch)
            count += _BATCH
    return count


def _ask(broker: Broker, wanted: int) -> None:
    fields = {"topic": _TOPIC, "queueId": "0"}
    answer = broker.ask("request", code=int(RequestCode.GET_MAX_OFFSET), fields=fields)
    assert (answer["code"], int(answer["fields"]["offset"])) == (0, wanted), answer


def starts(release: str, folder: Path, size: int) -> tuple[float, float]:
    """Median seconds of the real broker and ours."""
    real, ours = [], []
    store = folder / "store"
    with Broker(release) as client:
        wanted = write_store(store, size, client.engine) // _QUEUES
        for _ in range(ROUNDS + 1):
            begun = time.perf_counter()
            with Broker(release) as broker:
                broker.boot(store, {})
                _ask(broker, wanted)
                real.append(time.perf_counter() - begun)
                broker.stop()
            begun = time.perf_counter()
            with Serving(store, "--engine", client.engine) as serving:
                client.connect(serving.namesrv, serving.broker)
                _ask(client, wanted)
                ours.append(time.perf_counter() - begun)
                client.stop()
                assert serving.end()[0] == 0
    return statistics.median(real[1:]), statistics.median(ours[1:])


async def _consumers(address: str, count: int, pid: int) -> int:
    """Memory in KB with ``count`` consumers in a hundred groups, all with held pulls."""
    host, _, port = address.rpartition(":")
    async with AsyncExitStack() as opened:
        waiting = []
        for number in range(count):
            client = await opened.enter_async_context(open_connection(host, int(port), timeout=30))
            group = ConsumerData(
                f"g{number % 100}",
                "CONSUME_PASSIVELY",
                "CLUSTERING",
                "CONSUME_FROM_LAST_OFFSET",
                [SubscriptionData("Idle")],
            )
            beat = body_of(b.HeartbeatData(f"client-{number}", [], [group]))
            assert not (await client.call(Command(RequestCode.HEART_BEAT, body=beat), 30)).code
            header = h.Pull(
                consumer_group=f"g{number % 100}", topic="Idle", queue_id=0, queue_offset=1, max_msg_nums=32,
                sys_flag=_SUSPEND | _SUBSCRIBED, commit_offset=0, suspend_timeout_millis=600_000, subscription="*",
                sub_version=0,
            )  # fmt: skip
            pull = Command(RequestCode.PULL_MESSAGE, fields=to_fields(header))
            waiting.append(asyncio.ensure_future(client.call(pull, 700)))
        done, _ = await asyncio.wait(waiting, timeout=5)
        assert not done, f"{len(done)} pulls did not wait: {next(iter(done)).result()}"
        megabytes = memory(pid)
        sender = await opened.enter_async_context(open_connection(host, int(port)))
        assert not (await sender.call(_sent())).code
        answers = await asyncio.gather(*waiting)
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        return megabytes


def _sent() -> Command:
    header = h.Send(
        producer_group="p", topic="Idle", default_topic="TBW102", default_topic_queue_nums=1, queue_id=0, sys_flag=0,
        born_timestamp=1_795_000_000_000, flag=0, properties="",
    )  # fmt: skip
    return Command(RequestCode.SEND_MESSAGE, fields=to_fields(header), body=b"for all")


def idle(folder: Path, consumers: int) -> int:
    """Memory of the server in KB while ``count`` consumers wait for a message, which each then gets."""
    with Serving(folder / "idle", "--create", "--engine", "5.3") as serving:

        async def run() -> int:
            host, _, port = serving.broker.rpartition(":")
            async with open_connection(host, int(port)) as sender:
                assert not (await sender.call(_sent())).code
            return await _consumers(serving.broker, consumers, serving.process.pid)

        result = asyncio.run(run())
        assert serving.end()[0] == 0
    return result


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", choices=VERSIONS, default="4.9.8")
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--consumers", type=int, default=2_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-serve-start-") as work:
        megabytes = idle(Path(work), given.consumers) / 1024
        print(f"{given.consumers} idle consumers: {megabytes:,.0f} MB (wanted: at most {MOST_MEMORY} for 2,000)")
        real, ours = starts(given.release, Path(work), int(given.gigabytes * 1e9))
        times = f"{real:.2f} s and {ours:.2f} s, {ours / real:.2f} (wanted: below 1)"
        print(f"{given.gigabytes:g} GB, to the first answer: {times}")


if __name__ == "__main__":
    main()
