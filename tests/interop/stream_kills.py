"""A live cluster into Parquet, Delta and Iceberg while drivers and servers are killed: each message exactly once.

    python -m tests.interop.stream_kills --release 5.5.0 --to parquet --rounds 10 --seed 1

A real broker, or ours (``--release serve``), gets messages all the time, each until it is acknowledged. They go into
the table by a stream of Spark with a checkpoint, or with ``--by dump`` by ``dump --since-last``. In each round its
driver or job is killed, in some the broker or the name server too. In the end the table must have exactly the messages
of the broker's own log.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Self

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from rmqtool import read_arrow
from rmqtool.client import Message
from rmqtool.client.sync import Producer
from tests.analytics.test_stream import ROOT, batches_of, started
from tests.analytics.test_stream import end as end_process
from tests.interop.broker import SMALL_FILES, Broker
from tests.interop.serving import Serving
from tests.interop.test_namesrv import name_server

TOPIC = "Live"
_PAUSE = 0.05  # s between two messages
OURS = "serve"
_CONF = {**SMALL_FILES, "flushDiskType": "SYNC_FLUSH", "registerNameServerPeriod": 10_000}
Kill = Callable[[], None]


class Names:
    """A name server that can be killed; as a context manager, it is ended at the end."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._port, self.address = 0, ""
        self._boot()

    def _boot(self) -> None:
        _process, self.address = self._running.enter_context(name_server(self._port))
        self._port = int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        """Kill it and start another one, which knows no broker until one registers again."""
        self._running.close()
        self._boot()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()


class Ours(Serving):
    """``rmqtool serve``, which registers with the name server of the test."""

    def __init__(self, store: Path, namesrv: str) -> None:
        conf = store.parent / "broker.conf"
        settings = {**_CONF, "autoCreateTopicEnable": "true", "namesrvAddr": namesrv}
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        super().__init__(store, "--create", "--broker-conf", str(conf), "--namesrv", namesrv)

    def kill(self) -> None:
        """Kill it."""
        self.end(signal.SIGKILL)


class Life:
    """A broker that can be killed, and a producer that goes on.

    Attributes:
        acknowledged: numbers of messages.
    """

    def __init__(self, release: str, store: Path, namesrv: str) -> None:
        self.release, self.store, self.namesrv = release, store, namesrv
        self.acknowledged: list[int] = []
        self._stop = threading.Event()
        self.broker = self._boot()
        self._sending = threading.Thread(target=self._send)
        self._sending.start()

    def _boot(self) -> "Broker | Ours":
        if self.release == OURS:
            return Ours(self.store, self.namesrv)
        jvm = Broker(self.release)
        jvm.boot(self.store, _CONF, namesrv=self.namesrv)
        jvm.ask("topic", topic=TOPIC)
        return jvm

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            with suppress(Exception), Producer(self.namesrv) as producer:
                while not self._stop.is_set():
                    producer.send(Message(TOPIC, b"%d" % number), timeout=3)
                    self.acknowledged.append(number)
                    number += 1
                    time.sleep(_PAUSE)
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill the broker and start another one on its store."""
        self.broker.kill()
        self.broker = self._boot()

    def stop_sending(self) -> None:
        """Let the producer end, and the broker dispatch what it has."""
        self._stop.set()
        self._sending.join()
        time.sleep(2)


class Sink:
    """Parquet files, or a table of Delta or Iceberg."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        (folder / "warehouse").mkdir()
        self.place = "lab.mq.messages" if kind == "iceberg" else str(folder / "out")
        self._catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        # PyIceberg reads them when it is imported: they are for the drivers and jobs
        os.environ |= {f"PYICEBERG_CATALOG__LAB__{name.upper()}": value for name, value in self._catalog.items()}

    def rows(self) -> list[tuple[int, int]]:
        """(physical offset, number) of every row, as other readers see them."""
        if self.kind == "parquet":
            return self._parquet()
        columns = ("physicalOffset", "body")
        if self.kind == "delta":
            if not DeltaTable.is_deltatable(self.place):
                return []
            table = DeltaTable(self.place).to_pyarrow_table(columns=[*columns])
        else:
            catalog = load_catalog("lab", **self._catalog)
            if not catalog.table_exists("mq.messages"):
                return []
            table = catalog.load_table("mq.messages").scan(selected_fields=columns).to_arrow()
        return [(row["physicalOffset"], int(row["body"])) for row in table.to_pylist()]

    def _parquet(self) -> list[tuple[int, int]]:
        """Rows of the files in the list of Spark's sink."""
        names: set[str] = set()
        for path in Path(self.place, "_spark_metadata").glob("*"):
            if not path.name.startswith("."):
                lines = path.read_text().splitlines()[1:]
                names |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
        rows = [row for name in names for row in pq.read_table(name, partitioning=None).to_pylist()]
        return [(row["physicalOffset"], int(row["body"])) for row in rows]


