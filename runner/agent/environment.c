/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/environment.h"

#include "agent/agent.h"
#include "base/buf.h"
#include "base/template.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static void environment_unset_matching(const char *pattern)
{
    for (char **e = environ; e && *e;) {
        char name[256];
        size_t len = strcspn(*e, "=");
        if (len >= sizeof name)
            len = sizeof name - 1;
        memcpy(name, *e, len);
        name[len] = '\0';
        if (fnmatch(pattern, name, 0) == 0 && unsetenv(name) == 0)
            continue;
        e++;
    }
}

static void environment_set_number(const char *name, uint32_t value)
{
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

static void environment_set_text(const char *name, const char *value)
{
    if (*value)
        setenv(name, value, 1);
    else
        unsetenv(name); /* of a job around this one */
}

/* COLLRUN_MESH=pp=2,tp=4 and COLLRUN_MESH_RANKS=0-7. A list of ranks that is too long for a
 * variable is left out. */
static void environment_set_mesh(const struct desc_mesh *mesh)
{
    enum { RANKS_MAX = 65536 }; /* execve refuses a variable of 128 KiB */
    const uint32_t *ranks = mesh->ranks.items, n = mesh->ranks.n;
    struct buf axes, list;
    char text[32];
    buf_init(&axes);
    buf_init(&list);
    for (uint32_t i = 0; i < mesh->naxes; i++) {
        snprintf(text, sizeof text, "=%u", mesh->axes[i].size);
        buf_put(&axes, ",", i > 0);
        buf_put(&axes, mesh->axes[i].name, strlen(mesh->axes[i].name));
        buf_put(&axes, text, strlen(text));
    }
    for (uint32_t i = 0, end; i < n && list.len < RANKS_MAX; i = end) {
        for (end = i + 1; end < n && ranks[end] == ranks[end - 1] + 1;)
            end++;
        snprintf(text, sizeof text, end > i + 1 ? "%s%u-%u" : "%s%u", i ? "," : "", ranks[i],
                 ranks[end - 1]);
        buf_put(&list, text, strlen(text));
    }
    buf_put(&axes, "", 1);
    buf_put(&list, "", 1);
    environment_set_text("COLLRUN_MESH", (const char *)axes.data);
    environment_set_text("COLLRUN_MESH_RANKS",
                         list.len <= RANKS_MAX ? (const char *)list.data : "");
    buf_fini(&axes);
    buf_fini(&list);
}

/* How many of the first `n` hosts have ranks: the number of a host among these. */
static uint32_t environment_nodes(const struct desc *desc, uint32_t n)
{
    uint32_t node = 0;
    for (uint32_t i = 0; i < n; i++)
        node += desc->hosts[i].nranks > 0;
    return node;
}

static void environment_set_place(const struct rank_proc *p)
{
    const struct agent *a = p->agent;
    const struct desc *desc = &a->desc;
    const struct desc_rank *me = &desc->ranks[p->rank];
    const struct desc_host *host = &desc->hosts[me->host];
    const struct desc_role *role = desc_find_role(desc, p->rank);
    const struct {
        const char *name, *torchrun; /* NULL: there is none */
        uint32_t value;
    } numbers[] = {{NULL, "ROLE_RANK", role ? p->rank - role->first : p->rank},
                   {NULL, "ROLE_WORLD_SIZE", role ? role->n : desc->nranks},
                   {NULL, "GROUP_WORLD_SIZE", environment_nodes(desc, desc->nhosts)},
                   {NULL, "TORCHELASTIC_RESTART_COUNT", desc->attempt},
                   {NULL, "TORCHELASTIC_MAX_RESTARTS", desc->max_restarts},
                   {"COLLRUN_RANK", "RANK", p->rank},
                   {"COLLRUN_WORLD_SIZE", "WORLD_SIZE", desc->nranks},
                   {"COLLRUN_LOCAL_RANK", "LOCAL_RANK", me->local_rank},
                   {"COLLRUN_LOCAL_SIZE", "LOCAL_WORLD_SIZE", host->nranks},
                   {"COLLRUN_ATTEMPT", NULL, desc->attempt},
                   {NULL, "GROUP_RANK", environment_nodes(desc, me->host)},
                   {NULL, "MASTER_PORT", a->master.port}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].name)
            environment_set_number(numbers[i].name, numbers[i].value);
        if (numbers[i].torchrun)
            environment_set_number(numbers[i].torchrun, numbers[i].value);
    }
    environment_set_text("COLLRUN_HOST", host->name);
    environment_set_text("COLLRUN_RUN_ID", desc->run_id);
    environment_set_text("COLLRUN_RUN_DIR", desc->run_dir);
    environment_set_text("MASTER_ADDR", a->master.address);
    environment_set_text("TORCHELASTIC_RUN_ID", desc->run_id);
    setenv("ROLE_NAME", role ? role->name : "default", 1);
    environment_set_mesh(&desc->mesh);
    /* A job around this one may have set these: no store serves its MASTER_PORT here, and errors
     * have no file. */
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    unsetenv("TORCHELASTIC_ERROR_FILE");
    /* As torchrun has it: each of several ranks would use all cores of the host. */
    if (p->command && host->nranks > 1 && !getenv("OMP_NUM_THREADS"))
        environment_set_number("OMP_NUM_THREADS",
                               desc->cpus_per_process ? desc->cpus_per_process : 1);
}

