/* SPDX-License-Identifier: Apache-2.0
 *
 * Two hash tables of lists. The head of a list represents it in its bucket; when the head is taken
 * out, its successor becomes the head.
 */
#include "core/match.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static uint64_t match_key_of(uint32_t source, uint32_t tag)
{
    return (uint64_t)source << 32 | tag;
}

/* ---- tables ---- */

static uint64_t match_bucket_of(uint64_t key, uint32_t bits)
{
    return key * 0x9e3779b97f4a7c15u >> (64 - bits);
}

static void match_table_init(struct match_table *t)
{
    *t = (struct match_table){.bits = MATCH_FEW_BITS};
    t->buckets = t->few;
}

/* The pointer to the head of the key's list, or to the NULL at the end of its bucket. */
static inline struct match_link **match_table_find(struct match_table *t, uint64_t key)
{
    struct match_link **p = &t->buckets[match_bucket_of(key, t->bits)];
    while (*p && (*p)->key != key)
        p = &(*p)->chain;
    return p;
}

/* Twice as many buckets. Without memory for them the table stays as it is. */
static void match_table_grow(struct match_table *t)
{
    uint32_t bits = t->bits + 1;
    struct match_link **buckets = calloc((size_t)1 << bits, sizeof *buckets);
    if (!buckets)
        return;
    for (size_t i = 0; i < (size_t)1 << t->bits; i++) {
        for (struct match_link *head = t->buckets[i], *next; head; head = next) {
            struct match_link **bucket = &buckets[match_bucket_of(head->key, bits)];
            next = head->chain;
            head->chain = *bucket;
            *bucket = head;
        }
    }
    if (t->buckets != t->few)
        free(t->buckets);
    t->buckets = buckets;
    t->bits = bits;
}

static void match_table_append(struct match_table *t, struct match_link *link, uint64_t key)
{
    struct match_link **p = match_table_find(t, key), *head = *p;
    link->key = key;
    if (head) {
        link->next = head;
        link->prev = head->prev;
        head->prev->next = link;
        head->prev = link;
        return;
    }
    link->next = link->prev = link;
    link->chain = NULL;
    *p = link;
    if (++t->nlists > (uint32_t)1 << t->bits)
        match_table_grow(t);
}

/* `p` is what table_find gives for the key of the link. */
static void match_table_remove(struct match_table *t, struct match_link **p,
                               struct match_link *link)
{
    struct match_link *next = link->next;
    if (next == link) {
        *p = link->chain;
        t->nlists--;
        return;
    }
    if (*p == link) {
        next->chain = link->chain;
        *p = next;
    }
    link->prev->next = next;
    next->prev = link->prev;
}

/* ---- entries ---- */

static struct match_entry *match_entry_of(struct match_link *link, int list)
{
    return (struct match_entry *)(void *)((char *)link - offsetof(struct match_entry, link) -
                                          (size_t)list * sizeof *link);
}

void match_init(struct match *m)
{
    *m = (struct match){0};
    match_table_init(&m->posted);
    match_table_init(&m->unexpected);
}

static bool match_is_any(const struct match_entry *receive)
{
    return receive->source == MATCH_ANY_SOURCE || receive->tag == MATCH_ANY_TAG;
}

static bool match_tag_fits(uint32_t receive, uint32_t message)
{
    return receive == message || (receive == MATCH_ANY_TAG && message < MATCH_ENGINE_TAG);
}

/* ---- unexpected messages ---- */

/* In the lists of any tag, too. */
static void match_add_any_tag(struct match *m, struct match_entry *message)
{
    if (message->tag >= MATCH_ENGINE_TAG)
        return;
    message->nlists = MATCH_LISTS;
    match_table_append(&m->unexpected, &message->link[MATCH_OF_SOURCE],
                       match_key_of(message->source, MATCH_ANY_TAG));
    match_table_append(&m->unexpected, &message->link[MATCH_OF_ALL],
                       match_key_of(MATCH_ANY_SOURCE, MATCH_ANY_TAG));
}

void match_add_unexpected(struct match *m, struct match_entry *message)
{
    m->nunexpected++;
    message->next = NULL;
    message->prev = m->newest;
    *(m->newest ? &m->newest->next : &m->oldest) = message;
    m->newest = message;
    message->nlists = MATCH_OF_SOURCE;
    match_table_append(&m->unexpected, &message->link[MATCH_EXACT],
                       match_key_of(message->source, message->tag));
    match_table_append(&m->unexpected, &message->link[MATCH_OF_TAG],
                       match_key_of(MATCH_ANY_SOURCE, message->tag));
    if (m->any_tag)
        match_add_any_tag(m, message);
}

/* Before the first receive of any tag is queued, or looks for a message. */
static void match_use_any_tag(struct match *m)
{
    m->any_tag = true;
    for (struct match_entry *message = m->oldest; message; message = message->next)
        match_add_any_tag(m, message);
}

