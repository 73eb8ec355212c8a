"""Headers of replies in request-reply messaging (remoting.protocol.header.ReplyMessageRequestHeader)."""

from dataclasses import dataclass

from formats.fastjson.declare import Int, Long


@dataclass(kw_only=True)
class Reply:
    """Reply that is pushed to the client waiting for it."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    born_host: str
    store_host: str
    store_timestamp: Long
