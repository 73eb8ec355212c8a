/* Adds many keys to an index file at once, like IndexFile.putKey (store.index; store-formats 5). */
#include "bytes.h"
#include "layouts.h"

#define AHEAD 32 /* prefetch distance: slots are spread over the whole file */

/* Keys, and the physical offset and store timestamp of each record. */
typedef struct {
    const int64_t *record, *hash; /* of each key; records are ascending */
    int64_t count;
    const int64_t *physical_offset, *store_timestamp; /* of each record */
} key_columns;

/* Neither has more than 31 bits, and a wider division is slower. */
static inline uint8_t *slot_of(uint8_t *slots, int64_t hash, uint32_t count) {
    return slots + INDEX_SLOT_SIZE * (int64_t)((uint32_t)hash % count);
}

/* Seconds from the header's begin time to a message, as stored in an entry. */
static inline int64_t seconds_since(int64_t begin_timestamp, int64_t timestamp) {
    if (begin_timestamp <= 0 || timestamp <= begin_timestamp) {
        return 0;
    }
    return min64((timestamp - begin_timestamp) / 1000, INT32_MAX);
}

/* Adds keys from number `first` on. header: columns HEADER_...; entries: space for `room` entries from the header's
 * count on. Stores the number of entries added; returns the first key that was not added. */
EXPORT int64_t rmq_put_keys(uint8_t *slots, int64_t slot_count, uint8_t *entries, int64_t room, int64_t *header,
                            const key_columns *keys, int64_t first, int64_t *added) {
    /* keep the header in registers, since any store could alias it */
    int64_t begin_timestamp = header[HEADER_BEGIN_TIMESTAMP], end_timestamp = header[HEADER_END_TIMESTAMP];
    int64_t begin_offset = header[HEADER_BEGIN_PHYSICAL_OFFSET], end_offset = header[HEADER_END_PHYSICAL_OFFSET];
    int64_t used_slots = header[HEADER_HASH_SLOT_COUNT], number = header[HEADER_INDEX_COUNT];
    const int64_t stop = number + room;
    const uint32_t divisor = (uint32_t)slot_count;
    bool skip = false;
    int64_t at = first;
    for (; at < keys->count; at++) {
        int64_t record = keys->record[at];
        if (at == 0 || keys->record[at - 1] != record) {
            if (number >= stop) {
                break;
            }
            skip = keys->physical_offset[record] < end_offset; /* its keys are already in the file */
        }
        if (skip) {
            continue;
        }
        if (number >= stop) {
            break;
        }
        if (at + AHEAD < keys->count) {
            EXPECT_WRITE(slot_of(slots, keys->hash[at + AHEAD], divisor));
        }
        uint8_t *slot = slot_of(slots, keys->hash[at], divisor);
        int64_t offset = keys->physical_offset[record], timestamp = keys->store_timestamp[record];
        int64_t previous = i32_at(slot);
        if (previous <= 0 || previous > number) {
            previous = 0;
            used_slots++;
        }
        uint8_t *entry = entries;
        entries += INDEX_ENTRY_SIZE;
        store_i32(entry + INDEX_ENTRY_AT_KEY_HASH, keys->hash[at]);
        store_i64(entry + INDEX_ENTRY_AT_PHYSICAL_OFFSET, offset);
        store_i32(entry + INDEX_ENTRY_AT_SECONDS, seconds_since(begin_timestamp, timestamp));
        store_i32(entry + INDEX_ENTRY_AT_PREVIOUS_ENTRY, previous);
        store_i32(slot, number);
        if (number <= 1) {
            begin_offset = offset;
            begin_timestamp = timestamp;
        }
        end_offset = offset;
        end_timestamp = timestamp;
        number++;
    }
    *added = number - header[HEADER_INDEX_COUNT];
    header[HEADER_BEGIN_TIMESTAMP] = begin_timestamp;
    header[HEADER_END_TIMESTAMP] = end_timestamp;
    header[HEADER_BEGIN_PHYSICAL_OFFSET] = begin_offset;
    header[HEADER_END_PHYSICAL_OFFSET] = end_offset;
    header[HEADER_HASH_SLOT_COUNT] = used_slots;
    header[HEADER_INDEX_COUNT] = number;
    return at;
}
