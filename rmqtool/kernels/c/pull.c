/* The records of one pull: selected by queue entries, verified, and copied into one buffer. */
#include "bytes.h"
#include "layouts.h"

/* Whether there is a record of that size with a matching physical offset. */
static bool is_record(const uint8_t *at, int64_t physical_offset, int64_t size) {
    int32_t magic = i32_at(at + HEAD_V4_V4_AT_MAGIC);
    return (magic == MAGIC_V1 || magic == MAGIC_V2) && i32_at(at + HEAD_V4_V4_AT_TOTAL_SIZE) == size &&
           i64_at(at + HEAD_V4_V4_AT_PHYSICAL_OFFSET) == physical_offset;
}

/* Copies the records of one response to `out`; returns their number, or -1 if a record is missing, is not in this file
 * of the log, or does not fit. `limits`: maximum bytes and messages of a response, for records in memory and for
 * others; the first record is included whatever its size. */
EXPORT int64_t rmq_pull(const uint8_t *entries, int64_t count, const uint8_t *log, int64_t base, int64_t length,
                        int64_t in_memory_from, const int64_t *limits, uint8_t *out, int64_t room, int64_t *written) {
    int64_t total = 0, taken = 0;
    for (; taken < count; taken++) {
        const uint8_t *entry = entries + taken * CQ_ENTRY_SIZE;
        int64_t physical_offset = i64_at(entry + CQ_ENTRY_AT_PHYSICAL_OFFSET);
        int64_t size = i32_at(entry + CQ_ENTRY_AT_SIZE);
        const int64_t *most = limits + (physical_offset >= in_memory_from ? 0 : LIMIT_COLUMNS);
        if (taken > 0 && (taken >= most[LIMIT_MESSAGES] || total + size > most[LIMIT_BYTES])) {
            break;
        }
        if (physical_offset < base || physical_offset - base > length - MIN_SIZE || size < MIN_SIZE ||
            size > length - (physical_offset - base) || size > room - total) {
            return -1;
        }
        const uint8_t *record = log + (physical_offset - base);
        if (!is_record(record, physical_offset, size)) {
            return -1;
        }
        memcpy(out + total, record, (size_t)size);
        total += size;
    }
    *written = total;
    return taken;
}
