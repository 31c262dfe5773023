/* SPDX-License-Identifier: Apache-2.0
 *
 * Histories of words, what each thread knows of them, and races; the rules are in model.h. All that
 * a run needs is carved out of one block of memory, which the next run uses again.
 */
#include "memory_model/inside.h"

#include <stdlib.h>

enum {
    WORDS = 2048,    /* that are ever accessed atomically, in one run */
    PLAIN = 1 << 19, /* other words, in one run */
    SEEN = 6,        /* accesses that are remembered of a word */
    OLD_MAX = 4,     /* loads of one word that return an old value, one after the other */
    ARENA_BYTES = 256 << 20
};

/* What a thread knows: how far the others have come, and the oldest store of each word that it may
 * still see. */
struct view {
    uint32_t clock[MODEL_THREADS];
    uint32_t n; /* words; of the others 0 */
    uint32_t at[];
};

struct store {
    uint64_t value;
    const struct view *released; /* what a load with acquire learns; NULL: nothing */
};

struct word {
    uint64_t *at;
    struct store *stores;
    uint32_t n, room;
    bool late; /* the last store is a plain one, whose value is in memory by now */
    uint32_t old[MODEL_THREADS];
};

/* An access to some bytes of a word, for races. */
struct seen {
    uint32_t clock;
    uint8_t thread, bytes; /* a bit for each byte */
    bool write, atomic;
};

struct plain {
    uintptr_t at;
    uint32_t n;
    struct seen seen[SEEN];
};

static struct {
    struct word words[WORDS];
    uint32_t nwords;
    uint16_t index[4 * WORDS]; /* of a word, by its address, + 1 */
    struct plain *plain;       /* by address */
    uint32_t generation[PLAIN];
    uint32_t run;
    struct view *know[MODEL_THREADS];           /* of the threads */
    struct view *acquirable[MODEL_THREADS];     /* what an acquire fence adds */
    const struct view *released[MODEL_THREADS]; /* by the last release fence, or NULL */
    struct view *seq_cst;
    char *arena;
    size_t used;
    struct {
        uintptr_t begin, end;
    } racy[16];
    uint32_t nracy;
} mem;

/* ---- views ---- */

static void *memory_carve(size_t len)
{
    mem.used = (mem.used + 15) & ~(size_t)15;
    if (mem.used + len > ARENA_BYTES)
        model_fail("the run needs more than %d MiB of histories", ARENA_BYTES >> 20);
    void *at = mem.arena + mem.used;
    mem.used += len;
    return at;
}

static struct view *view_new(void)
{
    struct view *v = memory_carve(sizeof *v + WORDS * sizeof v->at[0]);
    *v = (struct view){0};
    return v;
}

static uint32_t view_get(const struct view *v, uint32_t w)
{
    return w < v->n ? v->at[w] : 0;
}

static void view_raise(struct view *v, uint32_t w, uint32_t to)
{
    while (v->n <= w)
        v->at[v->n++] = 0;
    if (v->at[w] < to)
        v->at[w] = to;
}

static void view_join(struct view *v, const struct view *with)
{
    for (uint32_t i = 0; i < MODEL_THREADS; i++)
        v->clock[i] = v->clock[i] > with->clock[i] ? v->clock[i] : with->clock[i];
    for (uint32_t w = 0; w < with->n; w++)
        view_raise(v, w, with->at[w]);
}

static struct view *view_copy(const struct view *v, const struct view *and)
{
    uint32_t n = and&&and->n > v->n ? and->n : v->n;
    struct view *copy = memory_carve(sizeof *copy + n * sizeof copy->at[0]);
    *copy = (struct view){0};
    view_join(copy, v);
    if (and)
        view_join(copy, and);
    return copy;
}

/* ---- words ---- */

static struct store *word_append(struct word *w)
{
    if (w->n == w->room) {
        uint32_t room = w->room ? 2 * w->room : 8;
        struct store *more = memory_carve(room * sizeof *more);
        for (uint32_t i = 0; i < w->n; i++)
            more[i] = w->stores[i];
        w->stores = more;
        w->room = room;
    }
    struct store *s = &w->stores[w->n++];
    *s = (struct store){0};
    return s;
}

static uint32_t word_hash(uintptr_t at)
{
    return (uint32_t)((at >> 3) * 0x9e3779b1u);
}

