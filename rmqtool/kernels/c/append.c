/* Encodes records in bulk, like formats.message.build does one by one; and locates the messages of a batch.
 *
 * Messages are a table with a row per field (MESSAGE_...) and a column per message; topics and hosts are tables with a
 * row per text (TEXT_...). Texts are given by address.
 */
#include "crc.h"
#include "heads.h"
#include "text.h"

typedef struct {
    int64_t *cells;
    int64_t columns;
} messages;

#define FIELD(of, name, message) ((of).cells[MESSAGE_##name * (of).columns + (message)])
#define TEXT(texts, row, name) ((texts)[(row) * TEXT_COLUMNS + TEXT_##name])

/* Pointer for an address stored in a table. */
static inline const uint8_t *bytes_at(int64_t address) { return (const uint8_t *)(intptr_t)address; }

static inline void copy(uint8_t *to, const uint8_t *from, int64_t length) {
    if (length > 0) { /* an empty text may have no address */
        memcpy(to, from, (size_t)length);
    }
}

/* Sizes that determine the layout of one record. */
typedef struct {
    int64_t born_wider, store_wider; /* extra bytes of the hosts compared to IPv4 */
    int64_t topic_length, body_length, own_length, properties_length;
    bool is_v2;        /* the topic's length has two bytes */
    bool is_separated; /* needs a separator between its own and the appended properties */
    int64_t size;
} shape;

static inline shape shape_of(messages of, int64_t row, const int64_t *topics, int64_t more_length) {
    shape made;
    int64_t sys_flag = FIELD(of, SYS_FLAG, row);
    made.born_wider = sys_flag & BORN_V6 ? BORN_WIDER : 0;
    made.store_wider = sys_flag & STORE_V6 ? STORE_WIDER : 0;
    made.topic_length = TEXT(topics, FIELD(of, TOPIC, row), LENGTH);
    made.is_v2 = made.topic_length > MAX_TOPIC_V1;
    made.body_length = FIELD(of, BODY_LENGTH, row);
    made.own_length = FIELD(of, PROPERTIES_LENGTH, row);
    made.is_separated = made.own_length > 0 && more_length > 0 &&
                        bytes_at(FIELD(of, PROPERTIES_AT, row))[made.own_length - 1] != ITEM_END;
    made.properties_length = made.own_length + made.is_separated + more_length;
    made.size = HEAD_V4_V4_SIZE + made.born_wider + made.store_wider + made.body_length +
                (made.is_v2 ? TOPIC_LENGTH_SIZE_V2 : TOPIC_LENGTH_SIZE_V1) + made.topic_length + PROPERTIES_LENGTH_SIZE +
                made.properties_length;
    return made;
}

static inline void put_head(uint8_t *to, messages of, int64_t row, const shape *made, const int64_t *hosts,
                            crc_function crc) {
    const uint8_t *body = bytes_at(FIELD(of, BODY_AT, row));
    int64_t born = FIELD(of, BORN_HOST, row), stored = FIELD(of, STORE_HOST, row);
    uint32_t body_crc = made->body_length > 0 ? crc32_of(body, made->body_length, crc) & 0x7FFFFFFFu : 0;
    store_i32(to + HEAD_V4_V4_AT_TOTAL_SIZE, made->size);
    store_i32(to + HEAD_V4_V4_AT_MAGIC, made->is_v2 ? MAGIC_V2 : MAGIC_V1);
    store_i32(to + HEAD_V4_V4_AT_BODY_CRC, body_crc);
    store_i32(to + HEAD_V4_V4_AT_QUEUE_ID, FIELD(of, QUEUE_ID, row));
    store_i32(to + HEAD_V4_V4_AT_FLAG, FIELD(of, FLAG, row));
    store_i32(to + HEAD_V4_V4_AT_SYS_FLAG, FIELD(of, SYS_FLAG, row));
    store_i64(to + HEAD_V4_V4_AT_BORN_TIMESTAMP, FIELD(of, BORN_TIMESTAMP, row));
    copy(to + HEAD_V4_V4_AT_BORN_ADDRESS, bytes_at(TEXT(hosts, born, AT)), ADDRESS_V4 + made->born_wider);
    to += made->born_wider;
    store_i32(to + HEAD_V4_V4_AT_BORN_PORT, TEXT(hosts, born, PORT));
    store_i64(to + HEAD_V4_V4_AT_STORE_TIMESTAMP, FIELD(of, STORE_TIMESTAMP, row));
    copy(to + HEAD_V4_V4_AT_STORE_ADDRESS, bytes_at(TEXT(hosts, stored, AT)), ADDRESS_V4 + made->store_wider);
    to += made->store_wider;
    store_i32(to + HEAD_V4_V4_AT_STORE_PORT, TEXT(hosts, stored, PORT));
    store_i32(to + HEAD_V4_V4_AT_RECONSUME_TIMES, FIELD(of, RECONSUME_TIMES, row));
    store_i64(to + HEAD_V4_V4_AT_PREPARED_TRANSACTION_OFFSET, FIELD(of, PREPARED_TRANSACTION_OFFSET, row));
    store_i32(to + HEAD_V4_V4_AT_BODY_LENGTH, made->body_length);
}

