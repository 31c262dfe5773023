/* SPDX-License-Identifier: Apache-2.0
 *
 * The child dies with the runner (PR_SET_PDEATHSIG).
 */
#include "plan/engine_child.h"

#include "base/exit_codes.h"
#include "base/names.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_MAX_LEN = 4 << 20 };

/* In the child, between fork and exec. */
static void engine_child_exec(const struct engine_child *child, const char *engine,
                              char *const *argv, int input, int out, pid_t parent)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int err = errno;
    int errors = child->errors < 0 ? nothing : child->errors;
    struct rlimit file_size; /* it counts for the memory behind stderr, too */
    if (getrlimit(RLIMIT_FSIZE, &file_size) == 0)
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){file_size.rlim_max, file_size.rlim_max});
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && nothing >= 0 &&
        dup2(input < 0 ? nothing : input, 0) == 0 && dup2(out, 1) == 1 && dup2(errors, 2) == 2)
        execv(engine, argv);
    if (child->errors >= 0 && nothing < 0)
        dprintf(child->errors, "/dev/null: %s", strerror(err));
    else if (child->errors >= 0)
        dprintf(child->errors, "%s", strerror(errno));
    _exit(EXIT_EXEC);
}

int engine_child_start(struct engine_child *child, const char *engine, char *const *argv, int input,
                       struct diag *d)
{
    int ends[2];
    if (access(engine, X_OK) < 0)
        return diag_sys(d, errno, "cannot run %s", engine);
    struct rlimit file_size;
    if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_max == 0) {
        diag_set(d, COLLRUN_ERR_SYSTEM, "cannot start %s: the limit of file sizes is 0", engine);
        return diag_hint(d, "raise the hard limit of file sizes (ulimit -Hf)");
    }
    if (pipe2(ends, O_CLOEXEC) < 0)
        return diag_sys(d, errno, "cannot make a pipe");
    pid_t parent = getpid();
    child->errors = memfd_create("collrun-stderr", MFD_CLOEXEC);
    child->pid = fork();
    int err = errno;
    if (child->pid == 0)
        engine_child_exec(child, engine, argv, input, ends[1], parent);
    close(ends[1]);
    if (child->pid < 0) {
        close(ends[0]);
        if (child->errors >= 0)
            close(child->errors);
        diag_sys(d, err, "cannot start %s", engine);
        return diag_hint_processes(d);
    }
    child->fd = ends[0];
    child->late = child->talks = false;
    child_time_start(&child->time, child->pid);
    return 0;
}

static uint64_t engine_child_deadline_ns(const struct engine_child *child)
{
    return child->deadline_ms * 1000000ull;
}

static uint64_t engine_child_wall_ns(const struct engine_child *child)
{
    return child->time.last_ns - child->time.start_ns;
}

/* How long to wait for its output before the next look at its time; 0: it is late. */
static int engine_child_ms_to_wait(struct engine_child *child)
{
    const uint64_t deadline_ns = engine_child_deadline_ns(child);
    child_time_update(&child->time);
    if (child_time_is_over(&child->time, deadline_ns))
        return 0;
    const uint64_t left_ms = (deadline_ns - child->time.counted_ns) / 1000000u + 1;
    return left_ms < CHILD_TIME_PERIOD_MS ? (int)left_ms : CHILD_TIME_PERIOD_MS;
}

bool engine_child_read(struct engine_child *child, struct buf *in)
{
    struct pollfd p = {.fd = child->fd, .events = POLLIN};
    int wait_ms = engine_child_ms_to_wait(child);
    int ready = poll(&p, 1, wait_ms);
    if (ready < 0 && errno == EINTR)
        return true;
    if (ready == 0 && wait_ms)
        return true;
    child->talks = buf_pending(in) > LINE_MAX_LEN;
    child->late = ready <= 0;
    if (child->late || child->talks)
        return false;
    void *room = buf_reserve(in, 65536);
    ssize_t n = room ? read(child->fd, room, 65536) : 0;
    if (n < 0)
        return errno == EINTR;
    buf_commit(in, (size_t)n);
    return n > 0;
}

/* ---- its stderr ---- */

/* Keeps the first frames that have a place, " in boom (t.c:5), called by begin (t.c:6)", up to the
 * call of a constructor by the dynamic linker. A frame is a line, "  #0 boom (t.c:5)". */
static void engine_child_take_crash(struct engine_child *child, const char *text)
{
    enum { MOST = 3 };
    size_t used = 0;
    for (int n = 0; n < MOST && (text = strstr(text, "\n  #"));) {
        text = strchr(text + strlen("\n  #"), ' ');
        const size_t len = text ? strcspn(++text, "\n") : 0;
        if (!text || strncmp(text, "call_init ", 10) == 0 || used + len + 16 > sizeof child->crash)
            break;
        if (!memchr(text, '(', len))
            continue;
        used += (size_t)snprintf(child->crash + used, sizeof child->crash - used, "%s%.*s",
                                 n++ ? ", called by " : " in ", (int)len, text);
    }
}