static int environment_set_pairs(const struct rank_proc *p, const struct desc_kvs *pairs,
                                 const char *path, struct diag *d)
{
    const struct desc *desc = &p->agent->desc;
    const struct desc_rank *me = &desc->ranks[p->rank];
    struct template_values values = {.rank = p->rank,
                                     .local_rank = me->local_rank,
                                     .attempt = desc->attempt,
                                     .host = desc->hosts[me->host].name,
                                     .run_id = desc->run_id};
    struct arena arena;
    int rc = COLLRUN_OK;
    arena_init(&arena);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < pairs->n; i++) {
        const char *value;
        rc = template_expand(pairs->items[i].value, &values, &arena, &value, d);
        if (rc == COLLRUN_OK) {
            setenv(pairs->items[i].key, value, 1);
        } else {
            d->loc = pairs->items[i].loc;
            diag_wrap(d, "%s.%s", path, pairs->items[i].key);
        }
    }
    arena_fini(&arena);
    return rc;
}

int environment_apply(const struct rank_proc *p, struct diag *d)
{
    const struct desc *desc = &p->agent->desc;
    for (uint32_t i = 0; i < desc->env_pass.n; i++)
        setenv(desc->env_pass.items[i].key, desc->env_pass.items[i].value, 1);
    environment_set_place(p);
    /* The output of a rank is a pipe, for which Python keeps 8 KiB: a rank that is killed would
     * lose the lines that tell why. A value of the user, also an empty one, stays. */
    if (p->command)
        setenv("PYTHONUNBUFFERED", "1", 0);
    for (uint32_t i = 0; i < desc->env_unset.n; i++)
        environment_unset_matching(desc->env_unset.items[i].key);
    int rc = environment_set_pairs(p, &desc->env_set, "env.set", d);
    if (rc == COLLRUN_OK && p->command)
        rc = environment_set_pairs(p, &p->command->env, "env", d);
    for (uint32_t i = 0; i < p->nmasks; i++)
        setenv(p->masks[i].variable, p->masks[i].value, 1);
    return rc;
}

void environment_append_folder(const char *variable, const char *folder)
{
    char *text, real[PATH_MAX];
    const char *old = getenv(variable);
    if (!realpath(folder, real) ||
        asprintf(&text, "%s%s%s", old ? old : "", old && *old ? ":" : "", real) < 0)
        return;
    setenv(variable, text, 1);
    free(text);
}
