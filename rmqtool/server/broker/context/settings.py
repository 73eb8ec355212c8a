"""Settings of a broker, by the names in its properties file (common.BrokerConfig)."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rmqtool.errors import BadValue
from rmqtool.rules.releases import Release
from rmqtool.services.open_store.broker_state import setting
from rmqtool.store.layout.broker_conf import BrokerConf

_PERMISSIONS = range(8)
# settings that may change at run time, by the names of the file
_LIVE = {
    "autoCreateTopicEnable": "auto_create_topics",
    "defaultTopicQueueNums": "default_topic_queues",
    "longPollingEnable": "long_polling",
    "enablePropertyFilter": "property_filter",
    "rejectTransactionMessage": "reject_transactions",
    "brokerPermission": "permission",
    "shortPollingTimeMills": "short_polling",
    "enablePopBufferMerge": "pop_buffer_merge",
    "enableSingleTopicRegister": "single_topic_register",
    "enableSplitRegistration": "split_registration",
    "regionId": "region",
    "traceOn": "trace",
    "useServerSideResetOffset": "server_side_reset",
    "enableNotifyAfterPopOrderLockRelease": "notify_after_lock",
}

_LIVE_OF_5 = {"useServerSideResetOffset", "enableNotifyAfterPopOrderLockRelease"}


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """Settings of one broker. Times are ms.

    Attributes:
        address: HOST:PORT at which clients reach it.
        release: whose rules it follows.
        read_only: nothing is stored; only reading is allowed.
        short_polling: how long a pull is held if ``long_polling`` is off.
        server_side_reset: the broker itself resets offsets of groups (5.x); if not, their clients do.
        notify_after_lock: waiting pops in order are woken when messages of their queue become visible again because
            nobody acknowledged them in time (5.x); if not, at their next look.
        registration_timeout: how long it waits for a name server to answer a registration.
        drop_unused_stats: what was counted of a topic or a group is dropped when it is deleted.
        pop_buffer_merge, single_topic_register, split_registration: only shown: in a real broker they control buffering
            of acks and registration.
    """

    name: str
    cluster: str
    address: str
    release: Release
    read_only: bool = False
    broker_id: int = 0
    auto_create_topics: bool = True
    default_topic_queues: int = 8
    long_polling: bool = True
    short_polling: int = 1000
    pop_buffer_merge: bool = False
    single_topic_register: bool = False
    split_registration: bool = False
    property_filter: bool = False
    reject_transactions: bool = False
    max_message_size: int = 4 << 20
    permission: int = 6
    region: str = "DefaultRegion"
    trace: bool = True
    server_side_reset: bool = True
    notify_after_lock: bool = True
    registration_timeout: int = 24_000
    drop_unused_stats: bool = True

    @classmethod
    def of(
        cls, conf: BrokerConf, address: str, release: Release, *, name: str | None, cluster: str | None, read_only: bool
    ) -> "BrokerSettings":
        """The settings in the broker's file.

        Args:
            name, cluster: override those in the file.

        Raises:
            CorruptFile: a number is invalid.
        """
        return cls(
            name=name or conf.text("brokerName") or socket.gethostname() or "DEFAULT_BROKER",
            cluster=cluster or conf.text("brokerClusterName") or "DefaultCluster",
            address=address,
            release=release,
            read_only=read_only,
            broker_id=setting(conf, "brokerId", 0),
            auto_create_topics=conf.flag("autoCreateTopicEnable", True),
            default_topic_queues=setting(conf, "defaultTopicQueueNums", 8),
            long_polling=conf.flag("longPollingEnable", True),
            short_polling=setting(conf, "shortPollingTimeMills", 1000),
            pop_buffer_merge=conf.flag("enablePopBufferMerge", False),
            single_topic_register=conf.flag("enableSingleTopicRegister", False),
            split_registration=conf.flag("enableSplitRegistration", False),
            property_filter=conf.flag("enablePropertyFilter", False),
            reject_transactions=conf.flag("rejectTransactionMessage", False),
            max_message_size=setting(conf, "maxMessageSize", 4 << 20),
            permission=4 if read_only else setting(conf, "brokerPermission", 6),
            region=conf.text("regionId") or "DefaultRegion",
            trace=conf.flag("traceOn", True),
            server_side_reset=release.is_5 and conf.flag("useServerSideResetOffset", True),
            notify_after_lock=conf.flag("enableNotifyAfterPopOrderLockRelease", True),
            registration_timeout=setting(conf, "registerBrokerTimeoutMills", release.registration_timeout),
            drop_unused_stats=conf.flag("autoDeleteUnusedStats", release.drops_unused_stats),
        )

    @property
    def _live(self) -> dict[str, str]:
        absent = () if self.release.is_5 else _LIVE_OF_5
        return {name: attribute for name, attribute in _LIVE.items() if name not in absent}

    @property
    def changeable(self) -> dict[str, str]:
        """The current values of settings that :meth:`with_changes` can change."""
        values = {name: getattr(self, attribute) for name, attribute in self._live.items()}
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}

    def with_changes(self, values: Mapping[str, str]) -> "BrokerSettings":
        """A copy with changed values, by the names of the broker's file.

        Raises:
            BadValue: a value is invalid, or the setting cannot change while the store is served.
        """
        changes: dict[str, Any] = {}
        for name, text in values.items():
            attribute = self._live.get(name)
            if attribute is None:
                reason = "cannot be changed while the store is served; set it in the broker's file, and serve again"
                raise BadValue(f"{name} {reason}")
            before = getattr(self, attribute)
            if isinstance(before, bool):
                changes[attribute] = text.strip().lower() == "true"
            elif isinstance(before, int):
                changes[attribute] = _number(name, text.strip())
            else:
                changes[attribute] = text.strip()
        permission = changes.get("permission", self.permission)
        if permission not in _PERMISSIONS or (self.read_only and permission & 2):
            raise BadValue(f"brokerPermission={permission} is not for this broker")
        return replace(self, **changes)


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise BadValue(f"{name}={text} is not a number")
    return int(text)