/* The last lines, as one line without characters that do not print. The engine begins what each
 * plugin may print with a record separator. */
static void engine_child_take_words(struct engine_child *child)
{
    char text[4096 + 1];
    off_t len = lseek(child->errors, 0, SEEK_END);
    off_t from = len >= (off_t)sizeof text ? len - (off_t)sizeof text + 1 : 0;
    ssize_t n = len > 0 ? pread(child->errors, text, sizeof text - 1, from) : 0;
    text[n > 0 ? n : 0] = '\0';
    const char *begin = n > 0 ? memrchr(text, '\036', (size_t)n) : NULL;
    begin = begin ? begin + 1 : text;
    const char *crash = n > 0 ? memchr(begin, '\035', (size_t)(text + n - begin)) : NULL;
    if (crash)
        engine_child_take_crash(child, crash);
    size_t left = n > 0 ? (size_t)((crash ? crash : text + n) - begin) : 0;
    if (left >= sizeof child->words) {
        begin += left - sizeof child->words + 1;
        left = sizeof child->words - 1;
    }
    size_t used = 0;
    for (size_t i = 0; i < left; i++) {
        bool plain = (unsigned char)begin[i] > ' ' && begin[i] != 0x7f;
        if (plain || (used && child->words[used - 1] != ' '))
            child->words[used++] = plain ? begin[i] : ' ';
    }
    while (used && child->words[used - 1] == ' ')
        used--;
    child->words[used] = '\0';
}

int engine_child_end(struct engine_child *child)
{
    int status = 0;
    close(child->fd);
    if (child->late || child->talks)
        kill(child->pid, SIGKILL);
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (child->errors >= 0) {
        engine_child_take_words(child);
        close(child->errors);
    }
    return status;
}

const char *engine_child_failure(const struct engine_child *child, int status, const char *doing,
                                 const char *when, struct arena *arena)
{
    const char *colon = child->words[0] ? ": " : "";
    if (child->talks)
        return arena_printf(arena, "%s prints more than %d MiB%s%s", doing, LINE_MAX_LEN >> 20,
                            colon, child->words);
    if (child->late && child->time.counted_ns < engine_child_deadline_ns(child))
        return arena_printf(arena,
                            "%s takes longer than %g seconds, most of which it waits for a CPU: "
                            "this machine is busy%s%s",
                            doing, (double)engine_child_wall_ns(child) / 1e9, colon, child->words);
    if (child->late)
        return arena_printf(arena, "%s takes longer than %g seconds%s%s", doing,
                            child->deadline_ms / 1e3, colon, child->words);
    if (WIFSIGNALED(status))
        return arena_printf(arena, "the plugin crashes while it %s (%s)%s%s%s", when,
                            signal_name(WTERMSIG(status)), child->crash, colon, child->words);
    return arena_printf(arena, "the plugin ends the process while it %s (exit code %d)%s%s", when,
                        WEXITSTATUS(status), colon, child->words);
}

/* ---- the variables that decide how a plugin is loaded ---- */

static const char *const names[LOADER_ENV_MAX] = {"LD_PRELOAD",   "LD_LIBRARY_PATH",
                                                  "ASAN_OPTIONS", "LSAN_OPTIONS",
                                                  "TSAN_OPTIONS", "UBSAN_OPTIONS"};

void loader_env_set(const struct job *job, struct loader_env *saved)
{
    *saved = (struct loader_env){0};
    for (uint32_t i = 0; i < job->env.set.n; i++) {
        const struct job_pair *pair = &job->env.set.items[i];
        for (int k = 0; k < LOADER_ENV_MAX; k++) {
            if (strcmp(pair->key, names[k]) != 0 || pair->is_list || strchr(pair->value, '{'))
                continue;
            const char *before = getenv(names[k]);
            if (!saved->changed[k])
                saved->saved[k] = before ? xstrdup(before) : NULL;
            saved->changed[k] = true;
            setenv(names[k], pair->value, 1);
        }
    }
}

void loader_env_restore(struct loader_env *saved)
{
    for (int k = 0; k < LOADER_ENV_MAX; k++) {
        if (saved->changed[k] && saved->saved[k])
            setenv(names[k], saved->saved[k], 1);
        else if (saved->changed[k])
            unsetenv(names[k]);
        free(saved->saved[k]);
        saved->saved[k] = NULL;
        saved->changed[k] = false;
    }
}
