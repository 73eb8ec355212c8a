/* Extracts what dispatch needs from records: tags code, deliver time, index keys, topics, and queue entries.
 *
 * Equivalent to formats.message.properties, formats.primitives.java_hash and formats.index.key_hash. Malformed UTF-8
 * and light queues are left to those: both are rare, and their rules are complex.
 */
#include "records.h"
#include "text.h"

#define SOON 6  /* prefetch distance in records, for large records that are on pages of their own */
#define STEP 256 /* records checked before they are read, so that their bytes are still in the cache */
#define MIX 0x2545F4914F6CDD1Du

/* Collected data and space for it; mirrored by rmqtool.kernels.dispatch. */
typedef struct {
    const int64_t *delays; /* delays of levels 1, 2, ... in ms */
    int64_t delay_levels;
    int64_t light; /* leave records with additional queues to the caller */
    int64_t tags;  /* add tags as keys */
    int64_t *records; /* columns FIELD_..., `capacity` cells apart */
    int64_t capacity;
    int64_t *keys; /* record of each key; its hash is `key_capacity` cells further on */
    int64_t key_capacity;
    int64_t *topics; /* columns TOPIC_..., `capacity` cells apart */
    int32_t *slots;  /* hash table of topics: number + 1, or 0; its size is a power of two above the number of topics */
    int64_t slot_count;
    int64_t *numbers; /* columns NUMBERS_..., `capacity` cells apart */
    int64_t record_count, key_count, topic_count, number_count;
} collector;

#define FIELD(into, r, field) ((into)->records[(into)->capacity * FIELD_##field + (r)])
#define TOPIC(into, number, field) ((into)->topics[(into)->capacity * TOPIC_##field + (number)])

static inline uint64_t mixed_in(uint64_t mixed, uint64_t word) {
    mixed = (mixed ^ word) * MIX;
    return mixed ^ mixed >> 29;
}

/* Number of a topic in this batch, assigned when it first occurs. */
INLINE int64_t topic_number(collector *into, const uint8_t *base, int64_t at, int64_t length) {
    const uint8_t *start = base + at, *stop = start + length;
    uint64_t mixed = (uint64_t)length;
    for (; stop - start >= 8; start += 8) {
        mixed = mixed_in(mixed, word_at(start));
    }
    if (start < stop) {
        mixed = mixed_in(mixed, last_word(stop, stop - start));
    }
    int64_t mask = into->slot_count - 1, slot = (int64_t)(mixed ^ mixed >> 32) & mask;
    for (; into->slots[slot] != 0; slot = (slot + 1) & mask) {
        int64_t number = into->slots[slot] - 1;
        if (TOPIC(into, number, MIX) == (int64_t)mixed && TOPIC(into, number, LENGTH) == length &&
            same_text(base + at, base + TOPIC(into, number, AT), length)) {
            return number;
        }
    }
    int64_t number = into->topic_count++;
    into->slots[slot] = (int32_t)(number + 1);
    uint32_t hash;
    TOPIC(into, number, GOOD) = hash_on(0, base + at, stop, &hash);
    TOPIC(into, number, HASH) = hash * 31 + '#';
    TOPIC(into, number, AT) = at;
    TOPIC(into, number, LENGTH) = length;
    TOPIC(into, number, MIX) = (int64_t)mixed;
    TOPIC(into, number, SLOT) = slot;
    return number;
}

typedef struct {
    const uint8_t *at, *end; /* NULL if the properties have no such item */
} text;

/* The properties that dispatch uses; of duplicate names the last wins. */
typedef struct {
    text tags, keys, unique, delay, base, count;
    bool multi;
} items;

static inline void sort_item(items *found, const uint8_t *at, const uint8_t *end) {
    if (BEGINS(at, end, ITEM_TAGS)) {
        found->tags = (text){at + SIZEOF(ITEM_TAGS), end};
    } else if (BEGINS(at, end, ITEM_KEYS)) {
        found->keys = (text){at + SIZEOF(ITEM_KEYS), end};
    } else if (BEGINS(at, end, ITEM_UNIQ_KEY)) {
        found->unique = (text){at + SIZEOF(ITEM_UNIQ_KEY), end};
    } else if (BEGINS(at, end, ITEM_DELAY)) {
        found->delay = (text){at + SIZEOF(ITEM_DELAY), end};
    } else if (BEGINS(at, end, ITEM_INNER_BASE)) {
        found->base = (text){at + SIZEOF(ITEM_INNER_BASE), end};
    } else if (BEGINS(at, end, ITEM_INNER_NUM)) {
        found->count = (text){at + SIZEOF(ITEM_INNER_NUM), end};
    } else if (BEGINS(at, end, ITEM_MULTI_DISPATCH)) {
        found->multi = true;
    }
}

