"""All kinds of values, by name."""

from rmqtool.admin.changes.access import Rules, Users
from rmqtool.admin.changes.change import Kind
from rmqtool.admin.changes.cleaning import ExpiredQueues, LogStarts, UnusedQueues
from rmqtool.admin.changes.controllers import ControllerSettings, Masters, ReplicaEntries
from rmqtool.admin.changes.modes import ColdThresholds, Modes
from rmqtool.admin.changes.name_servers import KeyValues, Routes, WritePermissions
from rmqtool.admin.changes.plain_access import Accounts, WhiteAddresses
from rmqtool.admin.changes.static_topics import StaticTopics
from rmqtool.admin.changes.tables import Groups, NameServerSettings, Offsets, Settings, Topics

KINDS: dict[str, type[Kind]] = {
    kind.name: kind
    for kind in (
        Topics, Groups, Offsets, Settings, KeyValues, Routes, WritePermissions, Users, Rules, Modes, ColdThresholds,
        NameServerSettings, ControllerSettings, Masters, ReplicaEntries, Accounts,
        WhiteAddresses, StaticTopics, LogStarts, ExpiredQueues, UnusedQueues,
    )
}  # fmt: skip
