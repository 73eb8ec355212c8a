/* CRC-32 with sixteen tables: sixteen bytes at a time, with independent table lookups. */
#include "crc.h"

#define POLYNOMIAL 0xEDB88320u

static uint32_t tables[16][256]; /* [distance][byte]: contribution of a byte followed by `distance` bytes */

__attribute__((constructor)) static void fill_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) {
            value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
        }
        tables[0][byte] = value;
    }
    for (int distance = 1; distance < 16; distance++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables[distance - 1][byte];
            tables[distance][byte] = before >> 8 ^ tables[0][before & 0xFF];
        }
    }
}

/* Contribution of eight bytes, the last of which is followed by `distance` bytes. */
static inline uint32_t half(uint64_t word, int distance) {
    uint32_t value = 0;
    for (int i = 0; i < 8; i++) {
        value ^= tables[distance + 7 - i][word >> 8 * i & 0xFF];
    }
    return value;
}

uint32_t crc32_of(const uint8_t *start, int64_t length, crc_function function) {
    if (function != NULL) {
        return function(0, start, (uint64_t)length);
    }
    uint32_t crc = 0xFFFFFFFFu;
    for (; length >= 16; start += 16, length -= 16) {
        crc = half(word_at(start) ^ crc, 8) ^ half(word_at(start + 8), 0);
    }
    for (; length > 0; start++, length--) {
        crc = tables[0][(crc ^ *start) & 0xFF] ^ crc >> 8;
    }
    return ~crc;
}

EXPORT uint32_t rmq_crc32(const uint8_t *start, int64_t length, crc_function function) {
    return crc32_of(start, length, function);
}
