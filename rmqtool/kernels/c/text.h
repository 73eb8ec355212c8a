/* Texts inside records: finding their end, comparing, parsing numbers, and computing Java's hash.
 *
 * ASCII text is never processed byte by byte. A part that does not fill a word is read as the end of a word that begins
 * before the text; a record has a head before any text, so those bytes always exist.
 */
#ifndef RMQ_TEXT_H
#define RMQ_TEXT_H

#include "bytes.h"
#include "layouts.h"

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif

#define MARKED 64 /* bytes searched at a time; as many are readable before the end of each text */
#define NOT_ASCII 0x8080808080808080u

/* Bit mask of the 64 bytes at an address that are equal to a byte, the first one lowest. */
static inline uint64_t matches_at(const uint8_t *at, uint8_t byte) {
#if defined(__AVX2__)
    const __m256i wanted = _mm256_set1_epi8((char)byte);
    uint64_t found = 0;
    for (int i = 0; i < 2; i++) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)(at + 32 * i));
        found |= (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, wanted)) << 32 * i;
    }
    return found;
#elif defined(__SSE2__)
    const __m128i wanted = _mm_set1_epi8((char)byte);
    uint64_t found = 0;
    for (int i = 0; i < 4; i++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(at + 16 * i));
        found |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)) << 16 * i;
    }
    return found;
#else
    uint64_t found = 0;
    for (int i = 0; i < MARKED; i += 8) {
        uint64_t other = word_at(at + i) ^ 0x0101010101010101u * byte;
        uint64_t low = 0x7F7F7F7F7F7F7F7Fu;
        uint64_t same = ~(((other & low) + low) | other | low); /* high bit of each equal byte */
        found |= (same >> 7) * 0x0102040810204080u >> 56 << i;
    }
    return found;
#endif
}

/* Bit mask of the first up to 64 bytes of [at, stop) that are equal to a byte. The range is not empty. */
static inline uint64_t marks_in(const uint8_t *at, const uint8_t *stop, uint8_t byte) {
    if (stop - at >= MARKED) {
        return matches_at(at, byte);
    }
    return matches_at(stop - MARKED, byte) >> (MARKED - (stop - at));
}

/* The first such byte in [at, stop), or stop. The range is not empty. */
static inline const uint8_t *first_in(const uint8_t *at, const uint8_t *stop, uint8_t byte) {
    for (; stop - at > MARKED; at += MARKED) {
        uint64_t marks = matches_at(at, byte);
        if (marks != 0) {
            return at + __builtin_ctzll(marks);
        }
    }
    uint64_t marks = marks_in(at, stop, byte);
    return marks != 0 ? at + __builtin_ctzll(marks) : stop;
}

/* The first such byte in [at, stop), or stop; what lies before the range is not read. */
static inline const uint8_t *find_byte(const uint8_t *at, const uint8_t *stop, uint8_t byte) {
    const uint64_t ones = 0x0101010101010101u;
    for (; stop - at >= 8; at += 8) {
        uint64_t word = word_at(at) ^ ones * byte;
        uint64_t hits = (word - ones) & ~word & NOT_ASCII;
        if (hits != 0) {
            return at + (__builtin_ctzll(hits) >> 3);
        }
    }
    while (at < stop && *at != byte) {
        at++;
    }
    return at;
}

/* The last 1 to 8 bytes before an address as a word: right-aligned, with zeros before the first one. */
static inline uint64_t last_word(const uint8_t *stop, int64_t count) {
    int others = (int)(64 - 8 * count);
    return word_at(stop - 8) >> others << others;
}

static inline bool same_text(const uint8_t *a, const uint8_t *b, int64_t length) {
    for (; length >= 8; a += 8, b += 8, length -= 8) {
        if (word_at(a) != word_at(b)) {
            return false;
        }
    }
    return length == 0 || last_word(a + length, length) == last_word(b + length, length);
}

/* Whether [at, stop) begins with a literal and continues after it. */
#define BEGINS(at, stop, text) ((stop) - (at) > SIZEOF(text) && memcmp(at, text, sizeof(text) - 1) == 0)

/* Whether a text of this length is SCHEDULE_TOPIC. */
static inline bool is_schedule(const uint8_t *at, int64_t length) {
    return length == SIZEOF(SCHEDULE_TOPIC) && memcmp(at, SCHEDULE_TOPIC, sizeof(SCHEDULE_TOPIC) - 1) == 0;
}

#define MAX_INT_TEXT 63 /* formats.message.read.is_java_int rejects longer texts */

