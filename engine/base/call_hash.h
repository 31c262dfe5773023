/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes of collectives, by which the marks of a record compare the calls of ranks (base/record.h).
 * The engine and the libraries that record other libraries compute them alike.
 */
#ifndef ENGINE_BASE_CALL_HASH_H
#define ENGINE_BASE_CALL_HASH_H

#include <stdint.h>

/* One step of a hash, from two words: the halves of their product. Differences of the words do not
 * cancel, as the constants are random. */
static inline uint64_t call_hash_mix(uint64_t a, uint64_t b)
{
    __extension__ const unsigned __int128 product =
        (unsigned __int128)(a ^ 0xd6e8feb86659fd93u) * (b ^ 0xa0761d6478bd642fu);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* A count from one communicator rank to another is hashed as count * RECEIVED^from * SENT^to
 * (mod 2^64). Sums of such terms take one multiplication for each count, and those of all members
 * can be added up. */
#define CALL_HASH_RECEIVED UINT64_C(0xd6e8feb86659fd93)
#define CALL_HASH_SENT UINT64_C(0xa0761d6478bd642d)

static inline uint64_t call_hash_power(uint64_t base, uint32_t exponent)
{
    uint64_t power = 1;
    for (; exponent; exponent >>= 1, base *= base)
        power *= exponent & 1 ? base : 1;
    return power;
}

/* Terms of two operations that differ do not add up to 0 with this factor. */
static inline uint64_t call_hash_factor(uint64_t number)
{
    return call_hash_mix(number, 0) | 1;
}

#endif
