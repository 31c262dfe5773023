/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc/PID/task: of each thread, `syscall` is "NUMBER ARGUMENTS..." in hexadecimal while it sleeps
 * in one, and the third number of `schedstat` counts the time slices that it has had.
 */
#include "agent/task_survey.h"

#include "agent/ranks.h"
#include "base/thread.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TASK_SURVEY_STATUS = 4096, TASK_SURVEY_TASKS = 1 << 12 };

void task_survey_init(struct task_survey *s, const struct record_head *record, int fd)
{
    struct stat st;
    *s = (struct task_survey){
        .record = record,
        .threads = (const void *)((const char *)record + record_layout(record).threads)};
    if (fstat(fd, &st) == 0)
        s->file = st.st_ino;
}

/* ---- the process ---- */

struct task_survey_process {
    char state;
    uint32_t nthreads;
    uint64_t started;
};

/* The name in /proc/PID/stat may hold anything, so it is skipped from its end. */
static bool task_survey_read_process(pid_t pid, struct task_survey_process *p)
{
    char text[1024];
    tree_read_file(pid, "stat", text, sizeof text);
    const char *after = strrchr(text, ')');
    /* The fields: state, then 16 others, then the number of threads, one more, and the start. */
    return after && sscanf(after + 1,
                           " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                           "%" SCNu32 " %*s %" SCNu64,
                           &p->state, &p->nthreads, &p->started) == 3;
}

/* True if a mapping of the process is the memory of the record: "FROM-TO rw-s 0 DEVICE INODE PATH".
 */
static bool task_survey_has_record(pid_t pid, uint64_t file)
{
    char path[32], line[512];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        uint64_t inode;
        found = strstr(line, "/memfd:collrun-record") &&
                sscanf(line, "%*s %*s %*s %*s %" SCNu64, &inode) == 1 && inode == file;
    }
    if (f)
        fclose(f);
    return found;
}

/* Looks at the mappings of a process once: a number that is used again has another start. */
static bool task_survey_is_writer(struct task_survey *s, pid_t pid, uint64_t started)
{
    if (s->pid == pid && s->started == started)
        return true;
    if (!task_survey_has_record(pid, s->file))
        return false;
    s->pid = pid;
    s->started = started;
    return true;
}

/* ---- one thread ---- */

struct task_survey_look { /* at one process */
    const struct record_head *record;
    const struct record_thread *threads;
    pid_t pid;
    bool engine; /* the engine writes the record */
    bool called; /* the kernel or a driver may call back; valid once `looked` */
    bool looked;
    bool acts;       /* a thread RUNS that is in no call: it may wake all others */
    uint64_t counts; /* signals with a handler that count */
    uint64_t opened; /* signals that some thread does not block */
    struct record_survey *out;
};

static size_t task_survey_read(const struct task_survey_look *l, uint32_t tid, const char *name,
                               char *text, size_t size)
{
    char path[48];
    snprintf(path, sizeof path, "task/%" PRIu32 "/%s", tid, name);
    return tree_read_file(l->pid, path, text, size);
}

static bool task_survey_calls_back(const char *target)
{
    static const char *const quiet[] = {"/dev/null", "/dev/zero",    "/dev/full", "/dev/random",
                                        "/dev/tty",  "/dev/urandom", "/dev/pts/", "/dev/shm/",
                                        "/dev/ptmx", "/dev/console"};
    if (strstr(target, "[io_uring]"))
        return true;
    bool device = strncmp(target, "/dev/", 5) == 0;
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++)
        device = device && strncmp(target, quiet[i], strlen(quiet[i])) != 0;
    return device;
}

/* An io_uring may wake a futex after a time-out or a read; the driver of a GPU calls functions of
 * the program. */
static bool task_survey_is_called(struct task_survey_look *l)
{
    const struct dirent *entry;
    char path[32];
    if (l->looked)
        return l->called;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)l->pid);
    DIR *dir = opendir(path);
    l->looked = true;
    l->called = !dir;
    while (dir && !l->called && (entry = readdir(dir))) {
        char target[256];
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        l->called = task_survey_calls_back(target);
    }
    if (dir)
        closedir(dir);
    return l->called;
}

