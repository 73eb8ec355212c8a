"""Make a store of another form. The source is only read; the new store appears complete, or not at all.

Source: store.MultiPathMappedFileQueue (tryCreateMappedFile), store.ha.autoswitch.AutoSwitchHAService (changeToMaster),
AutoSwitchHAConnection (findEpochEntryByOffset).
"""

import os
from collections.abc import Sequence

from formats.topics import HALVES
from formats.variants import epoch
from rmqtool.errors import Refused, UnreadableStore
from rmqtool.rules.releases import NEWEST
from rmqtool.store.convert.copying import check_places, copy_all, making, refuse_use
from rmqtool.store.convert.report import ConversionReport, SettingChange, StoreForm
from rmqtool.store.disk.durable import write_durably
from rmqtool.store.disk.files import make_file, remove_tree
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import EPOCHS, StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.layout.version import has_rocksdb_queues
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.log.dledger import DLedgerLog
from rmqtool.store.recovery.command import recover
from rmqtool.store.recovery.report import RecoveryReport
from rmqtool.store.roles.table import Role, heed, roles_of
from rmqtool.store.salvage.carve import Salvage
from rmqtool.store.salvage.report import SalvageReport
from rmqtool.store.salvage.selection import TopicSelection, missing_topics
from rmqtool.store.salvage.whole import export_store
from rmqtool.words import command_line, counted

_FIRST_EPOCH = 0  # a new controller gives its group's first master epoch 1, and a master refuses lower ones
_OF_GROUPS = (f"{EPOCHS}*", "brokerIdentity*")
_GROUP_SETTINGS = ("enableDLegerCommitLog", "dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId",
                   "storePathDLedgerCommitLog")  # fmt: skip


def convert(layout: StoreLayout, target: str, form: StoreForm, *, dry_run: bool = False) -> ConversionReport:
    """Make an ordinary store, a replica for a group with a controller, or a store for a broker of 5.5.

    Raises:
        Refused: the store is in use, or has that form; the target exists; or a role of the store forbids it.
        CorruptFile: the log must be rewritten, and a part of the store cannot be kept as it is.
        UnreadableStore: the store cannot be read.
    """
    warnings = _warnings(layout)
    roles = {fact.role for fact in roles_of(layout)}
    target, _folders = check_places(layout, target)
    if form is StoreForm.CONTROLLER and Role.CONTROLLER in roles:
        raise Refused(f"{layout.root}: it is a replica in controller mode")
    if form is StoreForm.NEWEST and roles & {Role.DLEDGER, Role.CONTROLLER}:
        raise Refused(f"{layout.root}: its brokers are upgraded with their group, one after the other, and read it")
    _refuse_stale_tail(layout)
    rewrites = Role.DLEDGER in roles or has_rocksdb_queues(layout)
    settings, changes = _differences(layout, form, roles)
    if not rewrites:
        return _copy_files(
            layout, target, form, ["commitlog"], settings, changes, warnings,
            left_out=_OF_GROUPS if form is StoreForm.STORE else (), dry_run=dry_run,
        )  # fmt: skip
    changes.append("messages get new physical offsets: offset message ids that clients have kept do not fit any more")
    if dry_run:
        log = CommitLog(layout)
        return _report(layout, target, form, settings, changes, warnings, same_offsets=False,
                       files=len(log.segments.files), size=log.segments.bytes)  # fmt: skip
    done = export_store(layout, target, also=lambda new: _add(new, form))
    return _report(layout, target, form, settings, changes, [*warnings, *done.warnings], same_offsets=False,
                   done=done, applied=True)  # fmt: skip


def spread_log(layout: StoreLayout, target: str, folders: Sequence[str], *, dry_run: bool = False) -> ConversionReport:
    """Copy a store to one whose log lies in several directories, or in one.

    Args:
        folders: directories of the new log; without any, it is ``commitlog`` in the new store.

    Raises:
        Refused, UnreadableStore: as :func:`convert`.
    """
    warnings = _warnings(layout)
    if layout.dledger_dirs():
        raise Refused(f"{layout.root}: its log is a DLedger log: {layout.command('convert', 'NEWSTORE')} rewrites it")
    if not folders and layout.commit_log_paths == [layout.path("commitlog")]:
        raise Refused(f"{layout.root}: its log is in one directory of the store")
    target, folders = check_places(layout, target, folders)
    # brokers take the directories in the order of their names
    folders = sorted(folders)
    form = StoreForm.FOLDERS if folders else StoreForm.ONE_FOLDER
    settings = [SettingChange("storePathCommitLog", ",".join(folders) or None)]
    if layout.conf.text("readOnlyCommitLogStorePaths"):
        settings.append(SettingChange("readOnlyCommitLogStorePaths", None))
    changes = [
        f"the log's files lie in {', '.join(folders)} by turns" if folders else "the log's files lie in one directory"
    ]
    return _copy_files(
        layout, target, form, folders or ["commitlog"], settings, changes, warnings, left_out=(), dry_run=dry_run
    )


