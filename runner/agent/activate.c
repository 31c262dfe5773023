/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/activate.h"

#include "agent/agent.h"
#include "agent/engine_query.h"
#include "base/buf.h"
#include "base/exit_codes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Prints to descriptor 3, each entry with a NUL at its end: the environment, "=", the environment
 * after the commands, "."; or instead of the latter "!INDEX CODE" of the command that failed. */
static const char activate_script[] = "env -0 >&3; printf '=\\0' >&3; collrun_step=0\n"
                                      "for collrun_command in \"$@\"; do\n"
                                      "    eval \"$collrun_command\" || { printf '!%s %s\\0' "
                                      "\"$collrun_step\" \"$?\" >&3; exit 1; }\n"
                                      "    collrun_step=$((collrun_step + 1))\n"
                                      "done\n"
                                      "env -0 >&3; printf '.\\0' >&3\n";

enum { ACTIVATE_RESULT = 3 /* descriptor */ };

static _Noreturn void activate_exec(const struct agent *a, int out, int errors)
{
    const struct desc *desc = &a->desc;
    const char **argv = calloc((size_t)desc->nactivate + 6, sizeof *argv), *folder;
    const int null = open("/dev/null", O_RDONLY);
    uint32_t n = 0;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    for (uint32_t i = 0; i < desc->env_pass.n; i++)
        setenv(desc->env_pass.items[i].key, desc->env_pass.items[i].value, 1);
    folder = desc->hosts[a->host].workdir[0] ? desc->hosts[a->host].workdir : desc->job_dir;
    if (!argv || dup2(null, 0) < 0 || dup2(errors, 1) < 0 || dup2(errors, 2) < 0)
        _exit(EXIT_EXEC);
    if (out == ACTIVATE_RESULT)
        fcntl(out, F_SETFD, 0);
    else if (dup2(out, ACTIVATE_RESULT) < 0)
        _exit(EXIT_EXEC);
    if (*folder && chdir(folder) < 0 && desc->hosts[a->host].workdir[0])
        _exit(EXIT_EXEC); /* the folder of the job file may be missing on another host */
    argv[n++] = "bash";
    argv[n++] = "-l";
    argv[n++] = "-c";
    argv[n++] = activate_script;
    argv[n++] = "collrun";
    for (uint32_t i = 0; i < desc->nactivate; i++)
        argv[n++] = desc->activate[i].value;
    execvp("bash", (char *const *)(void *)argv);
    dprintf(STDERR_FILENO, "cannot start bash: %s\n", strerror(errno));
    _exit(EXIT_EXEC);
}

/* The last line that is not empty. */
static void activate_last_line(int fd, char out[256])
{
    char text[1024];
    const off_t size = lseek(fd, 0, SEEK_END), at = size > 1023 ? size - 1023 : 0;
    ssize_t n = size > 0 ? pread(fd, text, sizeof text - 1, at) : 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    text[n > 0 ? n : 0] = '\0';
    const char *line = strrchr(text, '\n');
    snprintf(out, 256, "%.255s", line ? line + 1 : text);
}

/* The environment that a login shell leaves to others, and not what it says of itself. */
static bool activate_is_kept(const char *entry)
{
    static const char *const own[] = {"_", "SHLVL", "PWD", "OLDPWD"};
    const size_t len = strcspn(entry, "=");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strlen(own[i]) == len && strncmp(entry, own[i], len) == 0)
            return false;
    return entry[len] && strncmp(entry, "COLLRUN_", 8) != 0 && !memchr(entry, '%', len) &&
           !memchr(entry, '(', len);
}

/* The entry of the same variable; NULL: there is none. */
static const char *activate_find(const char *const *entries, uint32_t n, const char *entry)
{
    const size_t len = strcspn(entry, "=") + 1;
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(entries[i], entry, len) == 0)
            return entries[i];
    return NULL;
}

/* What the shell has printed, in entries. */
struct activate_answer {
    const char **before, **after;
    uint32_t nbefore, nafter;
    const char *failed; /* "INDEX CODE"; NULL: none */
    bool whole;
};

