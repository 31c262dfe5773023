/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/allocation.h"

#include "base/buf.h"
#include "base/loop.h"
#include "base/quote.h"
#include "spec/names.h"
#include "spec/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

static const char blanks[] = " \t\r\n";

/* ---- hosts ---- */

static bool allocation_is_here(const char *name)
{
    char here[HOST_NAME_MAX + 1] = "";
    gethostname(here, sizeof here - 1);
    size_t len = strcspn(name, "."), here_len = strcspn(here, ".");
    bool both = name[len] && here[here_len]; /* two full names */
    return both ? strcmp(name, here) == 0 : len == here_len && strncmp(name, here, len) == 0;
}

static struct job_host allocation_host(const struct host_table *table, const char *name,
                                       int64_t slots)
{
    struct diag_loc loc = table->hosts->all.loc;
    struct job_host host = {.name = {.v = name, .loc = loc}, .loc = loc, .port.v = 22};
    host.transport.kind = (struct job_num){JOB_TRANSPORT_SSH, loc};
    host.slots = (struct job_num){slots, slots ? loc : (struct diag_loc){0}};
    if (table->hosts->all.v == JOB_ALLOCATION_SLURM)
        host.transport.kind.v = JOB_TRANSPORT_SLURM;
    else if (name && allocation_is_here(name))
        host.transport.kind.v = JOB_TRANSPORT_LOCAL;
    return host;
}

/* The command that starts the agent on another node; `words` ends with NULL. */
static void allocation_command(const struct host_table *table, struct job_host *host,
                               const char *const *words)
{
    struct diag_loc loc = table->hosts->all.loc;
    uint32_t n = 0;
    if (host->transport.kind.v != JOB_TRANSPORT_SSH)
        return;
    while (words[n])
        n++;
    struct job_str *items = arena_calloc(table->arena, n, sizeof *items);
    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct job_str){.v = words[i], .loc = loc};
    host->transport.command = (struct job_strs){items, n, loc};
}

/* Adds a node of a list with a line per slot, or with a number of slots. */
static int allocation_add(struct host_table *table, const char *name, int64_t slots,
                          const char *const *command, struct diag *d)
{
    struct job_host host = allocation_host(table, name, slots);
    if (command)
        allocation_command(table, &host, command);
    return host_table_add_slots(table, &host, d);
}

/* ---- Slurm ---- */

/* The length of the first item of a list; commas inside brackets do not end it. */
static size_t allocation_item_len(const char *list)
{
    size_t n = 0;
    int depth = 0;
    for (; list[n] && (depth || list[n] != ','); n++)
        depth += (list[n] == '[') - (list[n] == ']');
    return n;
}

/* Appends the hosts of "n[1-3],m7". */
static int allocation_add_list(struct host_table *table, const char *list, struct diag *d)
{
    int code = 0;
    for (const char *at = list; *at && code == 0;) {
        size_t len = allocation_item_len(at);
        struct job_host host = allocation_host(table, arena_strndup(table->arena, at, len), 0);
        code = host_table_add(table, &host, d);
        at += len + (at[len] == ',');
    }
    return code;
}

/* The next count of "2(x3),1", which means 2,2,2,1. */
static bool allocation_slurm_next_count(const char **at, unsigned long *left, long *count)
{
    char *end;
    if (*left) {
        (*left)--;
        return true;
    }
    *count = strtol(*at, &end, 10);
    if (end == *at || *count < 1 || *count > JOB_RANKS_MAX)
        return false;
    if (strncmp(end, "(x", 2) == 0) {
        *left = strtoul(end + 2, &end, 10);
        end += *end == ')';
        *left -= *left > 0;
    }
    *at = *end == ',' ? end + 1 : end;
    return true;
}

/* Adds a list of nodes with the counts of their tasks, or of their CPUs, of which a task has
 * `cpus_per_task`. */
