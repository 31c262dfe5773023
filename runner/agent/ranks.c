/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/ranks.h"

#include "agent/uplink.h"
#include "base/debug.h"
#include "base/wire_fields.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rank_proc *ranks_find(struct agent *a, uint32_t rank)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        if (a->ranks[i].rank == rank)
            return &a->ranks[i];
    }
    return NULL;
}

void ranks_send(struct agent *a, uint32_t rank, uint16_t type, const struct buf *payload)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if ((rank == WIRE_HOST || p->rank == rank) && p->spawned && !p->exited &&
            !(p->command && pmi_take(&p->pmi, type, payload->data, payload->len)))
            conn_send_buf(&p->control, type, p->rank, a->desc.attempt, payload);
    }
}

/* To every process of the rank, once: programs take a second signal for the order to end at once.
 * The process group exists a moment after fork. */
static void ranks_kill(const struct rank_proc *p, const struct tree *t, int sig)
{
    if (getpgid(p->pid) != p->pid)
        kill(p->pid, sig);
    kill(-p->pid, sig);
    for (uint32_t i = 0; i < t->n; i++) {
        const struct tree_process *other = &t->items[i];
        if (other->rank == p && other->group != p->pid && other->pid != p->pid)
            kill(other->pid, sig);
    }
}

/* What is left of the rank when its own process ends may go on for timeouts.grace (agent.c). */
static void ranks_terminate(struct rank_proc *p, const struct tree *t)
{
    p->term_by_ns = deadline_after(now_ns(), p->agent->desc.grace_ns);
    ranks_kill(p, t, SIGTERM);
}

void ranks_note_memory(struct agent *a)
{
    for (uint32_t i = 0; i < a->nranks; i++)
        if (a->ranks[i].command && a->ranks[i].spawned && !a->ranks[i].exited)
            pmi_note_memory(&a->ranks[i].pmi);
}

void ranks_end_commands(struct agent *a)
{
    struct tree t;
    ranks_note_memory(a);
    tree_read(&t, a);
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if (p->command && !p->member && p->pid && !p->exited && !p->terminated) {
            p->terminated = true;
            ranks_terminate(p, &t);
            ranks_kill(p, &t, SIGCONT);
        }
    }
    tree_fini(&t);
}

void ranks_abort(struct agent *a, int status, uint32_t culprit, const char *text)
{
    struct buf b;
    buf_init(&b);
    debug_log(DEBUG_STOP, "aborts all ranks of this host, status %d, culprit %d: %s", status,
              (int)culprit, text);
    wire_put_abort(&b, &(struct wire_abort){status, culprit, text});
    ranks_send(a, WIRE_HOST, WIRE_ABORT, &b);
    buf_fini(&b);
    a->aborted = true;
    ranks_end_commands(a);
}

void ranks_signal(struct agent *a, uint32_t rank, int sig)
{
    struct tree t;
    debug_log(DEBUG_STOP, "signal %d to rank %d (-1: all)", sig, (int)rank);
    if (sig == SIGKILL)
        ranks_note_memory(a);
    tree_read(&t, a);
    for (uint32_t i = 0; i < a->nranks; i++) {
        struct rank_proc *p = &a->ranks[i];
        if (rank != WIRE_HOST && p->rank != rank)
            continue;
        if (sig == SIGKILL)
            p->term_by_ns = 0;
        if (!p->pid || p->exited)
            continue;
        if (sig == SIGTERM)
            ranks_terminate(p, &t);
        else
            ranks_kill(p, &t, sig);
    }
    tree_fini(&t);
}

/* A shell that started the program would die of the signal, and a helper process that does not know
 * it as well. */
static pid_t ranks_find_warned(const struct rank_proc *p, const struct tree *t, int sig)
{
    const pid_t member = p->record ? (pid_t)atomic_load(&p->record->member) : 0;
    for (uint32_t i = 0; i < t->n && p->member; i++)
        if (t->items[i].pid == member && t->items[i].rank == p)
            return member;
    const pid_t handler = tree_find_handler(t, p->pid, sig);
    return handler ? handler : p->pid;
}

void ranks_warn(struct agent *a, int sig)
{
    struct tree t;
    tree_read(&t, a);
    for (uint32_t i = 0; i < a->nranks; i++) {
        const struct rank_proc *p = &a->ranks[i];
        if (p->pid && !p->exited)
            kill(ranks_find_warned(p, &t, sig), sig);
    }
    tree_fini(&t);
}

bool ranks_await_terminated(struct agent *a)
{
    const uint64_t now = now_ns();
    bool may = false, found = false;
    struct tree t;
    for (uint32_t i = 0; i < a->nranks; i++)
        may = may || a->ranks[i].term_by_ns > now;
    if (!may)
        return false;
    tree_read(&t, a);
    for (uint32_t i = 0; i < t.n && !found; i++)
        found = t.items[i].rank && t.items[i].rank->term_by_ns > now;
    tree_fini(&t);
    return found;
}

void ranks_send_multicast(struct agent *a, const struct wire_frame *f)
{
    struct wire_multicast m;
    struct arena arena;
    arena_init(&arena);
    if (wire_read_multicast(f, &arena, &m)) {
        const struct buf payload = buf_borrow(m.payload.data, m.payload.len);
        for (uint32_t i = 0; i < m.ranks.n; i++)
            ranks_send(a, m.ranks.items[i], m.type, &payload);
    } else {
        struct diag d;
        wire_malformed(&d, "MULTICAST frame");
        uplink_send_error(a, &d);
    }
    arena_fini(&arena);
}

