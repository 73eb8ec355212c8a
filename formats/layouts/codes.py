"""Magic numbers and flags that distinguish records; a separate module so that it does not import construct."""

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
MAGIC_V2 = 0xDAA320AB - (1 << 32)
MAGIC_BLANK = 0xCBD43194 - (1 << 32)

BORN_V6 = 0x10  # sys_flag: born_address is 16 bytes long
STORE_V6 = 0x20  # sys_flag: store_address is 16 bytes long
