/* SPDX-License-Identifier: Apache-2.0
 *
 * All parts are copied out of the bytes with memcpy before they are looked at, between two loads of
 * their sequence number; so what is checked is what is returned, also while a rank writes. No other
 * thread has the copies, so their atomic members are read relaxed.
 */
#include "base/record_view.h"

#include "base/buf.h"
#include "base/mpi_names.h"
#include "base/names.h"
#include "base/quote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 1000 };

/* ---- the bytes ---- */

static uint64_t record_view_load64(const void *at)
{
    return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
}

static uint32_t record_view_load32(const void *at)
{
    return __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
}

/* Between the copy and the second load of a sequence number. */
static void record_view_fence(void)
{
    atomic_thread_fence(memory_order_acquire);
}

static const struct record_head *record_view_head(const struct record_view *v)
{
    return (const void *)v->bytes;
}

static bool record_view_is_sane(const struct record_head *h)
{
    return h->nmodules <= RECORD_MODULES && h->ngroups <= RECORD_GROUPS &&
           (h->nmarks == 0 || h->nmarks == h->ngroups) && h->ncounts <= RECORD_COUNTS &&
           h->entries <= RECORD_ENTRIES_MAX && (h->entries & (h->entries - 1)) == 0 &&
           (h->ncounts & (h->ncounts - 1)) == 0 && h->nthreads <= RECORD_THREADS &&
           h->nrequests <= RECORD_REQUESTS && h->nchannels <= RECORD_CHANNELS &&
           h->nmembers <= RECORD_MEMBERS && h->nlines <= RECORD_LINES &&
           h->nmistakes <= RECORD_MISTAKES;
}

int record_view_init(struct record_view *v, const void *bytes, size_t len, struct diag *d)
{
    *v = (struct record_view){0};
    if (len < sizeof v->head || memcmp(bytes, RECORD_MAGIC, 8) != 0)
        return diag_set(d, COLLRUN_ERR_INVALID, "not a record of this version of collrun");
    v->bytes = bytes;
    memcpy(&v->head, bytes, sizeof v->head);
    if ((uintptr_t)bytes % _Alignof(uint64_t) || !record_view_is_sane(&v->head))
        return diag_set(d, COLLRUN_ERR_INVALID, "the head of the record is damaged");
    v->at = record_layout(&v->head);
    if (v->at.size != len)
        return diag_set(d, COLLRUN_ERR_INVALID, "the record has %zu bytes, but its head says %zu",
                        len, v->at.size);
    return COLLRUN_OK;
}

uint64_t record_view_ns(const struct record_view *v, uint64_t ticks)
{
    const struct record_head *h = record_view_head(v);
    uint64_t passed = ticks - h->ticks0, mult = record_view_load64(&h->ticks_mult);
    return ticks ? h->mono_ns0 + (passed >> 32) * mult + ((passed & UINT32_MAX) * mult >> 32) : 0;
}

/* What the numbers of a call mean. `function`: of MPI, or 0. */
struct record_view_call {
    uint8_t function;
    enum collrun_kind kind;
};

/* False: it is none. */
static bool record_view_call(const struct record_view *v, uint8_t kind, uint8_t dtype, uint8_t op,
                             struct record_view_call *out)
{
    if (record_tap_has_functions(atomic_load_explicit(&v->head.tap, memory_order_relaxed))) {
        *out = (struct record_view_call){kind, kind ? (enum collrun_kind)mpi_function_kind(kind)
                                                    : COLLRUN_BARRIER};
        return mpi_function_is_known(kind);
    }
    *out = (struct record_view_call){0, (enum collrun_kind)kind};
    return (kind_is_known((enum collrun_kind)kind) || (enum collrun_kind)kind == KIND_PROBE) &&
           dtype_is_known((enum collrun_dtype)dtype) &&
           (op_is_known((enum collrun_op)op) || op == OP_USER);
}

/* ---- groups ---- */

uint32_t record_view_ngroups(const struct record_view *v)
{
    uint32_t used = record_view_load32(&record_view_head(v)->groups_used);
    return used < v->head.ngroups ? used : v->head.ngroups;
}

