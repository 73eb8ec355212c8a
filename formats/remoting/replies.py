"""Headers of answers to messages that asked for one (remoting.protocol.header.ReplyMessageRequestHeader)."""

from dataclasses import dataclass

from formats.fastjson.declare import Int, Long


@dataclass(kw_only=True)
class Reply:
    """A reply that is handed to the client which waits for it."""

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
