/* SPDX-License-Identifier: Apache-2.0
 *
 * What every part of the Gloo backend shares: the failure that the parts throw at each other (and
 * that plugin.cc turns into a status, so that nothing leaves the shim), the signature of a call, by
 * which ranks recognise that they are in the same one, and the slot that Gloo matches messages by.
 *
 * A slot is a hash of the signature and of the message's place in the algorithm. Gloo only joins a
 * send and a receive of the same slot, so a message can never meet a buffer of another size (which
 * would kill the process on Gloo's own thread), another element type or another operator: calls
 * that disagree wait for each other, and control.h then finds out why.
 */
#ifndef BACKENDS_GLOO_COMMON_H
#define BACKENDS_GLOO_COMMON_H

#include <collrun/backend.h>

#include <cstdint>
#include <string>

namespace collrun_gloo
{

constexpr int no_peer = -1;
constexpr uint64_t millisecond = 1000000u;
constexpr uint64_t never = UINT64_MAX;

/* Thrown by every part; `peer` is the group rank that it is about, or no_peer. */
struct failure {
    int status;
    int peer;
    std::string text;
};

/* printf into a std::string. */
std::string format(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t now_ns();

/* A call as one rank sees it, also the head of messages (so without pointers and padding). */
struct signature {
    uint32_t magic; /* never 0: a buffer that holds one is told from a cleared one */
    uint8_t kind, dtype, op, step;
    int32_t root; /* no_peer where the kind has none */
    uint32_t tag;
    uint64_t
        sequence;   /* collectives: their number; point to point: messages the pair has finished */
    uint64_t count; /* as called; 0 where every rank has its own */
    uint64_t bytes; /* of this very message */
};
static_assert(sizeof(signature) == 40, "signatures travel");
constexpr uint32_t signature_magic = 0xc0115160u;

bool is_v_form(unsigned kind);
bool is_reduction(unsigned kind);
bool is_half(enum collrun_dtype dtype);

/* The signature of a collective call. */
signature signature_of(const collrun_call &call, uint64_t sequence);
/* Of one message of it, at a step of the algorithm. */
signature at_step(const signature &call, unsigned step, size_t bytes);
bool same_call(const signature &a, const signature &b);

/* "allreduce(1000 x float32, sum)", "send(10 x int32, tag 3)" */
std::string describe(const signature &s);

/* Slots: the small ones are named, all others have the highest bit. */
constexpr uint64_t slot_mailbox = 1, slot_control = 2, slot_farewell = 3;
uint64_t slot_of(const signature &s);

} // namespace collrun_gloo
#endif