/* A consistent copy, unless the rank died while it wrote: its last state is still worth a report.
 */
static void record_view_copy_group(const struct record_group *g, struct record_group *out)
{
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t before = record_view_load32(&g->version);
        memcpy(out, g, sizeof *out);
        record_view_fence();
        if (record_view_load32(&g->version) == before && !(before & 1))
            return;
    }
}

bool record_view_group(const struct record_view *v, uint32_t slot, struct record_view_group *out)
{
    struct record_group g;
    struct record_view_call call;
    if (slot >= v->head.ngroups)
        return false;
    record_view_copy_group(
        (const void *)(v->bytes + v->at.groups + slot * sizeof(struct record_group)), &g);
    uint32_t used = atomic_load_explicit(&g.used, memory_order_relaxed);
    if (used != RECORD_GROUP_OPEN && used != RECORD_GROUP_CLOSED)
        return false;
    if (!record_view_call(v, g.kind, g.dtype, g.op, &call) || !g.members || g.rank >= g.members ||
        g.check > COLLRUN_CHECK_OFF || g.started > RECORD_NUMBER_MAX ||
        atomic_load_explicit(&g.done, memory_order_relaxed) > RECORD_NUMBER_MAX)
        return false;
    *out =
        (struct record_view_group){.slot = slot,
                                   .open = used == RECORD_GROUP_OPEN,
                                   .members = g.members,
                                   .rank = g.rank,
                                   .messages = g.messages != 0,
                                   .check = (enum collrun_check)g.check,
                                   .generation = g.generation,
                                   .first = g.first,
                                   .status = atomic_load_explicit(&g.status, memory_order_relaxed),
                                   .started = g.started,
                                   .done = g.done,
                                   .bytes = g.bytes,
                                   .since_ns = record_view_ns(v, g.since),
                                   .function = call.function,
                                   .kind = call.kind,
                                   .dtype = (enum collrun_dtype)g.dtype,
                                   .op = (enum collrun_op)g.op,
                                   .root_or_peer = g.root_or_peer < -1 ? -1 : g.root_or_peer,
                                   .count = g.count};
    memcpy(out->name, g.name, sizeof out->name - 1);
    memcpy(out->scope, g.scope, sizeof out->scope - 1);
    return true;
}

/* ---- marks ---- */

/* False: it is being written, or was never written. */
static bool record_view_copy_mark(const struct record_mark *m, struct record_mark *out)
{
    uint64_t checksum = record_view_load64(&m->checksum);
    memcpy(out, m, sizeof *out);
    record_view_fence();
    return checksum && record_view_load64(&m->checksum) == checksum;
}

static bool record_view_find_mark(const struct record_mark *m, const struct record_view_group *g,
                                  uint64_t number, struct record_mark *out)
{
    return record_view_copy_mark(m, out) &&
           atomic_load_explicit(&out->checksum, memory_order_relaxed) ==
               record_mark_checksum(out, number, g->generation);
}

bool record_view_mark(const struct record_view *v, const struct record_view_group *g,
                      uint64_t number, struct record_view_mark *out)
{
    struct record_mark m;
    if (g->slot >= v->head.nmarks || g->messages || !number)
        return false;
    const struct record_marks *marks =
        (const void *)(v->bytes + v->at.marks + g->slot * sizeof *marks);
    bool found =
        record_view_find_mark(&marks->recent[number % RECORD_MARKS], g, number, &m) ||
        (number % RECORD_STEP == 0 &&
         record_view_find_mark(&marks->steps[number / RECORD_STEP % RECORD_MARKS], g, number, &m));
    if (!found)
        return false;
    *out = (struct record_view_mark){.number = number,
                                     .signature = m.signature,
                                     .pairs = m.pairs,
                                     .called_ns = record_view_ns(v, m.called)};
    return true;
}

/* ---- operations ---- */

uint64_t record_view_end(const struct record_view *v)
{
    return v->head.entries ? record_view_load64(&record_view_head(v)->next) : 0;
}

uint64_t record_view_first(const struct record_view *v)
{
    uint64_t end = record_view_end(v);
    return end > v->head.entries ? end - v->head.entries : 0;
}

