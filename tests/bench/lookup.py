"""Look up messages by key in a process that keeps log and index open.

Run as ``python -m tests.bench.lookup``. The store has a million messages and default file sizes; each look-up uses
another unique id, and reads, parses and compares the message.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path
from statistics import median

from rmqtool import NewMessage, Store
from rmqtool.services.lookup.query import KeyReader
from rmqtool.store.layout.paths import StoreLayout


def measure(folder: Path, messages: int, lookups: int, rounds: int) -> list[float]:
    """Microseconds per look-up, for each round."""
    store = folder / "store"
    with Store.create(store) as made:
        for first in range(0, messages, 10_000):
            made.append_many(
                [
                    NewMessage(
                        topic=f"t{n % 4}", body=b"x" * 128, properties={"KEYS": f"k{n}", "UNIQ_KEY": f"{n:032X}"}
                    )
                    for n in range(first, min(first + 10_000, messages))
                ]
            )
    warnings: list[str] = []
    reader = KeyReader(StoreLayout(str(store)), warnings.append)
    wanted = [(f"t{n % 4}", f"{n:032X}") for n in random.Random(1).sample(range(messages), lookups)]
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for topic, key in wanted:
            (hits,) = reader.query(topic, key)
        times.append((time.perf_counter() - start) / lookups * 1e6)
    assert hits.record.topic.decode() == topic
    assert not warnings
    return times


def report(folder: Path, messages: int, lookups: int, rounds: int) -> list[float]:
    """Measure and print."""
    times = measure(folder, messages, lookups, rounds)
    print(f"{lookups} look-ups by unique id among {messages} messages")
    print(f"  best {min(times):.1f} us, median {median(times):.1f} us of {rounds} rounds")
    return times


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--lookups", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder), chosen.messages, chosen.lookups, chosen.rounds)


if __name__ == "__main__":
    main()
