#ifndef RMQ_RECORDS_H
#define RMQ_RECORDS_H

#include "crc.h"
#include "layouts.h"

/* A table of int64: the cell of row r and column c is at cells[r * row + c * column]. */
typedef struct {
    int64_t *cells;
    int64_t rows;   /* that it has room for */
    int64_t row;    /* cells from one row to the next */
    int64_t column; /* cells from one column to the next */
} table;

#define CELL(table, r, c) ((table).cells[(r) * (table).row + (c) * (table).column])

/* A stretch of a buffer in which records are looked for. */
typedef struct {
    const uint8_t *base; /* of the buffer; positions count from it */
    int64_t limit;       /* where the readable part ends */
    int64_t stop;        /* where no record begins any more that is wanted */
    bool check_crc;
    crc_function crc;
} stretch;

/* Find records from `at` on; a row of `rows` for each (columns ROW_...). Returns how many; *next is where the next one
 * would begin. It ends when the table is full, at the first record that begins at `stop` or later, and at the first
 * place where formats.message.read finds no record. */
int64_t walk_records(const stretch *in, int64_t at, table rows, int64_t *next);

#endif
