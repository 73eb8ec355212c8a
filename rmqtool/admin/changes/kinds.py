"""All kinds of values, by name."""

from rmqtool.admin.changes.access import Rules, Users
from rmqtool.admin.changes.change import ValueKind
from rmqtool.admin.changes.cleaning import ExpiredQueues, LogStarts, UnusedQueues
from rmqtool.admin.changes.controllers import ControllerSettings, Masters, ReplicaEntries
from rmqtool.admin.changes.modes import ColdThresholds, Modes
from rmqtool.admin.changes.name_servers import KeyValues, Routes, WritePermissions
from rmqtool.admin.changes.plain_access import Accounts, WhiteAddresses
from rmqtool.admin.changes.static_topics import StaticTopicParts
from rmqtool.admin.changes.tables import GroupSettings, NameServerSettings, Offsets, Settings, TopicSettings

KINDS: dict[str, type[ValueKind]] = {
    kind.name: kind
    for kind in (
        TopicSettings, GroupSettings, Offsets, Settings, KeyValues, Routes, WritePermissions, Users, Rules, Modes,
        ColdThresholds, NameServerSettings, ControllerSettings, Masters, ReplicaEntries, Accounts, WhiteAddresses,
        StaticTopicParts, LogStarts, ExpiredQueues, UnusedQueues,
    )
}  # fmt: skip
