"""Intact messages of damaged stores kept by salvage, compared with a broker.

Run as ``python -m tests.bench.salvage``. A message of the undamaged store is intact if its bytes are still in a file of
the damaged log, at the same position. The broker's figure comes from the real 4.9.8 for the golden stores, and from
``recover``, which behaves the same, for those damaged here.
"""

import argparse
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from formats.message.read import Record
from rmqtool.errors import RmqError
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from rmqtool.store.recovery.command import recover
from rmqtool.store.salvage.carve import Salvage
from tests import goldens
from tests.damage import VERBS, damage

BASES = ("crash", "broker")
WANTED = 0.999


class Kept(NamedTuple):
    """One damaged store."""

    case: str
    words: str
    intact: int
    salvaged: int  # of the intact ones
    broker: int | None  # of the intact ones; None where it refuses to load the store


def conf_of(case: str) -> BrokerConf:
    """The settings with which a golden store was written."""
    return BrokerConf({name: str(value) for name, value in goldens.about(case)["config"].items()})


def message_of(record: Record) -> Record:
    """A record without its positions, to recognise it."""
    return record._replace(physical_offset=0, queue_offset=0, prepared_transaction_offset=0)


def _found(layout: StoreLayout) -> Iterator[LocatedRecord]:
    return (item for item in CommitLog(layout).walk() if isinstance(item, LocatedRecord))


class Original:
    """The messages of an undamaged store, and their bytes."""

    def __init__(self, store: Path, conf: BrokerConf) -> None:
        self.conf = conf
        self._places = []
        for item in _found(StoreLayout(str(store), conf)):
            raw = bytes(item.file.view()[item.at : item.at + item.record.total_size])
            self._places.append((item.at, raw, message_of(item.record)))

    def intact(self, store: Path) -> "Counter[Record]":
        """Messages whose bytes are still in a file of the damaged log."""
        folder = store / "commitlog"
        files = [p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()] if folder.is_dir() else []
        return Counter(
            message for at, raw, message in self._places if any(data[at : at + len(raw)] == raw for data in files)
        )

    def kept(self, case: str, deed: str, store: Path, work: Path, broker: int | None = -1) -> Kept:
        """Salvage a damaged store, and recover it.

        Args:
            work: directory for the salvaged store.
            broker: number of messages kept by the broker, if known; -1 runs ``recover``, which changes the store.
        """
        intact = self.intact(store)
        layout = StoreLayout(str(store), self.conf)
        salvaged = 0
        if intact:
            Salvage(layout, str(work)).run()
            salvaged = _common(intact, StoreLayout(str(work), self.conf))
            shutil.rmtree(work)
        if broker == -1:
            broker = self._recovered(layout, intact)
        return Kept(case, deed, intact.total(), salvaged, broker)

    def _recovered(self, layout: StoreLayout, intact: "Counter[Record]") -> int | None:
        try:
            report = recover(layout)
        except RmqError:
            return None
        return _common(intact, StoreLayout(layout.root, self.conf)) if report.loadOk else None


def _common(intact: "Counter[Record]", layout: StoreLayout) -> int:
    return (intact & Counter(message_of(item.record) for item in _found(layout))).total()


def golden_cases(folder: Path) -> Iterator[Kept]:
    """The damaged and crashed golden stores."""
    crash = Original(goldens.unpack("crash", folder / "crash"), conf_of("crash"))
    broker_crash = Original(goldens.unpack("broker-crash", folder / "broker-crash"), conf_of("broker-crash"))
    for case in goldens.cases():
        if not goldens.has(case, "recovered.json"):
            continue
        store = goldens.unpack(case, folder / f"{case}-damaged")
        original = broker_crash if case == "broker-crash" else crash
        known: set[int] | None = None
        if goldens.recovered(case)["loadOk"]:
            rows = (row for row in goldens.messages(case) if row["message"] is not None)
            known = {row["message"]["physicalOffset"] for row in rows}
        yield original.kept(case, "", store, folder / "new", None if known is None else len(known))
        shutil.rmtree(store)


def seeded_cases(folder: Path, seed: int, rounds: int, bases: int = len(BASES)) -> Iterator[Kept]:
    """Every kind of damage, on all base stores or the first one."""
    for base in BASES[:bases]:
        conf = conf_of(base)
        store = goldens.unpack(base, folder / base)
        original = Original(store, conf)
        for verb in VERBS:
            for number in range(rounds):
                damaged = folder / "damaged"
                shutil.copytree(store, damaged)
                damages = damage(Random(f"{seed}/{base}/{verb}/{number}"), damaged, verb)
                yield original.kept(f"{base} {verb}", "; ".join(damages), damaged, folder / "new")
                shutil.rmtree(damaged)
                shutil.rmtree(f"{damaged}.rmqtool", ignore_errors=True)


def table(kept: list[Kept]) -> str:
    """A table for people, grouped by name."""
    rows: dict[str, list[Kept]] = {}
    for salvaged_case in kept:
        rows.setdefault(salvaged_case.case, []).append(salvaged_case)
    width = max(map(len, rows))
    lines = [f"{'case':{width}}  {'stores':>6}  {'intact':>7}  {'salvage':>7}  {'broker':>7}"]
    for case, several in rows.items():
        refused = sum(salvaged_case.broker is None for salvaged_case in several)
        broker = sum(salvaged_case.broker or 0 for salvaged_case in several)
        note = f"  refuses {refused} of {len(several)}" if refused else ""
        intact, salvaged = (
            sum(salvaged_case.intact for salvaged_case in several),
            sum(salvaged_case.salvaged for salvaged_case in several),
        )
        lines.append(f"{case:{width}}  {len(several):6}  {intact:7}  {salvaged:7}  {broker:7}{note}")
    intact, salvaged = (
        sum(salvaged_case.intact for salvaged_case in kept),
        sum(salvaged_case.salvaged for salvaged_case in kept),
    )
    broker = sum(salvaged_case.broker or 0 for salvaged_case in kept)
    lines.append(f"{'all':{width}}  {len(kept):6}  {intact:7}  {salvaged:7}  {broker:7}")
    if intact:
        lines.append(f"salvage keeps {salvaged / intact:.4%} of the intact messages, the broker {broker / intact:.1%}")
    return "\n".join(lines)


def short_of(kept: list[Kept]) -> list[Kept]:
    """Stores with too few messages kept."""
    return [case for case in kept if case.salvaged < WANTED * case.intact]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--rounds", type=int, default=2, help="stores for each way of damage and base")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = [*golden_cases(Path(folder)), *seeded_cases(Path(folder), chosen.seed, chosen.rounds)]
    print(table(kept))
    for case in short_of(kept):
        print(f"short: {case}")


if __name__ == "__main__":
    main()
