"""Every part of a store directory, what it holds, which commands read it, and what export and salvage make of it.

One list: ``check`` takes what is not in it for foreign, and the report of ``export`` and ``salvage`` uses it to say
what became of each part that a store has.
"""

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple


class Fate(StrEnum):
    """What a new store has of a part."""

    KEPT = "kept"
    REBUILT = "rebuilt"
    LEFT_OUT = "left out"


class Part(NamedTuple):
    """One part.

    Attributes:
        name: below the store's root; ``*`` stands for any name.
        commands: that read it, beside ``check``, ``info`` and ``du``.
        fate: in the store that ``export`` or ``salvage`` makes.
        into: what has it there, if that is not its own name; any one of them.
        words: how it is rebuilt, or why it is left out.
    """

    name: str
    holds: str
    commands: tuple[str, ...]
    fate: Fate
    into: tuple[str, ...] = ()
    words: str = ""


_LOG = ("commitlog dump", "query-key", "query-id", "query-offset", "trace", "dump-to-parquet", "sql")
_QUEUES = ("consumequeue dump", "query-offset", "query-time", "topic list", "group lag")
_NEW_QUEUES = ("consumequeue", "batchconsumequeue")
_MADE = "made from the messages"
_OF_THE_RUN = "of the run of a broker; a new store is stopped cleanly"
_OF_THE_GROUP = "of the group of replicas, which a new store is not in"
_BY_DATABASE = "as the file that a broker with its queues in files has"


def _queues(name: str, holds: str, consequence: str = _MADE) -> Part:
    return Part(name, holds, _QUEUES, Fate.REBUILT, _NEW_QUEUES, consequence)


