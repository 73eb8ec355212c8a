/* Unaligned integers in memory. Fields of a store are big-endian; the machine is little-endian. */
#ifndef RMQ_BYTES_H
#define RMQ_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "only little-endian machines are supported"
#endif

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define EXPECT_READ(address) __builtin_prefetch((const void *)(address), 0)
#define EXPECT_WRITE(address) __builtin_prefetch((const void *)(address), 1)

static inline uint16_t u16_at(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap16(value);
}

static inline int32_t i32_at(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return (int32_t)__builtin_bswap32(value);
}

static inline int64_t i64_at(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return (int64_t)__builtin_bswap64(value);
}

/* Eight bytes in memory order: the first one lowest. */
static inline uint64_t word_at(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void store_i16(uint8_t *at, int64_t value) {
    uint16_t swapped = __builtin_bswap16((uint16_t)value);
    memcpy(at, &swapped, sizeof swapped);
}

static inline void store_i32(uint8_t *at, int64_t value) {
    uint32_t swapped = __builtin_bswap32((uint32_t)value);
    memcpy(at, &swapped, sizeof swapped);
}

static inline void store_i64(uint8_t *at, int64_t value) {
    uint64_t swapped = __builtin_bswap64((uint64_t)value);
    memcpy(at, &swapped, sizeof swapped);
}

/* Sums of fields that a forged record can choose: they wrap, as in Java. */
static inline int64_t wrapping_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t wrapping_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
