#ifndef RMQ_CRC_H
#define RMQ_CRC_H

#include "bytes.h"

/* uint32_t f(uint32_t crc before, bytes, length): ISA-L's crc32_gzip_refl has this form. */
typedef uint32_t (*crc_function)(uint32_t before, const uint8_t *start, uint64_t length);

/* CRC-32 (as in zlib) of a range, with the given vector function, or with tables if it is NULL. */
uint32_t crc32_of(const uint8_t *start, int64_t length, crc_function function);

#endif
