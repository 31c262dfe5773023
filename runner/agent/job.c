/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/job.h"

#include "agent/activate.h"
#include "agent/address.h"
#include "agent/engine_query.h"
#include "agent/placement.h"
#include "agent/uplink.h"
#include "base/debug.h"
#include "base/hostmem.h"
#include "base/topology.h"
#include "base/wire_fields.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void job_announce(struct agent *a, const struct rank_proc *p, const struct diag *d)
{
    struct buf b;
    buf_init(&b);
    wire_put_spawned(&b, &(struct wire_spawned){(uint32_t)p->pid, p->devices, *d});
    conn_send_buf(&a->runner, WIRE_SPAWNED, p->rank, a->desc.attempt, &b);
    buf_fini(&b);
}

static int job_spawn_ranks(struct agent *a, struct diag *d)
{
    struct wire_welcome welcome = {.attempt = a->desc.attempt,
                                   .host = a->host,
                                   .address = a->address,
                                   .interface = a->interface,
                                   .cpus = cpus_usable(0),
                                   .desc = {a->desc_bytes, a->desc_len}};
    struct buf payload;
    uint32_t next = 0;
    buf_init(&payload);
    for (uint32_t rank = 0; rank < a->desc.nranks; rank++) {
        if (a->desc.ranks[rank].host != a->host)
            continue;
        struct rank_proc *p = &a->ranks[next++];
        p->agent = a;
        uint32_t command = desc_find_command(&a->desc, rank);
        p->command = command < a->desc.nworkloads ? &a->desc.workloads[command] : NULL;
        welcome.rank = rank;
        buf_clear(&payload);
        wire_put_welcome(&payload, &welcome);
        if (payload.failed)
            break;
        a->nranks = next;
        struct diag why;
        diag_init(&why);
        const int spawned = rank_spawn(p, a->engine, &payload, &why);
        p->exited = !p->pid;
        a->nrunning += p->pid != 0;
        job_announce(a, p, &why);
        if (spawned != COLLRUN_OK && p->pid) { /* it runs, and the agent cannot talk to it */
            diag_wrap(&why, "rank %u", rank);
            uplink_send_error(a, &why);
        }
    }
    const bool no_memory = payload.failed;
    buf_fini(&payload);
    if (no_memory)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the job's description");
    audit_sender_start(&a->audit, a);
    trace_sender_start(&a->trace, a);
    cut_sender_start(&a->cuts, a);
    open_mpi_start(&a->open_mpi, a);
    return COLLRUN_OK;
}

/* ---- MASTER ---- */

static int job_find_address(struct agent *a, struct diag *d)
{
    int rc = address_resolve(a->desc.interface, a->address, sizeof a->address, a->interface,
                             sizeof a->interface, d);
    if (rc == COLLRUN_OK)
        rc = address_check(a->address, a->interface, a->one_machine, d);
    debug_log(DEBUG_PLACE, "network.interface %s: %s of %s, status %d", a->desc.interface,
              a->address, a->interface, rc);
    if (rc != COLLRUN_OK)
        d->loc = a->desc.interface_loc;
    return rc;
}

static int job_send_master(struct agent *a, struct diag *d)
{
    int rc = master_reserve(&a->master, &a->desc, a->address, d);
    debug_log(DEBUG_RANK, "MASTER: %s port %u, status %d",
              a->master.address ? a->master.address : "", a->master.port, rc);
    if (rc != COLLRUN_OK)
        return rc;
    struct buf b;
    buf_init(&b);
    wire_put_master(&b, &(struct wire_master){a->master.address, a->master.port});
    conn_send_buf(&a->runner, WIRE_MASTER, WIRE_HOST, a->desc.attempt, &b);
    buf_fini(&b);
    return COLLRUN_OK;
}

int job_on_master(struct agent *a, const struct wire_frame *f, struct diag *d)
{
    struct wire_master master;
    if (!a->awaits_master)
        return COLLRUN_OK;
    a->awaits_master = false;
    debug_log(DEBUG_RANK, "MASTER has arrived: ranks start");
    if (!wire_read_master(f, &a->arena, &master))
        return wire_malformed(d, "MASTER frame");
    a->master.address = master.address;
    a->master.port = master.port;
    return job_spawn_ranks(a, d);
}

/* ---- JOB ---- */

/* Checked once for the host, so that it is not reported by every rank. */
static int job_check_workdir(const struct desc_host *host, struct diag *d)
{
    int fd = open(host->workdir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && access(host->workdir, X_OK) == 0)
        return COLLRUN_OK;
    diag_sys(d, errno, "workdir %s", host->workdir);
    d->loc = host->workdir_loc;
    return d->code;
}

