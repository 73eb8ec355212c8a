/* Reads commit-log records in bulk, with the checks of formats.message.read, into one row per record. */
#include "records.h"
#include "heads.h"
#include "text.h"

#define AHEAD 4096         /* prefetch distance for short records, bytes */
#define SHORT 1024         /* size up to which records are prefetched; the processor prefetches longer ones itself */
#define CACHE_LINE 64
#define UNWRITTEN (1 << 16) /* number of zeros after which the rest is considered unwritten */
#define SHORTEST_LENGTHS 3  /* minimum bytes left at the start and at the end of a body */

/* Positions of the parts of one record in the buffer. */
typedef struct {
    int64_t size, magic, sys_flag;
    int64_t body_at, body_length, topic_at, topic_length, properties_at, properties_length;
} shape;

/* Whether the lengths of the record at `at` are consistent; each is checked before it is used. */
static inline bool read_shape(const stretch *in, int64_t at, shape *found) {
    const uint8_t *here = in->base + at;
    if (in->limit - at < MIN_SIZE) {
        return false;
    }
    found->size = i32_at(here + HEAD_V4_V4_AT_TOTAL_SIZE);
    found->magic = i32_at(here + HEAD_V4_V4_AT_MAGIC);
    if ((found->magic != MAGIC_V1 && found->magic != MAGIC_V2) || found->size > in->limit - at ||
        found->size < MIN_SIZE) {
        return false;
    }
    found->sys_flag = i32_at(here + HEAD_V4_V4_AT_SYS_FLAG);
    found->body_at = at + HEAD_V4_V4_SIZE + (found->sys_flag & BORN_V6 ? BORN_WIDER : 0) +
                     (found->sys_flag & STORE_V6 ? STORE_WIDER : 0);
    if (found->body_at + SHORTEST_LENGTHS > in->limit) {
        return false;
    }
    found->body_length = max64(i32_at(in->base + found->body_at - BEFORE_BODY(BODY_LENGTH)), 0);
    int64_t length_at = found->body_at + found->body_length;
    if (length_at + SHORTEST_LENGTHS > in->limit) {
        return false;
    }
    if (found->magic == MAGIC_V1) {
        found->topic_length = (int8_t)in->base[length_at];
        found->topic_at = length_at + 1;
    } else {
        found->topic_length = (int16_t)u16_at(in->base + length_at);
        found->topic_at = length_at + 2;
    }
    found->properties_at = found->topic_at + found->topic_length + 2;
    if (found->topic_length < 0 || found->properties_at > in->limit) {
        return false;
    }
    found->properties_length = max64((int16_t)u16_at(in->base + found->properties_at - 2), 0);
    return found->properties_at + found->properties_length == at + found->size;
}

/* Whether the delay level is absent or a number; of duplicate names the last wins. */
static bool delay_is_number(const uint8_t *at, const uint8_t *stop) {
    bool good = true;
    while (at < stop) {
        const uint8_t *end = first_in(at, stop, ITEM_END);
        if (BEGINS(at, end, ITEM_DELAY)) {
            int64_t level;
            good = java_number(at + SIZEOF(ITEM_DELAY), end, 32, &level);
        }
        at = end + 1;
    }
    return good;
}

