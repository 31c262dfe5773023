/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous store: how the members of a group find each other without opening a port. Every
 * group that is being formed is a scope (its name, generation and members); members join it, put
 * keys, get keys, and meet in fences, which give each of them everything that was put since the
 * last one. A state machine without I/O: frames go in through rdv_frame, answers come out through
 * the `send` function, time comes in as an argument.
 *
 * A scope fails as a whole, for all its members, with one sentence: two members disagree about who
 * the members are or which backend serves them, a key is put twice, a member dies, or the deadline
 * passes, in which case the sentence names those that have not come.
 */
#ifndef WATCH_RENDEZVOUS_H
#define WATCH_RENDEZVOUS_H

#include "base/desc.h"
#include "base/wire.h"

struct rdv;

struct rdv_output {
    /* One frame for each of these ranks. */
    void (*send)(void *ctx, const uint32_t *ranks, uint32_t n, uint16_t type,
                 const struct buf *payload);
    void *ctx;
};

struct rdv *rdv_new(const struct desc *desc,
                    struct rdv_output output); /* NULL: out of memory; desc is borrowed */
void rdv_free(struct rdv *rdv);

/* JOIN, PUT, GET, FENCE or LEAVE from f->rank. Negative: the frame is malformed (diag says how). */
int rdv_frame(struct rdv *rdv, const struct wire_frame *f, uint64_t now, struct diag *d);
/* A rank is gone: what it has not fenced yet can never complete. */
void rdv_rank_gone(struct rdv *rdv, uint32_t rank, const char *how);
/* Fails the scopes whose time is over. */
void rdv_expire(struct rdv *rdv, uint64_t now);
uint64_t rdv_next_deadline(const struct rdv *rdv); /* UINT64_MAX: nothing waits */
uint32_t rdv_open_scopes(
    const struct rdv *rdv); /* for tests: a scope is forgotten when all members have left */

/* "3, 5-7 and 9": ranks as a person writes them, cut after a few ranges. */
void ranks_format(char *out, size_t size, const uint32_t *ranks, uint32_t n);

#endif