def split_topics(
    layout: StoreLayout, target: str, patterns: Sequence[str], *, dry_run: bool = False
) -> ConversionReport:
    """Copy some topics to a store of their own, with the messages that wait for delivery to them.

    Args:
        patterns: names of topics, with ``*``, ``?`` and ``[...]``.

    Raises:
        BadValue: no topic matches a pattern.
        Refused, UnreadableStore: as :func:`convert`.
    """
    from formats.config.files import Topics
    from rmqtool.errors import BadValue
    from rmqtool.store.config.files import read_config
    from rmqtool.store.queues.batch import every_queue
    from rmqtool.store.queues.compaction import compaction_queues_of

    selection = TopicSelection(tuple(patterns))
    warnings = _warnings(layout)
    target, _folders = check_places(layout, target)
    queues = every_queue(layout)
    topics = sorted({queue.topic for queue in queues})
    if missing := missing_topics(selection, topics):
        configured = read_config(layout, "topics.json")
        unbuilt = missing_topics(selection, {*topics, *(configured.topics if isinstance(configured, Topics) else ())})
        if len(unbuilt) < len(missing) or (not topics and next(CommitLog(layout).walk(), None) is not None):
            names, way = ", ".join(missing), command_line("rebuild", layout.root, "consumequeue")
            raise Refused(f"--topic {names}: {layout.root} has no queues of it: {way} builds them from the log")
        raise BadValue(f"--topic {', '.join(missing)}: no such topic in {layout.root}")
    chosen = [topic for topic in topics if selection.takes_topic(topic)]
    if reserved := [topic for topic in chosen if topic in HALVES]:
        raise BadValue(f"--topic {', '.join(reserved)}: open transactions cannot be taken out")
    if compacted := sorted({queue.topic for queue in compaction_queues_of(layout)} & {*chosen}):
        raise Refused(f"{layout.root}: {', '.join(compacted)}: topics with compaction cannot be taken out")
    begin = CommitLog(layout).min_offset
    messages = sum(queue.max_offset - queue.min_offset(begin) for queue in queues if queue.topic in chosen)
    waiting = f"only {', '.join(chosen)}, and delayed messages that wait for {'it' if len(chosen) == 1 else 'them'}"
    changes = [
        waiting,
        "queue offsets and the progress of groups stay",
        "open transactions, and what POP consumers hold, are not taken",
    ]
    if dry_run:
        return _report(layout, target, StoreForm.TOPICS, [], changes, warnings, same_offsets=False, messages=messages)
    salvage = Salvage(layout, target, "convert", selection=selection)
    done = salvage.run(lambda _report, _new: refuse_use(layout))
    warnings += done.warnings
    if done.lostRangeCount:
        warnings.append(
            f"{counted(done.lostRangeCount, 'place')} of the log cannot be read: kept in "
            f"{os.path.join(target, 'lost+found')}, as they may be of these topics"
        )
    return _report(layout, target, StoreForm.TOPICS, [], changes, warnings, same_offsets=False, done=done, applied=True)


def _warnings(layout: StoreLayout) -> list[str]:
    refuse_use(layout)
    warnings = heed(layout, "convert")
    if not CommitLog(layout).segments.files:
        raise UnreadableStore(f"{layout.root}: no commit log in it")
    return warnings


def _differences(layout: StoreLayout, form: StoreForm, roles: set[Role]) -> tuple[list[SettingChange], list[str]]:
    """What the new broker's settings must say, and what is different in the new store."""
    settings, changes = [], []
    if len(layout.commit_log_paths) > 1:
        settings.append(SettingChange("storePathCommitLog", None))
        changes.append("the log's files lie in one directory")
    if Role.DLEDGER in roles:
        settings += [SettingChange(name, None) for name in _GROUP_SETTINGS if layout.conf.text(name)]
        changes.append("the log has no entries of DLedger, only messages: up to the end of this member's log")
    if Role.ROCKSDB in roles:
        settings.append(SettingChange("storeType", None))
        changes.append("queues, index and settings are in files")
    if form is StoreForm.CONTROLLER:
        settings += [SettingChange("enableControllerMode", "true"), SettingChange("controllerAddr", "HOST:PORT")]
        settings += [SettingChange(name, None) for name in ("brokerRole", "brokerId") if layout.conf.text(name)]
        changes.append(
            f"{EPOCHS} says that epoch {_FIRST_EPOCH} begins where the log does: its first master goes on after it, "
            "and an empty replica gets the log from its beginning"
        )
        changes.append("it has no brokerIdentity: the controller gives it a number at its first start")
    if form is StoreForm.STORE and Role.CONTROLLER in roles:
        settings += [SettingChange("enableControllerMode", None), SettingChange("controllerAddr", None)]
        changes.append("it has no epochs and no brokerIdentity: it belongs to no group of replicas")
    if form is StoreForm.NEWEST:
        changes += [
            f"queues, index and checkpoint are as a start of {NEWEST} makes them",
            f"a broker of {NEWEST} adds rocksdbstore and further files: keep the source until there is no way back",
            "users and access rules of plain_acl.yml are not read any more, unless migrateAuthFromV1Enabled=true",
        ]
    return settings, changes