static int allocation_slurm_add(struct host_table *table, const char *nodelist, const char *tasks,
                                long cpus_per_task, struct diag *d)
{
    struct job_hosts *hosts = table->hosts;
    uint32_t first = hosts->n;
    unsigned long left = 0;
    long count = 0;
    if (allocation_add_list(table, nodelist, d) < 0)
        return diag_wrap(d, "hosts: slurm: SLURM_JOB_NODELIST is %s", QUOTED(nodelist));
    for (uint32_t i = first;
         tasks && i < hosts->n && allocation_slurm_next_count(&tasks, &left, &count); i++)
        hosts->nodes[i].slots =
            (struct job_num){count > cpus_per_task ? count / cpus_per_task : 1, hosts->all.loc};
    return 0;
}

/* A component of a heterogeneous job; srun reaches its nodes if it is named. */
static int allocation_slurm_add_component(struct host_table *table, int number, struct diag *d)
{
    struct arena *arena = table->arena;
    struct job_hosts *hosts = table->hosts;
    uint32_t first = hosts->n;
    const char *list = arena_printf(arena, "SLURM_JOB_NODELIST_HET_GROUP_%d", number),
               *tasks = arena_printf(arena, "SLURM_TASKS_PER_NODE_HET_GROUP_%d", number),
               *group = arena_printf(arena, "--het-group=%d", number);
    if (!getenv(list))
        return diag_set(d, COLLRUN_ERR_INVALID, "hosts: slurm: %s is not set", list);
    const char *words[] = {"srun",
                           group,
                           "--overlap",
                           "--nodes=1",
                           "--ntasks=1",
                           "--unbuffered",
                           "--cpu-bind=none",
                           "--quiet",
                           "--kill-on-bad-exit=0",
                           "--nodelist={host}",
                           NULL};
    int code = allocation_slurm_add(table, getenv(list), getenv(tasks), 1, d);
    for (uint32_t i = first; i < hosts->n && code == 0; i++) {
        hosts->nodes[i].transport.kind.v = JOB_TRANSPORT_SSH;
        allocation_command(table, &hosts->nodes[i], words);
        hosts->nodes[i].transport.kind.v = JOB_TRANSPORT_COMMAND;
    }
    return code;
}

/* Within a step (srun --pty bash), the nodes are still those of the job, but SLURM_TASKS_PER_NODE
 * is about the step, unless srun has kept the environment. */
static bool allocation_slurm_in_step(void)
{
    const char *tasks = getenv("SLURM_TASKS_PER_NODE"), *step = getenv("SLURM_STEP_TASKS_PER_NODE");
    return getenv("SLURM_STEP_ID") && tasks && step && strcmp(tasks, step) == 0;
}

static int allocation_slurm_read(struct host_table *table, const char *nodelist, struct diag *d)
{
    const char *size = getenv("SLURM_HET_SIZE");
    int components = size ? atoi(size) : 0, code = 0;
    if (components < 2 && allocation_slurm_in_step()) {
        const char *cpus = getenv("SLURM_CPUS_PER_TASK");
        const long n = cpus ? strtol(cpus, NULL, 10) : 1;
        return allocation_slurm_add(table, nodelist, getenv("SLURM_JOB_CPUS_PER_NODE"),
                                    n > 0 ? n : 1, d);
    }
    if (components < 2)
        return allocation_slurm_add(table, nodelist, getenv("SLURM_TASKS_PER_NODE"), 1, d);
    for (int i = 0; i < components && code == 0; i++)
        code = allocation_slurm_add_component(table, i, d);
    return code;
}

/* ---- PBS, LSF, SGE ---- */

/* The file that a variable of the resource manager names. */
static int allocation_read_file(struct host_table *table, const char *path, char **text,
                                struct diag *d)
{
    struct source *list = NULL, *source;
    int code = source_read(&list, table->arena, path, "list of nodes", &source, d);
    *text = code == 0 ? arena_strndup(table->arena, source->text, source->len) : NULL;
    return code;
}

/* A line per slot: PBS_NODEFILE, LSB_DJOB_HOSTFILE. */
static int allocation_add_lines(struct host_table *table, const char *path,
                                const char *const *command, struct diag *d)
{
    char *text, *save = NULL;
    int code = allocation_read_file(table, path, &text, d);
    for (char *name = code == 0 ? strtok_r(text, blanks, &save) : NULL; name && code == 0;
         name = strtok_r(NULL, blanks, &save))
        code = allocation_add(table, name, 1, command, d);
    return code;
}