/* Searches 64 bytes at a time for the ends of items, which are then kept in `marks`. */
INLINE void find_items(items *found, const uint8_t *at, const uint8_t *stop) {
    const uint8_t *window = at - MARKED;
    uint64_t marks = 0;
    while (at < stop) {
        while (marks == 0 && stop - window > MARKED) {
            window += MARKED;
            marks = marks_in(window, stop, ITEM_END);
        }
        const uint8_t *end = stop;
        if (marks != 0) {
            end = window + __builtin_ctzll(marks);
            marks &= marks - 1;
        }
        sort_item(found, at, end);
        at = end + 1;
    }
}

/* Computes the hash of the tags, or the due time of a delayed message. Returns whether the tags are well-formed. */
INLINE bool find_tags_code(const collector *into, const items *found, bool schedule, int64_t store_timestamp,
                                  int64_t *tags_code) {
    uint32_t hash;
    bool good = hash_on(0, found->tags.at, found->tags.end, &hash);
    *tags_code = (int32_t)hash;
    if (found->delay.at != NULL && schedule) {
        int64_t level;
        java_number(found->delay.at, found->delay.end, 32, &level);
        level = min64(level, into->delay_levels);
        if (level > 0) {
            *tags_code = wrapping_add(store_timestamp, into->delays[level - 1]);
        }
    }
    return good;
}

/* Appends a key's hash without counting it yet. Returns whether the key is well-formed. */
INLINE bool put_key(collector *into, int64_t key, int64_t record, uint32_t before, text name) {
    uint32_t hash;
    bool good = hash_on(before, name.at, name.end, &hash);
    into->keys[key] = record;
    into->keys[into->key_capacity + key] = index_hash(hash);
    return good;
}

/* The tags as a key, with the prefix "T#". Its hash is complemented to distinguish it from other keys. */
INLINE bool put_tags(collector *into, int64_t key, int64_t record, uint32_t before, text tags) {
    bool good = put_key(into, key, record, (before * 31 + 'T') * 31 + '#', tags);
    into->keys[into->key_capacity + key] = ~into->keys[into->key_capacity + key];
    return good;
}

/* Appends the unique key, the application's keys (separated by spaces) and the tags. Returns whether all are
 * well-formed. */
INLINE bool put_keys(collector *into, const items *found, int64_t record, int64_t topic, int64_t *count) {
    uint32_t before = (uint32_t)TOPIC(into, topic, HASH);
    bool good = TOPIC(into, topic, GOOD) != 0;
    int64_t key = into->key_count;
    if (found->unique.at != NULL) {
        good &= put_key(into, key++, record, before, found->unique);
    }
    for (const uint8_t *at = found->keys.at; at < found->keys.end;) {
        const uint8_t *end = first_in(at, found->keys.end, ' ');
        if (end > at) {
            good &= put_key(into, key++, record, before, (text){at, end});
        }
        at = end + 1;
    }
    if (into->tags && found->tags.end > found->tags.at) {
        good &= put_tags(into, key++, record, before, found->tags);
    }
    *count = key - into->key_count;
    return good;
}

/* The numbers of an inner batch, if a record has both. */
INLINE void put_numbers(collector *into, const items *found, int64_t record) {
    int64_t base, count;
    if (found->base.at != NULL && found->count.at != NULL &&
        java_number(found->base.at, found->base.end, 64, &base) &&
        java_number(found->count.at, found->count.end, 16, &count)) {
        int64_t *numbers = into->numbers + into->number_count++;
        numbers[into->capacity * NUMBERS_ROW] = record;
        numbers[into->capacity * NUMBERS_BASE] = base;
        numbers[into->capacity * NUMBERS_MESSAGES] = count;
    }
}

