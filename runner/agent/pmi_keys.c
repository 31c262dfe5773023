/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pmi_keys.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PMI_KEYS_FIRST = 64 };

struct pmi_key {
    struct pmi_key *next;
    char *value; /* behind the key */
    char key[];
};

/* FNV-1a. */
static uint32_t pmi_keys_slot(const struct pmi_keys *t, const char *key)
{
    uint32_t hash = 2166136261u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash & (t->room - 1);
}

static void pmi_keys_link(struct pmi_keys *t, struct pmi_key *k)
{
    struct pmi_key **slot = &t->slots[pmi_keys_slot(t, k->key)];
    k->next = *slot;
    *slot = k;
    t->n++;
}

/* Twice the room. Without memory the lists become longer; without any room it is false. */
static bool pmi_keys_grow(struct pmi_keys *t)
{
    struct pmi_keys more = {.room = t->room ? t->room * 2 : PMI_KEYS_FIRST, .fences = t->fences};
    more.slots = calloc(more.room, sizeof(struct pmi_key *));
    if (!more.slots)
        return t->room > 0;
    for (uint32_t i = 0; i < t->room; i++) {
        for (struct pmi_key *k = t->slots[i], *next; k; k = next) {
            next = k->next;
            pmi_keys_link(&more, k);
        }
    }
    free(t->slots);
    *t = more;
    return true;
}

/* The place of the key in its list, or of the end of the list. */
static struct pmi_key **pmi_keys_place(const struct pmi_keys *t, const char *key)
{
    struct pmi_key **at = &t->slots[pmi_keys_slot(t, key)];
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

const char *pmi_keys_find(const struct pmi_keys *t, const char *key)
{
    const struct pmi_key *k = t->room ? *pmi_keys_place(t, key) : NULL;
    return k ? k->value : NULL;
}

static void pmi_keys_put(struct pmi_keys *t, struct pmi_key *k)
{
    if (t->n >= t->room && !pmi_keys_grow(t)) {
        free(k);
        return;
    }
    struct pmi_key **at = pmi_keys_place(t, k->key), *old = *at;
    if (old) {
        *at = old->next;
        t->n--;
        free(old);
    }
    pmi_keys_link(t, k);
}

void pmi_keys_set(struct pmi_keys *t, const char *key, const char *value, size_t len)
{
    const size_t key_len = strlen(key) + 1;
    struct pmi_key *k = malloc(sizeof *k + key_len + len + 1);
    if (!k)
        return;
    memcpy(k->key, key, key_len);
    k->value = k->key + key_len;
    memcpy(k->value, value, len);
    k->value[len] = '\0';
    pmi_keys_put(t, k);
}

void pmi_keys_take(struct pmi_keys *to, struct pmi_keys *from)
{
    for (uint32_t i = 0; i < from->room; i++) {
        for (struct pmi_key *k = from->slots[i], *next; k; k = next) {
            next = k->next;
            pmi_keys_put(to, k);
        }
    }
    free(from->slots);
    *from = (struct pmi_keys){0};
}

void pmi_keys_fini(struct pmi_keys *t)
{
    for (uint32_t i = 0; i < t->room; i++) {
        for (struct pmi_key *k = t->slots[i], *next; k; k = next) {
            next = k->next;
            free(k);
        }
    }
    free(t->slots);
    *t = (struct pmi_keys){0};
}
