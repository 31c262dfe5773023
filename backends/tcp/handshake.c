/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of the handshake; see handshake.h. The codes are compared as words, in constant
 * time.
 */
#include "handshake.h"

#include <stddef.h>
#include <string.h>
#include <sys/random.h>

/* ---- codes of messages ----
 *
 * SipHash-2-4. Words are little endian.
 */

struct mac_state {
    uint64_t v[4];
};

static uint64_t mac_word(const uint8_t *bytes, size_t len)
{
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

static uint64_t mac_rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mac_rounds(struct mac_state *s, int rounds)
{
    uint64_t *v = s->v;
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = mac_rotate(v[1], 13) ^ v[0];
        v[3] = mac_rotate(v[3], 16) ^ v[2];
        v[0] = mac_rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = mac_rotate(v[1], 17) ^ v[2];
        v[3] = mac_rotate(v[3], 21) ^ v[0];
        v[2] = mac_rotate(v[2], 32);
    }
}

static void mac_add(struct mac_state *s, uint64_t word)
{
    s->v[3] ^= word;
    mac_rounds(s, 2);
    s->v[0] ^= word;
}

static uint64_t mac_of(const uint8_t key[MAC_KEY_LEN], const void *data, size_t len)
{
    const uint64_t k0 = mac_word(key, 8), k1 = mac_word(key + 8, 8);
    const uint8_t *bytes = data;
    size_t left = len;
    struct mac_state s = {{k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du,
                           k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u}};
    for (; left >= 8; left -= 8, bytes += 8)
        mac_add(&s, mac_word(bytes, 8));
    mac_add(&s, mac_word(bytes, left) | (uint64_t)len << 56);
    s.v[2] ^= 0xff;
    mac_rounds(&s, 4);
    return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

/* ---- the handshake ---- */

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
