"""Operations on a damaged store. Each reads its complete result in the form that a command prints."""

import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from pprint import pformat
from random import Random
from typing import Any

import pyarrow as pa

from formats.explain.kinds import KINDS, explain, hexdump
from rmqtool import Store
from rmqtool.analytics.ranges.splits import plan as split_plan
from rmqtool.analytics.source.tables import TABLES, rows_of
from rmqtool.analytics.source.tables import NamedStore as Table
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.column_reader import ColumnReader
from rmqtool.analytics.table.row_reader import BatchLimits, RowReader
from rmqtool.analytics.table.schema import MESSAGE_SCHEMA
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.cli.read import query, run_files
from rmqtool.cli.read.run_check import CheckedStore, run_check
from rmqtool.cli.render.messages import message_writer, write_messages
from rmqtool.cli.render.text import dump_json
from rmqtool.cli.repair.salvage import write_ndjson
from rmqtool.contract import message_row
from rmqtool.errors import RmqError
from rmqtool.rules.releases import RELEASES
from rmqtool.services.delays.delays import Delays
from rmqtool.services.lookup.compacted import get_compacted, latest
from rmqtool.services.lookup.get_message import get_message
from rmqtool.services.lookup.info import store_info
from rmqtool.services.lookup.offsets import consumer_offsets
from rmqtool.services.lookup.query import Search, query_id, query_key
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.serving.run_loop import RunLoop
from rmqtool.services.timers.timers import Timers
from rmqtool.store.changes.undo import undo
from rmqtool.store.config.files import list_configs, raw_config, read_config
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.records import next_record
from rmqtool.store.queues.compaction import compaction_queues_of
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.recovery.command import plan, recover
from rmqtool.store.repair.rebuild import rebuild
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.salvage.to_file import salvage_to_file
from rmqtool.store.salvage.whole import export_store
from tests.fuzz.stores import Base
from tests.store.compiled import compiled_way
from tests.store.findings import check_store
from tests.store.helpers import content

_NOW = 1_795_392_200_000  # ms: when the stores that timers and levels wait in were written, about
Operation = Callable[[Random, Path, Base], Any]
_FORMS = ("table", "json", "ndjson", "csv")
_BODIES = ("auto", "utf8", "json", "hex", "base64", "none")


def _layout(rng: Random, store: Path, base: Base) -> StoreLayout:
    """The layout, with or without the broker's settings."""
    return StoreLayout(str(store), base.conf if rng.random() < 0.5 else None)


def _info(rng: Random, store: Path, base: Base) -> None:
    dump_json(store_info(_layout(rng, store, base)).to_dict())


def _check(rng: Random, store: Path, base: Base) -> None:
    run_check([CheckedStore(_layout(rng, store, base), "STORE")], "info", None, rng.choice(("table", "ndjson")))


def _plan(rng: Random, store: Path, base: Base) -> None:
    from rmqtool.cli.repair.show_recovery import write_report

    report = plan(_layout(rng, store, base), fix_delay_times=rng.random() < 0.3)
    write_report(report, rng.choice(("json", "csv")))


def _rebuild(rng: Random, store: Path, base: Base) -> None:
    parts = tuple(rng.sample(("consumequeue", "index", "checkpoint"), rng.randint(1, 3)))
    dump_json(rebuild(_layout(rng, store, base), parts, dry_run=True).to_dict())


def _configs_plan(rng: Random, store: Path, base: Base) -> None:
    dump_json(rebuild(_layout(rng, store, base), ("config",), dry_run=True).to_dict())


def _compaction_plan(rng: Random, store: Path, base: Base) -> None:
    dump_json(rebuild(_layout(rng, store, base), ("compaction",), dry_run=True).to_dict())


def _compacted(rng: Random, store: Path, base: Base) -> None:
    layout = _layout(rng, store, base)
    for queue in compaction_queues_of(layout):
        for offset in (0, rng.randint(-5, 120), queue.max_offset):
            write_messages("ndjson", get_compacted(queue, offset, rng.choice((1, 32))).messages, "auto")
        write_messages("ndjson", queue.latest().values(), "auto")


def _delayed(rng: Random, store: Path, base: Base) -> None:
    """Delay levels and the timer, with all waiting messages."""
    log = CommitLog(_layout(rng, store, base))
    now, notes = rng.choice((0, _NOW, _NOW + 86_400_000, 2**62)), list[str]()
    delays, timers = Delays(log, now, notes.append), Timers(log, now, notes.append)
    rows: list[Any] = [*delays.levels(), *delays.pending(due_only=rng.random() < 0.5)]
    if timers.present:
        rows += [timers.row(), *timers.pending(due_only=rng.random() < 0.5)]
    for row in rows:
        dump_json(asdict(row))


def _timer_plan(rng: Random, store: Path, base: Base) -> None:
    dump_json(rebuild(_layout(rng, store, base), ("timer",), dry_run=True).to_dict())