/* `text` is that of `syscall`: "running", or "NUMBER ARG0 ... ARG5 SP PC". */
static enum record_task_state task_survey_call_state(struct task_survey_look *l, const char *text)
{
    struct futex_wait f;
    if (!futex_wait_read(text, &f) || !futex_wait_is_own(&f, l->pid))
        return RECORD_TASK_RUNS;
    if (task_survey_is_called(l))
        return RECORD_TASK_RUNS;
    return f.timed ? RECORD_TASK_TIMED : RECORD_TASK_SLEEPS;
}

static bool task_survey_is_of_engine(const struct task_survey_look *l, uint32_t tid)
{
    char name[32];
    return l->engine && task_survey_read(l, tid, "comm", name, sizeof name) &&
           strncmp(name, "collrun/", strlen("collrun/")) == 0;
}

static const char *task_survey_field(const char *status, const char *name)
{
    const char *at = strstr(status, name);
    return at ? at + strlen(name) + strspn(at + strlen(name), " \t") : NULL;
}

static bool task_survey_is_in_call(const struct task_survey_look *l, uint32_t tid)
{
    const struct record_head *head = l->record;
    const struct record_thread *threads = l->threads;
    const uint32_t used = atomic_load_explicit(&head->threads_used, memory_order_relaxed);
    bool found = record_is_library(head, tid);
    for (uint32_t i = 1; !found && i <= used && i < RECORD_THREADS; i++)
        found = atomic_load_explicit(&threads[i].tid, memory_order_relaxed) == tid &&
                (atomic_load_explicit(&threads[i].word, memory_order_relaxed) & 3) == RECORD_INSIDE;
    return found;
}

/* Whether it sleeps. A thread that has slept and run in between has one slice more: so the slices
 * are read before the call, which is listed only while the thread has no CPU. Its state is read
 * last: a stopped thread shows the call in which the signal met it. */
static bool task_survey_read_sleep(struct task_survey_look *l, struct record_task *task)
{
    char slices[128], call[256], status[TASK_SURVEY_STATUS];
    if (!task_survey_read(l, task->tid, "syscall", call, sizeof call))
        return false;
    if (task_survey_call_state(l, call) == RECORD_TASK_RUNS)
        return true;
    if (!task_survey_read(l, task->tid, "schedstat", slices, sizeof slices) ||
        sscanf(slices, "%*u %*u %" SCNu64, &task->slices) != 1 ||
        !task_survey_read(l, task->tid, "syscall", call, sizeof call) ||
        !task_survey_read(l, task->tid, "status", status, sizeof status))
        return false;
    const char *state = task_survey_field(status, "\nState:"),
               *tracer = task_survey_field(status, "\nTracerPid:");
    if (!state || !tracer || atoi(tracer) != 0)
        return false;
    if (*state == 'S' && task->slices)
        task->state = task_survey_call_state(l, call);
    return true;
}

static bool task_survey_read_signals(struct task_survey_look *l, uint32_t tid)
{
    char status[TASK_SURVEY_STATUS];
    if (!(l->counts & ~l->opened))
        return true;
    task_survey_read(l, tid, "status", status, sizeof status);
    const char *blocked = task_survey_field(status, "\nSigBlk:");
    if (blocked)
        l->opened |= ~strtoull(blocked, NULL, 16);
    return blocked != NULL;
}

static bool task_survey_has_ended(const struct task_survey_look *l, uint32_t tid)
{
    char status[TASK_SURVEY_STATUS];
    task_survey_read(l, tid, "status", status, sizeof status);
    const char *state = task_survey_field(status, "\nState:");
    return state && (*state == 'Z' || *state == 'X');
}

/* Once a thread RUNS that is in no call, it does not matter whether the others sleep. */
static bool task_survey_read_task(struct task_survey_look *l, uint32_t tid,
                                  struct record_task *task)
{
    *task = (struct record_task){.tid = tid, .state = RECORD_TASK_RUNS};
    if (!task_survey_read_signals(l, tid))
        return false;
    if (l->acts || task_survey_is_in_call(l, tid))
        return true;
    if (task_survey_is_of_engine(l, tid))
        task->state = RECORD_TASK_INERT;
    else if (!task_survey_read_sleep(l, task))
        return false;
    l->acts = task->state == RECORD_TASK_RUNS;
    return true;
}

/* ---- the process as a whole ---- */

/* Children are listed by the thread that has made them. A kernel without these lists does not say
 * that there are none. */