static int allocation_pbs_read(struct host_table *table, const char *path, struct diag *d)
{
    return allocation_add_lines(table, path, NULL, d);
}

static const char *const allocation_lsf_command[] = {"blaunch", "{host}", NULL};

/* "hostA 4 hostB 2" */
static int allocation_lsf_read(struct host_table *table, const char *list, struct diag *d)
{
    const char *file = getenv("LSB_DJOB_HOSTFILE");
    char *text = arena_strdup(table->arena, list), *save = NULL;
    int code = 0;
    if (!*list && file)
        return allocation_add_lines(table, file, allocation_lsf_command, d);
    for (char *name = strtok_r(text, blanks, &save); name && code == 0;
         name = strtok_r(NULL, blanks, &save)) {
        const char *slots = strtok_r(NULL, blanks, &save);
        long n = slots ? strtol(slots, NULL, 10) : 0;
        if (n < 1 || n > JOB_RANKS_MAX)
            return diag_set(d, COLLRUN_ERR_INVALID,
                            "LSB_MCPU_HOSTS is %s: a host and its number of slots are expected",
                            QUOTED(list));
        code = allocation_add(table, name, n, allocation_lsf_command, d);
    }
    return code;
}

/* A line is "host slots queue processors". */
static int allocation_sge_read(struct host_table *table, const char *path, struct diag *d)
{
    static const char *const command[] = {"qrsh", "-inherit", "{host}", NULL};
    char *text, *save = NULL;
    int code = allocation_read_file(table, path, &text, d);
    for (char *line = code == 0 ? strtok_r(text, "\r\n", &save) : NULL; line && code == 0;
         line = strtok_r(NULL, "\r\n", &save)) {
        char name[256];
        long n = 0;
        if (!line[strspn(line, blanks)])
            continue;
        if (sscanf(line, "%255s %ld", name, &n) != 2 || n < 1 || n > JOB_RANKS_MAX)
            return diag_set(d, COLLRUN_ERR_INVALID,
                            "%s: %s: a host and its number of slots are expected", path,
                            QUOTED(line));
        code = allocation_add(table, arena_strdup(table->arena, name), n, command, d);
    }
    return code;
}

/* ---- Flux ---- */

/* Appends the node of a broker, unless it is there: a node that has several is reached by the first
 * of them. Without --quiet the last line of stderr would be `flux exec`'s, about the exit code. */
static int allocation_flux_add(struct host_table *table, const char *name, uint32_t broker,
                               struct diag *d)
{
    const char *rank = arena_printf(table->arena, "%u", broker);
    const char *command[] = {"flux", "exec", "--quiet", "-r", rank, NULL};
    struct job_host host = allocation_host(table, name, 0);
    allocation_command(table, &host, command);
    host.transport.text = true;
    return host_table_add_once(table, &host, d);
}

/* Appends the hosts of the list, which are in the order of the ranks of their brokers. */
static int allocation_flux_read(struct host_table *table, const char *uri, struct diag *d)
{
    static char *const argv[] = {"flux", "getattr", "hostlist", NULL};
    char *list = NULL;
    (void)uri;
    int code = command_output(argv, table->arena, &list, d);
    if (!list)
        return code;
    list[strcspn(list, blanks)] = '\0';
    uint32_t broker = 0;
    for (const char *at = list; *at && code == 0;) {
        const size_t len = allocation_item_len(at);
        const char *item = arena_strndup(table->arena, at, len), **names;
        uint32_t n = 0;
        code = name_expand_hosts(item, table->arena, &names, &n, d);
        for (uint32_t i = 0; i < n && code == 0; i++)
            code = allocation_flux_add(table, names[i], broker++, d);
        at += len + (at[len] == ',');
    }
    return code;
}

/* ---- all ---- */