static inline void put_tail(uint8_t *to, messages of, int64_t row, const shape *made, const uint8_t *topic,
                            const uint8_t *more, int64_t more_length) {
    copy(to, bytes_at(FIELD(of, BODY_AT, row)), made->body_length);
    to += made->body_length;
    if (made->is_v2) {
        store_i16(to, made->topic_length);
        to += TOPIC_LENGTH_SIZE_V2;
    } else {
        *to = (uint8_t)made->topic_length;
        to += TOPIC_LENGTH_SIZE_V1;
    }
    copy(to, topic, made->topic_length);
    to += made->topic_length;
    store_i16(to, made->properties_length);
    to += PROPERTIES_LENGTH_SIZE;
    copy(to, bytes_at(FIELD(of, PROPERTIES_AT, row)), made->own_length);
    to += made->own_length;
    if (made->is_separated) {
        *to++ = ITEM_END;
    }
    copy(to, more, more_length);
}

/* Prepared and rolled-back messages are not in any queue and get queue offset 0. */
static inline int64_t queue_offset_of(messages of, int64_t row, int64_t *following) {
    int64_t transaction = FIELD(of, SYS_FLAG, row) & TRANSACTION_MASK;
    if (transaction != TRANSACTION_NONE && transaction != TRANSACTION_COMMIT) {
        return 0;
    }
    int64_t *next = &following[FIELD(of, QUEUE, row)], given = *next;
    *next = wrapping_add(given, 1);
    return given;
}

/* Encodes messages `first` to `stop` - 1 into `out`, as far as they fit its `capacity` and the `room` left in the file;
 * `more` are properties appended to those of each message. Stores the position of each message in `answer` (a row per
 * ANSWER_...) and the number of bytes in *written. Returns the next message. */
EXPORT int64_t rmq_encode(int64_t *cells, int64_t columns, const int64_t *topics, const int64_t *hosts,
                          int64_t *following, int64_t *answer, int64_t first, int64_t stop, const uint8_t *more,
                          int64_t more_length, uint8_t *out, int64_t capacity, int64_t room, int64_t physical,
                          crc_function crc, int64_t *written) {
    messages of = {cells, columns};
    int64_t at = 0, row = first;
    for (; row < stop; row++) {
        shape made = shape_of(of, row, topics, more_length);
        if (made.size > capacity - at || made.size + BLANK_SIZE > room - at) {
            break;
        }
        int64_t queue_offset = queue_offset_of(of, row, following);
        put_head(out + at, of, row, &made, hosts, crc);
        store_i64(out + at + HEAD_V4_V4_AT_QUEUE_OFFSET, queue_offset);
        store_i64(out + at + HEAD_V4_V4_AT_PHYSICAL_OFFSET, physical + at);
        put_tail(out + at + HEAD_V4_V4_SIZE + made.born_wider + made.store_wider, of, row, &made,
                 bytes_at(TEXT(topics, FIELD(of, TOPIC, row), AT)), more, more_length);
        answer[ANSWER_PHYSICAL_OFFSET * columns + row] = physical + at;
        answer[ANSWER_SIZE * columns + row] = made.size;
        answer[ANSWER_QUEUE_OFFSET * columns + row] = queue_offset;
        at += made.size;
    }
    *written = at;
    return row;
}

/* Number of properties whose names begin like those that brokers parse as numbers. */
static inline int64_t inner_names(const uint8_t *at, const uint8_t *stop) {
    int64_t count = 0;
    while (stop - at >= SIZEOF(INNER)) {
        count += memcmp(at, INNER, sizeof(INNER) - 1) == 0;
        at = find_byte(at, stop, ITEM_END) + 1;
    }
    return count;
}

/* Locates the messages of a batch in wire format and stores their flag, body and properties in a table, as many as it
 * has columns. Returns their number, or -1 if the batch is malformed; stores further results in `found` (BATCH_...). */
EXPORT int64_t rmq_read_batch(const uint8_t *start, int64_t length, int64_t more_length, int64_t *cells,
                              int64_t columns, int64_t *found) {
    messages of = {cells, columns};
    int64_t at = 0, row = 0, stored = 0, longest = 0, inner = 0;
    for (; at < length && row < columns; row++) {
        const uint8_t *item = start + at;
        found[BATCH_AT] = at;
        if (length - at < BATCH_ITEM_HEAD_SIZE + PROPERTIES_LENGTH_SIZE) {
            return -1;
        }
        int64_t body_length = i32_at(item + BATCH_ITEM_HEAD_AT_BODY_LENGTH);
        if (body_length < 0 || body_length > length - at - BATCH_ITEM_HEAD_SIZE - PROPERTIES_LENGTH_SIZE) {
            return -1;
        }
        int64_t properties_at = BATCH_ITEM_HEAD_SIZE + body_length + PROPERTIES_LENGTH_SIZE;
        int64_t properties_length = u16_at(item + properties_at - PROPERTIES_LENGTH_SIZE);
        int64_t size = properties_at + properties_length;
        if (properties_length > MAX_PROPERTIES || size > length - at ||
            i32_at(item + BATCH_ITEM_HEAD_AT_TOTAL_SIZE) != size) {
            return -1;
        }
        FIELD(of, FLAG, row) = i32_at(item + BATCH_ITEM_HEAD_AT_FLAG);
        FIELD(of, BODY_AT, row) = (intptr_t)item + BATCH_ITEM_HEAD_SIZE;
        FIELD(of, BODY_LENGTH, row) = body_length;
        FIELD(of, PROPERTIES_AT, row) = (intptr_t)item + properties_at;
        FIELD(of, PROPERTIES_LENGTH, row) = properties_length;
        inner += inner_names(item + properties_at, item + size);
        longest = max64(longest, properties_length);
        stored += body_length + properties_length + more_length;
        stored += properties_length > 0 && more_length > 0 && item[size - 1] != ITEM_END;
        at += size;
    }
    found[BATCH_AT] = at;
    found[BATCH_STORED] = stored;
    found[BATCH_LONGEST] = longest;
    found[BATCH_INNER] = inner;
    return row;
}
