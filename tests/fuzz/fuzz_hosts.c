/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for lists of hosts: those of Slurm, PBS, LSF, Grid Engine and Flux, and host
 * files. The first byte of the input chooses which; of Slurm, a second line is
 * SLURM_TASKS_PER_NODE. The sanitizers and the time limit are the oracle, and: a list is refused
 * with an error, or it has hosts, each of which has a name and a possible number of slots.
 */
#include "report/report.h"
#include "spec/allocation.h"
#include "spec/host_table.h"
#include "spec/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static FILE *nowhere;
static const char *flux_list;

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

/* `flux getattr hostlist`. The linker replaces the function (--wrap). */
int __wrap_command_output(char *const *argv, struct arena *arena, char **out, struct diag *d);
int __wrap_command_output(char *const *argv, struct arena *arena, char **out, struct diag *d)
{
    (void)argv, (void)d;
    *out = arena_strdup(arena, flux_list);
    return *out ? 0 : COLLRUN_ERR_NO_MEMORY;
}

static void set_variables(char *text, const char *file)
{
    static const char *const names[] = {"LSB_DJOB_HOSTFILE", "SLURM_TASKS_PER_NODE"};
    char *tasks = strchr(text, '\n');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    flux_list = text;
    setenv("PBS_NODEFILE", file, 1);
    setenv("PE_HOSTFILE", file, 1);
    setenv("FLUX_URI", "local:///flux", 1);
    setenv("LSB_MCPU_HOSTS", text, 1);
    if (!*text)
        setenv("LSB_DJOB_HOSTFILE", file, 1);
    if (tasks) {
        *tasks = '\0';
        setenv("SLURM_TASKS_PER_NODE", tasks + 1, 1);
    }
    setenv("SLURM_JOB_NODELIST", text, 1);
    if (tasks)
        *tasks = '\n';
}

static void check_hosts(const struct job_hosts *hosts, size_t size)
{
    must(hosts->n > 0 && hosts->n <= 2 * HOSTS_MAX, "a list that is read has hosts");
    for (uint32_t i = 0; i < hosts->n; i++) {
        const struct job_host *h = &hosts->nodes[i];
        must(h->name.v != NULL, "a host has a name");
        must(h->slots.v >= 0 && h->slots.v <= (int64_t)size * JOB_RANKS_MAX, "slots are possible");
        must(h->transport.kind.v != JOB_TRANSPORT_COMMAND || h->transport.command.n,
             "a command has words");
    }
}

static int read_hosts(uint8_t which, const char *path, struct host_table *table,
                      struct source **sources, struct diag *d)
{
    static const enum job_allocation managers[] = {JOB_ALLOCATION_SLURM, JOB_ALLOCATION_PBS,
                                                   JOB_ALLOCATION_LSF, JOB_ALLOCATION_SGE,
                                                   JOB_ALLOCATION_FLUX};
    const uint8_t nmanagers = sizeof managers / sizeof *managers;
    const struct diag_loc loc = {.line = 1, .column = 1, .width = 1};
    which = (uint8_t)(which % (nmanagers + 1));
    if (which == nmanagers) {
        table->hosts->file = (struct job_str){.v = path, .loc = loc};
        return host_file_read(table, ".", sources, d);
    }
    table->hosts->all = (struct job_num){managers[which], loc};
    return allocation_read(table, d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct job_hosts hosts = {0};
    struct host_table table = {.hosts = &hosts, .arena = &arena};
    struct source *sources = NULL;
    struct report report;
    struct diag d;
    char path[64];
    if (size == 0)
        return 0;
    if (!nowhere)
        nowhere = fopen("/dev/null", "we");
    arena_init(&arena);
    diag_init(&d);
    int fd = memfd_create("hosts", MFD_CLOEXEC);
    char *text = strndup((const char *)data + 1, size - 1);
    must(nowhere && fd >= 0 && text && write(fd, data + 1, size - 1) == (ssize_t)size - 1,
         "there is memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    set_variables(text, path);
    int code = read_hosts(data[0], path, &table, &sources, &d);
    close(fd);
    must((code < 0) == (d.code < 0), "a refusal comes with an error");
    report_init(&report, nowhere, true, sources);
    if (code == 0)
        check_hosts(&hosts, size);
    else
        report_diag(&report, &d);
    free(text);
    arena_fini(&arena);
    return 0;
}
