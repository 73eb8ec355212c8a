"""Summary of a store directory: files, sizes, offsets, topics, groups, marks, and the holder of its lock."""

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from formats import checkpoint
from formats.config.files import ConsumerOffsets, LmqConsumerOffsets, SubscriptionGroups, Topics, split_key
from formats.config.tiered import TieredMetadata
from formats.config.topic_kinds import nature_of
from formats.errors import FormatError
from formats.marks import parse_abort
from formats.model.topics import TopicConfig
from formats.variants import epoch
from formats.variants.rocksdb import Form
from rmqtool.errors import CorruptFile, MissingRuntime, RmqError, UnreadableStore
from rmqtool.services.lookup.newest_message import find_newest
from rmqtool.store.config.files import ConfigFileInfo, list_configs, read_config
from rmqtool.store.config.release import version_of
from rmqtool.store.disk.directories import exists, files_below, read_small
from rmqtool.store.disk.lock import holder
from rmqtool.store.index.reader import BadIndex, geometry_of, open_index
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.rocksdb import HOW, has_library
from rmqtool.store.layout.tier_signs import FOLDER, METADATA, tiered_folder
from rmqtool.store.layout.tiered import TieredQueueInfo, tiered_queues
from rmqtool.store.layout.version import rocksdb_forms
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.queues.batch import AnyQueue, batch_queues_of, every_queue
from rmqtool.store.queues.compaction import compaction_queues_of
from rmqtool.store.queues.reader import queues_of
from rmqtool.store.queues.rocks import RocksQueue
from rmqtool.store.queues.rocks_open import built_only_to
from rmqtool.store.roles.table import RoleFact, roles_of
from rmqtool.store.tier.tier import Tier, local_ranges
from rmqtool.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files of one kind."""

    kind: str
    files: int
    bytes: int
    fileSize: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic that has queues or a config entry. What a live cluster does not report is None."""

    topic: str
    queues: int | None
    messages: int | None  # between the lowest and highest offsets of its local queues
    configured: bool
    nature: list[str] = field(default_factory=list)  # normal, retry, dlq or system, and kinds given by its attributes
    inTierAlone: int | None = 0  # messages only in tiered storage


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """The result of ``info``."""

    store: str
    version: str
    versionReason: str
    abort: bool
    abortPid: int | None
    lock: str  # absent | free | held
    lockPid: int | None
    minPhyOffset: int
    maxPhyOffset: int
    firstStoreTimestamp: int | None
    lastStoreTimestamp: int | None
    files: list[FileGroup]
    checkpoint: dict[str, int] | None
    topics: list[TopicInfo]
    groups: list[str]
    configs: list[dict[str, Any]]
    problems: list[str] = field(default_factory=list)
    identity: str | None = None  # CLUSTER#BROKER#ID of controller mode
    epochs: list[dict[str, int]] = field(default_factory=list)  # of masters, in controller mode
    tiered: list[TieredQueueInfo] = field(default_factory=list)  # queues of tiered storage
    roles: list[RoleFact] = field(default_factory=list)  # the role of the directory, and the evidence

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return asdict(self)


