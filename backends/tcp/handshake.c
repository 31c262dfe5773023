/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of the handshake; see handshake.h. The codes are compared as words, in constant
 * time.
 */
#include "handshake.h"

#include <stddef.h>
#include <string.h>
#include <sys/random.h>

#define HANDSHAKE_HELLO_MAGIC 0x6f6c6c6568726363u
#define HANDSHAKE_ANSWER_MAGIC 0x726577736e616363u

bool handshake_make_keys(struct handshake_address *self)
{
    return getrandom(self->hello_key, sizeof self->hello_key, 0) ==
               (ssize_t)sizeof self->hello_key &&
           getrandom(self->answer_key, sizeof self->answer_key, 0) ==
               (ssize_t)sizeof self->answer_key;
}

static uint64_t handshake_hello_code(const struct handshake_hello *hello,
                                     const struct handshake_address *to)
{
    return mac_of(to->hello_key, hello, offsetof(struct handshake_hello, code));
}

bool handshake_hello_seal(struct handshake_hello *hello, const struct handshake_address *to)
{
    hello->magic = HANDSHAKE_HELLO_MAGIC;
    hello->reserved = 0;
    if (getrandom(&hello->nonce, sizeof hello->nonce, 0) != (ssize_t)sizeof hello->nonce)
        return false;
    hello->code = handshake_hello_code(hello, to);
    return true;
}

bool handshake_hello_is_valid(const struct handshake_hello *hello,
                              const struct handshake_address *self)
{
    return hello->magic == HANDSHAKE_HELLO_MAGIC &&
           (hello->code ^ handshake_hello_code(hello, self)) == 0;
}

/* Over the verdict and the HELLO that it answers. */
static uint64_t handshake_answer_code(const struct handshake_answer *answer,
                                      const struct handshake_hello *hello,
                                      const struct handshake_address *from)
{
    uint8_t both[offsetof(struct handshake_answer, code) + sizeof *hello];
    memcpy(both, answer, offsetof(struct handshake_answer, code));
    memcpy(both + offsetof(struct handshake_answer, code), hello, sizeof *hello);
    return mac_of(from->answer_key, both, sizeof both);
}

void handshake_answer_seal(struct handshake_answer *answer, const struct handshake_hello *hello,
                           const struct handshake_address *self)
{
    answer->magic = HANDSHAKE_ANSWER_MAGIC;
    answer->code = handshake_answer_code(answer, hello, self);
}

bool handshake_answer_is_valid(const struct handshake_answer *answer,
                               const struct handshake_hello *hello,
                               const struct handshake_address *from)
{
    return answer->magic == HANDSHAKE_ANSWER_MAGIC &&
           (answer->code ^ handshake_answer_code(answer, hello, from)) == 0;
}
