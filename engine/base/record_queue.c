/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots that were never used are used first, then those that were closed, so that the agent has
 * time to read the last state of a group that was closed. The modules of the process are listed
 * when a group is opened: at the latest then, the code that will use it has been loaded.
 */
#include "base/record_queue.h"

#include <errno.h>
#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local uint16_t record_queue_thread;

static void *record_queue_at(struct record_head *head, size_t offset)
{
    return (unsigned char *)head + offset;
}

/* The slot of a thread that had this tid; 0: none had. */
static uint32_t record_queue_find_tid(const struct record_head *head,
                                      const struct record_thread *threads, uint32_t tid)
{
    uint32_t n = atomic_load(&head->threads_used);
    n = n < head->nthreads ? n : head->nthreads - 1;
    while (n && atomic_load_explicit(&threads[n].tid, memory_order_relaxed) != tid)
        n--;
    return n;
}

/* The slot of a thread that has ended; 0: none has. Its word stays: the next call counts on. */
static uint32_t record_queue_reuse_thread(const struct record_head *head,
                                          struct record_thread *threads, uint32_t self)
{
    for (uint32_t i = 1; i < head->nthreads; i++) {
        uint32_t tid = atomic_load_explicit(&threads[i].tid, memory_order_relaxed);
        if (tid && syscall(SYS_tgkill, getpid(), tid, 0) < 0 && errno == ESRCH &&
            atomic_compare_exchange_strong(&threads[i].tid, &tid, self))
            return i;
    }
    return 0;
}

uint16_t record_queue_name_thread(struct record_head *head)
{
    struct record_thread *threads = record_queue_at(head, record_layout(head).threads);
    const uint32_t self = (uint32_t)syscall(SYS_gettid);
    uint32_t last = atomic_load(&head->threads_used);
    uint32_t n = record_queue_find_tid(head, threads, self);
    while (!n && last + 1 < head->nthreads &&
           !atomic_compare_exchange_weak(&head->threads_used, &last, last + 1))
        continue;
    if (!n && last + 1 < head->nthreads) {
        n = last + 1;
        atomic_store_explicit(&threads[n].tid, self, memory_order_release);
    } else if (!n) {
        n = record_queue_reuse_thread(head, threads, self);
    }
    record_queue_thread = (uint16_t)(n ? n : UINT16_MAX);
    return record_queue_thread;
}

/* ---- operators of the caller ---- */

/* Two threads may take one entry: the name is then that of either, and is only shown. */
uint32_t record_queue_name_user_op(struct record_head *head, uint32_t hash, const char *name)
{
    for (int i = 0; i < RECORD_USER_OPS; i++) {
        struct record_user_op *op = &head->user_ops[i];
        uint32_t used = atomic_load_explicit(&op->hash, memory_order_relaxed);
        if (used == hash)
            break;
        if (used)
            continue;
        snprintf(op->name, sizeof op->name, "%s", name);
        atomic_store_explicit(&op->hash, hash, memory_order_release);
        break;
    }
    return hash;
}

/* ---- failures ---- */

struct record_moment record_queue_now(struct record_head *head)
{
    uint16_t thread = record_queue_thread;
    if (!head)
        return (struct record_moment){0};
    return (struct record_moment){
        .ns = record_mono_ns(),
        .next = atomic_load_explicit(&head->next, memory_order_relaxed),
        .thread = thread ? thread : record_queue_name_thread(head),
    };
}

void record_queue_note_failure(struct record_head *head, const struct record_failure *failure)
{
    if (!head)
        return;
    struct record_failure *f = &head->failure;
    uint32_t version = atomic_load_explicit(&f->version, memory_order_relaxed);
    /* Another thread that fails at the same time writes first. */
    while ((version & 1) ||
           !atomic_compare_exchange_weak_explicit(&f->version, &version, version + 1,
                                                  memory_order_acquire, memory_order_relaxed)) {
        sched_yield();
        version = atomic_load_explicit(&f->version, memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_release);
    f->status = failure->status;
    f->at = failure->at;
    f->number = failure->number;
    f->site = failure->site;
    memcpy(f->group, failure->group, sizeof f->group);
    memcpy(f->text, failure->text, sizeof f->text);
    atomic_store_explicit(&f->version, version + 2, memory_order_release);
}

void record_queue_note_mistake(struct record_head *head, enum record_mistake_kind kind,
                               uint64_t site, const char *text)
{
    struct record_mistake *mistakes =
        (void *)((unsigned char *)head + record_layout(head).mistakes);
    for (uint32_t i = 0; i < head->nmistakes; i++) {
        struct record_mistake *m = &mistakes[i];
        const uint32_t known = atomic_load_explicit(&m->kind, memory_order_acquire);
        if (known != (uint32_t)kind || m->site != site ||
            strncmp(m->text, text, sizeof m->text - 1) != 0)
            continue;
        atomic_fetch_add_explicit(&m->times, 1, memory_order_relaxed);
        return;
    }
    const uint32_t at = atomic_fetch_add_explicit(&head->mistakes_used, 1, memory_order_relaxed);
    if (at >= head->nmistakes) {
        atomic_store_explicit(&head->mistakes_used, head->nmistakes, memory_order_relaxed);
        return;
    }
    struct record_mistake *m = &mistakes[at];
    m->site = site;
    snprintf(m->text, sizeof m->text, "%s", text);
    atomic_store_explicit(&m->times, 1, memory_order_relaxed);
    atomic_store_explicit(&m->kind, (uint32_t)kind, memory_order_release);
}

/* ---- modules ---- */

struct module_list {
    struct record_module *items;
    uint32_t n, most;
    uint64_t loaded, now; /* how many have ever been loaded: at the last list, and now */
};

static bool record_queue_is_listed(const struct module_list *list, uint64_t start)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->items[i].start == start)
            return true;
    return false;
}