struct match_entry *match_find_unexpected(struct match *m, uint32_t source, uint32_t tag)
{
    if (tag == MATCH_ANY_TAG && !m->any_tag)
        match_use_any_tag(m);
    if (m->nunexpected == 0)
        return NULL;
    struct match_link *head = *match_table_find(&m->unexpected, match_key_of(source, tag));
    int list = (source == MATCH_ANY_SOURCE ? MATCH_OF_TAG : MATCH_EXACT) +
               (tag == MATCH_ANY_TAG ? MATCH_OF_SOURCE : MATCH_EXACT);
    return head ? match_entry_of(head, list) : NULL;
}

struct match_entry *match_take_unexpected(struct match *m, uint32_t source, uint32_t tag)
{
    struct match_entry *found = match_find_unexpected(m, source, tag);
    if (!found)
        return NULL;
    for (uint32_t list = 0; list < found->nlists; list++) {
        struct match_link *link = &found->link[list];
        match_table_remove(&m->unexpected, match_table_find(&m->unexpected, link->key), link);
    }
    *(found->prev ? &found->prev->next : &m->oldest) = found->next;
    *(found->next ? &found->next->prev : &m->newest) = found->prev;
    m->nunexpected--;
    return found;
}

/* ---- posted receives ---- */

static void match_post_in_table(struct match *m, struct match_entry *receive)
{
    m->nposted_any += match_is_any(receive);
    if (receive->tag == MATCH_ANY_TAG && !m->any_tag)
        match_use_any_tag(m);
    match_table_append(&m->posted, &receive->link[MATCH_EXACT],
                       match_key_of(receive->source, receive->tag));
}

void match_add_posted(struct match *m, struct match_entry *receive)
{
    receive->order = ++m->order;
    if (m->nposted++ == 0) {
        m->only = receive;
        return;
    }
    if (m->only)
        match_post_in_table(m, m->only);
    m->only = NULL;
    match_post_in_table(m, receive);
}

static struct match_entry *match_take_only(struct match *m, uint32_t source, uint32_t tag)
{
    struct match_entry *only = m->only;
    if (!only || !match_tag_fits(only->tag, tag) ||
        (only->source != source && only->source != MATCH_ANY_SOURCE))
        return NULL;
    m->only = NULL;
    m->nposted = 0;
    return only;
}

/* The older one of *found, in the slot *p, and the head of the list of a key. */
static void match_older_posted(struct match *m, uint64_t key, struct match_entry **found,
                               struct match_link ***p)
{
    struct match_link **q = match_table_find(&m->posted, key);
    struct match_entry *head = *q ? match_entry_of(*q, MATCH_EXACT) : NULL;
    if (!head || (*found && (*found)->order < head->order))
        return;
    *found = head;
    *p = q;
}

struct match_entry *match_take_posted(struct match *m, uint32_t source, uint32_t tag)
{
    struct match_entry *found = NULL;
    struct match_link **p = NULL;
    if (m->only || m->nposted == 0)
        return match_take_only(m, source, tag);
    match_older_posted(m, match_key_of(source, tag), &found, &p);
    if (m->nposted_any)
        match_older_posted(m, match_key_of(MATCH_ANY_SOURCE, tag), &found, &p);
    if (m->nposted_any && tag < MATCH_ENGINE_TAG) {
        match_older_posted(m, match_key_of(source, MATCH_ANY_TAG), &found, &p);
        match_older_posted(m, match_key_of(MATCH_ANY_SOURCE, MATCH_ANY_TAG), &found, &p);
    }
    if (!found)
        return NULL;
    match_table_remove(&m->posted, p, &found->link[MATCH_EXACT]);
    m->nposted_any -= match_is_any(found);
    m->nposted--;
    return found;
}

void match_withdraw_posted(struct match *m, struct match_entry *receive)
{
    struct match_link *link = &receive->link[MATCH_EXACT];
    m->nposted--;
    if (m->only) {
        m->only = NULL;
        return;
    }
    match_table_remove(&m->posted, match_table_find(&m->posted, link->key), link);
    m->nposted_any -= match_is_any(receive);
}

struct match_entry *match_first_posted(struct match *m, uint32_t source, uint32_t tag)
{
    if (m->only)
        return m->only->source == source && m->only->tag == tag ? m->only : NULL;
    struct match_link *head = *match_table_find(&m->posted, match_key_of(source, tag));
    return head ? match_entry_of(head, MATCH_EXACT) : NULL;
}

struct match_entry *match_next_posted(struct match *m, const struct match_entry *receive)
{
    const struct match_link *link = &receive->link[MATCH_EXACT];
    if (m->only || link->next == *match_table_find(&m->posted, link->key))
        return NULL;
    return match_entry_of(link->next, MATCH_EXACT);
}

/* ---- the end ---- */

static void match_drop_list(struct match_link *head, match_drop_fn *drop, void *ctx)
{
    head->prev->next = NULL;
    for (struct match_link *link = head, *next; link; link = next) {
        next = link->next;
        drop(match_entry_of(link, MATCH_EXACT), ctx);
    }
}