/* An operation goes on while it is copied: its state is from before the copy, so that what the
 * state promises, such as the time of the end, is in there. */
static bool record_view_copy_entry(const struct record_view *v, uint64_t index,
                                   struct record_entry *out)
{
    const struct record_entry *e =
        (const void *)(v->bytes + v->at.entries + (index & (v->head.entries - 1)) * sizeof *e);
    uint32_t valid = (uint32_t)(2 * index + 2);
    if (record_view_load32(&e->version) != valid)
        return false;
    uint8_t state = atomic_load_explicit(&e->state, memory_order_acquire);
    memcpy(out, e, sizeof *out);
    atomic_store_explicit(&out->state, state, memory_order_relaxed);
    record_view_fence();
    return record_view_load32(&e->version) == valid;
}

/* The number of an operation whose low 32 bits are known: the last one that its group can have
 * begun. (A message may be posted before it is the current operation.) */
static uint64_t record_view_number(uint32_t low, uint64_t started)
{
    return started + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)started);
}

static uint32_t record_view_tid(const struct record_view *v, uint32_t thread)
{
    const struct record_thread *threads = (const void *)(v->bytes + v->at.threads);
    return thread < v->head.nthreads ? record_view_load32(&threads[thread].tid) : 0;
}

/* What an operation needs to know of the group of its slot. */
struct record_view_slot {
    uint64_t first, started;
    uint32_t generation;
};

/* As record_view_group, but without a copy of the slot: there may be many operations. */
static bool record_view_slot(const struct record_view *v, uint32_t slot,
                             struct record_view_slot *out)
{
    const struct record_group *g =
        (const void *)(v->bytes + v->at.groups + slot * sizeof(struct record_group));
    uint32_t used = 0;
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t version = record_view_load32(&g->version);
        used = record_view_load32(&g->used);
        out->first = record_view_load64(&g->first);
        out->started = record_view_load64(&g->started);
        out->generation = record_view_load32(&g->generation);
        record_view_fence();
        if (record_view_load32(&g->version) == version && !(version & 1))
            break;
    }
    return (used == RECORD_GROUP_OPEN || used == RECORD_GROUP_CLOSED) &&
           out->started <= RECORD_NUMBER_MAX;
}

bool record_view_op(const struct record_view *v, uint64_t index, struct record_view_op *out)
{
    struct record_entry e;
    struct record_view_slot g = {0};
    struct record_view_call call;
    if (index < record_view_first(v) || index >= record_view_end(v) ||
        !record_view_copy_entry(v, index, &e))
        return false;
    uint8_t state = atomic_load_explicit(&e.state, memory_order_relaxed);
    if (!record_view_call(v, e.kind, e.dtype, e.op, &call) || state < RECORD_POSTED ||
        state > RECORD_CANCELED || e.group >= v->head.ngroups)
        return false;
    bool is_current = record_view_slot(v, e.group, &g) && index >= g.first;
    uint64_t number = is_current ? record_view_number(e.number, g.started) : e.number;
    if (number > RECORD_NUMBER_MAX)
        return false;
    *out = (struct record_view_op){
        .index = index,
        .slot = e.group,
        .is_current = is_current,
        .generation = g.generation,
        .number = number,
        .state = (enum record_state)state,
        .function = call.function,
        .kind = call.kind,
        .dtype = (enum collrun_dtype)e.dtype,
        .op = (enum collrun_op)e.op,
        .root_or_peer = e.root_or_peer < -1 ? -1 : e.root_or_peer,
        .tag = collrun_kind_is_vector(call.kind) ? 0 : e.tag,
        .count = e.count,
        .called_ns = record_view_ns(v, e.called),
        .started_ns = record_view_ns(v, e.started),
        .ended_ns = record_view_ns(v, atomic_load_explicit(&e.ended, memory_order_relaxed)),
        .site = e.site,
        .thread = e.thread,
        .tid = record_view_tid(v, e.thread),
        .counts = collrun_kind_is_vector(call.kind) ? e.tag : (uint32_t)RECORD_NO_COUNTS};
    return true;
}

size_t record_view_op_size(const struct record_view_op *op)
{
    return op->function ? mpi_type_bytes(op->dtype) : dtype_size(op->dtype);
}

