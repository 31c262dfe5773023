/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's two compressed lists, side by side: one name and one count of tasks per node.
 */
#include "spec/slurm.h"

#include "base/quote.h"
#include "spec/names.h"

#include <stdlib.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

/* The length of the first item of a list; commas inside brackets do not end it. */
static size_t item_len(const char *list)
{
    size_t n = 0;
    int depth = 0;
    for (; list[n] && (depth || list[n] != ','); n++)
        depth += (list[n] == '[') - (list[n] == ']');
    return n;
}

static int add_nodes(struct job_hosts *hosts, const char *pattern, struct arena *arena,
                     struct diag *d)
{
    const char **names;
    uint32_t n;
    int code = name_expand_hosts(pattern, arena, &names, &n, d);
    if (code < 0)
        return code;
    struct job_host *grown = arena_calloc(arena, (size_t)hosts->n + n, sizeof *grown);
    if (!grown)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (hosts->n)
        memcpy(grown, hosts->nodes, hosts->n * sizeof *grown);
    for (uint32_t i = 0; i < n; i++) {
        struct job_host *host = &grown[hosts->n + i];
        host->name = (struct job_str){.v = names[i], .loc = hosts->all.loc};
        host->loc = hosts->all.loc;
        host->transport.kind = (struct job_num){JOB_TRANSPORT_SLURM, hosts->all.loc};
        host->port.v = 22;
    }
    hosts->nodes = grown;
    hosts->n += n;
    return 0;
}

/* "2(x3),1": the next count, repeated as it says. */
static bool next_count(const char **at, unsigned long *left, long *count)
{
    char *end;
    if (*left) {
        (*left)--;
        return true;
    }
    *count = strtol(*at, &end, 10);
    if (end == *at || *count < 1)
        return false;
    if (strncmp(end, "(x", 2) == 0) {
        *left = strtoul(end + 2, &end, 10);
        end += *end == ')';
        *left -= *left > 0;
    }
    *at = *end == ',' ? end + 1 : end;
    return true;
}

int slurm_hosts(struct job_hosts *hosts, const char *nodelist, const char *tasks,
                struct arena *arena, struct diag *d)
{
    hosts->n = 0;
    if (!nodelist || !*nodelist) {
        diag_at(d, hosts->all.loc,
                "hosts: slurm: this is not inside a Slurm allocation (SLURM_JOB_NODELIST is not "
                "set)");
        return diag_hint(d, "salloc -N2 collrun JOB.yaml, or the same line in a script for sbatch");
    }
    for (const char *at = nodelist; *at;) {
        size_t len = item_len(at);
        const char *pattern = arena_strndup(arena, at, len);
        int code = pattern ? add_nodes(hosts, pattern, arena, d) : COLLRUN_ERR_NO_MEMORY;
        if (code < 0) {
            d->loc = hosts->all.loc;
            return diag_wrap(d, "hosts: slurm: SLURM_JOB_NODELIST is %s", QUOTED(nodelist));
        }
        at += len + (at[len] == ',');
    }
    unsigned long left = 0;
    long count = 0;
    for (uint32_t i = 0; tasks && i < hosts->n && next_count(&tasks, &left, &count); i++)
        hosts->nodes[i].slots = (struct job_num){count, hosts->all.loc};
    return 0;
}
