"""The text of the manual's page about formats around its tables."""

from typing import NamedTuple


class UnitText(NamedTuple):
    """One table and its text."""

    title: str
    layout: str  # name in formats.explain.page
    text: str = ""
    since: str = ""  # if it was added later than the file


class FileKind(NamedTuple):
    """One kind of file."""

    title: str
    files: str  # paths relative to the store
    size: str
    source: str  # Java classes
    since: str  # first version of RocketMQ that writes it
    text: str
    units: tuple[UnitText, ...]


BIG_ENDIAN = """
Numbers are big-endian and signed. Versions are those of RocketMQ that first wrote a field; `4.x` is every version that
this tool reads. `rmqtool commitlog hexdump STORE --offset A:B` shows the fields with their values.

Files that grow are named by the offset of their first byte, with 20 decimal digits, and have their full length from the
beginning; what is not written yet is zero. The next file may be there already, all zero.
"""

FILES = (
    FileKind(
        "Commit log",
        "`commitlog/00000000000000000000` and so on",
        "`mappedFileSizeCommitLog`, 1 GiB",
        "`store.CommitLog`, `common.message.MessageDecoder`, 5.x also `store.MessageExtEncoder`",
        "4.x",
        """
Records of all topics, one after the other, in the order in which they were stored. Where a record does not fit any
more, a blank ends the file. A record ends the log where its lengths do not add up, its magic is unknown, or its body
does not have its checksum.
""",
        (
            UnitText(
                "Record, version 1",
                "record 1",
                "`B`, `T` and `P` are the lengths of body, topic and properties; a negative `B` or `P` counts as 0.",
            ),
            UnitText(
                "Record, version 2",
                "record 2",
                """
Since 5.1.0, for topics of more than 127 characters (only `%RETRY%` topics may be so long). 4.9 takes it for damage. The
head and the body are those of version 1; after them:
""",
                "5.1.0",
            ),
            UnitText("End-of-file blank", "blank", "It has at least 8 bytes."),
            UnitText(
                "Item of a batch",
                "batch item",
                "Of a batch on the wire, and since 5.0 in the body of a record with the bit `inner-batch`.",
            ),
        ),
    ),
    FileKind(
        "Consume queue",
        "`consumequeue/TOPIC/QUEUE/00000000000000000000` and so on",
        "`mappedFileSizeConsumeQueue`, 6,000,000 bytes (300,000 entries)",
        "`store.ConsumeQueue`",
        "4.x",
        """
The entry of queue offset `q` lies `20 * q` bytes after the queue's beginning. The first entry without a size ends the
queue. Where a queue begins in the middle of its first file, fillers (size 2^31-1) stand in front.
""",
        (
            UnitText(
                "Entry",
                "queue entry",
                """
`tags_code` is Java's hash of the tag. In `SCHEDULE_TOPIC_XXXX` it is the time of delivery in milliseconds. From
-2^31-1 downwards it is an address in the queue's extension: the unit's byte there, minus 2^63.
""",
            ),
        ),
    ),
    FileKind(
        "Consume-queue extension",
        "`consumequeue_ext/TOPIC/QUEUE/00000000000000000000` and so on",
        "`mappedFileSizeConsumeQueueExt`, 48 MiB",
        "`store.ConsumeQueueExt`",
        "4.x",
        """
Only with `enableConsumeQueueExt`. Units of different length follow one another; a `unit_size` of -1 says that the rest
of the file is not used.
""",
        (UnitText("Unit", "extension unit", "`B` is the length of the bit map."),),
    ),
    FileKind(
        "Batch consume queue",
        "`batchconsumequeue/TOPIC/QUEUE/00000000000000000000` and so on",
        "`mapperFileSizeBatchConsumeQueue`, 13,800,000 bytes (300,000 entries)",
        "`store.queue.BatchConsumeQueue`, `SparseConsumeQueue`",
        "5.0",
        """
For topics with `queue.type=BatchCQ`: an entry for each batch, found by binary search over `base_queue_offset`.
""",
        (UnitText("Entry", "batch entry"),),
    ),
    FileKind(
        "Consume queues in RocksDB",
        "`consumequeue/CURRENT`, `MANIFEST-*`, `*.sst`, `*.log`: one RocksDB database for all queues",
        "as RocksDB makes them",
        "`store.queue.RocksDBConsumeQueueTable`, `RocksDBConsumeQueueOffsetTable`",
        "5.2",
        """
With `storeType=defaultRocksDB`. The column family `default` has a unit for each message, the column family `offset` the
first and the last message of each queue. Every key begins with the length of the topic and the topic, so that keys sort
by that length, the topic, the queue id and the queue offset. The broker writes without RocksDB's own log: what it had
in memory at a crash is built again from the commit log at the next start.
""",
        (
            UnitText("Beginning of every key", "rocks topic", "Behind it the topic in UTF-8."),
            UnitText("Key of a unit, after the topic", "rocks unit key"),
            UnitText("Unit", "rocks unit"),
            UnitText("Key in the family `offset`, after the topic", "rocks offset key"),
            UnitText("First and last message", "rocks offset", "A queue that never had a message has no `max`."),
            UnitText(
                "How far the queues were built",
                "rocks built",
                "The value in the family `offset` for the topic `CHECKPOINT_TOPIC`, `max`, queue 0.",
            ),
        ),
    ),
    FileKind(
        "What POP consumers hold, in RocksDB",
        "`kvStore/CURRENT`, `MANIFEST-*`, `*.sst`, `*.log`",
        "as RocksDB makes them",
        "`broker.pop.PopConsumerRocksdbStore`, `PopConsumerRecord`",
        "5.3.2",
        """
With `popConsumerKVServiceEnable=true`, in place of checkpoints and acks. The column family `popState` has a record for
each message that was handed out and not acked. A value is a JSON object: `popTime`, `groupId`, `topicId`, `queueId`,
`retryFlag` (0, or 1 and 2 of a retry topic with the older and the newer name), `invisibleTime`, `offset`,
`attemptTimes`, `attemptId`.
""",
        (
            UnitText("Beginning of a key", "pop key head", "Behind it the group, `@` and the topic."),
            UnitText("End of a key", "pop key tail"),
        ),
    ),
    FileKind(
        "Index, timers and half messages, in RocksDB",
        "`rocksdbstore/CURRENT`, `MANIFEST-*`, `*.sst`, `*.log`",
        "as RocksDB makes them",
        "`store.rocksdb.MessageRocksDBStorage`, `IndexRocksDBRecord`, `TimerRocksDBRecord`, `TransRocksDBRecord`",
        "5.4.0",
        """
Every broker makes this database. The column family `default` is the index (`indexRocksDBEnable`), `timer` has timer
messages (`timerRocksDBEnable`), `trans` the half messages that are open (`transRocksDBEnable` with
`transWriteOriginTransHalfEnable=false`). Writes reach the disk late: after a kill the database is often empty, and the
next start fills it from the log. How far a family has come, these keys say: `lastOffsetPy` and `lastStoreTimeStamp`,
and in `timer` `sys_topic_scan_offset_checkpoint` (the next queue offset of `rmq_sys_wheel_timer`) and
`timeline_checkpoint` (what is due before this time has been delivered).
""",
        (
            UnitText("Beginning of a key of the timeline", "timeline key head"),
            UnitText("A timer message", "timeline value"),
            UnitText("Beginning of a key of a half message", "half key head"),
            UnitText("A half message", "half value"),
            UnitText(
                "Beginning of a key of the index",
                "key hour",
                "In place of `@K@key`: `@T@tags`, or `@U@` alone for the unique key.",
            ),
            UnitText("End of a key of the index", "key tail", "The value is the store time, as below."),
            UnitText("How far it has come", "position"),
        ),
    ),
    FileKind(
        "Configuration in RocksDB, v2",
        "`config/rdb/CURRENT`, `MANIFEST-*`, `*.sst`, `*.log`",
        "as RocksDB makes them",
        "`broker.config.v2.ConfigHelper`, `ConsumerOffsetManagerV2`, `TopicConfigManagerV2`",
        "5.3.2",
        """
With `configManagerVersion=v2`: one database for topics, groups and consumer progress. A topic or group has its name in
the key, and in the value a byte 1 and the JSON object that a JSON file would have. Consumer progress has in the key the
group with its length, a byte 1, the topic with its length, and the queue.
""",
        (
            UnitText("Beginning of every key", "config head"),
            UnitText("A name", "config name"),
            UnitText("End of the key of a consumer offset", "config queue"),
            UnitText("A consumer offset", "config offset"),
            UnitText("Data version", "config version", "The value of the record whose key ends in `data_version`."),
        ),
    ),
    FileKind(
        "Index",
        "`index/yyyyMMddHHmmssSSS` (time of creation, the broker's own zone)",
        "40 + 4 * slots + 20 * entries; 5,000,000 slots and 20,000,000 entries make 420,000,040 bytes",
        "`store.index.IndexFile`, `IndexHeader`",
        "4.x",
        """
A header, then hash slots, then entries. A key `topic#key` belongs to the slot `key_hash % slots`; its entries hang in a
chain from the newest to the oldest. Neither the number of slots nor that of entries is stored: they are the broker's
`maxHashSlotNum` and `maxIndexNum`. Hashes collide, so a look-up compares the message itself.
""",
        (
            UnitText("Header", "index header"),
            UnitText("Slot", "index slot"),
            UnitText("Entry", "index entry"),
        ),
    ),
    FileKind(
        "Checkpoint",
        "`checkpoint`",
        "4096 bytes",
        "`store.StoreCheckpoint`",
        "4.x",
        """
Up to where messages, queue entries and index are flushed, as store timestamps. A file that is shorter reads as if
zeros followed.
""",
        (UnitText("Checkpoint", "checkpoint"),),
    ),
    FileKind(
        "Timer wheel",
        "`timerwheel`",
        "604,800 * 2 * 32 = 38,707,200 bytes",
        "`store.timer.TimerWheel`, `Slot`",
        "5.0",
        """
A ring of slots of 32 bytes, one for each `timerPrecisionMs` (a second) of two weeks. A slot counts only where `time` is
the time that is looked for.
""",
        (UnitText("Slot", "timer slot"),),
    ),
    FileKind(
        "Timer log",
        "`timerlog/00000000000000000000` and so on",
        "`mappedFileSizeTimerLog`, 100 MiB",
        "`store.timer.TimerLog`",
        "5.0",
        """
Units of 52 bytes; those of one slot are chained backwards. A blank of 16 bytes ends a file; its magic lies where units
have theirs.
""",
        (UnitText("Unit", "timer unit"), UnitText("End-of-file blank", "timer blank")),
    ),
    FileKind(
        "Timer checkpoint",
        "`config/timercheck` (binary, though it lies below `config/`)",
        "4096 bytes; zeros follow the fields",
        "`store.timer.TimerCheckpoint`",
        "5.0",
        "How far the timer service has come.",
        (UnitText("Checkpoint", "timer checkpoint"),),
    ),
    FileKind(
        "Compaction log and queue",
        "`compaction/compactionLog/TOPIC/QUEUE/...` and `compaction/compactionCq/TOPIC/QUEUE/...`, with the same names",
        "104,857,460 and 10,485,746 bytes",
        "`store.kv.CompactionLog`, `CompactionStore`, `CompactionPositionMgr`",
        "5.1",
        """
For topics with `cleanup.policy=COMPACTION`. The log holds records as the commit log does, but `physical_offset` says
where a record lies in this log. The queue holds entries of the batch consume queue, one for each record, with
`batch_size` 1. A file may end in zeros instead of a blank. Consumers of such a topic are answered from here alone: the
newest message of each key stays, however long ago it has expired in the commit log. The length of log files is a
multiple of that of the queue's files: `compactionMappedFileSize` is rounded down where it is less than half a queue
file over a multiple, else to the next one, also where it is a multiple; at least five.

`compaction/position-checkpoint` is JSON: up to which queue offset each queue (`TOPIC_QUEUE`) has been compacted.
""",
        (),
    ),
    FileKind(
        "DLedger log",
        "`dledger-ID/data/00000000000000000000` and so on",
        "`mappedFileSizeCommitLog`, 1 GiB",
        "`io.openmessaging.storage.dledger` 0.3, `store.dledger.DLedgerCommitLog`",
        "4.5",
        """
In place of the commit log with `enableDLegerCommitLog`: each entry wraps one record, whose `physical_offset` is
`position + 48`.
""",
        (UnitText("Entry header", "dledger entry"), UnitText("End-of-file blank", "dledger blank")),
    ),
    FileKind(
        "DLedger index",
        "`dledger-ID/index/00000000000000000000` and so on",
        "167,772,160 bytes",
        "`io.openmessaging.storage.dledger` 0.3",
        "4.5",
        """
The unit of entry `n` lies at byte `32 * n`. Beside it lie `checkpoint` (lines `endIndex=`, `committedIndex=`) and
`currterm` (`currTerm=`, `voteLeader=`), both text.
""",
        (UnitText("Unit", "dledger index"),),
    ),
    FileKind(
        "Index segment of tiered storage",
        "`<broker>/rmq_sys_INDEX/0/INDEX/...` below the tier's directory; `tiered_index_file/...` before the upload",
        "28 + 8 for each hash slot + 28 for each item; local files: 32 for each possible item",
        "`tieredstore.index.IndexStoreFile`, `tieredstore.index.IndexItem`",
        "5.2",
        """
A segment is the header, the hash slots and the items, those of each slot together. Keys are the unique id and each word
of `KEYS`. A local file has the number of the newest item in each slot, 4 bytes and 4 unused ones, and chains the items
of a slot; item 0 is never used.
""",
        (
            UnitText("Header", "tiered index head"),
            UnitText("Slot", "tiered index slot"),
            UnitText("Item", "tiered index item"),
            UnitText("Item of a local file", "tiered local index item"),
        ),
    ),
    FileKind(
        "Remoting frame",
        "no file: what clients, brokers and name servers send each other over TCP",
        "at most 16,777,216 bytes after the length",
        "`remoting.netty.NettyDecoder`, `remoting.protocol.RemotingCommand`, `RocketMQSerializable`",
        "4.x",
        """
A frame is its head, the header and the body. The header is JSON (`code`, `language`, `version`, `opaque`, `flag`,
`remark`, `extFields`) or binary. The binary one goes on with the remark and the fields: an int32 length and the text of
the remark, an int32 length of all fields, and of each its key after an int16 and its value after an int32 length.
""",
        (UnitText("Head", "frame head"), UnitText("Binary header", "remoting header")),
    ),
)

PLAIN_FILES = """
## Small text files

| file | since | content |
| --- | --- | --- |
| `abort` | 4.x | is there while a broker runs: after a clean stop it is gone. Empty; since 5.0 the process id |
| `abort.bak` | 5.x | means nothing |
| `lock` | 4.x | the word `lock`; a broker holds a lock on this file while it runs |
| `epochFileCheckpoint` | 5.x | number of lines, their CRC, then a line `EPOCH-OFFSET` for each epoch of the master |
| `brokerIdentity` | 5.x | `CLUSTER#BROKER#ID` |

`epochFileCheckpoint` has the CRC-32 with the top bit cleared of its lines, line ends included; 0 is not checked. Each
line is an epoch and the physical offset of its first message; both grow.

## RocksDB

These directories of 5.x are databases of RocksDB. Those of queues, topics, groups and consumer progress are read, the
others are recognised and named.
"""

CONFIG = """
JSON as fastjson writes it, with the generation before in `.bak`. Members that are not known here are kept. What a file
lacks has the default of the Java class. Of the versions only 4.9 and 5.3 are distinguished here.
"""
