/* Groups records by queue: their order in each, and their consume-queue entries. */
#include "bytes.h"
#include "layouts.h"

/* State of one queue during grouping. */
typedef struct {
    int64_t next;   /* position of its next record */
    int64_t last;   /* its last record; -1 if none */
    int64_t steady; /* physical offsets increase and queue offsets are consecutive */
} queue;

static inline void put_entry(uint8_t *entry, int64_t physical_offset, int64_t size, int64_t tags_code) {
    store_i64(entry + CQ_ENTRY_AT_PHYSICAL_OFFSET, physical_offset);
    store_i32(entry + CQ_ENTRY_AT_SIZE, size);
    store_i64(entry + CQ_ENTRY_AT_TAGS_CODE, tags_code);
}

/* Groups `count` records (columns FIELD_..., `capacity` cells apart) of the given number of topics by queue.
 *
 * queues: space for `most` queues. groups: end and steadiness of each queue with records. rows, entries: row and entry
 * of each queued record, in the order of queues. *total: number of queued records.
 * Returns the number of queues with records, or -1 if there are too many. */
EXPORT int64_t rmq_group(const int64_t *records, int64_t capacity, int64_t count, int64_t topics, queue *queues,
                         int64_t most, int64_t *groups, int64_t *rows, uint8_t *entries, int64_t *total) {
    const int64_t *physical_offset = records + capacity * FIELD_PHYSICAL_OFFSET;
    const int64_t *queue_offset = records + capacity * FIELD_QUEUE_OFFSET;
    const int64_t *queue_id = records + capacity * FIELD_QUEUE_ID;
    const int64_t *size = records + capacity * FIELD_SIZE;
    const int64_t *tags_code = records + capacity * FIELD_TAGS_CODE;
    const int64_t *queued = records + capacity * FIELD_QUEUED;
    const int64_t *topic = records + capacity * FIELD_TOPIC;

    int64_t low = INT64_MAX, high = INT64_MIN;
    *total = 0;
    for (int64_t i = 0; i < count; i++) {
        low = queued[i] ? min64(low, queue_id[i]) : low;
        high = queued[i] ? max64(high, queue_id[i]) : high;
        *total += queued[i];
    }
    if (*total == 0) {
        return 0;
    }
    int64_t span = high - low + 1; /* queue ids are 32-bit */
    if (span * topics > most) {
        return -1;
    }
    for (int64_t q = 0; q < span * topics; q++) {
        queues[q] = (queue){0, -1, 1};
    }
    for (int64_t i = 0; i < count; i++) {
        if (queued[i]) {
            queues[topic[i] * span + queue_id[i] - low].next++;
        }
    }
    for (int64_t q = 0, start = 0; q < span * topics; q++) {
        int64_t records_of_it = queues[q].next;
        queues[q].next = start;
        start += records_of_it;
    }
    for (int64_t i = 0; i < count; i++) {
        if (queued[i]) {
            queue *of = &queues[topic[i] * span + queue_id[i] - low];
            int64_t place = of->next++, last = of->last;
            of->last = i;
            if (last >= 0 && (physical_offset[i] <= physical_offset[last] ||
                              wrapping_sub(queue_offset[i], queue_offset[last]) != 1)) {
                of->steady = 0;
            }
            rows[place] = i;
            put_entry(entries + CQ_ENTRY_SIZE * place, physical_offset[i], size[i], tags_code[i]);
        }
    }
    int64_t found = 0;
    for (int64_t q = 0; q < span * topics; q++) {
        if (queues[q].last >= 0) {
            groups[2 * found] = queues[q].next;
            groups[2 * found + 1] = queues[q].steady;
            found++;
        }
    }
    return found;
}
