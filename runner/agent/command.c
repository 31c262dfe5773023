/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/command.h"

#include "agent/activate.h"
#include "agent/agent.h"
#include "agent/rank_stdin.h"
#include "base/buf.h"
#include "base/elf_machine.h"
#include "base/preload.h"
#include "base/template.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int command_enter_folder(const struct rank_proc *p, struct diag *d)
{
    const struct desc_workload *w = p->command;
    const struct desc *desc = &p->agent->desc;
    const struct desc_host *host = &desc->hosts[desc->ranks[p->rank].host];
    /* The folder of the job file need not exist on another host. */
    if (!host->workdir[0] && chdir(w->folder) < 0 && w->workdir[0] && w->workdir[0] != '/') {
        diag_sys(d, errno, "workdir %s: the folder %s", w->workdir, w->folder);
        d->loc = w->workdir_loc;
        return d->code;
    }
    if (w->workdir[0] && chdir(w->workdir) < 0) {
        diag_sys(d, errno, "workdir %s", w->workdir);
        d->loc = w->workdir_loc;
        return d->code;
    }
    return COLLRUN_OK;
}

/* Appends the folders beside the engine. */
static void command_add_libraries(const char *engine)
{
    static const struct {
        const char *variable, *folder;
    } rows[] = {{"LD_LIBRARY_PATH", "../../lib"},
                {"LD_LIBRARY_PATH", "../../lib/collrun/private"},
                {"PYTHONPATH", "../../lib/collrun/python"}};
    const char *slash = strrchr(engine, '/');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char folder[4096];
        snprintf(folder, sizeof folder, "%.*s/%s", slash ? (int)(slash - engine) : 0, engine,
                 rows[i].folder);
        environment_append_folder(rows[i].variable, folder);
    }
}

bool command_is_wrapped(const struct rank_proc *p)
{
    const struct desc_ranks *wrapped = &p->agent->desc.wrapped;
    for (uint32_t i = 0; i < wrapped->n; i++) {
        if (wrapped->items[i] == p->rank)
            return true;
    }
    return false;
}

/* Why the calls of the program are not recorded, as far as it is known before MPI_Init: NO_CALL, if
 * the library that records them is preloaded. `tap`: its file. */
static enum record_unobserved command_preload(const struct rank_proc *p, const char *tap)
{
    const char *value = getenv(PRELOAD_VARIABLE);
    const struct desc_strs *words = command_is_wrapped(p) ? &p->agent->desc.wrap : NULL;
    words = words && words->n ? words : &p->command->command;
    if (!(p->command->observe & DESC_OBSERVE_MPI))
        return RECORD_UNOBSERVED_OFF;
    /* A list of libraries has no way to write a path with one of these. */
    if (access(tap, R_OK) < 0 || strpbrk(tap, ": "))
        return RECORD_UNOBSERVED_NO_TAP;
    const enum record_unobserved why = preload_refusal(words->items[0], getenv("PATH"), value);
    char *list = why ? NULL : preload_add(tap, value);
    if (!why && (!list || setenv(PRELOAD_VARIABLE, list, 1) < 0))
        return RECORD_UNOBSERVED_MEMORY;
    free(list);
    return why ? why : RECORD_UNOBSERVED_NO_CALL;
}

/* "python3 -I train.py": Python does not look where the variable says. */
static bool command_is_isolated(const struct desc_strs *words)
{
    const char *slash = strrchr(words->items[0], '/');
    if (strncmp(slash ? slash + 1 : words->items[0], "python", strlen("python")) != 0)
        return false;
    for (uint32_t i = 1; i < words->n && words->items[i][0] == '-'; i++) {
        const char *options = words->items[i] + 1;
        if (*options == '-' || strcspn(options, "EIS") < strcspn(options, "cmXW"))
            return *options != '-';
        if (options[strcspn(options, "cmXW")])
            return false;
    }
    return false;
}

/* Python finds what records the calls of torch.distributed in the first folder of PYTHONPATH. */
static enum record_unobserved command_offer_python(const struct rank_proc *p, const char *folder)
{
    static const char variable[] = "PYTHONPATH";
    if (access(folder, R_OK) < 0 || strchr(folder, ':'))
        return RECORD_UNOBSERVED_NO_TAP;
    char *list = preload_add(folder, getenv(variable));
    const bool set = list && setenv(variable, list, 1) == 0;
    free(list);
    if (!set)
        return RECORD_UNOBSERVED_MEMORY;
    return !command_is_wrapped(p) && command_is_isolated(&p->command->command)
               ? RECORD_UNOBSERVED_ISOLATED
               : RECORD_UNOBSERVED_NO_CALL;
}

