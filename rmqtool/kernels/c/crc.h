#ifndef RMQ_CRC_H
#define RMQ_CRC_H

#include "bytes.h"

/* uint32_t f(uint32_t crc before, bytes, length): ISA-L's crc32_gzip_refl has this form. */
typedef uint32_t (*crc_function)(uint32_t before, const uint8_t *start, uint64_t length);

/* CRC-32 (zlib's) of a range, by a function with vector code, or by tables where that is NULL. */
uint32_t crc32_of(const uint8_t *start, int64_t length, crc_function function);

#endif