def store_info(layout: StoreLayout) -> StoreInfo:
    """Examine a store; what cannot be read is listed as a problem."""
    layout = layout.passing_over(queue_files=True)
    problems: list[str] = []
    log = CommitLog(layout)
    queues = _queues(layout, log.min_offset, problems)
    newest = find_newest(log, queues)
    first = log.first()
    configs, topics, groups = _configs(layout)
    problems += [f"config/{c.name}: {c.error}" for c in configs if c.error]
    identity, epochs = _replication(layout, problems)
    version, reason = version_of(layout, first.record.version if first else 1)
    messages: dict[str, list[int]] = {name: [] for name in topics}
    for queue in queues:
        messages.setdefault(queue.topic, []).append(queue.max_offset - queue.min_offset(log.min_offset))
    in_tier = _in_tier_alone(layout, queues, problems)
    for name in in_tier:
        messages.setdefault(name, [])
    pid = _holder(layout)
    abort = layout.small("abort")
    point = layout.checkpoint()
    for file in log.segments:
        if file.size != log.file_size:
            problems.append(f"{file.path}: {file.size} bytes long, not {log.file_size}")
    problems += [f"{path}: does not belong in a commit-log directory" for path in log.segments.foreign]
    files, tiered = _files(layout, log, problems), _tiered_queues(layout)
    problems += (layout.passed or {}).values()
    return StoreInfo(
        store=layout.root,
        version=version,
        versionReason=reason,
        abort=layout.aborted,
        abortPid=_abort_pid(abort, problems),
        lock="absent" if not exists(layout.path("lock")) else "free" if pid is None else "held",
        lockPid=pid or None,
        minPhyOffset=log.min_offset,
        maxPhyOffset=newest.end if newest is not None else max(log.min_offset, 0),
        firstStoreTimestamp=first.record.store_timestamp if first else None,
        lastStoreTimestamp=newest.record.store_timestamp if newest is not None else None,
        files=files,
        checkpoint=checkpoint_fields(point) if point is not None else None,
        topics=[
            TopicInfo(
                topic=name,
                queues=len(counts),
                messages=sum(counts),
                configured=name in topics,
                nature=nature_of(name, topics),
                inTierAlone=in_tier.get(name, 0),
            )
            for name, counts in sorted(messages.items())
        ],
        groups=sorted(groups),
        configs=[{"name": c.name, "bytes": c.size, "kind": c.kind, "readable": c.error is None} for c in configs],
        problems=problems,
        identity=identity,
        epochs=epochs,
        tiered=tiered,
        roles=roles_of(layout),
    )


def _holder(layout: StoreLayout) -> int | None:
    try:
        return holder(layout.root)
    except UnreadableStore as err:
        layout.pass_over(layout.path("lock"), err)
        return None


def _replication(layout: StoreLayout, problems: list[str]) -> tuple[str | None, list[dict[str, int]]]:
    """Identity and epochs of a store in controller mode."""
    identity, epochs = None, []
    try:
        if (data := read_small(layout.path("brokerIdentity"))) is not None:
            identity = "#".join(map(str, epoch.parse_identity(data)))
        if (data := read_small(layout.path("epochFileCheckpoint"))) is not None:
            epochs = [{"epoch": entry.epoch, "startOffset": entry.start_offset} for entry in epoch.parse(data)]
    except (FormatError, RmqError) as err:
        problems.append(f"controller mode: {err}")
    return identity, epochs


def _in_tier_alone(layout: StoreLayout, queues: list[AnyQueue], problems: list[str]) -> dict[str, int]:
    """Topic to the number of messages only in tiered storage."""
    counts: dict[str, int] = {}
    try:
        tier = Tier.of(layout)
        for (topic, _id), alone in tier.all_alone(local_ranges(layout, queues)).items() if tier else ():
            counts[topic] = counts.get(topic, 0) + len(alone)
    except (CorruptFile, UnreadableStore) as err:
        problems.append(f"tiered storage: {err}")
    except MissingRuntime:
        pass  # the note on these files says so
    return counts


def _tiered_queues(layout: StoreLayout) -> list[TieredQueueInfo]:
    try:
        metadata = read_config(layout, METADATA)
    except (CorruptFile, UnreadableStore):
        return []  # already listed as a problem
    return tiered_queues(metadata) if isinstance(metadata, TieredMetadata) else []


def _queues(layout: StoreLayout, min_physical_offset: int, problems: list[str]) -> list[AnyQueue]:
    try:
        queues = every_queue(layout)
        for queue in queues:  # damage of a database appears when it is read
            if isinstance(queue, RocksQueue):
                _ = queue.recovered, queue.min_offset(min_physical_offset)
        return queues
    except CorruptFile as err:
        problems.append(f"queues were not read: {err}")
    except MissingRuntime:
        pass  # the note on these files says so: nothing is wrong with the store
    return [*queues_of(layout), *batch_queues_of(layout)]


def _abort_pid(content: bytes | None, problems: list[str]) -> int | None:
    try:
        return parse_abort(content) if content is not None else None
    except FormatError as err:
        problems.append(f"abort: {err}")
        return None


def checkpoint_fields(data: bytes) -> dict[str, int]:
    """The checkpoint's values, under the broker's names."""
    point = checkpoint.parse(data)
    return {
        "physicMsgTimestamp": point.physic_msg_timestamp,
        "logicsMsgTimestamp": point.logics_msg_timestamp,
        "indexMsgTimestamp": point.index_msg_timestamp,
        "masterFlushedOffset": point.master_flushed_offset,
        "confirmPhyOffset": point.confirm_phy_offset,
        "logicsPhysicalOffset": point.logics_physical_offset,
    }


