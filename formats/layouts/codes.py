"""Numbers that tell records apart; apart from the layouts so that they can be had without construct."""

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
MAGIC_V2 = 0xDAA320AB - (1 << 32)
MAGIC_BLANK = 0xCBD43194 - (1 << 32)

BORN_V6 = 0x10  # sys_flag: born_address has 16 bytes
STORE_V6 = 0x20  # sys_flag: store_address has 16 bytes