/* The word of an address; NULL: it was never accessed atomically. */
static struct word *word_find(uintptr_t at, uint16_t **slot)
{
    uint32_t i = word_hash(at) % (4 * WORDS);
    while (mem.index[i] && (uintptr_t)mem.words[mem.index[i] - 1].at != at)
        i = (i + 1) % (4 * WORDS);
    *slot = &mem.index[i];
    struct word *w = mem.index[i] ? &mem.words[mem.index[i] - 1] : NULL;
    if (w && w->late) {
        w->stores[w->n - 1].value = *w->at;
        w->late = false;
    }
    return w;
}

static struct word *word_of(uintptr_t at)
{
    uint16_t *slot;
    struct word *w = word_find(at, &slot);
    if (w)
        return w;
    if (mem.nwords == WORDS)
        model_fail("more than %d words are atomic", WORDS);
    w = &mem.words[mem.nwords++];
    *slot = (uint16_t)mem.nwords;
    *w = (struct word){.at = (uint64_t *)at};
    word_append(w)->value = *w->at;
    return w;
}

static uint32_t word_number(const struct word *w)
{
    return (uint32_t)(w - mem.words);
}

static bool memory_is_racy(uintptr_t at)
{
    for (uint32_t i = 0; i < mem.nracy; i++)
        if (at >= mem.racy[i].begin && at < mem.racy[i].end)
            return true;
    return false;
}

void model_racy(const void *at, size_t len)
{
    uintptr_t begin = (uintptr_t)at & ~(uintptr_t)7;
    if (mem.nracy == sizeof mem.racy / sizeof mem.racy[0])
        model_fail("too many racy places");
    mem.racy[mem.nracy].begin = begin;
    mem.racy[mem.nracy++].end = (uintptr_t)at + len;
}

/* ---- parts of words ---- */

static uint64_t part_get(uint64_t value, unsigned shift, size_t size)
{
    return size == 8 ? value : value >> shift & ((1ull << 8 * size) - 1);
}

static uint64_t part_put(uint64_t into, unsigned shift, size_t size, uint64_t value)
{
    uint64_t mask = size == 8 ? UINT64_MAX : ((1ull << 8 * size) - 1) << shift;
    return (into & ~mask) | (value << shift & mask);
}

/* ---- races ---- */

static struct plain *plain_of(uintptr_t at)
{
    uint32_t i = word_hash(at) % PLAIN;
    for (uint32_t tries = 0; tries < PLAIN; tries++, i = (i + 1) % PLAIN) {
        if (mem.generation[i] != mem.run) {
            mem.generation[i] = mem.run;
            mem.plain[i].at = at;
            mem.plain[i].n = 0;
        }
        if (mem.plain[i].at == at)
            return &mem.plain[i];
    }
    model_fail("more than %d words are used", PLAIN);
}

/* An access to `bytes` of the word at `at`, compared with those before. */
static void memory_see(uintptr_t at, uint8_t bytes, bool write, bool atomic)
{
    struct plain *p = plain_of(at);
    struct view *v = mem.know[model_thread];
    struct seen *slot = NULL;
    for (uint32_t i = 0; i < p->n; i++) {
        struct seen *s = &p->seen[i];
        if (s->thread != model_thread && (s->bytes & bytes) && (s->write || write) &&
            !(s->atomic && atomic) && s->clock > v->clock[s->thread])
            model_fail("a race at %p: it %s%s what thread %u %s%s", (void *)at,
                       write ? "writes" : "reads", atomic ? " (atomic)" : "", s->thread,
                       s->write ? "wrote" : "read", s->atomic ? " (atomic)" : "");
        if (s->thread == model_thread && s->write == write && s->atomic == atomic &&
            (s->bytes == bytes || s->clock == v->clock[model_thread]))
            slot = s;
    }
    uint8_t before = slot && slot->clock == v->clock[model_thread] ? slot->bytes : 0;
    if (!slot && p->n < SEEN)
        slot = &p->seen[p->n++];
    if (!slot) { /* forget the oldest */
        for (uint32_t i = 1; i < SEEN; i++)
            p->seen[i - 1] = p->seen[i];
        slot = &p->seen[SEEN - 1];
    }
    *slot =
        (struct seen){v->clock[model_thread], (uint8_t)model_thread, bytes | before, write, atomic};
}

/* ---- atomic accesses ---- */

static bool order_acquires(enum model_order o)
{
    return o == MODEL_CONSUME || o == MODEL_ACQUIRE || o == MODEL_ACQ_REL || o == MODEL_SEQ_CST;
}

