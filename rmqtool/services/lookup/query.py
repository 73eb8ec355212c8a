"""Find messages: by key, id, queue offset or scan (DefaultMessageStore.queryMessage, MQAdminImpl; store-engine 5.4).

A broker answers by hash and clients compare keys; here topic and key are compared.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from formats.message.ids import is_id, offset_id, parse_offset_id
from formats.message.inner import is_inner_batch
from formats.message.properties import KEYS, UNIQ_KEY, parse, parse_raw, split_keys
from formats.message.read import Record
from formats.variants.message_store import PLACE
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.disk.directories import exists
from rmqtool.store.index.reader import MAX_TIME, BadIndex, IndexView, open_index, physical_offsets
from rmqtool.store.layout.paths import BATCH_QUEUES, QUEUE_KINDS, StoreLayout, is_path_name
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.log.commit_log import CommitLog, Damage, LocatedRecord

if TYPE_CHECKING:
    from rmqtool.store.queues.message_store import RocksIndex

_SECOND = 999  # ms by which times in the index may be too low
_COMPACTED = "compaction/compactionLog"
_KEYS, _UNIQ_KEY = KEYS.encode(), UNIQ_KEY.encode()
Warn = Callable[[str], None]


class Search(NamedTuple):
    """Conditions of a search."""

    scan: bool = False  # read the whole log if the index has no answer
    limit: int | None = None
    begin: int = 0  # store time, ms
    end: int = MAX_TIME
    by_second: bool = False  # compare times in whole seconds, as a broker does through the index
    newest: bool = False  # the limit keeps the newest messages in the index, as a broker does, not the oldest

    @property
    def index_begin(self) -> int:
        """The earliest time in the index of a message that was stored at ``begin``."""
        return self.begin if self.by_second else max(self.begin - _SECOND, 0)

    def has_time(self, record: Record) -> bool:
        """Whether a record was stored in the range."""
        return self.by_second or self.begin <= record.store_timestamp <= self.end


def _raw(text: str) -> bytes:
    """Bytes of an argument or a directory name, which need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def has_key(record: Record, topic: bytes, key: str) -> bool:
    """Whether a record of this topic has this key or unique id."""
    if record.topic != topic:
        return False
    if "\ufffd" in key:  # also stands for malformed bytes
        properties = parse(record.properties)
        return properties.get(UNIQ_KEY) == key or key in split_keys(properties.get(KEYS, ""))
    try:
        wanted = _raw(key)
    except UnicodeEncodeError:
        return False  # a lone surrogate matches no bytes
    stored = parse_raw(record.properties)
    return stored.get(_UNIQ_KEY) == wanted or (wanted != b"" and wanted in stored.get(_KEYS, b"").split(b" "))


class _Index:
    """Index files, and the index in RocksDB where there is one."""

    def __init__(self, log: CommitLog, warn: Warn) -> None:
        self._log, self._files = log, _files(log.layout, warn)
        self._rocks = self._in_rocks(warn)
        self._behind: int | None = None  # physical offset from which the log is not in RocksDB's index
        if self._rocks is not None:
            last = log.read(self._rocks.end, crc=False) if self._rocks.end is not None else None
            begin = last.physical_offset + last.record.total_size if last is not None else max(log.min_offset, 0)
            if log.read(begin, crc=False) is not None:
                self._behind = begin
                warn(
                    f"{PLACE}: the index has the log up to physical offset {begin} only: the rest is taken from the "
                    "log here, as a broker does it at its next start"
                )

    def _in_rocks(self, warn: Warn) -> "RocksIndex | None":
        if not exists(self._log.layout.path(PLACE)):
            return None
        from rmqtool.store.queues.message_store import rocks_index_of  # most stores do not need it

        try:
            return rocks_index_of(self._log.layout)
        except (CorruptFile, MissingRuntime, UnreadableStore) as err:
            warn(f"{err}: not searched")
            return None

    def offsets(self, topic: str, key: str, search: Search) -> set[int]:
        """Positions of candidates; hashes may collide."""
        candidates = set(
            physical_offsets(self._files, topic, key, limit=1 << 62, begin=search.index_begin, end=search.end)
        )
        if self._rocks is not None:
            with suppress(UnicodeEncodeError):  # a lone surrogate matches no bytes
                candidates |= self._rocks.offsets(_raw(topic), _raw(key), search.begin, search.end)
        if self._behind is not None:
            candidates.update(self._unindexed.get(_raw(topic), ()))
        return candidates

    @cached_property
    def _unindexed(self) -> dict[bytes, list[int]]:
        """Positions, by topic, of messages not in RocksDB's index; the log is read once for all topics."""
        offsets: dict[bytes, list[int]] = {}
        for item in self._log.walk(self._behind):
            if isinstance(item, LocatedRecord):
                offsets.setdefault(item.record.topic, []).append(item.physical_offset)
        return offsets


