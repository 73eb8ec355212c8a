"""DLedger entry header, end-of-file blank and index unit (DLedger 0.3.x; store-formats 8.8)."""

from construct import Int32sb, Int64sb, Struct

ENTRY_HEAD = Struct(
    "magic" / Int32sb * "1",
    "size" / Int32sb * "48 + body_size",
    "index" / Int64sb * "number of the entry in the replicated log",
    "term" / Int64sb * "term of the leader that wrote it",
    "position" / Int64sb * "of this entry, over all files; the record says position + 48",
    "channel" / Int32sb * "0",
    "chain_crc" / Int32sb * "0",
    "body_crc" / Int32sb * "0",
    "body_size" / Int32sb * "bytes of the record after this header",
)
BLANK = Struct(
    "magic" / Int32sb * "-1",
    "bytes_left" / Int32sb * "bytes left to the end of the file; zeros follow",
)
INDEX_UNIT = Struct(
    "magic" / Int32sb * "that of the entry",
    "position" / Int64sb * "of the entry, over all files",
    "size" / Int32sb * "of the entry",
    "index" / Int64sb * "number of the entry",
    "term" / Int64sb * "term of the leader that wrote it",
)
