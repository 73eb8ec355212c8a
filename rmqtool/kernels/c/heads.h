/* Where the fields of a record's head lie that its hosts move: each of the two may be IPv6. */
#ifndef RMQ_HEADS_H
#define RMQ_HEADS_H

#include "layouts.h"

#define BORN_WIDER (HEAD_V6_V4_SIZE - HEAD_V4_V4_SIZE)
#define STORE_WIDER (HEAD_V4_V6_SIZE - HEAD_V4_V4_SIZE)
#define ADDRESS_V4 (HEAD_V4_V4_AT_BORN_PORT - HEAD_V4_V4_AT_BORN_ADDRESS)

/* How far a field behind both hosts lies in front of the body. */
#define BEFORE_BODY(field) (HEAD_V4_V4_SIZE - HEAD_V4_V4_AT_##field)

#endif