def _latest(rng: Random, store: Path, base: Base) -> None:
    layout = _layout(rng, store, base)
    for topic in ("Prices", "Profiles", rng.choice(base.asked)[0]):
        write_messages("ndjson", latest(layout, topic), "auto")


def _tables(rng: Random, store: Path, base: Base) -> None:
    for name in TABLES:
        if name != "messages":
            for batch in rows_of(name, Table(str(store), "one")):
                batch.validate()


def _serving(rng: Random, store: Path, base: Base) -> None:
    """Run the services on a copy, for a simulated day."""
    copy = _copied(store)
    now = [rng.choice((_NOW, _NOW + 3_600_000))]
    until = now[0] + 86_400_000

    def wait(millis: int) -> None:
        now[0] += millis * 1000

    with Store(copy, write=True, broker_conf=base.conf.values, mend=True, clock=lambda: now[0]) as opened:
        RunLoop(opened, lambda _text: None).run(wait, until=until)


def _dump(rng: Random, store: Path, base: Base) -> None:
    first = rng.choice((0, 0, rng.randrange(30_000)))
    chosen = Selection(physical=(first, None if rng.random() < 0.5 else first + rng.randrange(30_000)))
    log = CommitLog(_layout(rng, store, base))
    run_files.run_commitlog_dump(log, chosen, rng.choice((None, 20)), rng.choice(_BODIES), rng.choice(_FORMS))


def _hexdump(rng: Random, store: Path, base: Base) -> None:
    log = CommitLog(_layout(rng, store, base))
    run_files.run_hexdump(log, rng.choice((None, str(rng.randrange(40_000)), "100:5000")), 60)


def _queues(rng: Random, store: Path, base: Base) -> None:
    log = CommitLog(_layout(rng, store, base))
    run_files.run_consumequeue_dump(log, Selection(), 500, rng.choice(_FORMS), expired=rng.random() < 0.5)


def _index(rng: Random, store: Path, base: Base) -> None:
    layout = _layout(rng, store, base)
    run_files.run_index_dump(layout, Selection(), 500, rng.choice(_FORMS))
    run_files.run_index_headers(layout, Selection(), 500, rng.choice(_FORMS))


def _key(rng: Random, store: Path, base: Base) -> None:
    layout, notes = _layout(rng, store, base), list[str]()
    for scan in (False, rng.random() < 0.3):
        topic, _queue, key, unique = rng.choice(base.asked)
        to = message_writer("ndjson", "auto")
        for hits in query_key(layout, topic, key, Search(scan, rng.choice((None, 1))), notes.append):
            to.row(message_row(hits.record, hits.physical_offset))
        query_id(layout, unique, Search(scan), notes.append)


def _pull(rng: Random, store: Path, base: Base) -> None:
    log = CommitLog(_layout(rng, store, base))
    for _ in range(3):
        topic, queue_id, _key, _unique = rng.choice(base.asked)
        queue = open_queue(log.layout, topic, queue_id)
        offset = rng.choice((-1, 0, 1, 5, rng.randrange(40), 2**62))
        get_message(log, queue, offset, rng.choice((1, 32)), release=RELEASES[rng.choice(("4.9", "5.3"))])


def _time(rng: Random, store: Path, base: Base) -> None:
    topic, queue_id, _key, _unique = rng.choice(base.asked)
    engine = rng.choice(("4.9", "5.3"))
    time = rng.choice((0, 1795206885011, 1795208274833, 1795208297378, 2**45))
    upper = engine == "5.3" and rng.random() < 0.5
    query.query_time(str(store), topic, queue_id, str(time), upper=upper, engine=engine)


def _configs(rng: Random, store: Path, base: Base) -> None:
    layout = _layout(rng, store, base)
    for entry in list_configs(layout):
        if entry.kind is not None and entry.error is None:
            read_config(layout, entry.name)
            dump_json(raw_config(layout, entry.name))
    for rows in consumer_offsets(layout, bak=rng.random() < 0.3):
        dump_json([*rows.dicts()])


def _explain(rng: Random, store: Path, base: Base) -> None:
    files = [path for path in sorted(store.rglob("*")) if path.is_file()]
    for path in rng.sample(files, min(2, len(files))):
        kind = path.relative_to(store).parts[0]
        if kind in KINDS:
            data = path.read_bytes()[: 4096 if kind not in ("index", "checkpoint") else 1 << 20]
            for _ in islice(hexdump(data, explain(kind, data)), 200):
                pass


def _salvage(rng: Random, store: Path, base: Base) -> None:
    new = store.with_name("new")
    shutil.rmtree(new, ignore_errors=True)
    dump_json(Salvage(_layout(rng, store, base), str(new)).run().to_dict())


def _whole(rng: Random, store: Path, base: Base) -> None:
    new = store.with_name("new")
    shutil.rmtree(new, ignore_errors=True)
    dump_json(export_store(_layout(rng, store, base), str(new)).to_dict())


