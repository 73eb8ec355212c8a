"""What is asked of a damaged store. Each operation reads all of its answer, in the form that a command prints."""

import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from formats.explain import KINDS, explain, hexdump
from rmqtool.cli import run_files, run_query
from rmqtool.cli.message_rows import message_writer
from rmqtool.cli.output import dump_json
from rmqtool.cli.run_check import run_check
from rmqtool.cli.run_salvage import write_ndjson
from rmqtool.services.get_message import get_message
from rmqtool.services.info import store_info
from rmqtool.services.offsets import consumer_offsets
from rmqtool.services.query import Search, query_id, query_key
from rmqtool.services.selection import Selection
from rmqtool.store.commit_log import CommitLog
from rmqtool.store.config_store import list_configs, raw_config, read_config
from rmqtool.store.consume_queue import open_queue
from rmqtool.store.layout import StoreLayout
from rmqtool.store.rebuild import rebuild
from rmqtool.store.recover import plan, recover
from rmqtool.store.salvage import Salvage
from rmqtool.store.salvage_export import export
from rmqtool.store.undo import undo
from tests.fuzz.stores import Base

Operation = Callable[[Random, Path, Base], Any]
_FORMS = ("table", "json", "ndjson", "csv")
_BODIES = ("auto", "utf8", "json", "hex", "base64", "none")


def _layout(rng: Random, store: Path, base: Base) -> StoreLayout:
    """With the broker's settings or without."""
    return StoreLayout(str(store), base.conf if rng.random() < 0.5 else None)


def _info(rng: Random, store: Path, base: Base) -> None:
    dump_json(store_info(_layout(rng, store, base)).to_dict())


def _check(rng: Random, store: Path, base: Base) -> None:
    run_check(_layout(rng, store, base), "STORE", "info", None, rng.choice(("table", "ndjson")))


def _plan(rng: Random, store: Path, base: Base) -> None:
    from rmqtool.cli.show_recovery import write_report

    report = plan(_layout(rng, store, base), fix_delay_times=rng.random() < 0.3)
    write_report(report, rng.choice(("json", "csv")))


def _rebuild(rng: Random, store: Path, base: Base) -> None:
    parts = tuple(rng.sample(("consumequeue", "index", "checkpoint"), rng.randint(1, 3)))
    dump_json(rebuild(_layout(rng, store, base), parts, dry_run=True).to_dict())


def _configs_plan(rng: Random, store: Path, base: Base) -> None:
    dump_json(rebuild(_layout(rng, store, base), ("config",), dry_run=True).to_dict())


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
    run_files.run_index_headers(layout, rng.choice(_FORMS))


def _key(rng: Random, store: Path, base: Base) -> None:
    layout, said = _layout(rng, store, base), list[str]()
    for scan in (False, rng.random() < 0.3):
        topic, _queue, key, unique = rng.choice(base.asked)
        to = message_writer("ndjson")
        for found in query_key(layout, topic, key, Search(scan, rng.choice((None, 1))), said.append):
            to.row(run_query.message_row(found.record, found.physical_offset))
        query_id(layout, unique, Search(scan), said.append)


def _pull(rng: Random, store: Path, base: Base) -> None:
    log = CommitLog(_layout(rng, store, base))
    for _ in range(3):
        topic, queue_id, _key, _unique = rng.choice(base.asked)
        queue = open_queue(log.layout, topic, queue_id)
        offset = rng.choice((-1, 0, 1, 5, rng.randrange(40), 2**62))
        get_message(log, queue, offset, rng.choice((1, 32)), engine=rng.choice(("4.9", "5.3")))


def _time(rng: Random, store: Path, base: Base) -> None:
    topic, queue_id, _key, _unique = rng.choice(base.asked)
    engine = rng.choice(("4.9", "5.3"))
    time = rng.choice((0, 1795206885011, 1795208274833, 1795208297378, 2**45))
    upper = engine == "5.3" and rng.random() < 0.5
    run_query.run_query_time(str(store), topic, queue_id, str(time), engine=engine, upper=upper)


def _configs(rng: Random, store: Path, base: Base) -> None:
    layout = _layout(rng, store, base)
    for entry in list_configs(layout):
        if entry.kind is not None and entry.error is None:
            read_config(layout, entry.name)
            dump_json(raw_config(layout, entry.name))
    for row in consumer_offsets(layout, bak=rng.random() < 0.3):
        dump_json(row.to_dict())


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


def _export(rng: Random, store: Path, base: Base) -> None:
    new = store.with_name("new.ndjson")
    for made in (new, new.with_name("new.ndjson.lost+found")):
        shutil.rmtree(made, ignore_errors=True)
        made.unlink(missing_ok=True)
    dump_json(export(_layout(rng, store, base), str(new), "ndjson", write_ndjson).to_dict())


def _mend(rng: Random, store: Path, base: Base) -> None:
    """Recover a copy, which must leave nothing to be done, and undo it, which must bring everything back."""
    copy = store.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.rmtree(f"{copy}.rmqtool", ignore_errors=True)
    shutil.copytree(store, copy, symlinks=True, copy_function=_copy)
    before = _content(copy)
    layout = StoreLayout(str(copy), base.conf)
    report = recover(layout)
    if report.applied:
        undo(str(copy))
        after = _content(copy)
        after.pop("lock", None)
        before.pop("lock", None)
        assert after == before, f"not as before: {sorted(set(before.items()) ^ set(after.items()))[:4]}"


def _copy(source: str, target: str) -> None:
    if Path(source).is_file() or Path(source).is_symlink():
        shutil.copy2(source, target, follow_symlinks=False)


def _content(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file()}


# with how often; together they take some ten milliseconds for each choice of two
OPERATIONS: dict[str, tuple[Operation, int]] = {
    "info": (_info, 10),
    "check": (_check, 10),
    "recover plan": (_plan, 10),
    "rebuild plan": (_rebuild, 4),
    "config plan": (_configs_plan, 6),
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
    "recover and undo": (_mend, 2),
}