static bool order_releases(enum model_order o)
{
    return o == MODEL_RELEASE || o == MODEL_ACQ_REL || o == MODEL_SEQ_CST;
}

static struct word *memory_access(const volatile void *at, size_t size, bool write)
{
    uintptr_t base = (uintptr_t)at & ~(uintptr_t)7;
    memory_see(base, (uint8_t)(((1u << size) - 1) << ((uintptr_t)at & 7)), write, true);
    return word_of(base);
}

/* The thread has seen store `i`. */
static uint64_t memory_take(struct word *w, uint32_t i, enum model_order order)
{
    const uint32_t t = model_thread, number = word_number(w);
    const struct store *s = &w->stores[i];
    view_raise(mem.know[t], number, i);
    if (s->released)
        view_join(order_acquires(order) ? mem.know[t] : mem.acquirable[t], s->released);
    return s->value;
}

/* Which store a load returns. */
static uint32_t memory_pick(struct word *w, enum model_order order)
{
    const uint32_t t = model_thread, number = word_number(w);
    uint32_t oldest = view_get(mem.know[t], number);
    if (order == MODEL_SEQ_CST && view_get(mem.seq_cst, number) > oldest)
        oldest = view_get(mem.seq_cst, number);
    const uint32_t last = w->n - 1;
    if (oldest == last || (!schedule_is_exhaustive() && w->old[t] >= OLD_MAX) ||
        !schedule_wants_old()) {
        w->old[t] = 0;
        return last;
    }
    w->old[t]++;
    return oldest + schedule_choose(last - oldest + 1);
}

static void memory_put(struct word *w, uint64_t value, enum model_order order,
                       const struct view *sequence)
{
    const uint32_t t = model_thread;
    struct store *s = word_append(w);
    const uint32_t number = word_number(w), i = w->n - 1;
    s->value = value;
    view_raise(mem.know[t], number, i);
    if (order_releases(order))
        s->released = view_copy(mem.know[t], sequence);
    else if (mem.released[t] && sequence)
        s->released = view_copy(mem.released[t], sequence);
    else
        s->released = mem.released[t] ? mem.released[t] : sequence;
    if (order == MODEL_SEQ_CST)
        view_raise(mem.seq_cst, number, i);
    mem.know[t]->clock[t]++;
    *w->at = value;
}

uint64_t model_load(const volatile void *at, size_t size, enum model_order order)
{
    model_watching = false;
    schedule_point();
    struct word *w = memory_access(at, size, false);
    uint64_t value = memory_take(w, memory_pick(w, order), order);
    model_watching = true;
    return part_get(value, 8 * ((uintptr_t)at & 7), size);
}

void model_store(volatile void *at, size_t size, uint64_t value, enum model_order order)
{
    const unsigned shift = 8 * ((uintptr_t)at & 7);
    model_watching = false;
    schedule_point();
    struct word *w = memory_access(at, size, true);
    memory_put(w, part_put(w->stores[w->n - 1].value, shift, size, value), order, NULL);
    model_watching = true;
}

uint64_t model_modify(volatile void *at, size_t size, uint64_t (*change)(uint64_t, uint64_t),
                      uint64_t operand, enum model_order order)
{
    const unsigned shift = 8 * ((uintptr_t)at & 7);
    model_watching = false;
    schedule_point();
    struct word *w = memory_access(at, size, true);
    const struct view *sequence = w->stores[w->n - 1].released;
    uint64_t value = memory_take(w, w->n - 1, order), old = part_get(value, shift, size);
    memory_put(w, part_put(value, shift, size, change(old, operand)), order, sequence);
    model_watching = true;
    return old;
}

bool model_compare_exchange(volatile void *at, size_t size, uint64_t *expected, uint64_t desired,
                            enum model_order order, enum model_order failure)
{
    const unsigned shift = 8 * ((uintptr_t)at & 7);
    model_watching = false;
    schedule_point();
    struct word *w = memory_access(at, size, true);
    uint32_t i = memory_pick(w, failure);
    if (part_get(w->stores[i].value, shift, size) == *expected)
        i = w->n - 1; /* only the last value can be exchanged */
    const uint64_t old = part_get(w->stores[i].value, shift, size);
    const bool equal = old == *expected;
    const struct view *sequence = w->stores[i].released;
    const uint64_t value = memory_take(w, i, equal ? order : failure);
    if (equal)
        memory_put(w, part_put(value, shift, size, desired), order, sequence);
    *expected = old;
    model_watching = true;
    return equal;
}