def _files(layout: StoreLayout, warn: Warn) -> list[IndexView]:
    files = []
    for file in open_index(layout):
        if isinstance(file, BadIndex):
            warn(f"{file.path}: {file.reason}: not searched")
        else:
            files.append(file)
    return files


class KeyReader:
    """Log and index kept open for many look-ups.

    Args:
        warn: called with reasons why answers may be incomplete.
    """

    def __init__(self, layout: StoreLayout, warn: Warn) -> None:
        self.log = CommitLog(layout)
        self._index = _Index(self.log, warn)
        self._batch_topics = _batch_topics(layout)

    def query(self, topic: str, key: str, search: Search = Search()) -> list[LocatedRecord]:  # noqa: B008 (immutable)
        """Messages of a topic with a key that are in the index, in log order."""
        wanted = _raw(topic)
        batches = _batches(self.log.layout, topic, search) if topic in self._batch_topics else set[int]()

        def matches(record: Record) -> bool:
            return has_key(record, wanted, key)

        return _by_index(self.log, self._index, batches, topic, key, search, matches)


def query_key(layout: StoreLayout, topic: str, key: str, search: Search, warn: Warn) -> list[LocatedRecord]:
    """Messages of a topic with a key, in log order.

    Args:
        warn: called with reasons why the answer may be incomplete.
    """
    reader = KeyReader(layout, warn)
    messages = reader.query(topic, key, search)
    wanted = _raw(topic)
    messages = _with_compacted(layout, [topic], messages, search, warn, lambda record: has_key(record, wanted, key))
    if messages or not search.scan:
        return messages
    return _scan(reader.log, lambda record: has_key(record, wanted, key), key, search, warn)


def _with_compacted(
    layout: StoreLayout,
    topics: Iterable[str],
    messages: list[LocatedRecord],
    search: Search,
    warn: Warn,
    matches: Callable[[Record], bool],
) -> list[LocatedRecord]:
    """The messages, preceded by expired ones that only the tier or compaction logs still have."""
    names = list(topics)
    messages = [*_in_tier(layout, names, search, matches), *messages][: search.limit]
    if not exists(layout.path("compaction")):
        return messages
    from rmqtool.services.lookup.compacted import only_compacted

    known = {(item.record.topic, item.record.queue_id, item.record.queue_offset) for item in messages}
    more = [
        item
        for topic in names
        for item in only_compacted(layout, topic)
        if search.begin <= item.record.store_timestamp <= search.end
        and (item.record.topic, item.record.queue_id, item.record.queue_offset) not in known
        and matches(item.record)
    ]
    if more:
        warn(f"{len(more)} of these only the compaction log still has: physicalOffset is their position in that log")
    return [*more, *messages][: search.limit]


def _in_tier(
    layout: StoreLayout, topics: Collection[str], search: Search, matches: Callable[[Record], bool]
) -> Iterator[LocatedRecord]:
    if tier_sign(layout) is None:
        return
    from rmqtool.services.lookup.tiered import only_tiered  # most stores have no tier

    tiered = only_tiered(layout, lambda topic, _queue_id: topic in topics)
    for item in tiered.walk(lambda topic, _queue_id: topic in topics) if tiered is not None else ():
        if isinstance(item, LocatedRecord) and search.has_time(item.record):
            yield from find_matching(item, matches)


def _by_index(
    log: CommitLog,
    index: _Index,
    batches: set[int],
    topic: str,
    key: str,
    search: Search,
    matches: Callable[[Record], bool],
) -> list[LocatedRecord]:
    # collisions are removed later, so the limit must not apply before
    offsets = index.offsets(topic, key, search)
    by_record: list[list[LocatedRecord]] = []
    count = 0
    for offset in sorted(offsets | batches if batches else offsets, reverse=search.newest):
        message = log.read(offset, crc=False)
        if message is None or not search.has_time(message.record):
            continue
        if messages := find_matching(message, matches):
            by_record.append(messages)
            count += len(messages)
        if search.limit is not None and count >= search.limit:
            break
    if search.newest:
        by_record.reverse()
    messages = [message for of_record in by_record for message in of_record]
    if search.limit is None:
        return messages
    return messages[max(len(messages) - search.limit, 0) :] if search.newest else messages[: search.limit]


def _batch_topics(layout: StoreLayout) -> frozenset[str]:
    """Topics with batch queues, cached: an index look-up costs less than listing a directory."""
    return frozenset(entry.name for entry in layout.entries(BATCH_QUEUES))