/* The path of the file; the program itself has none. */
static void record_queue_module_path(const char *name, char *out, size_t size)
{
    char path[4096];
    size_t len;
    if (name[0]) {
        len = strnlen(name, sizeof path - 1);
        memcpy(path, name, len);
    } else {
        ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
        len = n > 0 ? (size_t)n : 0;
    }
    size_t cut = len < size ? 0 : len - (size - 1);
    memcpy(out, path + cut, len - cut);
    out[len - cut] = '\0';
}

static int record_queue_add_module(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct module_list *list = arg;
    if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds) {
        if (list->n && info->dlpi_adds == list->loaded)
            return 1; /* none is new */
        list->now = info->dlpi_adds;
    }
    for (int i = 0; i < info->dlpi_phnum && list->n < list->most; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) || record_queue_is_listed(list, start))
            continue;
        struct record_module *m = &list->items[list->n];
        m->start = start;
        m->end = start + p->p_memsz;
        m->base = info->dlpi_addr;
        record_queue_module_path(info->dlpi_name, m->path, sizeof m->path);
        list->n++;
    }
    return 0;
}

static void record_queue_list_modules(struct record_head *head)
{
    if (atomic_load(&head->tap) == RECORD_TAP_C10D) /* it lists files of Python there */
        return;
    struct module_list list = {.items = record_queue_at(head, record_layout(head).modules),
                               .n = atomic_load(&head->modules_used),
                               .most = head->nmodules,
                               .loaded = atomic_load(&head->modules_seen)};
    if (dl_iterate_phdr(record_queue_add_module, &list))
        return;
    atomic_store(&head->modules_seen, list.now);
    atomic_store_explicit(&head->modules_used, list.n, memory_order_release);
}

/* ---- slots ---- */

static struct record_group *record_queue_take_slot(struct record_head *head, uint32_t *slot)
{
    struct record_group *groups = record_queue_at(head, record_layout(head).groups);
    uint32_t n = atomic_load(&head->groups_used);
    while (n < head->ngroups) {
        if (!atomic_compare_exchange_weak(&head->groups_used, &n, n + 1))
            continue;
        *slot = n;
        atomic_store(&groups[n].used, RECORD_GROUP_OPENING);
        return &groups[n];
    }
    for (uint32_t i = 0; i < head->ngroups; i++) {
        uint32_t at = atomic_fetch_add(&head->next_slot, 1) % head->ngroups;
        uint32_t used = atomic_load(&groups[at].used);
        *slot = at;
        if ((used == RECORD_GROUP_CLOSED || used == RECORD_GROUP_FORMED) &&
            atomic_compare_exchange_strong(&groups[at].used, &used, RECORD_GROUP_OPENING))
            return &groups[at];
    }
    return NULL;
}

/* A copy of the scope; one that is too long keeps its end, after a hash of the whole. */
static void record_queue_put_scope(const char *scope, char *out, size_t size)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    size_t len = strlen(scope);
    for (const char *at = scope; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    if (len < size)
        memcpy(out, scope, len + 1);
    else
        snprintf(out, size, "%016llx:%s", (unsigned long long)hash, scope + len - (size - 18));
}

/* ---- members ---- */

/* True if each world rank is the last one plus the same step. */
static bool record_queue_is_range(const uint32_t *world, uint32_t n)
{
    for (uint32_t i = 2; i < n; i++)
        if (world[i] - world[i - 1] != world[1] - world[0])
            return false;
    return n > 2;
}

/* Where members[] has such numbers: those of another group, or new ones. False: no room. */
static bool record_queue_put_members(struct record_head *head, const uint32_t *numbers, uint32_t n,
                                     uint32_t *at)
{
    const struct record_layout layout = record_layout(head);
    const struct record_group *groups = record_queue_at(head, layout.groups);
    uint32_t *members = record_queue_at(head, layout.members);
    uint32_t used = atomic_load(&head->members_used);
    for (uint32_t i = 0; i < head->ngroups; i++) {
        const uint32_t from = groups[i].members_at & ~RECORD_RANGE;
        if (groups[i].id && from + (uint64_t)n <= used &&
            memcmp(&members[from], numbers, n * sizeof *numbers) == 0) {
            *at = from;
            return true;
        }
    }
    do {
        if (n > head->nmembers - used) {
            atomic_fetch_or(&head->lost, RECORD_LOST_MEMBERS);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&head->members_used, &used, used + n));
    memcpy(&members[used], numbers, n * sizeof *numbers);
    *at = used;
    return true;
}