class Stream:
    """A stream of Spark."""

    def __init__(self, folder: Path, life: Life, sink: Sink) -> None:
        self.checkpoint, self.sink = folder / "checkpoint", sink
        all_of_it = {"namesrv": life.namesrv, "subscribe": TOPIC, "startingOffsets": "earliest"}
        self.all_of_it, self.options = json.dumps(all_of_it), json.dumps({**all_of_it, "maxOffsetsPerTrigger": "300"})

    def run_and_kill(self, rng: Random, also: Kill | None) -> None:
        """Start a driver, and kill it after some batches; and a server in between."""
        with started() as start:
            driver = start("stream_reader", self.options, self.checkpoint, self.sink.place, self.sink.kind)
            assert driver.stdout is not None
            assert driver.stdout.readline() == "running\n"
            wanted = batches_of(self.checkpoint) + rng.randrange(1, 4)
            self._wait(driver, wanted)
            if also is not None:
                also()
                self._wait(driver, wanted + 1)
            time.sleep(rng.random() * 0.5)
            end_process(driver)

    def _wait(self, driver: "subprocess.Popen[str]", batches: int) -> None:
        deadline = time.monotonic() + 240
        while batches_of(self.checkpoint) < batches:
            assert driver.poll() is None, "the stream has ended"
            assert time.monotonic() < deadline, "the stream does not go on"
            time.sleep(0.02)

    def finish(self, count: int) -> list[tuple[int, int]]:
        """Read the rest; returns (physical offset, number) of every row."""
        with started() as start:
            driver = start("stream_reader", self.all_of_it, self.checkpoint, self.sink.place, self.sink.kind)
            deadline = time.monotonic() + 240
            while len(found := self.sink.rows()) < count:
                assert driver.poll() is None, "the stream has ended"
                if time.monotonic() > deadline:
                    return found
                time.sleep(0.5)
            time.sleep(2)
            end_process(driver)
        return self.sink.rows()


class Job:
    """``dump --since-last`` to a table."""

    def __init__(self, life: Life, sink: Sink) -> None:
        self.life, self.sink = life, sink
        self.seconds = 5.0

    def _start(self) -> "subprocess.Popen[str]":
        words = [
            f"rocketmq://{self.life.namesrv}",
            self.sink.place,
            "--to",
            self.sink.kind,
            "--since-last",
            "--topic",
            TOPIC,
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "rmqtool.main", "dump", *words], cwd=ROOT, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def run_and_kill(self, rng: Random, also: Kill | None) -> None:
        """Run a job to its end, and kill the next one at any time of its life."""
        begun = time.monotonic()
        whole = self._start()
        _out, err = whole.communicate(timeout=300)
        assert whole.returncode in (0, 1), err
        self.seconds = time.monotonic() - begun
        killed = self._start()
        time.sleep(rng.random() * self.seconds)
        if also is not None:
            also()
        with suppress(ProcessLookupError):
            os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()

    def finish(self, count: int) -> list[tuple[int, int]]:
        """Run the last job; returns (physical offset, number) of every row."""
        last = self._start()
        _out, err = last.communicate(timeout=300)
        assert last.returncode == 0, err
        rows = self.sink.rows()
        assert len(rows) >= count - 1, "the job has not read all"
        return rows


def main() -> int:
    """Run, and return 1 if a message is missing or there twice."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.stream_kills", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--release", default="5.5.0")
    parser.add_argument("--to", choices=("parquet", "delta", "iceberg"), default="parquet")
    parser.add_argument("--by", choices=("stream", "dump"), default="stream")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    rng, folder = Random(chosen.seed), Path(tempfile.mkdtemp(prefix="stream-kills-"))
    with Names() as names:
        life = Life(chosen.release, folder / "store", names.address)
        try:
            sink = Sink(folder, chosen.to)
            writer = Stream(folder, life, sink) if chosen.by == "stream" else Job(life, sink)
            for turn in range(chosen.rounds):
                writer.run_and_kill(rng, (None, life.kill, names.kill)[turn % 3])
                print(f"round {turn}: {len(life.acknowledged)} acknowledged", flush=True)
            life.stop_sending()
            found = writer.finish(len(life.acknowledged))
        finally:
            life._stop.set()
            life.broker.kill()
    kept = read_arrow(str(folder / "store"), topic=TOPIC, columns=["physicalOffset", "body"]).read_all().to_pylist()
    stored = sorted((row["physicalOffset"], int(row["body"])) for row in kept)
    numbers = {number for _offset, number in found}
    equal = sorted(found) == stored
    lost = set(life.acknowledged) - numbers
    print(
        f"{chosen.release} to {chosen.to} by {chosen.by}, seed {chosen.seed}: {chosen.rounds} drivers or jobs, "
        f"{(chosen.rounds + 1) // 3} brokers and {chosen.rounds // 3} name servers killed; "
        f"{len(life.acknowledged)} acknowledged, {len(stored)} in the log, {len(found)} rows in the table, "
        f"{len(found) - len(set(found))} twice, {len(lost)} lost: "
        f"{'equal' if equal else 'DIFFERENT'}"
    )
    if equal and not lost:
        shutil.rmtree(folder)
        return 0
    print(f"kept: {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