void model_fence(enum model_order order)
{
    const uint32_t t = model_thread;
    model_watching = false;
    schedule_point();
    if (order_acquires(order))
        view_join(mem.know[t], mem.acquirable[t]);
    if (order == MODEL_SEQ_CST) {
        view_join(mem.know[t], mem.seq_cst);
        view_join(mem.seq_cst, mem.know[t]);
    }
    if (order_releases(order)) {
        mem.released[t] = view_copy(mem.know[t], NULL);
        mem.know[t]->clock[t]++;
    }
    model_watching = true;
}

/* ---- plain accesses ---- */

/* A plain access to some bytes of one word. */
static void memory_plain_part(uintptr_t at, size_t size, bool write)
{
    const uintptr_t base = at & ~(uintptr_t)7;
    const bool racy = memory_is_racy(base);
    uint16_t *slot;
    memory_see(base, (uint8_t)(((1u << size) - 1) << (at & 7)), write, racy);
    struct word *w = racy ? word_of(base) : word_find(base, &slot);
    if (!w)
        return;
    if (write) {
        struct store *s = word_append(w);
        s->released = mem.released[model_thread];
        w->late = true;
    }
    view_raise(mem.know[model_thread], word_number(w), w->n - 1);
}

static size_t memory_part(uintptr_t at, size_t len)
{
    const size_t room = 8 - (at & 7);
    return len < room ? len : room;
}

/* The access itself follows, so no other thread may run in between. */
void model_plain(const volatile void *at, size_t len, bool write)
{
    const uintptr_t begin = (uintptr_t)at, end = begin + len;
    model_watching = false;
    if (memory_is_racy(begin & ~(uintptr_t)7))
        schedule_point();
    for (uintptr_t a = begin; a < end; a += memory_part(a, end - a))
        memory_plain_part(a, memory_part(a, end - a), write);
    model_watching = true;
}

/* Byte by byte within a word of either side, so that memory which is racy is read as a load. */
void model_copy(void *to, const void *from, size_t len)
{
    const uintptr_t source = (uintptr_t)from;
    char *out = to;
    for (size_t i = 0, n; i < len; i += n) {
        n = memory_part(source + i, len - i);
        const size_t room = memory_part((uintptr_t)out + i, len - i);
        n = n < room ? n : room;
        uint64_t value = 0;
        if (memory_is_racy((source + i) & ~(uintptr_t)7)) {
            value = model_load((const void *)(source + i), n, MODEL_RELAXED);
        } else {
            model_plain((const void *)(source + i), n, false);
            for (size_t b = 0; b < n; b++)
                value |= (uint64_t)((const uint8_t *)from)[i + b] << 8 * b;
        }
        model_plain(out + i, n, true);
        for (size_t b = 0; b < n; b++)
            out[i + b] = (char)(value >> 8 * b);
    }
}

void model_fill(void *to, int byte, size_t len)
{
    volatile char *out = to;
    for (size_t i = 0, n; i < len; i += n) {
        n = memory_part((uintptr_t)out + i, len - i);
        model_plain(out + i, n, true);
        for (size_t b = 0; b < n; b++)
            out[i + b] = (char)byte;
    }
}

/* ---- runs ---- */

void memory_begin(void)
{
    if (!mem.arena) {
        mem.arena = malloc(ARENA_BYTES);
        mem.plain = malloc(PLAIN * sizeof *mem.plain);
        if (!mem.arena || !mem.plain)
            abort();
    }
    mem.run++;
    mem.used = 0;
    mem.nwords = mem.nracy = 0;
    for (size_t i = 0; i < sizeof mem.index / sizeof mem.index[0]; i++)
        mem.index[i] = 0;
    for (uint32_t t = 0; t < MODEL_THREADS; t++) {
        mem.know[t] = view_new();
        mem.know[t]->clock[t] = 1;
        mem.acquirable[t] = view_new();
        mem.released[t] = NULL;
    }
    mem.seq_cst = view_new();
}

void memory_settle(void)
{
    for (uint32_t t = 0; t < MODEL_THREADS; t++)
        for (uint32_t w = 0; w < mem.nwords; w++)
            view_raise(mem.know[t], w, mem.words[w].n - 1);
}