def _copy_files(
    layout: StoreLayout, target: str, form: StoreForm, folders: Sequence[str], settings: list[SettingChange],
    changes: list[str], warnings: list[str], *, left_out: Sequence[str], dry_run: bool,
) -> ConversionReport:  # fmt: skip
    """Copy the files, with the log in other directories."""
    if tier_sign(layout) is not None:
        warnings.append(f"{target} has the same tier as {layout.root}: start a broker on one of them only")
    log = CommitLog(layout)
    paths = [folder if os.path.isabs(folder) else os.path.join(target, folder) for folder in folders]
    first = log.segments.files[0].base // log.file_size
    if dry_run:
        return _report(layout, target, form, settings, changes, warnings, same_offsets=True, folders=paths,
                       files=len(log.segments.files), size=log.segments.bytes)  # fmt: skip
    with making(layout, target, paths) as new:
        files, total, more = copy_all(layout, new, left_out, lambda number: (first + number) % len(paths))
        _add(StoreLayout(new.root, _conf_of(layout, new.folders)), form)
    return _report(layout, target, form, settings, changes, [*warnings, *more], same_offsets=True, folders=paths,
                   files=files, size=total, applied=True)  # fmt: skip


def _conf_of(layout: StoreLayout, folders: Sequence[str]) -> BrokerConf:
    """The settings with which the new store is completed."""
    kept = layout.conf.without(("storePathRootDir", "readOnlyCommitLogStorePaths"))
    return kept.with_value("storePathCommitLog", ",".join(folders))


def _add(new: StoreLayout, form: StoreForm) -> None:
    """Add what makes the new store one of its form.

    Raises:
        Refused: a broker of 5.5 would not load it.
    """
    if form is StoreForm.CONTROLLER:
        begin = max(CommitLog(new).min_offset, 0)
        data = epoch.build([epoch.Epoch(_FIRST_EPOCH, begin)])
        write_durably(new.path(EPOCHS), data, like=new.root)
    elif form is StoreForm.NEWEST:
        make_file(new.path("lock")).close()
        kept = new.path(".rmqtool-replaced")
        report = recover(new, release=NEWEST, backup=kept, guard=_refuse_cuts)
        if report.refusals:
            raise Refused(f"{new.root}: {report.refusals[0]}")
        remove_tree(kept)


def _refuse_stale_tail(layout: StoreLayout) -> None:
    """Refuse a log that has messages which its group has replaced."""
    at = next((at for log in DLedgerLog.of(layout) if (at := log.find_stale_tail()) is not None), None)
    if at is not None:
        raise Refused(
            f"{layout.root}: behind {at} its log has entries that its group has replaced: start it with its group "
            f"first, or convert another member ({layout.command('check')})"
        )


def _refuse_cuts(report: RecoveryReport) -> None:
    if report.destroys:
        raise Refused(f"{report.destroys[0]}: nothing is made; {command_line('salvage')} keeps every intact message")


def _report(
    layout: StoreLayout, target: str, form: StoreForm, settings: list[SettingChange], changes: list[str],
    warnings: list[str], *, same_offsets: bool, folders: Sequence[str] = (), files: int = 0, size: int = 0,
    messages: int | None = None, done: SalvageReport | None = None, applied: bool = False,
) -> ConversionReport:  # fmt: skip
    if done is not None:
        files = len(CommitLog(StoreLayout(target)).segments.files)
    return ConversionReport(
        source=layout.root,
        store=target,
        form=form.value,
        applied=applied,
        folders=list(folders) or [os.path.join(target, "commitlog")],
        files=files,
        bytes=done.bytes if done is not None else size,
        messages=done.messages if done is not None else messages,
        sameOffsets=same_offsets,
        settings=settings,
        changes=changes,
        warnings=list(dict.fromkeys(warnings)),
    )
