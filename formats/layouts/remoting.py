"""Frame head and binary header of the remoting protocol (netty.NettyDecoder, protocol.RocketMQSerializable)."""

from construct import Int8sb, Int16sb, Int32sb, Struct

FRAME_HEAD = Struct(
    "length" / Int32sb * "bytes that follow: 4, the header and the body",
    "header_info" / Int32sb * "high 8 bits: header form (0 JSON, 1 ROCKETMQ); low 24: header length",
)
BINARY_HEAD = Struct(
    "code" / Int16sb * "request code, or response code",
    "language" / Int8sb * "of the sender",
    "version" / Int16sb * "of the sender: ordinal of its release",
    "opaque" / Int32sb * "number of the request, which its response repeats",
    "flag" / Int32sb * "1 response, 2 one-way",
)
"""The remark and the fields follow as texts, each preceded by its length."""
