"""Commit-log record V1 and V2, and the blank that ends a file.

Source: org.apache.rocketmq.store.CommitLog, MessageExtEncoder (5.x), common.message.MessageDecoder;
store-formats 2.1, 2.5.
A record's layout depends on two bits of its own ``sys_flag`` (IPv6 hosts) and on its magic (width of the topic
length), so there are four fixed heads, and one tail per version.
"""

from construct import Bytes, Computed, Int8sb, Int16sb, Int32sb, Int64sb, Struct, this

from formats.layouts.codes import BORN_V6, MAGIC_V2, STORE_V6


def head(*, born_v6: bool, store_v6: bool) -> Struct:
    """Return the fixed part of a record, up to and including ``body_length`` (88, 100 or 112 bytes)."""
    return Struct(
        "total_size" / Int32sb * "bytes of the whole record, this field included",
        "magic" / Int32sb * "0xDAA320A7 (version 1) or 0xDAA320AB (version 2)",
        "body_crc" / Int32sb * "CRC-32 of the stored body, top bit cleared",
        "queue_id" / Int32sb * "queue of the topic",
        "flag" / Int32sb * "the application's own",
        "queue_offset" / Int64sb * "ordinal in the queue; 0: half or rolled back",
        "physical_offset" / Int64sb * "of this record's first byte in the log",
        "sys_flag" / Int32sb * "bits, see below",
        "born_timestamp" / Int64sb * "the producer's clock, ms",
        "born_address" / Bytes(16 if born_v6 else 4) * "the producer's address",
        "born_port" / Int32sb * "and port",
        "store_timestamp" / Int64sb * "the broker's clock, ms",
        "store_address" / Bytes(16 if store_v6 else 4) * "the broker's address",
        "store_port" / Int32sb * "and port",
        "reconsume_times" / Int32sb * "failed deliveries so far",
        "prepared_transaction_offset" / Int64sb * "of the half message, once committed",
        "body_length" / Int32sb * "bytes of the body",
    )


HEADS = {
    0: head(born_v6=False, store_v6=False),
    BORN_V6: head(born_v6=True, store_v6=False),
    STORE_V6: head(born_v6=False, store_v6=True),
    BORN_V6 | STORE_V6: head(born_v6=True, store_v6=True),
}


def record(flags: int, magic: int) -> Struct:
    """Return the layout of a whole record: the head for these sys_flag bits, then body, topic and properties.

    Negative body and properties lengths count as 0, as in the broker's own check; the topic length must not be
    negative.
    """
    topic_length = Int16sb if magic == MAGIC_V2 else Int8sb
    return Struct(
        *HEADS[flags & (BORN_V6 | STORE_V6)].subcons,
        "body" / Bytes(lambda ctx: max(ctx.body_length, 0)) * "as sent, perhaps compressed",
        "topic_length" / topic_length * "bytes of the topic",
        "topic" / Bytes(this.topic_length) * "UTF-8",
        "properties_length" / Int16sb * "bytes of the properties",
        "properties" / Bytes(lambda ctx: max(ctx.properties_length, 0)) * "name 0x01 value 0x02, repeated",
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
    "total_size" / Int32sb * "bytes left to the end of the file, counted from here",
    "magic" / Int32sb * "0xCBD43194; what follows may be stale",
)

# One message of a batch on the wire, and in the body of a 5.x inner batch (MessageDecoder.encodeMessage).
BATCH_ITEM_HEAD = Struct(
    "total_size" / Int32sb * "22 + body_length + properties_length",
    "magic" / Int32sb * "0",
    "body_crc" / Int32sb * "0",
    "flag" / Int32sb * "the application's own",
    "body_length" / Int32sb * "bytes of the body",
)
BATCH_ITEM = Struct(
    *BATCH_ITEM_HEAD.subcons,
    "body" / Bytes(lambda ctx: max(ctx.body_length, 0)) * "of this message",
    "properties_length" / Int16sb * "bytes of the properties",
    "properties" / Bytes(lambda ctx: max(ctx.properties_length, 0)) * "name 0x01 value 0x02, repeated",
)
