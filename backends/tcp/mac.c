/* SPDX-License-Identifier: Apache-2.0
 *
 * SipHash-2-4; see mac.h. Words are little endian.
 */
#include "mac.h"

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

uint64_t mac_of(const uint8_t key[MAC_KEY_LEN], const void *data, size_t len)
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