/* Adds one record. Returns whether it was added completely; the rest is left to the caller. */
INLINE bool take_record(collector *into, const uint8_t *base, table rows, int64_t row) {
    int64_t topic_at = CELL(rows, row, ROW_TOPIC_AT), topic_length = CELL(rows, row, ROW_TOPIC_LENGTH);
    int64_t store_timestamp = CELL(rows, row, ROW_STORE_TIMESTAMP);
    int64_t transaction = CELL(rows, row, ROW_SYS_FLAG) & TRANSACTION_MASK;
    int64_t topic = topic_number(into, base, topic_at, topic_length);
    int64_t record = into->record_count++;
    FIELD(into, record, PHYSICAL_OFFSET) = CELL(rows, row, ROW_PHYSICAL_OFFSET);
    FIELD(into, record, SIZE) = CELL(rows, row, ROW_TOTAL_SIZE);
    FIELD(into, record, QUEUE_ID) = CELL(rows, row, ROW_QUEUE_ID);
    FIELD(into, record, QUEUE_OFFSET) = CELL(rows, row, ROW_QUEUE_OFFSET);
    FIELD(into, record, STORE_TIMESTAMP) = store_timestamp;
    FIELD(into, record, QUEUED) = transaction == TRANSACTION_NONE || transaction == TRANSACTION_COMMIT;
    FIELD(into, record, TOPIC) = topic;

    items found = {0};
    const uint8_t *properties = base + CELL(rows, row, ROW_PROPERTIES_AT);
    find_items(&found, properties, properties + CELL(rows, row, ROW_PROPERTIES_LENGTH));
    put_numbers(into, &found, record);
    int64_t tags_code, keys = 0;
    bool schedule = is_schedule(base + topic_at, topic_length);
    bool good = find_tags_code(into, &found, schedule, store_timestamp, &tags_code);
    FIELD(into, record, TAGS_CODE) = tags_code;
    bool named = found.unique.at != NULL || found.keys.at != NULL || (into->tags && found.tags.at != NULL);
    if (transaction != TRANSACTION_ROLLBACK && named) {
        good &= put_keys(into, &found, record, topic, &keys);
    }
    if (!good || (into->light && found.multi)) {
        return false;
    }
    into->key_count += keys;
    return true;
}

static inline void expect_topic(const uint8_t *base, table rows, int64_t row) {
    uintptr_t soon = (uintptr_t)base + (uintptr_t)CELL(rows, row, ROW_TOPIC_AT);
    EXPECT_READ(soon);
    EXPECT_READ(soon + 64);
    EXPECT_READ(soon + 128);
}

/* Adds rows [first, count). Stores the reason for stopping; returns the next row. */
static inline int64_t take_rows(collector *whole, const uint8_t *base, table rows, int64_t first, int64_t count,
                                int64_t *why) {
    collector mine = *whole, *into = &mine;
    *why = DONE;
    int64_t row;
    for (row = first; row < count; row++) {
        /* a key has at least one byte, so a record has at most as many keys as bytes of properties */
        if (into->record_count >= into->capacity ||
            into->key_capacity - into->key_count < CELL(rows, row, ROW_PROPERTIES_LENGTH)) {
            *why = FULL;
            break;
        }
        if (row + SOON < count) {
            expect_topic(base, rows, row + SOON);
        }
        if (!take_record(into, base, rows, row)) {
            *why = ODD;
            break;
        }
    }
    whole->record_count = mine.record_count;
    whole->key_count = mine.key_count;
    whole->topic_count = mine.topic_count;
    whole->number_count = mine.number_count;
    return row;
}

/* The columns of rows are `capacity` cells apart. */
EXPORT int64_t rmq_take(const uint8_t *base, int64_t *cells, int64_t capacity, int64_t first, int64_t count,
                        collector *into, int64_t *why) {
    table rows = {cells, capacity, 1, capacity};
    return take_rows(into, base, rows, first, count, why);
}

/* Finds records from `at` on and adds them. Stores the reason for stopping; returns the position. */
EXPORT int64_t rmq_survey(const uint8_t *base, int64_t at, int64_t limit, int64_t stop, int32_t check_crc,
                          crc_function crc, collector *into, int64_t *why) {
    int64_t cells[STEP * ROW_COLUMNS];
    const table rows = {cells, STEP, ROW_COLUMNS, 1};
    const stretch in = {base, limit, stop, check_crc != 0, crc};
    for (;;) {
        int64_t next;
        int64_t count = walk_records(&in, at, rows, &next);
        if (count == 0) {
            *why = DONE;
            return at;
        }
        int64_t row = take_rows(into, base, rows, 0, count, why);
        if (*why != DONE) {
            return CELL(rows, row, ROW_AT);
        }
        at = next;
    }
}