def _configs(layout: StoreLayout) -> tuple[list[ConfigFileInfo], dict[str, TopicConfig], set[str]]:
    """The config files, and the topics and groups in them. Each is parsed once: offsets may be millions."""
    files: list[ConfigFileInfo] = []
    topics: dict[str, TopicConfig] = {}
    groups: set[str] = set()
    for file in list_configs(layout):
        for table in file.tables:
            if isinstance(table, Topics):
                topics.update(table.topics)
            elif isinstance(table, SubscriptionGroups):
                groups.update(table.groups)
            elif isinstance(table, ConsumerOffsets) and not isinstance(table, LmqConsumerOffsets):
                groups.update(split_key(key)[1] for key in table.offsets)
        files.append(file._replace(tables=()))
    return files, topics, groups


def _files(layout: StoreLayout, log: CommitLog, problems: list[str]) -> list[FileGroup]:
    files = [
        FileGroup(kind="commitlog", files=len(log.segments), bytes=log.segments.bytes, fileSize=log.file_size),
    ]
    forms = rocksdb_forms(layout)
    for kind in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
        form = forms.pop(kind, None)
        count, size = files_below(layout.path(kind))
        if count or kind == "consumequeue":
            file_size = layout.queue_size() if kind == "consumequeue" and count and form is None else None
            note = _form_note(form) + _unbuilt(log) if form is not None else None
            files.append(FileGroup(kind=kind, files=count, bytes=size, fileSize=file_size, note=note))
    for place, form in forms.items():
        count, size = files_below(layout.path(place))
        files.append(FileGroup(kind=place, files=count, bytes=size, note=_form_note(form)))
    slots, entries = geometry_of(layout)
    problems += [
        f"{file.path}: {file.reason}" for file in open_index(layout, whole=False) if isinstance(file, BadIndex)
    ]
    count, size = files_below(layout.path("index"))
    files.append(FileGroup(kind="index", files=count, bytes=size, note=f"{slots} slots, {entries} entries a file"))
    tiered = tiered_folder(layout) or layout.path(FOLDER)
    others = {kind: layout.path(kind) for kind in ("config", "timerlog", "compaction", "tiered_index_file")}
    for kind, path in {**others, FOLDER: tiered}.items():
        count, size = files_below(path)
        if count:
            files.append(FileGroup(kind=kind, files=count, bytes=size, note=_note(layout, kind)))
    files += [
        FileGroup(kind=os.path.basename(ledger.folder), files=count, bytes=size, note=_dledger_note(ledger, problems))
        for ledger in DLedgerLog.of(layout)
        for count, size in [files_below(ledger.folder)]
    ]
    return files


def _note(layout: StoreLayout, kind: str) -> str | None:
    """A note on a part of the store, or an empty text."""
    if kind == "compaction":
        queues = compaction_queues_of(layout)
        return f"{counted(sum(queue.messages for queue in queues), 'message')} in {counted(len(queues), 'queue')}"
    return "index of tiered storage: not read" if kind == "tiered_index_file" else None


def _dledger_note(log: DLedgerLog, problems: list[str]) -> str:
    """A note on a DLedger log's entries, from its index and its small files."""
    text = "DLedger commit log"
    try:
        if (last := log.last()) is not None:
            text += f"; entries up to {last.index} of term {last.term}, committed up to {log.marks()[1]}"
        term, leader = log.term()
        if term >= 0:
            text += f"; term {term}" + (f", voted for {leader}" if leader else "")
        if (behind := log.find_uncommitted()) is not None:
            text += f"; {counted(behind.entries, 'message')} behind the committed index"
    except (FormatError, RmqError) as err:
        problems.append(f"{log.folder}: {err}")
    return text


def _unbuilt(log: CommitLog) -> str:
    """A note if queues in RocksDB lack messages of the log."""
    with suppress(CorruptFile, MissingRuntime):
        if (built := built_only_to(log)) is not None:
            return f"; has the log up to physical offset {built} only"
    return ""


def _form_note(form: Form) -> str:
    return f"RocksDB, since {form.since}: {form.holds}" + ("" if has_library() else "; not read: " + HOW)
