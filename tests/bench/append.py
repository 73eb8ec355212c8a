"""Bulk append compared with the real engine: batches as sent by clients, and messages as Python objects.

Run as ``python -m tests.bench.append``. Both sides get the same batches of the same messages with default file sizes,
encoded before the clock starts, and have dispatched the last of them when it stops. Each side runs several times in one
process; the best counts. The engine needs Maven and a JDK.
"""

import argparse
import gc
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, TypedDict

from formats.message.bodies import BatchItem, build_batch
from formats.message.properties import build
from rmqtool import NewMessage, Store
from tests.bench.measure import in_own_process, peak_rss
from tests.interop.engine import Engine, available

TOPICS = QUEUES = 4
_BODIES, _KEYS, _TAGS = 64, 10_000, 8


class Figures(TypedDict):
    """Messages per second of one side, and bytes."""

    batches: float
    objects: float
    close: float
    peak_rss: int


def _bodies(size: int) -> list[bytes]:
    rng = random.Random(size)
    noise = [rng.randbytes(size) for _ in range(_BODIES)]
    return [bytes(97 + i % 26 if i % 2 == 0 else byte for i, byte in enumerate(body)) for body in noise]


def _properties(n: int) -> dict[str, str]:
    return {"TAGS": f"tag-{n % _TAGS}", "KEYS": f"key-{n % _KEYS}", "id": f"BENCH{n:027X}"}


def _place(number: int) -> tuple[str, int]:
    return f"bench-{number % TOPICS}", number // TOPICS % QUEUES


def _input(way: str, bodies: list[bytes], count: int, batch: int) -> list[Any]:
    """The batches in both forms."""
    made: list[Any] = []
    for first in range(0, count, batch):
        numbers = range(first, min(first + batch, count))
        topic, queue_id = _place(first // batch)
        if way == "batches":
            items = [BatchItem(0, bodies[n % _BODIES], build(_properties(n))) for n in numbers]
            made.append(NewMessage(topic=topic, queue_id=queue_id, body=build_batch(items)))
        else:
            made.append(
                [
                    NewMessage(topic=topic, queue_id=queue_id, body=bodies[n % _BODIES], properties=_properties(n))
                    for n in numbers
                ]
            )
    return made


def measure(store: str, count: int, body: int, batch: int, rounds: int) -> Figures:
    """Append ``count`` messages both ways, each time to a new store; returns the best of ``rounds``."""
    bodies = _bodies(body)
    gc.disable()
    best, closing = {"batches": 0.0, "objects": 0.0}, []
    for way in best:
        given = _input(way, bodies, count, batch)
        for _ in range(rounds):
            spent, close = _timed(Path(f"{store}-{way}"), way, given, count)
            best[way] = max(best[way], count / spent)
            closing.append(close)
            gc.collect()
        del given
    return Figures(batches=best["batches"], objects=best["objects"], close=min(closing), peak_rss=peak_rss())


def _timed(path: Path, way: str, given: list[Any], count: int) -> tuple[float, float]:
    """Seconds for the appends with dispatch, and for closing the store."""
    with Store.create(path) as made:
        made.append_many([NewMessage(topic="warm", body=b"up")] * 2000)
        made.live.append_encoded(NewMessage(topic="warm", body=build_batch([BatchItem(0, b"up", b"")] * 10)))
        made.dispatch()
        start = time.perf_counter()
        if way == "batches":
            for message in given:
                made.live.append_encoded(message)
        else:
            for messages in given:
                made.append_many(messages)
        made.dispatch()
        spent = time.perf_counter() - start
        assert sum(queue.maxOffset for queue in made.queues()) == count + 2010
        start = time.perf_counter()
    close = time.perf_counter() - start
    shutil.rmtree(path)
    return spent, close


def report(folder: Path, count: int, body: int, batch: int, rounds: int, *, beside: bool) -> tuple[float, float]:
    """Measure and print; returns (our best rate for batches, the engine's best or 0)."""
    ours: Figures = in_own_process("tests.bench.append", "measure", str(folder / "ours"), count, body, batch, rounds)
    best = ours["batches"]
    print(f"{count} messages of {body} bytes in batches of {batch}, dispatch included")
    print(f"  batches as clients send them  {best:>10,.0f} messages/s")
    print(f"  objects of this process       {ours['objects']:>10,.0f} messages/s, properties encoded meanwhile")
    print(f"  flush and close {ours['close']:.2f} s, peak memory {ours['peak_rss'] >> 20} MiB")
    theirs = 0.0
    if beside and (reason := available("4.9.8")) is None:
        with Engine("4.9.8") as engine:
            for _ in range(rounds):  # in the first the JVM still compiles
                shutil.rmtree(folder / "theirs", ignore_errors=True)
                answer = engine.bench(
                    folder / "theirs", count, body_size=body, topics=TOPICS, queues=QUEUES, batch=batch
                )
                theirs = max(theirs, count / answer["seconds"])
        shutil.rmtree(folder / "theirs", ignore_errors=True)
        print(f"  the engine, 4.9.8             {theirs:>10,.0f} messages/s; ours is {best / theirs:.2f} of it")
    elif beside:
        print(f"  no engine beside it: {reason}")
    return best, theirs


def main() -> None:
    """Measure both body sizes."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--batch", type=int, nargs="*", default=[100, 1000], help="messages of a batch")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", help="where stores are made, instead of the system's temporary directory")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        for body, messages in ((128, chosen.messages), (2048, chosen.messages // 5)):
            for batch in chosen.batch:
                report(Path(folder), messages, body, batch, chosen.rounds, beside=True)


if __name__ == "__main__":
    main()
