"""Predict what a broker would do at its next start with a store whose queues are in RocksDB. The store is only read.

Source: store.RocksDBMessageStore, store.queue.RocksDBConsumeQueueStore, store.CommitLog of 5.3.3. The log is checked as
in a store of files. The messages after the recorded end of the database are dispatched to it, under keys made of their
own queue offsets; if the log ends before the recorded end, the ends of queues are set back.
"""

from dataclasses import replace

from formats.variants.message_store import END, HALVES, INDEX
from formats.variants.rocksdb import starts_database
from rmqtool.errors import CorruptFile
from rmqtool.rules.releases import V5_4
from rmqtool.store.disk.directories import list_dir
from rmqtool.store.dispatch.light import is_light
from rmqtool.store.index.builder import IndexBuilder
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.rocksdb import Database, NoDatabase
from rmqtool.store.layout.version import QUEUES, queue_database_place
from rmqtool.store.queues.message_store import family_in_use, position
from rmqtool.store.queues.rocks import queue_database, queue_names
from rmqtool.store.recovery.dispatcher import Dispatcher
from rmqtool.store.recovery.inputs import StoreInputs
from rmqtool.store.recovery.loading import Loaded, Stage, load_log
from rmqtool.store.recovery.plan import Recovery, refused_recovery
from rmqtool.store.recovery.report import StoreState
from rmqtool.store.recovery.rocks.dispatcher import RocksDispatcher
from rmqtool.store.recovery.rocks.words import warnings_of
from rmqtool.store.recovery.verdict import LogVerdict, judge_log, refuse_start
from rmqtool.store.releases.rocks import RocksRules, RocksRulesV5_5


def _database(layout: StoreLayout) -> Database:
    """The database that the broker opens, or creates if there is none or only tables of one.

    Raises:
        MissingRuntime: the library to read it is not installed.
        CorruptFile: it cannot be opened.
    """
    path = layout.path(queue_database_place(layout) or QUEUES)
    if not any(entry.is_file() and starts_database(entry.name) for entry in list_dir(path)):
        return NoDatabase(path)
    return queue_database(layout) or Database(path)


def _by_rocks_rules(inputs: StoreInputs, database: Database) -> StoreInputs:
    """The same store with the rules for RocksDB.

    Raises:
        CorruptFile: the database cannot be read, and is needed to determine whether there are light queues.
    """
    light = inputs.layout.conf.flag("enableLmq", False)
    if inputs.layout.conf.text("enableLmq") is None:
        light = any(is_light(topic) for topic, _queue_id in queue_names(database))
    return replace(inputs, rules=_rules(inputs), light_queues=light)


def _rules(inputs: StoreInputs) -> RocksRules:
    """The rules of the release by which the store is read.

    Raises:
        CorruptFile: a database of 5.4 or later cannot be read.
    """
    layout = inputs.layout
    if inputs.rules.release.version < V5_4.version:
        return RocksRules(layout, exactly=True)
    used = ((family, family_in_use(layout, family)) for family in (INDEX, HALVES))
    ends = [position(database, family, END) or 0 for family, database in used if database is not None]
    return RocksRulesV5_5(layout, ends=ends)


def run_rocks_recovery(inputs: StoreInputs, stage: Stage) -> Recovery:
    """Simulate the broker's start up to the moment at which it would accept messages.

    Args:
        stage: returns a path for a new staging file, outside the store; the index is built there.

    Raises:
        MissingRuntime: the library to read the database is not installed.
        Refused: the store has a form that these rules do not cover.
        UnreadableStore: a file of the log cannot be read.
    """
    try:
        database = _database(inputs.layout)
        inputs = _by_rocks_rules(inputs, database)
    except CorruptFile as err:
        is_older = inputs.rules.release.version < V5_4.version
        rules = RocksRules(inputs.layout, exactly=True) if is_older else RocksRulesV5_5(inputs.layout, ends=())
        inputs = replace(inputs, rules=rules)
        return _refuse(inputs, load_log(inputs), [f"{err.path}: {err.reason}"])
    loaded = load_log(inputs)
    if loaded.refusals:
        return _refuse(inputs, loaded, [])
    index = IndexBuilder(inputs.layout.index_paths(), inputs.geometry, stage)
    try:
        dispatcher = RocksDispatcher(inputs.layout, database, index, indexed=inputs.indexed)
    except CorruptFile as err:
        return _refuse(inputs, loaded, [f"{err.path}: {err.reason}"])
    return _Run(inputs, loaded, dispatcher).run()


def _refuse(inputs: StoreInputs, loaded: Loaded, why: list[str]) -> Recovery:
    nothing = Dispatcher({}, IndexBuilder([], (1, 1), lambda: ""), lambda _topic, _queue_id: None)
    return refused_recovery(inputs, loaded, nothing, loaded.refusals + why)


class _Run:
    """Recovery of a store that can be loaded."""

    def __init__(self, inputs: StoreInputs, loaded: Loaded, dispatcher: RocksDispatcher) -> None:
        self._inputs, self._loaded, self._dispatcher = inputs, loaded, dispatcher

    def run(self) -> Recovery:
        inputs, dispatcher = self._inputs, self._dispatcher
        if inputs.aborted:
            dispatcher.index.prune(inputs.checkpoint.index_msg_timestamp)
        known, found_ends = dispatcher.built, dispatcher.ends
        if refusals := refuse_start(inputs, self._loaded, known):
            return _refuse(inputs, self._loaded, refusals)
        verdict = self._judge_log(known)
        after_load, after_start = (
            StoreState(
                minPhyOffset=verdict.min_offset,
                maxPhyOffset=verdict.end,
                queues=dispatcher.ranges(verdict.min_offset),
            )
            for _moment in range(2)
        )
        dispatcher.index.finish()
        return Recovery(
            inputs=inputs,
            verdict=verdict,
            dispatcher=dispatcher,
            found_ends=found_ends,
            refusals=[],
            warnings=[*inputs.warnings, *warnings_of(inputs, verdict, dispatcher)],
            after_load=after_load,
            after_start=after_start,
        )

    def _judge_log(self, known: int) -> LogVerdict:
        inputs, dispatcher = self._inputs, self._dispatcher
        if not self._loaded.files:
            dispatcher.destroy()
            last = inputs.checkpoint.confirm_phy_offset
            return LogVerdict(files=[], removed=self._loaded.removed, end=0, last_record=last)
        verdict = judge_log(inputs, self._loaded, known, dispatcher)
        # dispatch has advanced the recorded end in the meantime; a broker that reads it only then does not truncate
        if known >= verdict.end:
            dispatcher.truncate(verdict.min_offset, verdict.end)
        return verdict
