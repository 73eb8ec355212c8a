#ifndef RMQ_RECORDS_H
#define RMQ_RECORDS_H

#include "crc.h"
#include "layouts.h"

/* A table of int64: the cell of row r and column c is at cells[r * row + c * column]. */
typedef struct {
    int64_t *cells;
    int64_t rows;   /* capacity */
    int64_t row;    /* cells from one row to the next */
    int64_t column; /* cells from one column to the next */
} table;

#define CELL(table, r, c) ((table).cells[(r) * (table).row + (c) * (table).column])

/* Range of a buffer in which records are searched for. */
typedef struct {
    const uint8_t *base; /* start of the buffer; positions are relative to it */
    int64_t limit;       /* end of the readable part */
    int64_t stop;        /* records that begin here or later are not wanted */
    bool check_crc;
    crc_function crc;
} stretch;

/* Finds records from `at` on and stores a row (columns ROW_...) for each. Returns their number; *next is the start of
 * the next one. Stops when the table is full, at the first record that begins at or after `stop`, and at the first
 * position where formats.message.read finds no record. */
int64_t walk_records(const stretch *in, int64_t at, table rows, int64_t *next);

#endif
