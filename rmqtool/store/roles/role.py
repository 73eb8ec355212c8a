"""The role of a directory's broker, and special forms that change the meaning of its files.

The role follows from the broker's settings (``brokerRole``, ``brokerId``, ``enableDLegerCommitLog``,
``enableControllerMode``, ``messageStorePlugIn``, ``tieredStoreFilePath``, ``storePathCommitLog``) and from the contents
of the directory. Nothing in a classic slave's directory shows its role.

Source: store.config.MessageStoreConfig, broker.BrokerController, tieredstore.TieredMessageStore,
store.ha.autoswitch.AutoSwitchHAService, store.dledger.DLedgerCommitLog, store.MultiPathMappedFileQueue.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rmqtool.store.disk.remote import exists
from rmqtool.store.layout.log_signs import missing_log_folders
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign
from rmqtool.store.layout.version import has_rocksdb_queues, queue_database_place

EPOCHS, IDENTITY = "epochFileCheckpoint", "brokerIdentity"


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


NAMES = {
    Role.MASTER: "a master's directory",
    Role.SLAVE: "a slave's directory",
    Role.DLEDGER: "a member of a DLedger group",
    Role.CONTROLLER: "a replica in controller mode",
    Role.TIERED: "the local part of a tiered store",
    Role.MULTI_PATH: "a store whose commit log lies in several folders",
    Role.PART_MISSING: "a store without one of its commit-log folders",
    Role.ROCKSDB: "a store with its queues in RocksDB",
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
    reason = "nothing says otherwise, but a slave's directory looks the same (its settings tell: --broker-conf)"
    return RoleFact(role=Role.MASTER, reason=reason)


def _forms(layout: StoreLayout) -> Iterator[RoleFact]:
    if (reason := tier_sign(layout)) is not None:
        yield RoleFact(role=Role.TIERED, reason=reason)
    yield from _folders(layout)
    if has_rocksdb_queues(layout):
        place = queue_database_place(layout)
        by_settings = (layout.conf.text("storeType") or "").lower() == "defaultrocksdb"
        reason = "storeType=defaultRocksDB" if by_settings or place is None else f"{place} is a RocksDB database"
        yield RoleFact(role=Role.ROCKSDB, reason=reason)


def _folders(layout: StoreLayout) -> Iterator[RoleFact]:
    """The forms of a commit log in several directories."""
    folders = layout.commit_log_paths
    if len(folders) > 1:
        yield RoleFact(role=Role.MULTI_PATH, reason=f"storePathCommitLog={','.join(folders)}")
    if (reason := missing_log_folders(layout)) is not None:
        yield RoleFact(role=Role.PART_MISSING, reason=reason)