static const struct {
    int64_t allocation; /* enum job_allocation */
    const char *name, *title, *variable, *other, *hint;
    int (*read)(struct host_table *, const char *, struct diag *);
} managers[] = {
    {JOB_ALLOCATION_SLURM, "slurm", "a Slurm allocation", "SLURM_JOB_NODELIST", "SLURM_HET_SIZE",
     "run salloc -N2 collrun JOB.yaml, or the same command in a script for sbatch",
     allocation_slurm_read},
    {JOB_ALLOCATION_PBS, "pbs", "a PBS job", "PBS_NODEFILE", NULL,
     "run collrun JOB.yaml in a script for qsub -l select=2:ncpus=4:mpiprocs=4",
     allocation_pbs_read},
    {JOB_ALLOCATION_LSF, "lsf", "an LSF job", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE",
     "run bsub -n 8 collrun JOB.yaml", allocation_lsf_read},
    {JOB_ALLOCATION_SGE, "sge", "a parallel job of Grid Engine", "PE_HOSTFILE", NULL,
     "run collrun JOB.yaml in a script for qsub -pe NAME 8", allocation_sge_read},
    {JOB_ALLOCATION_FLUX, "flux", "a Flux instance", "FLUX_URI", NULL,
     "run flux alloc -N2 collrun JOB.yaml, or the same command in a script for flux batch",
     allocation_flux_read},
};

int allocation_read(struct host_table *table, struct diag *d)
{
    const struct job_num *all = &table->hosts->all;
    size_t i = 0;
    while (managers[i].allocation != all->v)
        i++;
    const char *value = getenv(managers[i].variable);
    bool other = managers[i].other && getenv(managers[i].other);
    if ((!value || !*value) && !other) {
        diag_at(d, all->loc, "hosts: %s: collrun does not run inside %s (%s is not set)",
                managers[i].name, managers[i].title, managers[i].variable);
        return diag_hint(d, "%s", managers[i].hint);
    }
    int code = managers[i].read(table, value ? value : "", d);
    if (code < 0) {
        d->loc = all->loc;
        if (all->v != JOB_ALLOCATION_SLURM)
            diag_wrap(d, "hosts: %s", managers[i].name);
    } else if (code == 0 && !table->hosts->n) {
        code = diag_at(d, all->loc, "hosts: %s: %s names no host", managers[i].name,
                       managers[i].variable);
    }
    return code;
}

/* ---- the output of a command ---- */

enum { OUTPUT_MAX = 1 << 20, CHUNK = 4096 };
static const uint64_t limit_ns = 10000000000;

extern char **environ;

/* Starts it with the pipe's end as its stdout. Returns an errno. */
static int command_output_start(char *const *argv, int out, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int err = posix_spawn_file_actions_init(&actions);
    if (err)
        return err;
    err = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!err)
        err = posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (!err)
        err = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (!err)
        err = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return err;
}

/* Reads until the end of the stream. False: too much, or too late. */
static bool command_output_read(int fd, struct buf *text)
{
    const uint64_t deadline = deadline_after(now_ns(), limit_ns);
    for (ssize_t n = 1; n != 0;) {
        uint64_t now = now_ns();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, now < deadline ? (int)((deadline - now) / 1000000) + 1 : 0);
        if (ready < 0 && errno == EINTR)
            continue;
        void *room = buf_reserve(text, CHUNK);
        if (ready <= 0 || buf_pending(text) > OUTPUT_MAX)
            return false;
        n = read(fd, room, CHUNK);
        if (n < 0 && errno != EINTR)
            return false;
        buf_commit(text, n > 0 ? (size_t)n : 0);
    }
    return true;
}

int command_output(char *const *argv, struct arena *arena, char **out, struct diag *d)
{
    int ends[2], status = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return diag_sys(d, errno, "cannot make a pipe");
    int err = command_output_start(argv, ends[1], &pid);
    close(ends[1]);
    if (err) {
        close(ends[0]);
        diag_sys(d, err, "cannot start %s", argv[0]);
        return diag_hint_processes(d);
    }
    struct buf text = {0};
    bool whole = command_output_read(ends[0], &text);
    close(ends[0]);
    if (!whole)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    *out = arena_strndup(arena, text.data ? (const char *)text.data : "", buf_pending(&text));
    buf_fini(&text);
    if (!whole)
        return diag_set(d, COLLRUN_ERR_TIMEOUT, "%s does not answer within 10 s", argv[0]);
    if (status != 0)
        return diag_set(d, COLLRUN_ERR_NOT_FOUND, "%s %s fails", argv[0], argv[1]);
    return 0;
}
