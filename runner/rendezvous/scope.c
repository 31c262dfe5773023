/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that grow; everything is copied.
 */
#include "rendezvous/scope.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

void scope_free(struct scope *s)
{
    for (size_t i = 0; i < s->nkvs; i++) {
        free(s->kvs[i].key);
        free(s->kvs[i].value);
    }
    for (size_t i = 0; i < s->ngets; i++)
        free(s->gets[i].key);
    free(s->kvs);
    free(s->gets);
    free(s->name);
    free(s->group);
    free(s->identity);
    free(s->ranks);
    free(s->woken);
    free(s->members);
    free(s);
}

struct scope *scope_new(const char *name, const char *group, uint32_t n)
{
    struct scope *s = memory_checked(calloc(1, sizeof *s));
    if (!s)
        return NULL;
    s->n = n;
    s->name = memory_checked(strdup(name));
    s->group = memory_checked(strdup(group));
    s->ranks = memory_checked(calloc(n ? n : 1, sizeof *s->ranks));
    s->woken = memory_checked(calloc(n ? n : 1, sizeof *s->woken));
    s->members = memory_checked(calloc(n ? n : 1, sizeof *s->members));
    if (!s->name || !s->group || !s->ranks || !s->woken || !s->members) {
        scope_free(s);
        return NULL;
    }
    return s;
}

int scope_member(const struct scope *s, uint32_t rank)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->ranks[i] == rank)
            return (int)i;
    }
    return -1;
}

struct kv *scope_find_key(struct scope *s, const char *key)
{
    for (size_t i = 0; i < s->nkvs; i++) {
        if (strcmp(s->kvs[i].key, key) == 0)
            return &s->kvs[i];
    }
    return NULL;
}

struct kv *scope_add_key(struct scope *s, const char *key, const void *value, size_t len)
{
    /* The capacity is the next power of two. */
    if ((s->nkvs & (s->nkvs - 1)) == 0) {
        struct kv *grown =
            memory_checked(realloc(s->kvs, (s->nkvs ? s->nkvs * 2 : 1) * sizeof *grown));
        if (!grown)
            return NULL;
        s->kvs = grown;
    }
    struct kv kv = {.key = memory_checked(strdup(key)),
                    .value = memory_checked(malloc(len ? len : 1)),
                    .len = len};
    if (!kv.key || !kv.value) {
        free(kv.key);
        free(kv.value);
        return NULL;
    }
    memcpy(kv.value, value, len);
    s->kvs[s->nkvs] = kv;
    return &s->kvs[s->nkvs++];
}

void scope_drop_keys(struct scope *s, int member)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->nkvs; i++) {
        if (s->kvs[i].rank == s->ranks[member] && s->kvs[i].fence == s->members[member].fences) {
            free(s->kvs[i].key);
            free(s->kvs[i].value);
        } else {
            s->kvs[kept++] = s->kvs[i];
        }
    }
    s->nkvs = kept;
}