def _export(rng: Random, store: Path, base: Base) -> None:
    new = store.with_name("new.ndjson")
    for made in (new, new.with_name("new.ndjson.lost+found")):
        shutil.rmtree(made, ignore_errors=True)
        made.unlink(missing_ok=True)
    dump_json(salvage_to_file(_layout(rng, store, base), str(new), "ndjson", write_ndjson).to_dict())


def _mend(rng: Random, store: Path, base: Base) -> None:
    """Recover a copy, which must leave nothing to do, and undo it, which must restore everything."""
    copy = _copied(store)
    before = _content(copy)
    layout = StoreLayout(str(copy), base.conf)
    report = recover(layout)
    if report.applied:
        undo(str(copy))
        after = _content(copy)
        after.pop("lock", None)
        before.pop("lock", None)
        assert after == before, f"not as before: {sorted(set(before.items()) ^ set(after.items()))[:4]}"


def _copied(store: Path) -> Path:
    copy = store.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.rmtree(f"{copy}.rmqtool", ignore_errors=True)
    shutil.copytree(store, copy, symlinks=True, copy_function=_copy)
    return copy


def _copy(source: str, target: str) -> None:
    if Path(source).is_file() or Path(source).is_symlink():
        shutil.copy2(source, target, follow_symlinks=False)


def _either_way(rng: Random, store: Path, base: Base) -> None:
    """Compare compiled code with plain code, which small stores use."""
    layout = _layout(rng, store, base)
    notes = []
    for way in (nullcontext(), compiled_way()):
        with way:
            notes.append([_said(ask, layout) for ask in (_planned, _found, _rebuilt, _salvaged)])
    for plain, compiled in zip(*notes, strict=True):
        assert compiled == plain, "\n".join(unified_diff(plain, compiled, "plain", "compiled", lineterm="", n=1))


def _decode(rng: Random, store: Path, base: Base) -> None:
    """Decode as for a dump, record by record and with compiled code."""
    for split in split_plan(CommitLog(_layout(rng, store, base)), split_bytes=rng.choice((5_000, 1 << 20)))[0]:
        file = split.segment()
        view = file.map()
        at = split.start if split.exact else next_record(view, file.base, split.start, split.stop)
        told = []
        for kind in (RowReader, ColumnReader):
            tally = SplitTally()
            reader = kind(MESSAGE_SCHEMA, MessageChoice(), tally, BatchLimits(3_000))
            batches = list(reader.read(file, at, split.stop, last=split.last))
            told.append((tally, pa.Table.from_batches(batches, MESSAGE_SCHEMA), [batch.num_rows for batch in batches]))
        assert told[0] == told[1], f"{split}: {told[0][0]}, {told[1][0]}"


def _said(ask: Callable[[StoreLayout], Any], layout: StoreLayout) -> list[str]:
    """A result as lines, without names of index files, which depend on the clock."""
    try:
        answer = ask(layout)
    except RmqError as err:
        answer = f"{type(err).__name__}: {err}"
    return re.sub(r"index/\d{17}", "index/*", pformat(answer, width=120)).splitlines()


def _planned(layout: StoreLayout) -> Any:
    return plan(layout).to_dict()


def _found(layout: StoreLayout) -> Any:
    return sorted(check_store(layout), key=repr)  # those of some thousand records come queue by queue


def _rebuilt(layout: StoreLayout) -> Any:
    return rebuild(layout, ("consumequeue", "index", "checkpoint"), dry_run=True).to_dict()


def _salvaged(layout: StoreLayout) -> Any:
    new = Path(layout.root).with_name("new")
    shutil.rmtree(new, ignore_errors=True)
    return Salvage(layout, str(new)).run().to_dict(), content(new)


def _content(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file()}


# with how often; together they take some ten milliseconds for each choice of two
OPERATIONS: dict[str, tuple[Operation, int]] = {
    "info": (_info, 10),
    "check": (_check, 10),
    "recover plan": (_plan, 10),
    "rebuild plan": (_rebuild, 4),
    "config plan": (_configs_plan, 6),
    "compaction plan": (_compaction_plan, 4),
    "compacted messages": (_compacted, 4),
    "latest of topics": (_latest, 4),
    "delayed messages": (_delayed, 6),
    "timer plan": (_timer_plan, 3),
    "tables": (_tables, 2),
    "services": (_serving, 2),
    "commitlog dump": (_dump, 6),
    "hexdump": (_hexdump, 4),
    "consumequeue dump": (_queues, 6),
    "index dump": (_index, 6),
    "query key and id": (_key, 8),
    "pull": (_pull, 8),
    "query time": (_time, 6),
    "configs and offsets": (_configs, 10),
    "explain": (_explain, 5),
    "salvage": (_salvage, 2),
    "salvage to ndjson": (_export, 1),
    "export": (_whole, 1),
    "recover and undo": (_mend, 2),
    "either way": (_either_way, 3),
    "decode either way": (_decode, 3),
}
