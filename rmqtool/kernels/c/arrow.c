/* Builds columns in Arrow's layout from many records: concatenated bytes, and an offset at the end of each text.
 *
 * Texts are given by address and length; the length of a missing text is -1.
 */
#include "text.h"

#define KEY_END ' '
#define FIRST_OF_TEXT 4 /* leading bytes of a text repeated in its view if the text is not stored in the view */

static inline const uint8_t *text_at(const int64_t *address, int64_t i) {
    return (const uint8_t *)(intptr_t)address[i];
}

/* End of a text. An empty or missing text may have no address. */
static inline const uint8_t *end_of(const uint8_t *at, int64_t length) { return length > 0 ? at + length : at; }

/* Appends texts after `filled` bytes and stores the end of each; returns the number of bytes then filled. */
EXPORT int64_t rmq_gather(const int64_t *address, const int64_t *length, int64_t count, uint8_t *to, int32_t *offsets,
                          int64_t filled) {
    for (int64_t i = 0; i < count; i++) {
        if (length[i] > 0) {
            memcpy(to + filled, text_at(address, i), (size_t)length[i]);
            filled += length[i];
        }
        offsets[i] = (int32_t)filled;
    }
    return filled;
}

/* Stores Arrow views (VIEW_...) of texts in one buffer, which begins at `begin`. */
EXPORT void rmq_views(const int64_t *address, const int64_t *length, int64_t count, int64_t begin, int32_t buffer,
                      int32_t *views) {
    for (int64_t i = 0; i < count; i++) {
        int32_t *view = views + i * VIEW_COLUMNS;
        view[VIEW_LENGTH] = (int32_t)length[i];
        if (length[i] > VIEW_INLINE) {
            memcpy(&view[VIEW_TEXT], text_at(address, i), FIRST_OF_TEXT);
            view[VIEW_BUFFER] = buffer;
            view[VIEW_OFFSET] = (int32_t)(address[i] - begin);
        } else if (length[i] > 0) {
            memcpy(&view[VIEW_TEXT], text_at(address, i), (size_t)length[i]);
        }
    }
}

/* Whether [at, stop) is well-formed UTF-8. */
static bool is_utf8(const uint8_t *at, const uint8_t *stop) {
    while (at < stop) {
        if (stop - at >= 8 && (word_at(at) & NOT_ASCII) == 0) {
            at += 8;
            continue;
        }
        uint32_t code;
        int size = character(at, stop, &code);
        if (size == 0) {
            return false;
        }
        at += size;
    }
    return true;
}

/* Property items: a table with the given number of columns and a row per PROPERTY_... */
typedef struct {
    int64_t *cells;
    int64_t columns;
} items;

#define PROPERTY(of, name, i) ((of).cells[PROPERTY_##name * (of).columns + (i)])

/* The item in [first, stop) that has the name; `stop` if none has. */
static int64_t item_of(items of, int64_t first, int64_t stop, const uint8_t *name, int64_t length) {
    for (int64_t i = first; i < stop; i++) {
        if (PROPERTY(of, NAME_LENGTH, i) == length &&
            memcmp((const uint8_t *)(intptr_t)PROPERTY(of, NAME_AT, i), name, (size_t)length) == 0) {
            return i;
        }
    }
    return stop;
}

/* Parses the properties of each row from `first` on; the last value of a name counts, at the place of the first.
 * Stops at the first row that is malformed or has too many names, unless it is `sure`; returns that row, or `count`.
 * The items of row i are bounds[i] to bounds[i + 1] - 1; `named` has the item number for each NAMED_..., or -1. */
EXPORT int64_t rmq_parse(const int64_t *address, const int64_t *length, const uint8_t *sure, int64_t count,
                         int64_t first, int64_t *cells, int64_t columns, int64_t *bounds, int64_t *named) {
    items of = {cells, columns};
    for (int64_t row = first; row < count; row++) {
        const uint8_t *at = text_at(address, row), *stop = end_of(at, length[row]);
        const int64_t begin = bounds[row];
        int64_t filled = begin, tags = -1, keys = -1, unique = -1;
        if (!sure[row] && !is_utf8(at, stop)) {
            return row;
        }
        for (const uint8_t *end; at < stop; at = end + 1) {
            end = find_byte(at, stop, ITEM_END);
            const uint8_t *name_end = find_byte(at, end, NAME_END);
            if (name_end == at || end - name_end < 2) {
                continue; /* no name or no value */
            }
            if (!sure[row]) {
                int64_t same = item_of(of, begin, filled, at, name_end - at);
                if (same < filled) {
                    PROPERTY(of, VALUE_AT, same) = (intptr_t)name_end + 1;
                    PROPERTY(of, VALUE_LENGTH, same) = end - name_end - 1;
                    continue;
                }
                if (filled - begin >= MOST_NAMES) {
                    return row;
                }
            }
            PROPERTY(of, NAME_AT, filled) = (intptr_t)at;
            PROPERTY(of, NAME_LENGTH, filled) = name_end - at;
            PROPERTY(of, VALUE_AT, filled) = (intptr_t)name_end + 1;
            PROPERTY(of, VALUE_LENGTH, filled) = end - name_end - 1;
            if (BEGINS(at, end, ITEM_TAGS)) {
                tags = filled;
            } else if (BEGINS(at, end, ITEM_KEYS)) {
                keys = filled;
            } else if (BEGINS(at, end, ITEM_UNIQ_KEY)) {
                unique = filled;
            }
            filled++;
        }
        named[NAMED_TAGS * count + row] = tags;
        named[NAMED_KEYS * count + row] = keys;
        named[NAMED_UNIQUE * count + row] = unique;
        bounds[row + 1] = filled;
    }
    return count;
}

/* Splits texts at blanks, dropping empty parts; text i has parts bounds[i] to bounds[i + 1] - 1. Returns the total. */
EXPORT int64_t rmq_split(const int64_t *address, const int64_t *length, int64_t count, int64_t *part_address,
                         int64_t *part_length, int64_t *bounds) {
    int64_t filled = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *at = text_at(address, i), *stop = end_of(at, length[i]);
        for (const uint8_t *end; at < stop; at = end + 1) {
            end = find_byte(at, stop, KEY_END);
            if (end > at) {
                part_address[filled] = (intptr_t)at;
                part_length[filled++] = end - at;
            }
        }
        bounds[i + 1] = filled;
    }
    return filled;
}

static const char DIGITS[] = "0123456789ABCDEF";

/* Writes the offset id of each record to a row of `out`: host (address and port) and physical offset in hex. */
EXPORT void rmq_offset_ids(const int64_t *address, const int64_t *length, const int64_t *offset, int64_t count,
                           uint8_t *out) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *host = text_at(address, i);
        uint8_t *to = out + i * ID_SPACE;
        for (int64_t j = 0; j < length[i]; j++) {
            *to++ = (uint8_t)DIGITS[host[j] >> 4];
            *to++ = (uint8_t)DIGITS[host[j] & 15];
        }
        for (int shift = 60; shift >= 0; shift -= 4) {
            *to++ = (uint8_t)DIGITS[(uint64_t)offset[i] >> shift & 15];
        }
    }
}
