/* Positions of the fields of a record's head that depend on the hosts, each of which can be IPv6. */
#ifndef RMQ_HEADS_H
#define RMQ_HEADS_H

#include "layouts.h"

#define BORN_WIDER (HEAD_V6_V4_SIZE - HEAD_V4_V4_SIZE)
#define STORE_WIDER (HEAD_V4_V6_SIZE - HEAD_V4_V4_SIZE)
#define ADDRESS_V4 (HEAD_V4_V4_AT_BORN_PORT - HEAD_V4_V4_AT_BORN_ADDRESS)

/* Distance from a field after both hosts to the body. */
#define BEFORE_BODY(field) (HEAD_V4_V4_SIZE - HEAD_V4_V4_AT_##field)

#endif
