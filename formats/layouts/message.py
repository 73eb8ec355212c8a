"""Commit-log record V1 and V2, and the blank that ends a file.

Source: org.apache.rocketmq.store.CommitLog, MessageExtEncoder (5.x), common.message.MessageDecoder;
store-formats 2.1, 2.5.
A record's layout depends on two bits of its own ``sys_flag`` (IPv6 hosts) and on its magic (width of the topic length),
so there are four fixed heads and one tail for each version.
"""

from construct import Bytes, Computed, Int8sb, Int16sb, Int32sb, Int64sb, Struct, this

from formats.layouts.codes import BORN_V6, MAGIC_V2, STORE_V6


def head(*, born_v6: bool, store_v6: bool) -> Struct:
    """The fixed part of a record, up to and with ``body_length`` (88, 100 or 112 bytes)."""
    return Struct(
        "total_size" / Int32sb,  # of the whole record, itself included
        "magic" / Int32sb,
        "body_crc" / Int32sb,  # CRC-32 of the stored body with the top bit cleared; 0 for an empty body
        "queue_id" / Int32sb,
        "flag" / Int32sb,  # the application's own
        "queue_offset" / Int64sb,  # ordinal in the queue; 0 for prepared and rolled-back records
        "physical_offset" / Int64sb,  # of this record's first byte
        "sys_flag" / Int32sb,
        "born_timestamp" / Int64sb,  # producer's clock, ms
        "born_address" / Bytes(16 if born_v6 else 4),
        "born_port" / Int32sb,
        "store_timestamp" / Int64sb,  # broker's clock, ms
        "store_address" / Bytes(16 if store_v6 else 4),
        "store_port" / Int32sb,
        "reconsume_times" / Int32sb,
        "prepared_transaction_offset" / Int64sb,  # of the half message, in committed transaction messages
        "body_length" / Int32sb,
    )


HEADS = {
    0: head(born_v6=False, store_v6=False),
    BORN_V6: head(born_v6=True, store_v6=False),
    STORE_V6: head(born_v6=False, store_v6=True),
    BORN_V6 | STORE_V6: head(born_v6=True, store_v6=True),
}


def record(flags: int, magic: int) -> Struct:
    """A whole record: the head for these sys_flag bits, then body, topic and properties.

    Negative body and properties lengths count as 0, as they do in the broker's own check; a topic's must not be
    negative.
    """
    topic_length = Int16sb if magic == MAGIC_V2 else Int8sb
    return Struct(
        *HEADS[flags & (BORN_V6 | STORE_V6)].subcons,
        "body" / Bytes(lambda ctx: max(ctx.body_length, 0)),
        "topic_length" / topic_length,
        "topic" / Bytes(this.topic_length),
        "properties_length" / Int16sb,
        "properties" / Bytes(lambda ctx: max(ctx.properties_length, 0)),
        "computed_size"
        / Computed(
            lambda ctx: (
                (92 if magic == MAGIC_V2 else 91)
                + (12 if flags & BORN_V6 else 0)
                + (12 if flags & STORE_V6 else 0)
                + len(ctx.body)
                + len(ctx.topic)
                + len(ctx.properties)
            )
        ),
    )


BLANK = Struct(
    "total_size" / Int32sb,  # bytes left to the end of the file, counted from here (>= 8); what follows is unspecified
    "magic" / Int32sb,
)

# One message of a batch on the wire, and in the body of a 5.x inner batch (MessageDecoder.encodeMessage).
BATCH_ITEM_HEAD = Struct(
    "total_size" / Int32sb,  # 22 + body + properties
    "magic" / Int32sb,  # 0
    "body_crc" / Int32sb,  # 0
    "flag" / Int32sb,
    "body_length" / Int32sb,
)
