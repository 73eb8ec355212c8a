/* Numbers texts by content: equal ones get the same number. */
#include "bytes.h"

#define MIX 0x9E3779B97F4A7C15u

static inline uint64_t mix(uint64_t mixed, uint64_t word) {
    mixed = (mixed ^ word) * MIX;
    return mixed ^ mixed >> 29;
}

static inline uint64_t mix_text(const uint8_t *text, int64_t length) {
    uint64_t mixed = (uint64_t)length;
    for (; length >= 8; text += 8, length -= 8) {
        mixed = mix(mixed, word_at(text));
    }
    uint64_t word = 0;
    memcpy(&word, text, (size_t)length);
    return mix(mixed, word);
}

/* Numbers `count` texts at positions `at` in order of their first appearance.
 *
 * slots: a hash table of zeros; its size is a power of two above `count`. first: the first text of each number.
 * Returns the count of numbers. */
EXPORT int64_t rmq_number(const uint8_t *data, const int64_t *at, const int64_t *length, int64_t count, int32_t *slots,
                          int64_t slot_count, int64_t *first, int64_t *numbers) {
    int64_t mask = slot_count - 1, distinct = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *text = data + at[i];
        int64_t slot = (int64_t)(mix_text(text, length[i]) >> 32) & mask, number = -1;
        for (; slots[slot] != 0; slot = (slot + 1) & mask) {
            int64_t other = first[slots[slot] - 1];
            if (length[other] == length[i] && memcmp(data + at[other], text, (size_t)length[i]) == 0) {
                number = slots[slot] - 1;
                break;
            }
        }
        if (number < 0) {
            number = distinct++;
            slots[slot] = (int32_t)distinct;
            first[number] = i;
        }
        numbers[i] = number;
    }
    return distinct;
}