static bool activate_read(struct agent *a, const struct buf *text, struct activate_answer *out)
{
    const char *p = (const char *)text->data, *end = p + text->len;
    size_t entries = 0;
    bool second = false;
    for (const char *c = p; c < end; c++)
        entries += *c == '\0';
    out->before = arena_calloc(&a->arena, entries + 1, sizeof *out->before);
    out->after = arena_calloc(&a->arena, entries + 1, sizeof *out->after);
    if (!out->before || !out->after)
        return false;
    for (const char *next; p < end && (next = memchr(p, '\0', (size_t)(end - p))); p = next + 1) {
        const char *entry = arena_strdup(&a->arena, p);
        if (!entry)
            return false;
        if (strcmp(entry, "=") == 0)
            second = true;
        else if (strcmp(entry, ".") == 0)
            out->whole = second;
        else if (*entry == '!' && second)
            out->failed = entry + 1;
        else if (second)
            out->after[out->nafter++] = entry;
        else
            out->before[out->nbefore++] = entry;
    }
    return true;
}

static int activate_compare(struct agent *a, const struct activate_answer *answer, struct diag *d)
{
    const uint32_t most = answer->nbefore + answer->nafter;
    struct activate_change *changes = arena_calloc(&a->arena, most, sizeof *changes);
    uint32_t n = 0;
    for (uint32_t i = 0; changes && i < answer->nafter; i++) {
        const char *entry = answer->after[i], *equals = strchr(entry, '=');
        const char *old = activate_find(answer->before, answer->nbefore, entry);
        if (activate_is_kept(entry) && (!old || strcmp(old, entry) != 0))
            changes[n++] = (struct activate_change){
                arena_strndup(&a->arena, entry, (size_t)(equals - entry)), equals + 1};
    }
    for (uint32_t i = 0; changes && i < answer->nbefore; i++) {
        const char *entry = answer->before[i];
        if (activate_is_kept(entry) && !activate_find(answer->after, answer->nafter, entry))
            changes[n++] = (struct activate_change){
                arena_strndup(&a->arena, entry, strcspn(entry, "=")), NULL};
    }
    a->changes = changes;
    a->nchanges = n;
    return changes || !most ? COLLRUN_OK
                            : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for env.activate");
}

static int activate_failed(struct agent *a, const struct activate_answer *answer, bool late,
                           int errors, struct diag *d)
{
    const struct desc *desc = &a->desc;
    unsigned index = 0, code = 0;
    char line[256];
    activate_last_line(errors, line);
    const bool named = answer->failed && sscanf(answer->failed, "%u %u", &index, &code) == 2 &&
                       index < desc->nactivate;
    if (named)
        diag_at(d, desc->activate[index].loc, "env.activate[%u]: exit code %u%s%s", index, code,
                *line ? ": " : "", line);
    else
        diag_at(d, desc->activate[0].loc, "env.activate: the shell %s%s%s",
                late ? "has not ended in time (half of timeouts.start)" : "ended early",
                *line ? ": " : "", line);
    return d->code;
}

int activate_run(struct agent *a, struct diag *d)
{
    int ends[2] = {-1, -1}, errors = memfd_create("activate", MFD_CLOEXEC);
    /* The runner ends the job when all of the time has passed, and does not know why. */
    const uint64_t limit_ns = a->desc.start_timeout_ns / 2;
    struct activate_answer answer = {0};
    struct buf text;
    if (!a->desc.nactivate || errors < 0 || pipe2(ends, O_CLOEXEC) < 0) {
        const int err = errno;
        if (errors >= 0)
            close(errors);
        return a->desc.nactivate ? diag_sys(d, err, "env.activate") : COLLRUN_OK;
    }
    buf_init(&text);
    const pid_t pid = fork();
    if (pid == 0)
        activate_exec(a, ends[1], errors);
    close(ends[1]);
    const bool late = pid > 0 && !engine_query_read(a, pid, ends[0], limit_ns, &text);
    close(ends[0]);
    if (pid > 0) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    int rc = COLLRUN_OK;
    if (!activate_read(a, &text, &answer))
        rc = diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for env.activate");
    else if (answer.whole)
        rc = activate_compare(a, &answer, d);
    else
        rc = activate_failed(a, &answer, late, errors, d);
    buf_fini(&text);
    close(errors);
    return rc;
}

void activate_apply(const struct agent *a)
{
    for (uint32_t i = 0; i < a->nchanges; i++)
        if (a->changes[i].value)
            setenv(a->changes[i].name, a->changes[i].value, 1);
        else
            unsetenv(a->changes[i].name);
}
