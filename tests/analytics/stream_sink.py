"""Commit batches to stores as Spark's driver does, and be killed: ``stream_sink.py FOLDER``, or ``STORE CALL NUMBER``.

For each of KILLS there is a store ``FOLDER/CALL-NUMBER/store`` then, and a process that has been killed while it
appended batch 1. With CALL, batch 1 of one such store is continued, and killed once more.
"""

import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from rmqtool.analytics.source import write
from rmqtool.analytics.source.write import StoreStreamWriter
from rmqtool.services.open_store.store import Store
from rmqtool.services.sending import batches
from rmqtool.services.sending.importer import Importer

QUERY = "a-query"
ROWS = 40
KILLS = (("save", 1), ("append", 1), ("append", 2), ("append", 6), ("flush", 1), ("save", 2))
"""What kills the process with SIGKILL, and when: saving the state, appending a chunk of rows, a flush."""
CALLS = {"save": (batches, "replace_file"), "append": (Importer, "take"), "flush": (Store, "flush")}


def bodies(batch: int) -> list[bytes]:
    """The bodies of a batch."""
    return [b"batch %d row %d" % (batch, row) for row in range(ROWS)]


def commit(store: str, batch: int, seed: int) -> None:
    """Stage the rows of a batch, in an order by the seed, as two tasks do, and commit them."""
    order = bodies(batch)
    random.Random(seed).shuffle(order)
    conf = os.path.join(os.path.dirname(store), "broker.conf")
    if not os.path.exists(conf):
        with open(conf, "w", encoding="utf-8") as file:  # small files
            file.write(
                "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=6000\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
            )
    writer = StoreStreamWriter({"path": store, "brokerConf": conf}, ["topic", "body"])
    parts = []
    for half in (order[: ROWS // 2], order[ROWS // 2 :]):
        rows = pa.record_batch({"topic": ["Sink"] * len(half), "body": pa.array(half, pa.binary())})
        part = writer._write(f"{store}.parts-{QUERY}-{batch}-{seed}", iter([rows]))
        part.query = QUERY
        parts.append(part)
    writer.commit(parts, batch)


def kill_at(owner: Any, name: str, number: int) -> None:
    """Have the process killed by a call of a function, before it does anything."""
    true: Callable[..., Any] = getattr(owner, name)
    left = [number]

    def call(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return true(*args, **options)

    setattr(owner, name, call)


def commit_and_die(store: str, call: str, number: int) -> None:
    """Commit batch 0 if there is no store, and be killed while batch 1 is committed."""
    write._ROWS = 7  # rows of a chunk
    if not os.path.exists(store):
        os.makedirs(os.path.dirname(store))
        commit(store, 0, 1)
    kill_at(*CALLS[call], number)
    commit(store, 1, 2)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        commit_and_die(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    for call, number in KILLS:
        child = os.fork()  # importing takes longer than all the rest
        if not child:
            commit_and_die(f"{sys.argv[1]}/{call}-{number}/store", call, number)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