PARTS = (
    Part("commitlog", "messages", _LOG, Fate.KEPT),
    Part("dledger-*", "messages as entries of a DLedger log, their index and marks", (*_LOG, "recover"), Fate.REBUILT,
         ("commitlog",), "the messages without the headers of entries; index and marks are of the group"),
    _queues("consumequeue", "queues, in files or in RocksDB"),
    _queues("consumequeue_rocksdb", "queues in RocksDB (useSeparateStorePathForRocksdbCQ, rocksdbCQDoubleWriteEnable)"),
    _queues("batchconsumequeue", "batch queues"),
    _queues("consumequeue_ext", "what queue entries have more (enableConsumeQueueExt)",
            "its settings are the broker's: entries have their hash of tags themselves, and lose nothing else"),
    Part("index", "keys", ("index dump", "query-key", "query-id"), Fate.REBUILT, (), _MADE),
    Part("checkpoint", "how far a broker has flushed", ("checkpoint", "recover"), Fate.REBUILT, (), "of the new files"),
    Part("abort", "that a broker runs, or did not stop cleanly", ("recover",), Fate.LEFT_OUT, (), _OF_THE_RUN),
    Part("abort.bak", "that a broker has run", (), Fate.LEFT_OUT, (), _OF_THE_RUN),
    Part("lock", "that a broker runs", (), Fate.REBUILT, (), "every writer makes it, and holds it while it writes"),
    Part("timerwheel", "timer messages by their time", ("delay list", "delay due"), Fate.REBUILT, (),
         "made from the messages of the timer's topic"),
    Part("timerwheel.*", "snapshots of the timer wheel (timerWheelSnapshotFlush)", ("delay list", "delay due"),
         Fate.REBUILT, ("timerwheel",), "made from the messages of the timer's topic"),
    Part("timerlog", "timer messages", ("delay list", "delay due"), Fate.REBUILT, (),
         "made from the messages of the timer's topic"),
    Part("compaction", "logs and queues of compacted topics", ("query-offset",), Fate.KEPT),
    Part("kvStore", "messages that POP consumers hold, in RocksDB", ("group lag", "retry list"), Fate.REBUILT,
         ("commitlog",), "their messages are given to the retry topics of their groups"),
    Part("rocksdbstore", "index, timer messages and open half messages, in RocksDB",
         ("query-key", "delay list", "transaction list"), Fate.REBUILT, ("index", "commitlog"),
         "made from the messages, in files"),
    Part("RocksDBMessageStore", "index, of development versions", (), Fate.REBUILT, ("index",), _MADE),
    Part("epochFileCheckpoint*", "epochs of masters", ("info",), Fate.LEFT_OUT, (), _OF_THE_GROUP),
    Part("brokerIdentity*", "the replica's name and number", ("info",), Fate.LEFT_OUT, (), _OF_THE_GROUP),
    Part("tieredstore", "segments of the tier, where they lie by default", _LOG, Fate.REBUILT, ("commitlog",),
         "messages that the tier alone has go into the log"),
    Part("tiered_index_file", "keys of the tier, not uploaded yet", ("check",), Fate.LEFT_OUT, (),
         "the index of the new store has the keys of all its messages"),
    Part("transaction", "of brokers before 4.0", (), Fate.LEFT_OUT, (), "no broker from 4.0 on reads it"),
    Part("timercheck", "of development versions", (), Fate.LEFT_OUT, (), "brokers have it below config"),
    Part("config/topics.json", "topics", ("config", "topic list"), Fate.KEPT),
    Part("config/subscriptionGroup.json", "consumer groups", ("config", "group list"), Fate.KEPT),
    Part("config/consumerOffset.json", "progress of consumers", ("config", "offsets", "group lag"), Fate.KEPT),
    Part("config/lmqConsumerOffset.json", "progress of consumers, with light queues", ("config", "offsets"), Fate.KEPT),
    Part("config/delayOffset.json", "how far delay levels are delivered", ("config", "delay list"), Fate.KEPT),
    Part("config/consumerFilter.json", "filters of consumers", ("config",), Fate.KEPT),
    Part("config/consumerOrderInfo.json", "what orderly POP consumers hold", ("config",), Fate.KEPT),
    Part("config/messageRequestMode.json", "how groups get their messages", ("config",), Fate.KEPT),
    Part("config/topicQueueMapping.json", "static topics", ("config",), Fate.KEPT),
    Part("config/tieredStoreMetadata.json", "segments of the tier", ("config", "info"), Fate.LEFT_OUT, (),
         "two brokers with one tier would delete each other's"),
    Part("config/timercheck", "how far the timer has come", ("delay list",), Fate.REBUILT, (), "of the new timer log"),
    Part("config/timermetrics", "numbers of timer messages", ("config",), Fate.KEPT),
    Part("config/transactionMetrics", "numbers of half messages", ("config",), Fate.KEPT),
    Part("config/topics", "topics, in RocksDB", ("config", "topic list"), Fate.REBUILT, ("config/topics.json",),
         _BY_DATABASE),
    Part("config/subscriptionGroups", "consumer groups, in RocksDB", ("config", "group list"), Fate.REBUILT,
         ("config/subscriptionGroup.json",), _BY_DATABASE),
    Part("config/consumerOffsets", "progress of consumers, in RocksDB", ("config", "offsets"), Fate.REBUILT,
         ("config/consumerOffset.json",), _BY_DATABASE),
    Part("config/metadata", "topics, groups and progress, in one RocksDB", ("config", "topic list"), Fate.REBUILT,
         ("config/topics.json",), _BY_DATABASE),
    Part("config/rdb", "topics, groups and progress, in one RocksDB (configManagerVersion=v2)", ("config",),
         Fate.REBUILT, ("config/topics.json",), _BY_DATABASE),
    Part("config/users", "accounts, in RocksDB", ("config",), Fate.KEPT),
    Part("config/acls", "access lists, in RocksDB", ("config",), Fate.KEPT),
)  # fmt: skip
"""The exact names come before the patterns that fit them too."""

BEFORE = (".bak", ".tmp")  # of a config file: the generation before, and one that is being written


class PartFate(NamedTuple):
    """What became of a part that a store had."""

    part: str
    fate: Fate
    words: str


def part_of(name: str) -> Part | None:
    """The part that a path below the root is, or lies in; None where a broker has nothing of that name.

    Args:
        name: ``/`` between its parts.
    """
    first, _slash, rest = name.partition("/")
    if first == "config" and rest:
        member = rest.partition("/")[0]
        for suffix in BEFORE:
            member = member.removesuffix(suffix)
        first = f"config/{member}"
    return next((part for part in PARTS if fnmatchcase(first, part.name)), None)


def fates_of(names: Iterable[str]) -> list[PartFate]:
    """What becomes of the parts that paths below a root are in, in the order of :data:`PARTS`."""
    there = {part.name for name in names if (part := part_of(name)) is not None}
    return [PartFate(part.name, part.fate, part.words) for part in PARTS if part.name in there]