/* ---- failures ---- */

/* True if a group has completed its last operation, which was called later. */
static bool record_view_has_gone_on(const struct record_view *v, uint64_t at_ns)
{
    struct record_view_group g;
    for (uint32_t slot = 0; slot < record_view_ngroups(v); slot++)
        if (record_view_group(v, slot, &g) && g.since_ns > at_ns && g.done >= g.started)
            return true;
    return false;
}

bool record_view_is_past(const struct record_view *v, const struct record_moment *at,
                         uint64_t most_ns)
{
    struct record_view_op op;
    uint64_t now = record_mono_ns();
    if (now > at->ns && now - at->ns > most_ns)
        return true;
    if (!v->head.entries)
        return record_view_has_gone_on(v, at->ns);
    uint64_t end = record_view_end(v), i = record_view_first(v);
    for (i = at->next > i ? at->next : i; i < end; i++)
        if (record_view_op(v, i, &op) && op.state == RECORD_DONE &&
            (!at->thread || op.thread == at->thread))
            return true;
    return false;
}

void record_view_failure(const struct record_view *v, uint64_t most_ns,
                         struct record_view_failure *out)
{
    const struct record_failure *live = &record_view_head(v)->failure;
    struct record_failure f;
    *out = (struct record_view_failure){0};
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t before = record_view_load32(&live->version);
        memcpy(&f, live, sizeof f);
        record_view_fence();
        if (!before)
            return;
        if (record_view_load32(&live->version) == before && !(before & 1))
            break;
    }
    if (record_view_is_past(v, &f.at, most_ns))
        return;
    out->status = f.status;
    out->number = f.number;
    out->site = f.site;
    memcpy(out->group, f.group, sizeof out->group - 1);
    memcpy(out->text, f.text, sizeof out->text - 1);
}

/* What a rank that writes at random has left there is text, whatever it is. */
static void record_view_copy_text(char *out, const char *text, size_t size)
{
    memcpy(out, text, size);
    out[size - 1] = '\0';
    utf8_clean(out, size, out, strlen(out));
}

bool record_view_exception(const struct record_view *v, struct record_view_exception *out)
{
    const struct record_exception *e = &record_view_head(v)->exception;
    if (!atomic_load_explicit(&e->version, memory_order_acquire))
        return false;
    out->line = e->line;
    record_view_copy_text(out->type, e->type, sizeof out->type);
    record_view_copy_text(out->file, e->file, sizeof out->file);
    record_view_copy_text(out->text, e->text, sizeof out->text);
    record_view_copy_text(out->thread, e->thread, sizeof out->thread);
    return true;
}

/* ---- operators of the caller ---- */

bool record_view_user_op(const struct record_view *v, uint32_t hash, char *name)
{
    for (int i = 0; hash && i < RECORD_USER_OPS; i++) {
        const struct record_user_op *op = &record_view_head(v)->user_ops[i];
        if (record_view_load32(&op->hash) != hash)
            continue;
        memcpy(name, op->name, RECORD_VIEW_USER_OP);
        name[RECORD_VIEW_USER_OP - 1] = '\0';
        return true;
    }
    return false;
}

/* ---- counts ---- */

static uint64_t record_view_count(const struct record_view *v, uint64_t index)
{
    return record_view_load64(v->bytes + v->at.counts +
                              (index & (v->head.ncounts - 1)) * sizeof(uint64_t));
}

/* True if the ring holds counts `index` to `index + n`. */
static bool record_view_has_counts(const struct record_view *v, uint64_t index, uint64_t n)
{
    uint64_t end = record_view_load64(&record_view_head(v)->next_count);
    return end - index <= v->head.ncounts && n <= end - index;
}

