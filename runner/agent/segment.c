/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared memory without names: one memory file per (scope, key), made at the first request, handed
 * to every rank of this host that asks, forgotten when all of them have left. Its size is sealed,
 * so no rank can pull it away under another.
 */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void segment_free(struct segment *s)
{
    if (s->fd >= 0)
        close(s->fd);
    free(s->scope);
    free(s->key);
    free(s->holders);
    free(s);
}

static struct segment *segment_new(const char *scope, const char *key, uint64_t len, struct diag *d)
{
    struct segment *s = calloc(1, sizeof *s);
    if (!s) {
        diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for a shared segment");
        return NULL;
    }
    s->len = len;
    s->scope = strdup(scope);
    s->key = strdup(key);
    s->fd = memfd_create("collrun", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (!s->scope || !s->key || s->fd < 0 || ftruncate(s->fd, (off_t)len) < 0 ||
        fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        diag_sys(d, errno, "make a shared segment of %llu bytes", (unsigned long long)len);
        segment_free(s);
        return NULL;
    }
    return s;
}

static int hold(struct segment *s, uint32_t rank, struct diag *d)
{
    uint32_t *grown = realloc(s->holders, (s->nholders + 1) * sizeof *grown);
    if (!grown)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for a shared segment");
    s->holders = grown;
    s->holders[s->nholders++] = rank;
    return COLLRUN_OK;
}

int segment_get(struct segment **list, uint32_t rank, const char *scope, const char *key,
                uint64_t len, int *fd, struct diag *d)
{
    struct segment *s = *list;
    while (s && (strcmp(s->scope, scope) != 0 || strcmp(s->key, key) != 0))
        s = s->next;
    if (!s) {
        s = segment_new(scope, key, len, d);
        if (!s)
            return d->code;
        s->next = *list;
        *list = s;
    }
    if (s->len != len)
        return diag_set(d, COLLRUN_ERR_MISMATCH,
                        "ranks ask for %llu and %llu bytes of the same shared segment \"%s\"",
                        (unsigned long long)s->len, (unsigned long long)len, key);
    int copy = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return diag_sys(d, errno, "duplicate a shared segment");
    int rc = hold(s, rank, d);
    if (rc != COLLRUN_OK)
        close(copy);
    else
        *fd = copy;
    return rc;
}

void segment_leave(struct segment **list, uint32_t rank, const char *scope)
{
    for (struct segment **p = list; *p;) {
        struct segment *s = *p;
        for (uint32_t i = 0; (!scope || strcmp(s->scope, scope) == 0) && i < s->nholders;) {
            if (s->holders[i] == rank)
                s->holders[i] = s->holders[--s->nholders];
            else
                i++;
        }
        if (s->nholders) {
            p = &s->next;
            continue;
        }
        *p = s->next;
        segment_free(s);
    }
}
