"""DLedger entry header, end-of-file blank and index unit (DLedger 0.3.x; store-formats 8.8)."""

from construct import Int32sb, Int64sb, Struct

ENTRY_HEAD = Struct(
    "magic" / Int32sb,  # 1
    "size" / Int32sb,  # 48 + body
    "index" / Int64sb,
    "term" / Int64sb,
    "position" / Int64sb,  # absolute, of this entry; the record inside says position + 48
    "channel" / Int32sb,
    "chain_crc" / Int32sb,
    "body_crc" / Int32sb,
    "body_size" / Int32sb,
)
BLANK = Struct("magic" / Int32sb, "bytes_left" / Int32sb)  # -1, then the rest of the file
INDEX_UNIT = Struct(
    "magic" / Int32sb,
    "position" / Int64sb,
    "size" / Int32sb,
    "index" / Int64sb,
    "term" / Int64sb,
)