static bool task_survey_has_children(const struct task_survey_look *l)
{
    bool found = false;
    for (uint32_t i = 0; !found && i < l->out->ntasks; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/task/%" PRIu32 "/children", (int)l->pid,
                 l->out->tasks[i].tid);
        FILE *f = fopen(path, "re");
        found = !f || fgetc(f) != EOF;
        if (f)
            fclose(f);
    }
    return found;
}

/* False: a debugger traces it, or nothing is known. */
static bool task_survey_read_handlers(struct task_survey_look *l)
{
    char status[TASK_SURVEY_STATUS];
    tree_read_file(l->pid, "status", status, sizeof status);
    const char *tracer = task_survey_field(status, "\nTracerPid:"),
               *caught = task_survey_field(status, "\nSigCgt:");
    if (!tracer || !caught || atoi(tracer) != 0)
        return false;
    l->out->caught = strtoull(caught, NULL, 16);
    if (l->out->caught & record_cut_signals(l->record, true) & UINT64_C(1) << (SIGCHLD - 1))
        l->out->children = task_survey_has_children(l);
    l->counts = l->out->caught & record_cut_signals(l->record, l->out->children);
    return true;
}

/* ---- all threads ---- */

static bool task_survey_list(pid_t pid, struct arena *arena, uint32_t most,
                             struct record_survey *out)
{
    const struct dirent *entry;
    char path[32];
    struct record_task *tasks = arena_calloc(arena, most, sizeof *tasks);
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = tasks ? opendir(path) : NULL;
    bool fits = dir != NULL;
    while (fits && (entry = readdir(dir))) {
        const uint32_t tid = (uint32_t)strtoul(entry->d_name, NULL, 10);
        if (!tid)
            continue;
        fits = out->ntasks < most;
        if (fits)
            tasks[out->ntasks++].tid = tid;
    }
    if (dir)
        closedir(dir);
    out->tasks = tasks;
    return fits;
}

/* A thread that ends while the kernel lists them may hide others. The number of threads after the
 * list, of which each was there when it was looked at later, shows that none is hidden. */
static bool task_survey_read_tasks(struct task_survey_look *l, struct arena *arena,
                                   uint32_t nthreads)
{
    struct record_survey *out = l->out;
    struct task_survey_process after;
    uint32_t n = 0;
    if (!task_survey_list(l->pid, arena, nthreads, out) || out->ntasks != nthreads ||
        !task_survey_read_handlers(l))
        return false;
    struct record_task *tasks = arena_calloc(arena, nthreads, sizeof *tasks);
    for (uint32_t i = 0; tasks && i < nthreads; i++) {
        const uint32_t tid = out->tasks[i].tid;
        if (task_survey_read_task(l, tid, &tasks[n]))
            n++;
        else if (!task_survey_has_ended(l, tid))
            return false;
    }
    out->tasks = tasks;
    out->ntasks = n;
    return tasks && task_survey_read_process(l->pid, &after) && after.nthreads == nthreads;
}

bool task_survey_writer_runs(struct task_survey *s)
{
    const pid_t pid = (pid_t)atomic_load_explicit(&s->record->pid, memory_order_relaxed);
    struct task_survey_process process;
    return pid > 0 && task_survey_read_process(pid, &process) && process.state != 'Z' &&
           process.state != 'X' && task_survey_has_record(pid, s->file);
}

bool task_survey_take(void *ctx, struct arena *arena, struct record_survey *out)
{
    struct task_survey *s = ctx;
    struct task_survey_process process;
    const struct record_head *head = s->record;
    struct task_survey_look look = {
        .record = head,
        .threads = s->threads,
        .pid = (pid_t)atomic_load_explicit(&head->pid, memory_order_relaxed),
        .engine = atomic_load_explicit(&head->tap, memory_order_relaxed) == RECORD_TAP_ENGINE,
        .out = out};
    *out = (struct record_survey){0};
    if (look.pid <= 0 || !task_survey_read_process(look.pid, &process) || process.state == 'Z' ||
        process.state == 'X' || process.nthreads > TASK_SURVEY_TASKS ||
        !task_survey_is_writer(s, look.pid, process.started) ||
        !task_survey_read_tasks(&look, arena, process.nthreads))
        return false;
    out->caught = look.counts & look.opened;
    return true;
}
