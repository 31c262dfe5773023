/* SPDX-License-Identifier: Apache-2.0
 *
 * struct scope: one group that is being formed: its members, the keys with the fence that publishes
 * them, and the gets that are pending.
 */
#ifndef RUNNER_RENDEZVOUS_SCOPE_H
#define RUNNER_RENDEZVOUS_SCOPE_H

#include "base/diag.h"

#include <stddef.h>

struct member {
    bool joined, left, waiting; /* waiting: inside fence number `fences` */
    uint32_t fences;            /* completed */
};

struct kv {
    char *key;
    void *value;
    size_t len;
    uint32_t rank, fence; /* the rank that put it; the fence that publishes it */
};

struct get {
    char *key;
    uint32_t rank;
};

struct scope {
    struct scope *next;
    char *name, *group, *identity;
    uint32_t first; /* the rank whose join made the scope: the others are compared with it */
    uint32_t *ranks, *woken; /* woken: room for as many */
    struct member *members;
    uint32_t n;
    bool agreement; /* of one exchange, from which exited members are left out */
    struct kv *kvs;
    size_t nkvs;
    struct get *gets;
    size_t ngets;
    uint64_t deadline, timeout_ns;
    uint32_t group_index; /* in the desc, or UINT32_MAX for a group made at run time */
    struct diag failure;  /* code 0: none */
};

/* The members have to be filled in. NULL: out of memory. */
struct scope *scope_new(const char *name, const char *group, uint32_t n);
void scope_free(struct scope *s);
int scope_member(const struct scope *s, uint32_t rank); /* its index; -1: no member */
struct kv *scope_find_key(struct scope *s, const char *key);
/* Copies both. NULL: out of memory. */
struct kv *scope_add_key(struct scope *s, const char *key, const void *value, size_t len);
/* Frees what a member has put since the last fence. */
void scope_drop_keys(struct scope *s, int member);

#endif