/* With `observe: off` the environment is that of the user. */
static void command_observe(const struct rank_proc *p, const char *engine)
{
    char taps[PATH_MAX], real[PATH_MAX], tap[PATH_MAX + 32];
    const char *slash = strrchr(engine, '/');
    if (!p->record)
        return;
    snprintf(taps, sizeof taps, "%.*s/../../lib/collrun/taps", slash ? (int)(slash - engine) : 0,
             engine);
    const char *folder = realpath(taps, real) ? real : taps;
    snprintf(tap, sizeof tap, "%s/libcollrun_mpi.so", folder);
    atomic_store(&p->record->pid, (uint32_t)getpid());
    enum record_unobserved why = command_preload(p, tap);
    if (p->command->observe & DESC_OBSERVE_TORCH) {
        snprintf(tap, sizeof tap, "%s/python", folder);
        const enum record_unobserved python = command_offer_python(p, tap);
        why = why == RECORD_UNOBSERVED_NO_CALL || why == RECORD_UNOBSERVED_OFF ? python : why;
    }
    atomic_store(&p->record->unobserved, (uint32_t)why);
}

/* For a shell to work in: who works there runs the program of the rank. */
static void command_set_program(const struct desc_strs *words)
{
    struct buf text;
    buf_init(&text);
    for (uint32_t i = 0; i < words->n; i++) {
        buf_put(&text, " ", i > 0);
        buf_put(&text, words->items[i], strlen(words->items[i]));
    }
    buf_put_u8(&text, 0);
    setenv("COLLRUN_PROGRAM", (const char *)text.data, 1);
    buf_fini(&text);
}

/* The file exists, and its first line or its dynamic loader names a file that does not. */
static void command_hint_interpreter(const char *program, struct diag *d)
{
    char line[256] = "";
    int fd = open(program, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : 0;
    if (fd >= 0)
        close(fd);
    line[n > 0 ? n : 0] = '\0';
    if (strncmp(line, "#!", 2) != 0) {
        diag_hint(d, "the file exists, but its interpreter or its dynamic loader does not");
        return;
    }
    line[strcspn(line, "\n")] = '\0';
    const bool returns = strchr(line, '\r') != NULL;
    const char *name = line + 2 + strspn(line + 2, " \t");
    const int len = (int)strcspn(name, " \t\r");
    if (returns)
        diag_hint(d,
                  "its lines end with CR LF, so its first line names \"%.*s\\r\": "
                  "dos2unix, or sed -i 's/\\r$//', corrects that",
                  len, name);
    else
        diag_hint(d, "its first line names %.*s, which does not exist", len, name);
}

/* Executes the program, or for a wrapped rank the command of --wrap with the program as its last
 * arguments. */
static int command_exec_argv(const struct rank_proc *p, const struct desc_strs *words,
                             struct diag *d)
{
    static const struct desc_strs none = {0};
    const struct desc_strs *wrap = command_is_wrapped(p) ? &p->agent->desc.wrap : &none;
    char **argv = calloc((size_t)wrap->n + words->n + 1, sizeof *argv);
    if (!argv)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < wrap->n; i++)
        argv[i] = (char *)wrap->items[i];
    const bool shell = rank_terminal_is_wanted(p) && p->agent->desc.terminal.shell;
    if (shell)
        command_set_program(words);
    for (uint32_t i = 0; i < words->n && !shell; i++)
        argv[wrap->n + i] = (char *)words->items[i];
    const char *program = argv[0];
    /* execvp gives a file that the kernel does not take to sh, also one of another machine. */
    if (strchr(program, '/') && execv(program, argv) < 0 && errno == ENOEXEC &&
        elf_machine_check("", program, d) < 0) {
        free(argv);
        return d->code;
    }
    execvp(program, argv);
    int err = errno;
    free(argv);
    diag_sys(d, err, "%scannot start %s", wrap->n ? "--wrap: " : "", program);
    if (err == ENOENT && !strchr(program, '/'))
        diag_hint(d, "PATH of the rank is %.200s", getenv("PATH") ? getenv("PATH") : "not set");
    else if (err == ENOENT && access(program, F_OK) == 0)
        command_hint_interpreter(program, d);
    return d->code;
}

int command_exec(const struct rank_proc *p, const char *engine, struct diag *d)
{
    char fd[16];
    snprintf(fd, sizeof fd, "%d", WIRE_CONTROL_FD);
    setenv("COLLRUN_CONTROL_FD", fd, 1);
    pmi_set_environment(p);
    command_add_libraries(engine);
    command_observe(p, engine);
    command_exec_argv(p, &p->command->command, d);
    d->loc = p->command->loc;
    return d->code;
}

int command_exec_engine(const struct rank_proc *p, const char *engine, struct diag *d)
{
    return command_exec_argv(p, &(struct desc_strs){&engine, 1}, d);
}

/* ---- environment ---- */

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
    activate_apply(p->agent);
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