bool record_view_counts(const struct record_view *v, const struct record_view_op *op, uint32_t most,
                        struct record_view_counts *out)
{
    uint64_t end = record_view_load64(&record_view_head(v)->next_count);
    uint64_t at = end - (uint32_t)((uint32_t)end - op->counts); /* of the low 32 bits */
    if (op->counts == RECORD_NO_COUNTS || !record_view_has_counts(v, at, 1))
        return false;
    uint64_t lengths = record_view_count(v, at);
    uint32_t nsent = (uint32_t)lengths, nexpected = (uint32_t)(lengths >> 32);
    if (nsent > most || nexpected > most)
        return false;
    for (uint32_t i = 0; i < nsent; i++)
        out->sent[i] = record_view_count(v, at + 1 + i);
    for (uint32_t i = 0; i < nexpected; i++)
        out->expected[i] = record_view_count(v, at + 1 + nsent + i);
    out->nsent = nsent;
    out->nexpected = nexpected;
    record_view_fence();
    return record_view_has_counts(v, at, 1 + (uint64_t)nsent + nexpected);
}

/* ---- modules ---- */

bool record_view_module(const struct record_view *v, uint64_t address, char *path, uint64_t *offset)
{
    struct record_module m;
    uint32_t used = record_view_load32(&record_view_head(v)->modules_used);
    for (uint32_t i = 0; i < used && i < v->head.nmodules; i++) {
        memcpy(&m, v->bytes + v->at.modules + i * sizeof m, sizeof m);
        if (address < m.start || address >= m.end)
            continue;
        m.path[sizeof m.path - 1] = '\0';
        memcpy(path, m.path, RECORD_VIEW_PATH);
        *offset = address - m.base;
        return true;
    }
    return false;
}

bool record_view_python_site(const struct record_view *v, uint64_t site, char *out)
{
    char path[RECORD_VIEW_PATH];
    uint64_t line;
    if (site < RECORD_PYTHON_SITE || !record_view_module(v, site, path, &line))
        return false;
    const char *slash = strrchr(path, '/');
    snprintf(out, RECORD_VIEW_PATH, "%.200s:%llu", slash ? slash + 1 : path,
             (unsigned long long)line);
    utf8_clean(out, RECORD_VIEW_PATH, out, strlen(out));
    return true;
}

/* ---- lines of the log ---- */

