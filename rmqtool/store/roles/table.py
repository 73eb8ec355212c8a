"""Table of what each writing command may do to a directory of each role; all of them consult it.

If a directory has several roles, the strictest rule counts, and all warnings are given.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from rmqtool.errors import Refused
from rmqtool.store.config.fit import misfit_warnings, refuse_misfits
from rmqtool.store.disk.directories import exists, is_dir, list_dir
from rmqtool.store.layout.backup_signs import find_home
from rmqtool.store.layout.paths import EPOCHS, StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.layout.version import has_rocksdb_queues, queue_database_place, second_queues
from rmqtool.words import command_line

IDENTITY = "brokerIdentity"


class Role(StrEnum):
    """A role or form; a directory has exactly one of the first four, and any of the others in addition."""

    MASTER = "master"
    SLAVE = "slave"
    DLEDGER = "dledger"
    CONTROLLER = "controller"
    TIERED = "tiered"
    MULTI_PATH = "multi-path"
    PART_MISSING = "part-missing"
    ROCKSDB = "rocksdb"
    DOUBLE = "double-written"
    BACKUP = "backup"


NAMES = {
    Role.MASTER: "a master's directory",
    Role.SLAVE: "a slave's directory",
    Role.DLEDGER: "a member of a DLedger group",
    Role.CONTROLLER: "a replica in controller mode",
    Role.TIERED: "the local part of a tiered store",
    Role.MULTI_PATH: "a store whose commit log lies in several folders",
    Role.PART_MISSING: "a store without one of its commit-log folders",
    Role.ROCKSDB: "a store with its queues in RocksDB",
    Role.DOUBLE: "a store with its queues in files and in RocksDB",
    Role.BACKUP: "the store of a backup",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFact:
    """A role and the reason for it."""

    role: Role
    reason: str

    @property
    def words(self) -> str:
        """Role and reason as a sentence."""
        return f"{NAMES[self.role]}: {self.reason}"


def roles_of(layout: StoreLayout) -> list[RoleFact]:
    """All roles of a directory, the broker's own first.

    Raises:
        UnreadableStore: a directory of the store cannot be listed.
    """
    return [_broker(layout), *_forms(layout)]


def says_role(layout: StoreLayout) -> bool:
    """Whether anything distinguishes the directory from a slave's, which looks like a master's."""
    return bool(layout.conf.options or layout.conf.values) or _broker(layout).role is not Role.MASTER


def _broker(layout: StoreLayout) -> RoleFact:
    conf = layout.conf
    if (directories := layout.dledger_dirs()) or conf.flag("enableDLegerCommitLog", default=False):
        reason = os.path.basename(directories[0]) + " is there" if directories else "enableDLegerCommitLog=true"
        return RoleFact(role=Role.DLEDGER, reason=reason)
    for name in (EPOCHS, EPOCHS + ".bak", IDENTITY):
        if exists(layout.path(name)):
            return RoleFact(role=Role.CONTROLLER, reason=f"{name} is there")
    if conf.flag("enableControllerMode", default=False):
        return RoleFact(role=Role.CONTROLLER, reason="enableControllerMode=true")
    broker_role, broker_id = conf.text("brokerRole"), conf.text("brokerId")
    if (broker_role or "").upper() == "SLAVE":
        return RoleFact(role=Role.SLAVE, reason=f"brokerRole={broker_role}")
    if broker_id is not None and broker_id.isdecimal() and int(broker_id) > 0:
        return RoleFact(role=Role.SLAVE, reason=f"brokerId={broker_id}")
    for name, text in (("brokerRole", broker_role), ("brokerId", broker_id)):
        if text is not None:
            return RoleFact(role=Role.MASTER, reason=f"{name}={text}")
    if conf.options or conf.values:
        return RoleFact(role=Role.MASTER, reason="its settings name no other role")
    reason = "no sign of another role, but a slave's directory looks the same (its settings would tell: --broker-conf)"
    return RoleFact(role=Role.MASTER, reason=reason)


def _forms(layout: StoreLayout) -> Iterator[RoleFact]:
    if (reason := tier_sign(layout)) is not None:
        yield RoleFact(role=Role.TIERED, reason=reason)
    yield from _folders(layout)
    if (home := find_home(layout.root)) is not None:
        yield RoleFact(role=Role.BACKUP, reason=f"{home} is a directory of backups")
    layout = layout.listed_once()
    if has_rocksdb_queues(layout):
        place = queue_database_place(layout)
        by_settings = (layout.conf.text("storeType") or "").lower() == "defaultrocksdb"
        reason = "storeType=defaultRocksDB" if by_settings or place is None else f"{place} is a RocksDB database"
        yield RoleFact(role=Role.ROCKSDB, reason=reason)
    elif (place := second_queues(layout)) is not None:
        yield RoleFact(role=Role.DOUBLE, reason=f"{place} is a RocksDB database")


def _folders(layout: StoreLayout) -> Iterator[RoleFact]:
    """The forms of a commit log in several directories."""
    folders = layout.commit_log_paths
    if len(folders) > 1:
        yield RoleFact(role=Role.MULTI_PATH, reason=f"storePathCommitLog={','.join(folders)}")
    if (reason := layout.missing_log_folders()) is not None:
        yield RoleFact(role=Role.PART_MISSING, reason=reason)


class Verdict(StrEnum):
    """The result for a command and a role."""

    ALLOWED = "allowed"
    WARNED = "warned"
    GUARDED = "guarded"  # allowed while the queues agree with the tier: local minimum <= tier's end <= local end
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Rule:
    """One cell of the table. ``words`` is the consequence, or the reason for the refusal; ``way_out`` is what to do
    instead, where ``{verb ...}`` stands for a command about the store.
    """

    verdict: Verdict
    words: str = ""
    way_out: str = ""

    @property
    def text(self) -> str:
        """Consequence and way out."""
        return f"{self.words}. {self.way_out}" if self.way_out else self.words


RECOVERING = ("recover", "dispatch", "clean")
QUEUES = "rebuild consumequeue"
REBUILDING = (QUEUES, "rebuild index", "rebuild checkpoint", "rebuild timer", "rebuild compaction", "rebuild files")
STORING = ("append", "mirror", "dlq requeue", "run", "serve")
OFFSETS = ("group reset", "group clone")
TAKING_OUT = ("salvage", "export", "convert")
REDACT = ("redact",)
COMMANDS = (
    *RECOVERING, "truncate", "undo", "undo --force", *REBUILDING, "rebuild config", "rebuild tiered-metadata",
    "apply", *STORING, *OFFSETS, *TAKING_OUT, *REDACT,
)  # fmt: skip

# these do not write files with the configured length, or only into a new store
_ANY_LENGTH = {*TAKING_OUT, "undo", "undo --force", "rebuild config", "rebuild tiered-metadata", "apply"}
_IN_PLACE = {"append", "serve", "recover", "truncate", "dlq requeue"}  # these write to files of the log

_COMMAND = re.compile(r"\{([^}]+)\}")
_ALLOWED = Rule(Verdict.ALLOWED)
_GUARDED = Rule(Verdict.GUARDED)


def _warn(words: str) -> Rule:
    return Rule(Verdict.WARNED, words)


def _refuse(words: str, way_out: str) -> Rule:
    return Rule(Verdict.REFUSED, words, way_out)


def _row(*cells: tuple[tuple[str, ...], Rule]) -> Mapping[str, Rule]:
    """The cells of a role, each for some commands; commands not mentioned are allowed."""
    return dict.fromkeys(COMMANDS, _ALLOWED) | {command: rule for commands, rule in cells for command in commands}


_FORCED = ("undo --force",)
_EVERYTHING = ("export", "convert")  # of a store, or nothing
_CONFIG = ("rebuild config", "apply")
_TRUNCATE = ("truncate",)
_OTHER_REPLICAS = _warn("the other replicas keep their copies: redact those stores, too")
_OLD_BYTES = "files have changed since, and the other brokers of its group rely on them as they are now"
_WITHOUT_FORCE = "undo without --force puts back what has not changed since"
_MAY_LACK = _warn("it only has what its master had sent before it stopped; the master may have more")
_FROM_MASTER = _warn("a replica copies topics, groups and offsets from its master again as soon as it follows it")

_SLAVES_GO_ON = (
    "continues from its own end, which is then in the middle of a record: everything it copies from there on is "
    "garbage, and no broker reports it"
)
_DLEDGER_WAY = "Start the brokers of its group: the others bring a member that is behind or damaged up to date"
_DLEDGER_LOG = "its log is a DLedger log, which rmqtool does not write"
_TIER_BROKER = "Start its broker, which reads the tier too"
_MOUNT = "Mount the directory, or create it if it is new"

TABLE: Mapping[Role, Mapping[str, Rule]] = {
    Role.MASTER: _row(
        (REDACT, _warn("slaves of this master keep their copies: redact those stores too")),
        (
            _TRUNCATE,
            _warn(
                f"a slave of this master that has more than what remains {_SLAVES_GO_ON}. Truncate its log at the same "
                "offset, or empty its directory, before either is started"
            ),
        ),
        (
            _FORCED,
            _warn(
                f"a slave of this master that has the later messages keeps them, and {_SLAVES_GO_ON}. Empty its "
                "directory before either is started"
            ),
        ),
    ),
    Role.SLAVE: _row(
        (REDACT, _OTHER_REPLICAS),
        (_TRUNCATE, _warn("its master sends what is cut here again as soon as it follows it")),
        (_FORCED, _refuse(_OLD_BYTES, _WITHOUT_FORCE)),
        (_CONFIG, _FROM_MASTER),
        (
            STORING,
            _refuse(
                f"a slave that has a record of its own {_SLAVES_GO_ON}",
                "Write to its master. To make this store the master, change its broker's settings (brokerRole, "
                "brokerId)",
            ),
        ),
        (OFFSETS, _FROM_MASTER),
        (TAKING_OUT, _MAY_LACK),
    ),
    Role.CONTROLLER: _row(
        (REDACT, _OTHER_REPLICAS),
        (
            _TRUNCATE,
            _warn(
                "what is cut here comes back when it follows its master; if it becomes the master itself, the other "
                "replicas lose it too. epochFileCheckpoint is not changed"
            ),
        ),
        (
            ("clean",),
            _refuse(
                "a replica whose log begins after the point up to which its epochs agree with its master's discards "
                "the log when it follows, and stores everything after that at wrong offsets",
                "Start its broker, which removes expired files and their epochs itself (fileReservedTime, deleteWhen)",
            ),
        ),
        (_FORCED, _refuse(_OLD_BYTES, _WITHOUT_FORCE)),
        (_CONFIG, _FROM_MASTER),
        (
            STORING,
            _refuse(
                "when a replica follows its master again, it silently truncates what the master does not have",
                f"Start the brokers of its group, and send to their master ({command_line('send')})",
            ),
        ),
        (OFFSETS, _FROM_MASTER),
        (TAKING_OUT, _MAY_LACK),
    ),
    Role.DLEDGER: _row(
        (
            REDACT,
            _warn(
                "the other members of its group keep their copies, and one whose last entries differ from the leader's "
                "takes the leader's: redact the directories of all members before any of them is started"
            ),
        ),
        ((*RECOVERING, *_TRUNCATE, *REBUILDING), _refuse(_DLEDGER_LOG, _DLEDGER_WAY)),
        (
            (QUEUES, "rebuild index"),
            _warn(
                "made up to the committed index that it knows; its broker puts what follows into queues at its start, "
                "and rmqtool does not write the log"
            ),
        ),
        (_FORCED, _refuse(_OLD_BYTES, _WITHOUT_FORCE)),
        (_CONFIG, _FROM_MASTER),
        (
            STORING,
            _refuse(_DLEDGER_LOG, f"Start the brokers of its group, and send to their leader ({command_line('send')})"),
        ),
        (
            OFFSETS,
            _refuse(
                f"{_DLEDGER_LOG}: its queues may lag behind the log, and its broker truncates or completes them at "
                f"start",
                f"Start the brokers of its group, and use {command_line('group', 'reset')} on the cluster",
            ),
        ),
        (
            TAKING_OUT,
            _warn(
                "it only has what its leader had sent before it stopped. Everything that was acknowledged is on the "
                "member whose last entry has the highest term, and among those the highest index"
            ),
        ),
    ),
    Role.TIERED: _row(
        ((*RECOVERING, *_TRUNCATE, QUEUES, "append", "mirror"), _GUARDED),
        (
            _FORCED,
            _refuse(
                "its broker has uploaded more since then: where queues no longer match the tier, the broker deletes "
                "it or does not use it",
                _WITHOUT_FORCE,
            ),
        ),
        (("dlq requeue",), _warn("dead letters that are only in the tier are not sent again")),
        (
            ("run", "serve"),
            _refuse(
                "rmqtool does not serve the tier: consumers, retries and POP would skip the messages in it as if they "
                "had expired",
                _TIER_BROKER,
            ),
        ),
    ),
    Role.MULTI_PATH: _row(),
    Role.PART_MISSING: _row(
        (
            (*RECOVERING, *_TRUNCATE, *REBUILDING, *_CONFIG, *_FORCED, *STORING, *OFFSETS, *REDACT, *_EVERYTHING),
            _refuse("messages in that directory would count as lost", _MOUNT),
        ),
        (("salvage",), _warn("messages in that directory are left out")),
    ),
    Role.ROCKSDB: _row(
        (
            ("recover", "dispatch", "clean", "truncate", QUEUES, "rebuild index", "rebuild checkpoint"),
            _refuse(
                "its queues are in a RocksDB database, which rmqtool does not modify",
                "{recover --dry-run} shows what a broker does at its next start, and {salvage NEWSTORE} creates a new "
                "store with queue files",
            ),
        ),
        (
            (*STORING, *OFFSETS),
            _refuse(
                "its queues are in a RocksDB database, which rmqtool does not modify",
                "{export NEWSTORE} or {salvage NEWSTORE} creates a new store with queue files",
            ),
        ),
    ),
    Role.DOUBLE: _row(
        (
            STORING,
            _refuse(
                "its broker, after a clean stop, leaves out of the database the first message that only the files have",
                f"Start its broker, and send to it ({command_line('send')}); {{export NEWSTORE}} creates a store with "
                "queue files alone",
            ),
        ),
    ),
    Role.BACKUP: _row(
        (
            (*RECOVERING, *_TRUNCATE, *REBUILDING, *_CONFIG, "rebuild tiered-metadata", *STORING, *OFFSETS),
            _refuse(
                "it would differ from its manifest, and other backups may share its files",
                f"{command_line('backup', 'restore')} makes a store of it",
            ),
        ),
        (
            REDACT,
            _refuse(
                "it would differ from its manifest",
                f"{command_line('redact')} takes the directory of backups, and overwrites messages in all of them",
            ),
        ),
    ),
}


def rule_of(role: Role, command: str) -> Rule:
    """A cell of the table."""
    return TABLE[role][command]


def heed(layout: StoreLayout, *commands: str) -> list[str]:
    """The table's warnings before commands change a directory, and misfits between it and its configuration; empty
    if the commands are simply allowed.

    Raises:
        Refused: one of the directory's roles forbids it, or the length of its files differs from the configured one.
        UnreadableStore: a directory of the store cannot be listed.
    """
    warnings = []
    for fact in roles_of(layout):
        for rule in dict.fromkeys(rule_of(fact.role, command) for command in commands):
            if rule.verdict is Verdict.REFUSED:
                raise Refused(f"{layout.root}: {_say(layout, fact, rule)}")
            if rule.verdict is Verdict.WARNED:
                warnings.append(_say(layout, fact, rule))
    if not _IN_PLACE.isdisjoint(commands):
        warnings += _warn_of_linked_log(layout)
    return warnings + (misfit_warnings(layout) if _ANY_LENGTH.issuperset(commands) else refuse_misfits(layout))


def warn_of_unsaid_role(layout: StoreLayout) -> str | None:
    """A warning for storing messages in a directory that may be a slave's; None if the role is known."""
    if says_role(layout):
        return None
    return (
        f"{layout.root}: it is unknown whether this is a master's directory. A slave's looks the same, and storing a "
        "message in it makes it useless as a replica: give its settings with --broker-conf"
    )


def _warn_of_linked_log(layout: StoreLayout) -> Iterator[str]:
    """The warning that another name of a log file sees the same changes, as in a copy made of hard links."""
    for folder in filter(is_dir, layout.commit_log_paths):
        for entry in list_dir(folder):
            with suppress(OSError):  # a broker has just deleted it
                if entry.is_file() and entry.links > 1:
                    yield (
                        f"{entry.path}: has another hard link, as in a copy made with cp -al, which is no backup: what "
                        "is written to the log changes there too"
                    )
                    return


def _say(layout: StoreLayout, fact: RoleFact, rule: Rule) -> str:
    text = _COMMAND.sub(lambda match: layout.command(*match[1].split()), rule.text)
    return f"{NAMES[fact.role]} ({fact.reason}): {text}"
