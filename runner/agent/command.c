/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/command.h"

#include "agent/agent.h"
#include "agent/environment.h"
#include "agent/rank_stdin.h"
#include "base/elf_machine.h"
#include "base/preload.h"

#include <errno.h>
#include <fcntl.h>
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