static void match_drop_posted(struct match *m, match_drop_fn *drop, void *ctx)
{
    if (m->only)
        drop(m->only, ctx);
    for (size_t i = 0; i < (size_t)1 << m->posted.bits; i++) {
        for (struct match_link *head = m->posted.buckets[i], *next; head; head = next) {
            next = head->chain;
            match_drop_list(head, drop, ctx);
        }
    }
}

static void match_table_fini(struct match_table *t)
{
    if (t->buckets != t->few)
        free(t->buckets);
}

void match_fini(struct match *m, match_drop_fn *drop_receive, match_drop_fn *drop_message,
                void *ctx)
{
    if (drop_receive)
        match_drop_posted(m, drop_receive, ctx);
    for (struct match_entry *message = m->oldest, *next; drop_message && message; message = next) {
        next = message->next;
        drop_message(message, ctx);
    }
    match_table_fini(&m->posted);
    match_table_fini(&m->unexpected);
    match_init(m);
}

/* ---- for backends ---- */

/* A backend hands in pointers and gets pointers back, so that the layout of struct match_entry is
 * no part of the ABI. Entries that have been taken out are kept for the next ones. */

struct ops_entry {
    struct match_entry match; /* first: a pointer to it points to this struct */
    struct ops_entry *next;   /* while it is unused */
    void *item;
};

struct collrun_match {
    struct match match;
    struct ops_entry *unused;
    void (*drop)(void *item); /* during ops_close */
};

static struct collrun_match *match_ops_open(void)
{
    struct collrun_match *m = calloc(1, sizeof *m);
    if (m)
        match_init(&m->match);
    return m;
}

static struct ops_entry *match_entry_new(struct collrun_match *m, uint32_t source, uint32_t tag,
                                         void *item)
{
    struct ops_entry *e = m->unused;
    if (e)
        m->unused = e->next;
    else
        e = malloc(sizeof *e);
    if (e)
        *e = (struct ops_entry){.match = {.source = source, .tag = tag}, .item = item};
    return e;
}

/* The item of an entry that was taken out. */
static void *match_entry_give(struct collrun_match *m, struct match_entry *match)
{
    struct ops_entry *e = (struct ops_entry *)match;
    e->next = m->unused;
    m->unused = e;
    return e->item;
}

static int match_ops_post(struct collrun_match *m, uint32_t source, uint32_t tag, void *item,
                          void **message)
{
    struct match_entry *found = match_take_unexpected(&m->match, source, tag);
    *message = found ? match_entry_give(m, found) : NULL;
    if (found)
        return COLLRUN_OK;
    struct ops_entry *e = match_entry_new(m, source, tag, item);
    if (e)
        match_add_posted(&m->match, &e->match);
    return e ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

/* The tag is from the wire. */
static int match_ops_arrive(struct collrun_match *m, uint32_t source, uint32_t tag, void *item,
                            void **receive)
{
    *receive = NULL;
    if (tag == MATCH_ANY_TAG)
        return COLLRUN_ERR_BACKEND;
    struct match_entry *found = match_take_posted(&m->match, source, tag);
    *receive = found ? match_entry_give(m, found) : NULL;
    if (found)
        return COLLRUN_OK;
    struct ops_entry *e = match_entry_new(m, source, tag, item);
    if (e)
        match_add_unexpected(&m->match, &e->match);
    return e ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

static void *match_ops_probe(struct collrun_match *m, uint32_t source, uint32_t tag)
{
    struct match_entry *found = match_find_unexpected(&m->match, source, tag);
    return found ? ((struct ops_entry *)found)->item : NULL;
}

static int match_ops_withdraw(struct collrun_match *m, uint32_t source, uint32_t tag, void *item)
{
    struct match_entry *e = match_first_posted(&m->match, source, tag);
    while (e && ((struct ops_entry *)e)->item != item)
        e = match_next_posted(&m->match, e);
    if (!e)
        return COLLRUN_ERR_NOT_FOUND;
    match_withdraw_posted(&m->match, e);
    match_entry_give(m, e);
    return COLLRUN_OK;
}

static void match_entry_drop(struct match_entry *match, void *ctx)
{
    struct ops_entry *e = (struct ops_entry *)match;
    struct collrun_match *m = ctx;
    if (m->drop)
        m->drop(e->item);
    free(e);
}

static void match_ops_close(struct collrun_match *m, void (*drop)(void *item))
{
    if (!m)
        return;
    m->drop = drop;
    match_fini(&m->match, match_entry_drop, match_entry_drop, m);
    for (struct ops_entry *e = m->unused, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(m);
}

const struct collrun_match_ops match_ops = {
    .size = (uint32_t)sizeof match_ops,
    .open = match_ops_open,
    .close = match_ops_close,
    .post = match_ops_post,
    .arrive = match_ops_arrive,
    .probe = match_ops_probe,
    .withdraw = match_ops_withdraw,
};