static int job_read(struct agent *a, const struct wire_frame *f, struct diag *d)
{
    struct wire_job job; /* PLACE has the same fields */
    char engine[4096];
    if (!wire_read_job(f, &a->arena, &job))
        return wire_malformed(d, "JOB frame");
    a->host = job.host;
    a->one_machine = job.one_machine;
    int rc = desc_decode(&a->arena, &a->desc, job.desc.data, job.desc.len, d);
    if (rc == COLLRUN_OK && a->host >= a->desc.nhosts)
        rc = diag_set(d, COLLRUN_ERR_INVALID, "JOB for a host that it does not list");
    if (rc == COLLRUN_OK && a->desc.hosts[a->host].workdir[0])
        rc = job_check_workdir(&a->desc.hosts[a->host], d);
    if (rc == COLLRUN_OK)
        rc = engine_path(job.engine, engine, sizeof engine, d);
    if (rc != COLLRUN_OK)
        return rc;
    a->desc_bytes = arena_memdup(&a->arena, job.desc.data, job.desc.len);
    a->desc_len = job.desc.len;
    a->engine = arena_strdup(&a->arena, engine);
    a->ranks = arena_calloc(&a->arena, a->desc.hosts[a->host].nranks, sizeof *a->ranks);
    return a->ranks && a->engine && a->desc_bytes
               ? COLLRUN_OK
               : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the ranks");
}

int job_start(struct agent *a, const struct wire_frame *f, struct diag *d)
{
    if (a->have_job)
        return diag_set(d, COLLRUN_ERR_INVALID, "JOB was sent twice");
    a->have_job = true;
    int rc = job_read(a, f, d);
    if (rc == COLLRUN_OK)
        rc = job_find_address(a, d);
    if (rc == COLLRUN_OK)
        rc = local_rdv_open(&a->rendezvous, a, d);
    if (rc == COLLRUN_OK)
        rc = hostmem_make(a->desc.hosts[a->host].nranks, &a->hostmem, d);
    if (rc == COLLRUN_OK)
        rc = placement_make(a, a->engine, d);
    if (rc == COLLRUN_OK)
        rc = activate_run(a, d);
    if (rc != COLLRUN_OK)
        return rc;
    if (a->desc.ranks[0].host != a->host) {
        a->awaits_master = true;
        debug_log(DEBUG_RANK, "waits for MASTER from the host of rank 0");
        return COLLRUN_OK;
    }
    rc = job_send_master(a, d);
    return rc == COLLRUN_OK ? job_spawn_ranks(a, d) : rc;
}

/* ---- PLACE ---- */

/* False: out of memory. */
static bool job_places(struct agent *a, struct wire_list_place *places)
{
    const uint32_t n = a->desc.hosts[a->host].nranks;
    struct wire_item_place *items = arena_calloc(&a->arena, n, sizeof *items);
    for (uint32_t i = 0; items && i < n; i++)
        items[i] =
            (struct wire_item_place){.rank = a->ranks[i].rank,
                                     .cpus = placement_cpus(&a->ranks[i]),
                                     .memory_node = (uint32_t)placement_memory_node(&a->ranks[i]),
                                     .devices = a->ranks[i].devices};
    *places = (struct wire_list_place){items, n};
    return items != NULL;
}

/* False: out of memory. */
static bool job_changes(struct agent *a, struct wire_list_text *changes)
{
    struct wire_item_text *items = arena_calloc(&a->arena, a->nchanges, sizeof *items);
    for (uint32_t i = 0; items && i < a->nchanges; i++) {
        const struct activate_change *c = &a->changes[i];
        items[i].text = c->value ? arena_printf(&a->arena, "%s=%s", c->name, c->value) : c->name;
        if (!items[i].text)
            return false;
    }
    *changes = (struct wire_list_text){items, a->nchanges};
    return items || !a->nchanges;
}

static bool job_shares_cores(const struct agent *a)
{
    for (uint32_t i = 0; i < a->desc.hosts[a->host].nranks; i++)
        if (strcmp(a->desc.ranks[a->ranks[i].rank].cpus, DESC_CPUS_AUTO) == 0)
            return true;
    return false;
}

void job_on_place(struct agent *a, const struct wire_frame *f)
{
    struct wire_placed placed = {.unbound = ""};
    struct diag *d = &placed.error;
    struct buf b;
    diag_init(d);
    buf_init(&b);
    if (a->have_job)
        diag_set(d, COLLRUN_ERR_INVALID, "PLACE was sent after a job");
    else if (job_read(a, f, d) == COLLRUN_OK && placement_make(a, a->engine, d) == COLLRUN_OK)
        activate_run(a, d);
    a->have_job = true;
    if (d->code == COLLRUN_OK && job_shares_cores(a))
        placed.unbound = cores_why_not(&a->cores, a->desc.hosts[a->host].nranks, &a->arena);
    if (d->code == COLLRUN_OK &&
        (!job_places(a, &placed.places) || !job_changes(a, &placed.changes)))
        diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the places of ranks");
    wire_put_placed(&b, &placed);
    conn_send_buf(&a->runner, WIRE_PLACED, WIRE_HOST, 0, &b);
    buf_fini(&b);
}
