/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/usage.h"

#include "base/record_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USAGE_NS 1000000000ull       /* operations that ended within this time count */
enum { USAGE_SEARCH_MAX = 1 << 13 }; /* of the latest operations */

struct usage_group { /* of one slot */
    uint32_t operations;
    uint64_t sum_ns, longest_ns;
};

/* The name in /proc/PID/stat may hold anything, so it is skipped from its end. */
static void usage_put_process(struct buf *b, pid_t pid)
{
    char path[64], text[1024];
    unsigned long long user = 0, system = 0;
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    if (!after || sscanf(after + 1,
                         " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d "
                         "%*d %*d %*u %*u %ld",
                         &user, &system, &pages) != 3)
        user = system = 0, pages = 0;
    unsigned long long ticks = (unsigned long long)sysconf(_SC_CLK_TCK);
    buf_put_u64(b, (user + system) * 1000000 / ticks);
    buf_put_u64(b, (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

/* From the latest operation backwards, until one ended too long ago. */
static void usage_count(const struct record_view *v, struct usage_group *groups, uint32_t n)
{
    uint64_t first = record_view_first(v), end = record_view_end(v), now = now_ns();
    for (uint64_t i = end; i > first && end - i < USAGE_SEARCH_MAX; i--) {
        struct record_view_op op;
        if (!record_view_op(v, i - 1, &op) || !op.is_current || !op.ended_ns || op.slot >= n)
            continue;
        if (op.ended_ns + USAGE_NS < now)
            return;
        struct usage_group *g = &groups[op.slot];
        uint64_t ns = op.ended_ns > op.called_ns ? op.ended_ns - op.called_ns : 0;
        g->operations++;
        g->sum_ns += ns;
        g->longest_ns = ns > g->longest_ns ? ns : g->longest_ns;
    }
}

/* Returns how many groups were written. */
static uint32_t usage_put_groups(struct buf *b, const struct rank_proc *p)
{
    struct record_view v;
    struct record_view_group g;
    record_calibrate(p->record);
    if (record_view_init(&v, p->record, p->record_len, NULL) != COLLRUN_OK)
        return 0;
    uint32_t slots = record_view_ngroups(&v), n = 0;
    struct usage_group *groups = calloc(slots + 1, sizeof *groups);
    if (groups)
        usage_count(&v, groups, slots);
    for (uint32_t i = 0; groups && i < slots; i++) {
        if (!groups[i].operations || !record_view_group(&v, i, &g) || !g.open)
            continue;
        n++;
        buf_put_str(b, g.name);
        buf_put_u32(b, groups[i].operations);
        buf_put_u64(b, groups[i].sum_ns);
        buf_put_u64(b, groups[i].longest_ns);
    }
    free(groups);
    return n;
}

void usage_send(struct agent *a, const struct rank_proc *p)
{
    struct buf b, groups;
    buf_init(&b);
    buf_init(&groups);
    uint32_t n = p->record ? usage_put_groups(&groups, p) : 0;
    usage_put_process(&b, p->pid);
    buf_put_u32(&b, n);
    buf_put_buf(&b, &groups);
    conn_send_buf(&a->runner, WIRE_USAGE, p->rank, a->desc.attempt, &b);
    buf_fini(&groups);
    buf_fini(&b);
}
