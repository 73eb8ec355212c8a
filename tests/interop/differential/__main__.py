"""Stores of random geometry, damaged one to three times, recovered by an engine and by rmqtool, and compared.

    python -m tests.interop.differential --release 5.5.0 --cases 200 --seed 1

Each store has 2 to 30 log files, and is damaged for ten cases. A case that differs is kept, and names its seed.
"""

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

from tests import damage
from tests.interop.differential.bases import Base, expired, keys_of, long_topics, mixed_messages, plain_messages, sizes
from tests.interop.differential.judge import run_case
from tests.interop.engine import ALL, Engine
from tests.store.compiled import compiled_way

_CASES_OF_A_STORE = 10
_RECORD = 340  # bytes of a message of these, about
_FORMS = ("plain", "plain", "mixed", "mixed", "light", "long")
_DOUBLE = ("double", "double-light")  # queues in files and in RocksDB, of 5.4 and later
_SETTINGS: dict[str, tuple[Any, ...]] = {  # of 5.4 and later, in some of the stores
    "commitLogRecoverMaxNum": (3, 20),
    "messageIndexSafe": (True,),
    "enableAcceleratedRecovery": (True,),
    "checkCommitLogOffsetOnRecover": (True,),
}


def _forms(engine: Engine, *, double: bool) -> tuple[str, ...]:
    if engine.version[0] == "4":
        return _FORMS[:-1]
    return _DOUBLE if double else _FORMS


def make_store(rng: Random, folder: Path, engine: Engine, *, double: bool = False) -> Base:
    """A store as the engine leaves it, stopped or killed.

    Args:
        double: its queues are in files and in RocksDB.
    """
    files, log = rng.randint(2, 30), rng.choice((16384, 24576, 49152))
    config = sizes(log, rng.randint(20, 300), rng.randint(20, 400), rng.randint(800, 4000))
    count = max(20, files * log // _RECORD)
    form = rng.choice(_forms(engine, double=double))
    if form == "mixed":
        messages = mixed_messages(rng, files * log // 900)
    elif form == "long":
        messages = long_topics(rng, count)
    else:
        messages = plain_messages(rng, count, rng.randint(1, 5), rng.randint(1, 6))
    if double:
        config["rocksdbCQDoubleWriteEnable"] = True
        if engine.version >= "5.5":
            config["useSeparateStorePathForRocksdbCQ"] = rng.random() < 0.5
            config["combineCQUseRocksdbForLmq"] = rng.random() < 0.5
        if rng.random() < 0.3:
            config["combineCQMaxExtraSearchCommitLogFiles"] = rng.choice((0, 1, 20))
    if form.endswith("light"):
        config |= {"enableLmq": True, "enableMultiDispatch": True}
        for message in messages[::5]:
            message["properties"] = {**message["properties"], "INNER_MULTI_DISPATCH": "%LMQ%x,%LMQ%y"}
    if engine.version >= "5.4":
        for name, values in _SETTINGS.items():
            if rng.random() < 0.2 and not (name.startswith("check") and engine.version < "5.5"):
                config[name] = rng.choice(values)
    kill = rng.random() < 0.5
    written = engine.write(folder, messages, config, kill=kill)
    assert all(row["status"] == "PUT_OK" for row in written["results"]), written
    log_files = len(damage.log_files(folder))
    base = Base(f"{form}{'-killed' if kill else ''}, {log_files} files, {config}", folder, config, keys_of(messages))
    if not kill and log_files > 3 and rng.random() < 0.2:
        base = expired(engine, base)
    return base


def main(release: str, count: int, seed: int, seconds: float, *, double: bool = False) -> int:
    """So many cases, or as many as there is time for; the number of those that differ."""
    folder = Path(tempfile.mkdtemp(prefix="rmqtool-differential-"))
    verbs, failed, excepted = list(damage.VERBS), 0, 0
    base: Base | None = None
    end, done = time.monotonic() + seconds, 0
    with Engine(release) as engine:
        for number in range(count):
            if time.monotonic() > end:
                break
            done += 1
            if base is None or number % _CASES_OF_A_STORE == 0:
                if base is not None:
                    shutil.rmtree(base.path)
                base = make_store(Random(seed + number), folder / f"store-{seed + number}", engine, double=double)
            with compiled_way() if number % 2 else nullcontext():
                verb = verbs[(seed + number) % len(verbs)]
                case = run_case(seed + number, verb, [base], folder / str(seed + number), engine, engine)
            excepted += bool(case.excepted)
            if case.problems:
                failed += 1
                print(case.text[:4000], flush=True)
    print(f"{release}, seed {seed}: {done} cases, {failed} differ, {excepted} with a named exception", flush=True)
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", choices=ALL, default="5.5.0")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no more cases after that")
    parser.add_argument("--double", action="store_true", help="stores with their queues in files and in RocksDB")
    given = parser.parse_args()
    sys.exit(1 if main(given.release, given.cases, given.seed, given.seconds, double=given.double) else 0)