static void record_view_clean(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

bool record_view_line(const struct record_view *v, uint32_t back, char *text)
{
    const uint64_t next = record_view_load64(&record_view_head(v)->next_line);
    struct record_line line;
    if (!v->head.nlines || back >= next || back >= v->head.nlines)
        return false;
    const uint64_t i = next - 1 - back;
    const unsigned char *at = v->bytes + v->at.lines + i % v->head.nlines * sizeof line;
    const uint64_t version = record_view_load64(at);
    memcpy(&line, at, sizeof line);
    record_view_fence();
    if (version != i + 1 || record_view_load64(at) != version)
        return false;
    line.text[sizeof line.text - 1] = '\0';
    memcpy(text, line.text, RECORD_VIEW_LINE);
    record_view_clean(text);
    return true;
}

/* ---- mistakes ---- */

bool record_view_mistake(const struct record_view *v, uint32_t i, struct record_view_mistake *out)
{
    struct record_mistake m;
    if (i >= v->head.nmistakes)
        return false;
    const unsigned char *at = v->bytes + v->at.mistakes + i * sizeof m;
    out->kind = (enum record_mistake_kind)record_view_load32(at);
    memcpy(&m, at, sizeof m);
    m.text[sizeof m.text - 1] = '\0';
    out->times = atomic_load_explicit(&m.times, memory_order_relaxed);
    out->site = m.site;
    memcpy(out->text, m.text, sizeof out->text);
    record_view_clean(out->text);
    return out->kind == RECORD_MISTAKE_CALL || out->kind == RECORD_MISTAKE_LEAK;
}

/* ---- copies ---- */

/* Mark `i` of all slots; zeros if it is being written. */
static void record_view_save_mark(const struct record_view *v, size_t i, struct buf *out)
{
    const struct record_mark *m = (const void *)(v->bytes + v->at.marks + i * sizeof *m);
    struct record_mark copy = {0};
    if (!record_view_copy_mark(m, &copy))
        copy = (struct record_mark){0};
    buf_put(out, &copy, sizeof copy);
}

/* The latest entries of the ring, each at its place in the smaller one. */
static void record_view_save_entries(const struct record_view *v, uint64_t end, uint32_t entries,
                                     struct buf *out)
{
    const size_t one = sizeof(struct record_entry);
    unsigned char *to = entries ? buf_reserve(out, entries * one) : NULL;
    struct record_entry e;
    if (!to)
        return;
    memset(to, 0, entries * one);
    for (uint64_t i = end > entries ? end - entries : 0; i < end; i++)
        if (record_view_copy_entry(v, i, &e))
            memcpy(to + (i & (entries - 1)) * one, &e, one);
    buf_commit(out, entries * one);
}

/* The arrays of what threads are in, and of what they wait for, as far as they are used. */
static void record_view_save_calls(const struct record_view *v, const struct record_head *cut,
                                   struct buf *out)
{
    buf_put(out, v->bytes + v->at.threads, cut->nthreads * sizeof(struct record_thread));
    buf_put(out, v->bytes + v->at.waits, cut->nthreads * RECORD_WAITS * sizeof(uint32_t));
    buf_put(out, v->bytes + v->at.requests, cut->nrequests * sizeof(struct record_request));
    buf_put(out, v->bytes + v->at.channels, cut->nchannels * sizeof(struct record_channel));
    buf_put(out, v->bytes + v->at.lines, cut->nlines * sizeof(struct record_line));
    buf_put(out, v->bytes + v->at.mistakes, cut->nmistakes * sizeof(struct record_mistake));
    buf_put(out, v->bytes + v->at.members, cut->nmembers * sizeof(uint32_t));
}

static uint32_t record_view_used(const _Atomic uint32_t *used, uint32_t most)
{
    const uint32_t n = record_view_load32(used);
    return n < most ? n : most;
}

static void record_view_cut_calls(const struct record_view *v, struct record_head *cut)
{
    const struct record_head *live = record_view_head(v);
    const uint32_t threads = record_view_load32(&live->threads_used);
    cut->nthreads = threads < v->head.nthreads ? threads + (threads > 0) : v->head.nthreads;
    cut->nrequests = record_view_used(&live->requests_used, v->head.nrequests);
    cut->nchannels = record_view_used(&live->channels_used, v->head.nchannels);
    cut->nmembers = record_view_used(&live->members_used, v->head.nmembers);
    cut->nlines = record_view_load64(&live->next_line) ? v->head.nlines : 0;
    cut->nmistakes = record_view_used(&live->mistakes_used, v->head.nmistakes);
}

/* No more than there are. */
static uint32_t record_view_save_size(const struct record_view *v, uint64_t end, uint32_t entries)
{
    uint32_t n = v->head.entries;
    while (n > entries || (n > 1 && n / 2 >= end))
        n /= 2;
    return n;
}

bool record_view_save(struct record_head *live, size_t len, const struct record_view_part *part,
                      struct buf *out)
{
    struct record_view v;
    struct record_group g;
    record_calibrate(live);
    if (record_view_init(&v, live, len, NULL) != COLLRUN_OK)
        return false;
    struct record_head head = v.head;
    uint64_t end = head.next;
    uint32_t modules = record_view_load32(&live->modules_used);
    head.nmodules = modules < v.head.nmodules ? modules : v.head.nmodules;
    head.ngroups = record_view_ngroups(&v);
    head.nmarks = part->marks && v.head.nmarks ? head.ngroups : 0;
    head.entries = record_view_save_size(&v, end, part->entries);
    head.ncounts = record_view_load64(&live->next_count) && head.entries ? v.head.ncounts : 0;
    record_view_cut_calls(&v, &head);
    buf_put(out, &head, sizeof head);
    buf_put(out, v.bytes + v.at.modules, head.nmodules * sizeof(struct record_module));
    for (uint32_t i = 0; i < head.ngroups; i++) {
        record_view_copy_group((const void *)(v.bytes + v.at.groups + i * sizeof g), &g);
        buf_put(out, &g, sizeof g);
    }
    for (uint32_t i = 0; i < 2 * RECORD_MARKS * head.nmarks; i++)
        record_view_save_mark(&v, i, out);
    buf_put(out, v.bytes + v.at.counts, head.ncounts * sizeof(uint64_t));
    record_view_save_entries(&v, end, head.entries, out);
    record_view_save_calls(&v, &head, out);
    return !out->failed;
}
