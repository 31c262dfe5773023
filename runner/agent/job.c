/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking a JOB: the description is read, the address for network.interface found, and every rank of
 * this host started with its welcome. A rank that cannot be started is announced with the reason;
 * what concerns all of them is the JOB's failure.
 */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int agent_engine_path(const char *given, char *path, size_t size, struct diag *d)
{
    if (given[0]) {
        snprintf(path, size, "%s", given);
        return COLLRUN_OK;
    }
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n < 0)
        return diag_sys(d, errno, "find collrun-agent's own path");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    size_t dir = slash ? (size_t)(slash - path) + 1 : 0;
    if (size - dir < sizeof "collrun-engine")
        return diag_set(d, COLLRUN_ERR_SYSTEM, "the path of collrun-agent is too long");
    memcpy(path + dir, "collrun-engine", sizeof "collrun-engine");
    return COLLRUN_OK;
}

static int welcome_make(struct agent *a, bool together, const void *desc, size_t len,
                        struct buf *out, size_t *rank_at, struct diag *d)
{
    char address[64], interface[64];
    cpu_set_t cpus;
    int rc =
        address_resolve(a->desc.interface, address, sizeof address, interface, sizeof interface, d);
    if (rc != COLLRUN_OK)
        return rc;
    rc = address_check(address, interface, together, d);
    if (rc != COLLRUN_OK)
        return rc;
    *rank_at = buf_pending(out);
    buf_put_u32(out, 0);
    buf_put_u32(out, a->desc.attempt);
    buf_put_u32(out, a->host);
    buf_put_str(out, address);
    buf_put_str(out, interface);
    buf_put_u32(out,
                sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 1);
    buf_put_blob(out, desc, len);
    return out->failed
               ? diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the job's description")
               : COLLRUN_OK;
}

static void announce(struct agent *a, const struct rank_proc *p, const struct diag *d)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, (uint32_t)p->pid);
    if (p->pid)
        buf_put_str(&b, p->gpus ? p->gpus : "");
    else
        wire_put_diag(&b, d);
    conn_send(&a->runner, WIRE_SPAWNED, p->rank, a->desc.attempt, b.data, b.len);
    buf_fini(&b);
}

static int spawn_all(struct agent *a, const char *engine, bool together, const void *desc,
                     size_t len, struct diag *d)
{
    struct buf welcome;
    size_t rank_at = 0;
    uint32_t next = 0;
    buf_init(&welcome);
    int rc = welcome_make(a, together, desc, len, &welcome, &rank_at, d);
    for (uint32_t rank = 0; rc == COLLRUN_OK && rank < a->desc.nranks; rank++) {
        if (a->desc.ranks[rank].host != a->host)
            continue;
        struct rank_proc *p = &a->ranks[next++];
        p->agent = a;
        for (int i = 0; i < 4; i++)
            welcome.data[rank_at + (size_t)i] = (unsigned char)(rank >> (8 * i));
        a->nranks = next;
        struct diag why;
        diag_init(&why);
        if (rank_spawn(p, engine, &welcome, &why) != COLLRUN_OK && !p->pid)
            p->exited = true;
        a->nrunning += p->pid != 0;
        announce(a, p, &why);
    }
    buf_fini(&welcome);
    return rc;
}

/* Said once for the host, before it is found by every rank. */
static int check_workdir(const char *path, struct diag *d)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd < 0 || access(path, X_OK) < 0 ? diag_sys(d, errno, "workdir %s", path) : COLLRUN_OK;
}

int agent_take_job(struct agent *a, const struct wire_frame *f, struct diag *d)
{
    struct reader r;
    char engine[4096];
    size_t len;
    if (a->have_job)
        return diag_set(d, COLLRUN_ERR_INVALID, "a second JOB");
    a->have_job = true;
    reader_init(&r, f->payload, f->len);
    a->host = read_u32(&r);
    const char *given = read_str(&r, &a->arena);
    bool together = read_u8(&r);
    const void *bytes = read_blob(&r, &len);
    if (!reader_done(&r))
        return diag_set(d, COLLRUN_ERR_INVALID, "a JOB that cannot be read");
    int rc = desc_decode(&a->arena, &a->desc, bytes, len, d);
    if (rc == COLLRUN_OK && a->host >= a->desc.nhosts)
        rc = diag_set(d, COLLRUN_ERR_INVALID, "a JOB for a host that is not in it");
    if (rc == COLLRUN_OK && a->desc.hosts[a->host].workdir[0])
        rc = check_workdir(a->desc.hosts[a->host].workdir, d);
    if (rc == COLLRUN_OK)
        rc = agent_engine_path(given, engine, sizeof engine, d);
    if (rc != COLLRUN_OK)
        return rc;
    a->ranks = arena_calloc(&a->arena, a->desc.hosts[a->host].nranks, sizeof *a->ranks);
    if (!a->ranks)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the ranks");
    rc = placement_make(a, d);
    return rc == COLLRUN_OK ? spawn_all(a, engine, together, bytes, len, d) : rc;
}