def _batches(layout: StoreLayout, topic: str, search: Search) -> set[int]:
    """Positions of the records of a topic with batch queues: the index has batches, not their messages."""
    if not is_path_name(topic) or not (queues := layout.queues_of(topic, BATCH_QUEUES)):
        return set()
    from rmqtool.store.queues.batch import BatchQueue

    offsets: set[int] = set()
    for queue_id, path in queues.items():
        for _base, units in BatchQueue(layout, topic, queue_id, path).runs():
            times = units["store_timestamp"]
            offsets.update(units["physical_offset"][(times >= search.begin) & (times <= search.end)].tolist())
    return offsets


def find_matching(located: LocatedRecord, matches: Callable[[Record], bool]) -> list[LocatedRecord]:
    """The matching messages of a record; all of a batch if the batch itself matches, by its id."""
    if not is_inner_batch(located.record.sys_flag):
        return [located] if matches(located.record) else []
    messages = list(located.messages())
    chosen = [message for message in messages if matches(message.record)]
    return chosen or (messages if matches(located.record) else [])


def _scan(
    log: CommitLog, matches: Callable[[Record], bool], hint: str, search: Search, warn: Warn
) -> list[LocatedRecord]:
    from rmqtool.progress import stage

    messages: list[LocatedRecord] = []
    needle, low = _raw(hint), max(log.min_offset, 0)
    with stage("reading the log", max(log.written_end - low, 0)) as reading:
        for item in log.walk():
            reading.done = item.physical_offset - low
            if isinstance(item, Damage):
                warn(f"{item.path}: byte {item.at}: {item.reason}: {item.length} bytes skipped")
            elif (
                needle in item.record.properties or is_inner_batch(item.record.sys_flag)
            ) and search.begin <= item.record.store_timestamp <= search.end:
                messages += find_matching(item, matches)
                if search.limit is not None and len(messages) >= search.limit:
                    break
    return messages[: search.limit]


def query_id(
    layout: StoreLayout, message_id: str, search: Search, warn: Warn, topics: tuple[str, ...] = ()
) -> list[LocatedRecord]:
    """Messages with this offset id or unique id, in log order: every copy with a unique id, and all messages of a batch
    with its offset id.

    Args:
        topics: names or globs of topics; all by default. A unique id is looked up in each that has a queue.
    """
    from rmqtool.services.lookup.selection import Selection  # not needed for look-ups by key

    chosen = Selection(topics=topics)
    log = CommitLog(layout)
    if is_id(message_id):
        position = parse_offset_id(message_id).physical_offset
        message = log.read(position, crc=False) if position >= 0 else None
        if message is not None:
            record = message.record
            if offset_id(record.store_address, record.store_port, position) == message_id.upper() and chosen.has(
                record, position
            ):
                return list(message.messages())[: search.limit]
    index, batch_topics = _Index(log, warn), _batch_topics(layout)
    messages: list[LocatedRecord] = []
    for name in filter(chosen.has_topic, _topics(layout)):
        inside = _batches(layout, name, search) if name in batch_topics else set[int]()
        messages += _by_index(log, index, inside, name, message_id, search, has_id(_raw(name), message_id))
    messages.sort(key=lambda message: message.physical_offset)
    compacted = (name for name, _id, _path in layout.queue_dirs(_COMPACTED))
    named = filter(chosen.has_topic, dict.fromkeys((*_topics(layout), *compacted)))
    messages = _with_compacted(layout, named, messages, search, warn, has_id(None, message_id))
    if not messages and search.scan:
        matches = has_id(None, message_id)
        messages = _scan(
            log, lambda record: matches(record) and chosen.has(record, record.physical_offset), message_id, search, warn
        )
        messages.sort(key=lambda message: message.physical_offset)
    return messages[: search.limit]


def _topics(layout: StoreLayout) -> dict[str, None]:
    """Topics that have a queue, in files or in RocksDB."""
    from rmqtool.store.layout.version import queue_database_place  # look-ups by key have no use for it

    if queue_database_place(layout) is not None:
        from rmqtool.store.queues.rocks_open import rocks_queues_of

        return dict.fromkeys(queue.topic for queue in rocks_queues_of(layout))
    return dict.fromkeys(name for kind in QUEUE_KINDS for name, _queue_id, _path in layout.queue_dirs(kind))


def has_id(topic: bytes | None, message_id: str) -> Callable[[Record], bool]:
    """A test for this unique id, and for this topic if given."""

    def has(record: Record) -> bool:
        of_topic = topic is None or record.topic == topic
        return of_topic and parse(record.properties).get(UNIQ_KEY) == message_id

    return has