/* Without room for its members the group has no id: calls on it are not compared with those of
 * other ranks. */
static void record_queue_list_members(struct record_group *g, struct record_head *head,
                                      const struct record_queue_info *info)
{
    const uint32_t *world = info->world;
    bool listed;
    if (!world || !info->id)
        return;
    if (!info->nremote && record_queue_is_range(world, info->members)) {
        const uint32_t range[2] = {world[0], world[1] - world[0]};
        listed = record_queue_put_members(head, range, 2, &g->members_at);
        g->members_at |= RECORD_RANGE;
    } else {
        listed =
            record_queue_put_members(head, world, info->members + info->nremote, &g->members_at);
    }
    g->nremote = info->nremote;
    g->id = listed ? info->id : 0;
}

static void record_queue_fill_slot(struct record_group *g, struct record_head *head,
                                   const struct record_queue_info *info)
{
    uint32_t version = atomic_load(&g->version) | 1, generation = g->generation + 1;
    if (g->id) /* other ranks may still wait for this group */
        atomic_fetch_add(&head->forgotten, 1);
    atomic_store_explicit(&g->version, version, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memset((char *)g + offsetof(struct record_group, name), 0,
           sizeof *g - offsetof(struct record_group, name));
    snprintf(g->name, sizeof g->name, "%s", info->name);
    record_queue_put_scope(info->scope, g->scope, sizeof g->scope);
    g->members = info->members;
    g->rank = info->rank;
    g->messages = info->messages;
    g->unordered = info->unordered;
    g->check = (uint32_t)info->check;
    g->first = atomic_load(&head->next);
    g->root_or_peer = -1;
    g->generation = generation;
    record_queue_list_members(g, head, info);
    atomic_store_explicit(&g->version, version + 1, memory_order_release);
}

void record_queue_open(struct record_queue *q, struct record_head *head,
                       const struct record_queue_info *info)
{
    uint32_t slot = 0;
    struct record_group *g = head ? record_queue_take_slot(head, &slot) : NULL;
    *q = (struct record_queue){0};
    if (!g)
        return;
    struct record_layout at = record_layout(head);
    struct record_marks *marks = record_queue_at(head, at.marks);
    q->head = head;
    q->group = g;
    q->slot = (uint16_t)slot;
    q->marks = info->messages ? NULL : &marks[slot];
    q->entries = head->entries ? record_queue_at(head, at.entries) : NULL;
    q->counts = head->entries ? record_queue_at(head, at.counts) : NULL;
    q->mask = head->entries - 1;
    if (q->marks && atomic_load(&g->version)) /* it was used before */
        memset(q->marks, 0, sizeof *q->marks);
    record_queue_fill_slot(g, head, info);
    q->generation = g->generation;
    record_queue_list_modules(head);
    atomic_store_explicit(&g->used, info->forming ? RECORD_GROUP_FORMING : RECORD_GROUP_OPEN,
                          memory_order_release);
}

void record_queue_formed(struct record_queue *q)
{
    if (q->group)
        atomic_store_explicit(&q->group->used, RECORD_GROUP_OPEN, memory_order_relaxed);
}

void record_queue_close(struct record_queue *q)
{
    if (!q->group)
        return;
    const bool forming =
        atomic_load_explicit(&q->group->used, memory_order_relaxed) == RECORD_GROUP_FORMING;
    atomic_store_explicit(&q->group->used, forming ? RECORD_GROUP_FORMED : RECORD_GROUP_CLOSED,
                          memory_order_release);
}

/* ---- counts ---- */

static void record_queue_put_counts(uint64_t *ring, uint64_t at, const size_t *counts, uint32_t n)
{
    const uint32_t begin = at % RECORD_COUNTS;
    if (begin + (uint64_t)n <= RECORD_COUNTS) {
        for (uint32_t i = 0; i < n; i++)
            ring[begin + i] = counts[i];
    } else {
        for (uint32_t i = 0; i < n; i++)
            ring[(begin + i) % RECORD_COUNTS] = counts[i];
    }
}

uint32_t record_queue_keep_counts(struct record_queue *q, const struct record_counts *c)
{
    uint64_t n = 1 + (uint64_t)c->nsent + c->nexpected;
    if (!q->counts || n > RECORD_COUNTS)
        return RECORD_NO_COUNTS;
    uint64_t at = atomic_fetch_add_explicit(&q->head->next_count, n, memory_order_relaxed);
    if ((uint32_t)at == RECORD_NO_COUNTS)
        return RECORD_NO_COUNTS;
    /* A reader of the counts that are overwritten now finds that next_count has moved. */
    atomic_thread_fence(memory_order_release);
    q->counts_hash = c->hash;
    q->counts_at = at;
    q->counts[at % RECORD_COUNTS] = c->nsent | (uint64_t)c->nexpected << 32;
    record_queue_put_counts(q->counts, at + 1, c->sent, c->nsent);
    record_queue_put_counts(q->counts, at + 1 + c->nsent, c->expected, c->nexpected);
    return (uint32_t)at;
}