/* ---- tree ---- */

enum { TREE_DEPTH_MAX = 64, TREE_ENVIRONMENT_MAX = 256 << 10 };

/* ---- reading /proc ---- */

size_t tree_read_file(pid_t pid, const char *name, char *text, size_t size)
{
    char path[64];
    size_t len = 0;
    ssize_t n = 1;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && len + 1 < size && (n = read(fd, text + len, size - 1 - len)) > 0)
        len += (size_t)n;
    if (fd >= 0)
        close(fd);
    text[len] = '\0';
    return len;
}

/* The name in /proc/PID/stat may hold anything, so it is skipped from its end. */
static bool tree_read_process(pid_t pid, struct tree_process *p)
{
    char text[512], state;
    tree_read_file(pid, "stat", text, sizeof text);
    const char *name = strchr(text, '('), *after = strrchr(text, ')');
    *p = (struct tree_process){.pid = pid};
    if (!name || !after ||
        sscanf(after + 1, " %c %d %d %d", &state, &p->parent, &p->group, &p->session) != 4)
        return false;
    p->other =
        strncmp(name, "(collrun-guard)", 15) == 0 || strncmp(name, "(collrun-agent)", 15) == 0;
    return state != 'Z' && state != 'X';
}

static int tree_compare(const void *a, const void *b)
{
    const struct tree_process *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static const struct tree_process *tree_find(const struct tree *t, pid_t pid)
{
    const struct tree_process key = {.pid = pid};
    return bsearch(&key, t->items, t->n, sizeof key, tree_compare);
}

/* ---- whose they are ---- */

/* The rank whose process group or session has this number. It may have exited. */
static struct rank_proc *tree_rank_of_group(const struct agent *a, const struct tree_process *p)
{
    for (uint32_t i = 0; i < a->nranks; i++) {
        const pid_t leader = a->ranks[i].pid;
        if (leader && (p->group == leader || p->session == leader))
            return &a->ranks[i];
    }
    return NULL;
}

static bool tree_environment_has(const char *text, size_t len, const char *entry)
{
    for (const char *at = text; at < text + len; at += strlen(at) + 1)
        if (strcmp(at, entry) == 0)
            return true;
    return false;
}

static struct rank_proc *tree_rank_of_environment(const struct agent *a, pid_t pid)
{
    char run[256], rank[48];
    struct rank_proc *found = NULL;
    char *text = malloc(TREE_ENVIRONMENT_MAX);
    const size_t len = text ? tree_read_file(pid, "environ", text, TREE_ENVIRONMENT_MAX) : 0;
    snprintf(run, sizeof run, "COLLRUN_RUN_ID=%s", a->desc.run_id);
    if (len && tree_environment_has(text, len, run)) {
        for (uint32_t i = 0; i < a->nranks && !found; i++) {
            snprintf(rank, sizeof rank, "COLLRUN_RANK=%u", a->ranks[i].rank);
            found = tree_environment_has(text, len, rank) ? &a->ranks[i] : NULL;
        }
    }
    free(text);
    return found;
}

static struct rank_proc *tree_rank_of(const struct tree *t, const struct agent *a,
                                      const struct tree_process *p)
{
    const pid_t self = getpid();
    for (int depth = 0; p && depth < TREE_DEPTH_MAX; depth++) {
        struct rank_proc *rank = tree_rank_of_group(a, p);
        if (rank || p->other || p->pid == self)
            return rank;
        if (p->parent == self)
            return tree_rank_of_environment(a, p->pid);
        p = tree_find(t, p->parent);
    }
    return NULL;
}

void tree_read(struct tree *t, const struct agent *a)
{
    uint32_t room = 0;
    struct dirent *e;
    DIR *proc = opendir("/proc");
    *t = (struct tree){0};
    while (proc && (e = readdir(proc))) {
        const pid_t pid = atoi(e->d_name);
        if (t->n == room) {
            room = room ? room * 2 : 256;
            void *more = realloc(t->items, room * sizeof *t->items);
            if (!more)
                break;
            t->items = more;
        }
        if (pid > 0 && tree_read_process(pid, &t->items[t->n]))
            t->n++;
    }
    if (proc)
        closedir(proc);
    if (t->n)
        qsort(t->items, t->n, sizeof *t->items, tree_compare);
    for (uint32_t i = 0; i < t->n; i++)
        t->items[i].rank = tree_rank_of(t, a, &t->items[i]);
}

void tree_fini(struct tree *t)
{
    free(t->items);
    *t = (struct tree){0};
}

/* ---- handlers ---- */

static bool tree_handles(pid_t pid, int sig)
{
    static const char *const masks[] = {"\nSigCgt:", "\nSigBlk:"};
    char text[8192];
    tree_read_file(pid, "status", text, sizeof text);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        const char *at = strstr(text, masks[i]);
        if (at && strtoull(at + strlen(masks[i]), NULL, 16) >> (sig - 1) & 1)
            return true;
    }
    return false;
}

static pid_t tree_find_below(const struct tree *t, pid_t pid, int sig, int depth)
{
    pid_t found = tree_handles(pid, sig) ? pid : 0;
    for (uint32_t i = 0; i < t->n && !found && depth < TREE_DEPTH_MAX; i++)
        if (t->items[i].parent == pid && !t->items[i].other)
            found = tree_find_below(t, t->items[i].pid, sig, depth + 1);
    return found;
}

pid_t tree_find_handler(const struct tree *t, pid_t pid, int sig)
{
    return tree_find_below(t, pid, sig, 0);
}