/* Whether Integer.parseInt, or its equivalent for another width, accepts [at, stop), like is_java_int; stores the
 * value. */
static inline bool java_number(const uint8_t *at, const uint8_t *stop, int bits, int64_t *value) {
    *value = 0;
    if (stop - at > MAX_INT_TEXT) {
        return false;
    }
    uint8_t sign = at < stop ? *at : 0;
    if (sign == '-' || sign == '+') {
        at++;
    }
    if (at == stop) {
        return false;
    }
    uint64_t most = ((uint64_t)1 << (bits - 1)) - (sign != '-'), found = 0;
    for (; at < stop; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (*at < '0' || *at > '9' || found > (most - digit) / 10) {
            return false;
        }
        found = found * 10 + digit;
    }
    *value = sign == '-' ? (int64_t)(0 - found) : (int64_t)found;
    return true;
}

/* Length of the UTF-8 character at an address, and its code point; 0 if it is malformed. */
static inline int character(const uint8_t *at, const uint8_t *stop, uint32_t *code) {
    uint8_t first = *at;
    if (first < 0x80) {
        *code = first;
        return 1;
    }
    if (first < 0xC2 || first > 0xF4) {
        return 0;
    }
    int size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (stop - at < size) {
        return 0;
    }
    uint32_t found = first & 0x7Fu >> size;
    for (int i = 1; i < size; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
        found = found << 6 | (at[i] & 0x3Fu);
    }
    if (size == 3 && (found < 0x800 || (found >= 0xD800 && found <= 0xDFFF))) {
        return 0;
    }
    if (size == 4 && (found < 0x10000 || found > 0x10FFFF)) {
        return 0;
    }
    *code = found;
    return size;
}

/* Java's String.hashCode. */

#define P2 961u        /* 31 to the 2nd, 4th and 8th power, mod 2^32 */
#define P4 923521u
#define P8 2487512833u
_Static_assert(P2 == 31u * 31u && P4 == P2 * P2 && P8 == P4 * P4, "powers of 31");

/* Hash of eight ASCII characters; leading zeros do not contribute.
 *
 * Characters are combined pairwise, then the pairs, then the quadruples: three multiplications of whole words instead
 * of eight dependent ones.
 */
static inline uint32_t hash_of_word(uint64_t word) {
    const uint64_t each_pair = 0x00FF00FF00FF00FFu, each_four = 0x0000FFFF0000FFFFu;
    uint64_t pairs = (word & each_pair) * 31 + (word >> 8 & each_pair);
    uint64_t fours = (pairs & each_four) * P2 + (pairs >> 16 & each_four);
    return (uint32_t)fours * P4 + (uint32_t)(fours >> 32);
}

static inline bool hash_by_characters(uint32_t before, const uint8_t *at, const uint8_t *stop, uint32_t *hash) {
    while (at < stop) {
        uint32_t code;
        int size = character(at, stop, &code);
        if (size == 0) {
            *hash = before;
            return false;
        }
        at += size;
        if (code >= 0x10000) { /* two UTF-16 units */
            before = before * 31 + 0xD7C0 + (code >> 10);
            code = 0xDC00 + (code & 0x3FF);
        }
        before = before * 31 + code;
    }
    *hash = before;
    return true;
}

/* Whether a text is well-formed; computes its hash, continuing from the hash `before` of the preceding text. */
static inline bool hash_on(uint32_t before, const uint8_t *at, const uint8_t *stop, uint32_t *hash) {
    static const uint32_t powers[8] = {1, 31, P2, P2 * 31, P4, P4 * 31, P4 * P2, P4 * P2 * 31};
    for (; stop - at >= 8; at += 8) {
        uint64_t word = word_at(at);
        if (UNLIKELY((word & NOT_ASCII) != 0)) {
            return hash_by_characters(before, at, stop, hash);
        }
        before = before * P8 + hash_of_word(word);
    }
    if (at < stop) {
        uint64_t word = last_word(stop, stop - at);
        if (UNLIKELY((word & NOT_ASCII) != 0)) {
            return hash_by_characters(before, at, stop, hash);
        }
        before = before * powers[stop - at] + hash_of_word(word);
    }
    *hash = before;
    return true;
}

/* Hash of a key as stored in the index: never negative; the minimum int, which has no absolute value, becomes 0. */
static inline int64_t index_hash(uint32_t hash) {
    uint32_t positive = hash >> 31 ? 0u - hash : hash;
    return positive & 0x7FFFFFFFu;
}

#endif