static inline void put_row(const uint8_t *base, int64_t at, const shape *found, table rows, int64_t row) {
    const uint8_t *here = base + at, *body = base + found->body_at;
    const uint8_t *behind_born = here + (found->sys_flag & BORN_V6 ? BORN_WIDER : 0);
    CELL(rows, row, ROW_AT) = at;
    CELL(rows, row, ROW_TOTAL_SIZE) = found->size;
    CELL(rows, row, ROW_MAGIC) = found->magic;
    CELL(rows, row, ROW_BODY_CRC) = i32_at(here + HEAD_V4_V4_AT_BODY_CRC);
    CELL(rows, row, ROW_QUEUE_ID) = i32_at(here + HEAD_V4_V4_AT_QUEUE_ID);
    CELL(rows, row, ROW_FLAG) = i32_at(here + HEAD_V4_V4_AT_FLAG);
    CELL(rows, row, ROW_QUEUE_OFFSET) = i64_at(here + HEAD_V4_V4_AT_QUEUE_OFFSET);
    CELL(rows, row, ROW_PHYSICAL_OFFSET) = i64_at(here + HEAD_V4_V4_AT_PHYSICAL_OFFSET);
    CELL(rows, row, ROW_SYS_FLAG) = found->sys_flag;
    CELL(rows, row, ROW_BORN_TIMESTAMP) = i64_at(here + HEAD_V4_V4_AT_BORN_TIMESTAMP);
    CELL(rows, row, ROW_STORE_TIMESTAMP) = i64_at(behind_born + HEAD_V4_V4_AT_STORE_TIMESTAMP);
    CELL(rows, row, ROW_RECONSUME_TIMES) = i32_at(body - BEFORE_BODY(RECONSUME_TIMES));
    CELL(rows, row, ROW_PREPARED_TRANSACTION_OFFSET) = i64_at(body - BEFORE_BODY(PREPARED_TRANSACTION_OFFSET));
    CELL(rows, row, ROW_BODY_AT) = found->body_at;
    CELL(rows, row, ROW_BODY_LENGTH) = found->body_length;
    CELL(rows, row, ROW_TOPIC_AT) = found->topic_at;
    CELL(rows, row, ROW_TOPIC_LENGTH) = found->topic_length;
    CELL(rows, row, ROW_PROPERTIES_AT) = found->properties_at;
    CELL(rows, row, ROW_PROPERTIES_LENGTH) = found->properties_length;
}

int64_t walk_records(const stretch *in, int64_t at, table rows, int64_t *next) {
    int64_t count = 0;
    shape found;
    while (count < rows.rows && at < in->stop && read_shape(in, at, &found)) {
        const uint8_t *here = in->base + at;
        /* pages of the file can be anywhere in memory, so the processor does not prefetch beyond the end of a page */
        if (found.size < SHORT) {
            for (int64_t soon = AHEAD; soon < AHEAD + found.size; soon += CACHE_LINE) {
                EXPECT_READ((uintptr_t)here + (uintptr_t)soon);
            }
        }
        if (in->check_crc && found.body_length > 0) {
            uint32_t crc = crc32_of(in->base + found.body_at, found.body_length, in->crc) & 0x7FFFFFFFu;
            if ((int64_t)crc != i32_at(here + HEAD_V4_V4_AT_BODY_CRC)) {
                break;
            }
        }
        if (UNLIKELY(is_schedule(in->base + found.topic_at, found.topic_length)) &&
            !delay_is_number(in->base + found.properties_at, here + found.size)) {
            break;
        }
        put_row(in->base, at, &found, rows, count);
        count++;
        at += found.size;
    }
    *next = at;
    return count;
}

/* The columns of rows are `capacity` cells apart. */
EXPORT int64_t rmq_walk(const uint8_t *base, int64_t at, int64_t limit, int64_t stop, int32_t check_crc,
                        crc_function crc, int64_t *cells, int64_t capacity, int64_t *next) {
    stretch in = {base, limit, stop, check_crc != 0, crc};
    table rows = {cells, capacity, 1, capacity};
    return walk_records(&in, at, rows, next);
}

/* First position in [at, stop) with a record's magic and a matching physical offset; `stop` if there is none, or after
 * many zeros. The fixed fields of a head must be readable at any position before `stop`. */
EXPORT int64_t rmq_seek(const uint8_t *base, int64_t at, int64_t stop, int64_t physical_offset) {
    int64_t zeros = 0;
    while (at < stop && zeros < UNWRITTEN) {
        const uint8_t *here = base + at;
        if (word_at(here + HEAD_V4_V4_AT_MAGIC) == 0) {
            at += 8; /* no magic begins in these bytes */
            zeros += 8;
            continue;
        }
        zeros = 0;
        int32_t magic = i32_at(here + HEAD_V4_V4_AT_MAGIC);
        if ((magic == MAGIC_V1 || magic == MAGIC_V2) &&
            i64_at(here + HEAD_V4_V4_AT_PHYSICAL_OFFSET) == wrapping_add(physical_offset, at)) {
            return at;
        }
        at++;
    }
    return stop;
}
