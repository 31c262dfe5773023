/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes of the plan in their order: head, kinds of memory, placement (with devices), groups,
 * workloads, environment. Every pass runs, so that all errors of a job are reported at once.
 */
#include "plan/plan.h"

#include "base/debug.h"
#include "base/template.h"
#include "plan/planner.h"
#include "spec/names.h"
#include "spec/path.h"

#include <string.h>

/* The least number of entries in a record if the run is traced: short operations of 0.1 s. */
enum { TRACE_RECORD_ENTRIES = 16384 };

/* Ranks of one machine use its loopback interface unless the job file names another. */
static const char *plan_interface(const struct job *job)
{
    bool local = true;
    for (uint32_t i = 0; i < job->hosts.n; i++)
        local = local && job->hosts.nodes[i].transport.kind.v == JOB_TRANSPORT_LOCAL;
    return local && strcmp(job->network.interface.v, "default-route") == 0
               ? "loopback"
               : job->network.interface.v;
}

static bool plan_may_continue(const struct job_on_failure *on)
{
    bool may = on->action.v == JOB_ACTION_CONTINUE;
    for (uint32_t i = 0; i < on->nrules; i++)
        may = may || on->rules[i].action.v == JOB_ACTION_CONTINUE;
    return may;
}

/* The agent reads operations from the record, some 10 ms late. */
static void plan_trace(struct planner *pl)
{
    const struct job_logging *logging = &pl->job->logging;
    struct desc *desc = pl->desc;
    struct diag d;
    if (!logging->trace.v)
        return;
    desc->trace = true;
    if (!logging->trace_file && !logging->dir.v) {
        diag_at(&d, logging->trace.loc, "logging.trace: the run has no directory");
        diag_hint(&d, "add `dir` to logging, or use --run-dir DIR or --trace FILE");
        diag_list_add(pl->diags, &d);
    }
    if (!desc->record_entries) {
        const bool option = !logging->trace.loc.line;
        diag_at(&d, pl->job->record.entries.loc, "record.entries: %s needs the flight recorder",
                option ? "--trace" : "logging.trace");
        diag_list_add(pl->diags, &d);
    }
    if (desc->record_entries < TRACE_RECORD_ENTRIES)
        desc->record_entries = TRACE_RECORD_ENTRIES;
}

static void plan_head(struct planner *pl)
{
    const struct job *job = pl->job;
    struct desc *desc = pl->desc;
    desc->run_id = pl->in->run_id;
    desc->run_dir = "";
    if (job->logging.dir.v) {
        const struct template_values values = {.run_id = desc->run_id};
        const char *dir = "";
        template_expand(job->logging.dir.v, &values, pl->arena, &dir, NULL);
        desc->run_dir = path_join(job->dir, dir, pl->arena);
    }
    desc->job_name = job->name.v;
    desc->job_file = job->file;
    desc->interface = plan_interface(job);
    desc->interface_loc = job->network.interface.loc;
    if (job->network.ports.v)
        name_parse_ports(job->network.ports.v, &desc->first_port, &desc->last_port);
    desc->may_continue = plan_may_continue(&job->on_failure);
    desc->start_timeout_ns = (uint64_t)job->timeouts.start.v;
    desc->rendezvous_timeout_ns = (uint64_t)job->timeouts.rendezvous.v;
    desc->grace_ns = (uint64_t)job->timeouts.grace.v;
    desc->cpus_per_process = (uint32_t)job->processes.cpus_per_process.v;
    if (job->on_failure.action.v == JOB_ACTION_RESTART)
        desc->max_restarts = (uint32_t)job->on_failure.max_restarts.v;
    desc->bind_loc = job->processes.bind.loc;
    const struct job_limits *limits = &job->processes.limits;
    const struct job_num *each[DESC_LIMITS] = {&limits->stack, &limits->core, &limits->memory};
    for (int i = 0; i < DESC_LIMITS; i++)
        desc->limits[i] = (struct desc_limit){(uint64_t)each[i]->v, each[i]->loc};
    while (desc->record_entries < (uint64_t)job->record.entries.v)
        desc->record_entries = desc->record_entries ? 2 * desc->record_entries : 1;
    plan_trace(pl);
}

static void plan_debug(const struct desc *desc)
{
    for (uint32_t i = 0; i < desc->nranks; i++)
        debug_log(DEBUG_PLACE, "rank %u: host %s, local rank %u, CPUs \"%s\", %u devices", i,
                  desc->hosts[desc->ranks[i].host].name, desc->ranks[i].local_rank,
                  desc->ranks[i].cpus, desc->ranks[i].ndevices);
    for (uint32_t i = 0; i < desc->ngroups; i++)
        debug_log(DEBUG_PLACE, "group %s: %u ranks, backend %s%s, %u routes, check %u%s",
                  desc->groups[i].name, desc->groups[i].ranks.n,
                  desc->backends[desc->groups[i].backend].name,
                  desc->groups[i].is_auto ? " (auto)" : "", desc->groups[i].nroutes,
                  desc->groups[i].check, desc->groups[i].on_demand ? ", on demand" : "");
}

int plan_make(const struct job *job, const struct plan_input *in, struct arena *arena,
              struct desc *desc, struct diag_list *diags)
{
    uint32_t before = diag_list_count(diags);
    *desc = (struct desc){0};
    struct planner pl = {.job = job, .in = in, .arena = arena, .desc = desc, .diags = diags};
    plan_head(&pl);
    plan_kinds(&pl);
    plan_place(&pl);
    plan_groups(&pl);
    plan_kinds_of_backends(&pl);
    plan_workloads(&pl);
    plan_env(&pl);
    plan_check_hosts(&pl);
    plan_warn(&pl);
    if (diag_list_count(diags) > before)
        return COLLRUN_ERR_INVALID;
    plan_debug(desc);
    return COLLRUN_OK;
}

bool plan_choose_rdma(const struct desc *desc, bool every_host_has_rdma)
{
    bool chosen = false;
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        struct desc_group *group = &desc->groups[i];
        if (group->backend_rdma == group->backend_plain)
            continue;
        group->backend = every_host_has_rdma ? group->backend_rdma : group->backend_plain;
        desc->backends[group->backend_rdma].unused = true;
        desc->backends[group->backend_plain].unused = true;
        chosen = every_host_has_rdma;
    }
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        const struct desc_group *group = &desc->groups[i];
        desc->backends[group->backend].unused = false;
        for (uint32_t k = 0; k < group->nroutes; k++)
            desc->backends[group->routes[k].backend].unused = false;
    }
    return chosen;
}
