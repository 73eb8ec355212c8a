/* Searches large buffers for rare items: a short text, or unusual properties. */
#include "bytes.h"
#include "layouts.h"

#define STRIDE 4096 /* bytes scanned without branching; the text is only compared where four bytes match */

/* Where in [start, stop) a text of at least 4 bytes begins first; -1 where none does. All bytes of a text that begins
   before `stop` are there. */
EXPORT int64_t rmq_find(const uint8_t *data, int64_t start, int64_t stop, const uint8_t *text, int64_t length) {
    const uint8_t first = text[0], second = text[1], last_but_one = text[length - 2], last = text[length - 1];
    for (int64_t at = start; at < stop; at += STRIDE) {
        const uint8_t *here = data + at, *end = here + length - 1;
        int64_t count = min64(STRIDE, stop - at);
        uint8_t least = 0xFF;
        for (int64_t i = 0; i < count; i++) {
            uint8_t apart = (uint8_t)((here[i] ^ first) | (here[i + 1] ^ second) | (end[i - 1] ^ last_but_one) |
                                      (end[i] ^ last)); /* zero if all four match */
            least = apart < least ? apart : least;
        }
        for (int64_t i = 0; least == 0 && i < count; i++) {
            if (here[i] == first && memcmp(here + i, text, (size_t)length) == 0) {
                return at + i;
            }
        }
    }
    return -1;
}

enum state { ITEM, NAME, VALUE }; /* part that the next byte belongs to; ITEM is the start of an item */

/* Whether a text is not just ASCII items with a name and a separator, or ends with a zero. */
static bool is_odd(const uint8_t *at, const uint8_t *stop) {
    enum state inside = ITEM;
    uint8_t byte = ITEM_END;
    while (at < stop) {
        byte = *at++;
        if (byte == ITEM_END) {
            if (inside == NAME) {
                return true;
            }
            inside = ITEM;
        } else if (byte >= 0x80) {
            return true;
        } else if (inside != VALUE) {
            if (byte == 0 || (byte == NAME_END && inside == ITEM)) {
                return true;
            }
            inside = byte == NAME_END ? VALUE : NAME;
        }
    }
    return inside == NAME || byte == 0;
}

/* Writes the rows with odd properties to `out`, ascending; returns their number. */
EXPORT int64_t rmq_odd_properties(const uint8_t *base, const int64_t *at, const int64_t *length, int64_t rows,
                                  int64_t *out) {
    int64_t count = 0;
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *start = base + at[row];
        if (is_odd(start, start + length[row])) {
            out[count++] = row;
        }
    }
    return count;
}
