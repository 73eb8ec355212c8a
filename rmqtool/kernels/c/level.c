/* Identification of the library, and detection of the variant that this processor supports. */
#include "bytes.h"

EXPORT uint32_t rmq_stamp(void) { return RMQ_STAMP; }

#if defined(__x86_64__)
#include <cpuid.h>

#define FMA (1u << 12)
#define MOVBE (1u << 22)
#define OSXSAVE (1u << 27)
#define BMI1 (1u << 3)
#define AVX2 (1u << 5)
#define BMI2 (1u << 8)
#define LZCNT (1u << 5)
#define YMM_STATE 6u /* the system saves SSE and AVX registers */

/* 1 if the processor supports x86-64-v3 (AVX2 and related extensions), else 0. */
EXPORT int rmq_level(void) {
    unsigned a, b, c, d;
    const unsigned wanted = FMA | MOVBE | OSXSAVE;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & wanted) != wanted) {
        return 0;
    }
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & YMM_STATE) != YMM_STATE) {
        return 0;
    }
    const unsigned more = BMI1 | AVX2 | BMI2;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & more) != more) {
        return 0;
    }
    return __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & LZCNT) != 0;
}
#else
EXPORT int rmq_level(void) { return 0; }
#endif
