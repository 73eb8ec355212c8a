"""Topics, and the version of a configuration table."""

from collections.abc import Mapping
from dataclasses import dataclass

from formats.fastjson.declare import Bean, Int, Long, member
from formats.versions import V5_3


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion(Bean):
    """Version of a table (``DataVersion``); brokers compare all fields. Our default timestamp is 0; Java's is now."""

    counter: Long = 0  # number of changes
    timestamp: Long = 0  # of the last change, ms since the epoch
    # epoch of the master; 0 without a controller, None in a body from a sender that does not know the field
    state_version: Long | None = member(default=0, since=V5_3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(Bean):
    """One topic (``TopicConfig``)."""

    topic_name: str | None = None
    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = 6  # 1 inherit, 2 write, 4 read, 8 priority
    topic_filter_type: str = "SINGLE_TAG"  # or MULTI_TAG
    topic_sys_flag: Int = 0  # 1 unit, 2 has unit subscription
    order: bool = False
    attributes: Mapping[str, str] = member(default=dict, since=V5_3)
