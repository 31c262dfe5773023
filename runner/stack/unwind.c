/* SPDX-License-Identifier: Apache-2.0 */
#include "stack/unwind.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STOP_TRIES = 250 /* milliseconds */, ASLEEP_TRIES = 4 };

int unwind_stop(pid_t tid, int *sig)
{
    int status;
    *sig = 0;
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0 || ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0)
        return errno;
    for (int i = 0; i < STOP_TRIES; i++) {
        pid_t got = waitpid(tid, &status, __WALL | WNOHANG);
        if (got < 0 || (got == tid && !WIFSTOPPED(status)))
            return ESRCH;
        if (got == tid) {
            *sig = status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status);
            return 0;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return ETIMEDOUT;
}

void unwind_resume(pid_t tid, int sig)
{
    ptrace(PTRACE_DETACH, tid, NULL, (void *)(intptr_t)sig);
}

static int unwind_on_frame(Dwfl_Frame *frame, void *arg)
{
    struct unwind_stack *stack = arg;
    Dwarf_Addr pc;
    bool activation;
    if (!dwfl_frame_pc(frame, &pc, &activation))
        return DWARF_CB_ABORT;
    stack->pcs[stack->n++] = activation ? pc : pc - 1; /* the call, not what follows it */
    return stack->n < UNWIND_FRAMES_MAX ? DWARF_CB_OK : DWARF_CB_ABORT;
}

static void unwind_asleep(struct unwind *u, pid_t tid, struct asleep_state *state,
                          struct unwind_stack *stack)
{
    const pid_t pid = dwfl_pid(u->dwfl);
    if (!u->asleep)
        u->asleep = asleep_begin(pid);
    for (int i = 0; u->asleep && i < ASLEEP_TRIES; i++) {
        stack->n = 0;
        asleep_frames(u->asleep, tid, state, unwind_on_frame, stack);
        if (stack->n && asleep_still(pid, tid, state))
            return;
        struct asleep_state now;
        if (asleep_unrestarted(pid, tid, &now))
            *state = now;
    }
    stack->pcs[0] = state->pc;
    stack->n = 1;
}

int unwind_thread(struct unwind *u, pid_t tid, struct unwind_stack *stack)
{
    int sig;
    struct asleep_state state;
    stack->n = 0;
    if (asleep_unrestarted(dwfl_pid(u->dwfl), tid, &state)) {
        unwind_asleep(u, tid, &state, stack);
        return 0;
    }
    int err = unwind_stop(tid, &sig);
    if (err)
        return err;
    dwfl_getthread_frames(u->dwfl, tid, unwind_on_frame, stack); /* it may end early */
    unwind_resume(tid, sig);
    return 0;
}

void unwind_end(struct unwind *u)
{
    dwfl_end(u->asleep);
    u->asleep = NULL;
}

/* ---- threads ---- */

static int threads_compare(const void *a, const void *b)
{
    const pid_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int threads_list(pid_t pid, pid_t tids[THREADS_MAX])
{
    char path[64];
    struct dirent *e;
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    while (tasks && n < THREADS_MAX && (e = readdir(tasks))) {
        pid_t tid = atoi(e->d_name);
        if (tid > 0)
            tids[n++] = tid;
    }
    if (tasks)
        closedir(tasks);
    qsort(tids, (size_t)n, sizeof *tids, threads_compare);
    return n;
}

void threads_name(pid_t pid, pid_t tid, char name[THREADS_NAME_LEN])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)pid, (int)tid);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(name, THREADS_NAME_LEN, f))
        snprintf(name, THREADS_NAME_LEN, "?");
    if (f)
        fclose(f);
    name[strcspn(name, "\n")] = '\0';
}

bool threads_is_engine(const char *name)
{
    return strncmp(name, "collrun/", 8) == 0;
}

/* ---- asleep ---- */

/* The DWARF number of the stack pointer. */
#if defined __x86_64__
enum { ASLEEP_SP = 7 };
#elif defined __aarch64__
enum { ASLEEP_SP = 31 };
#else
enum { ASLEEP_SP = -1 };
#endif

/* ---- which system call ---- */

static bool asleep_read(pid_t pid, pid_t tid, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool asleep_is_pipe(pid_t pid, unsigned long long fd)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd/%llu", (int)pid, fd);
    return stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* `arg`: the first argument. */
static bool asleep_is_restarted(pid_t pid, long number, unsigned long long arg)
{
    static const long restarted[] = {
        SYS_futex,
        SYS_nanosleep,
        SYS_clock_nanosleep,
        SYS_ppoll,
        SYS_pselect6,
        SYS_waitid,
        SYS_rt_sigsuspend,
        SYS_wait4,
        SYS_restart_syscall,
#if defined __x86_64__
        SYS_poll,
        SYS_select,
        SYS_pause,
#endif
    };
    static const long of_file[] = {SYS_read, SYS_write, SYS_readv, SYS_writev};
    for (size_t i = 0; i < sizeof restarted / sizeof *restarted; i++) {
        if (number == restarted[i])
            return true;
    }
    for (size_t i = 0; i < sizeof of_file / sizeof *of_file; i++) {
        if (number == of_file[i])
            return asleep_is_pipe(pid, arg);
    }
    return false;
}

/* The text is "NUMBER ARG0 ... ARG5 SP PC"; "-1 SP PC", asleep but not in a call; or "running". */
bool asleep_unrestarted(pid_t pid, pid_t tid, struct asleep_state *state)
{
    long number;
    unsigned long long arg, sp, pc;
    if (!asleep_read(pid, tid, state->text, sizeof state->text) ||
        sscanf(state->text, "%ld %llx %*x %*x %*x %*x %*x %llx %llx", &number, &arg, &sp, &pc) != 4)
        return false;
    state->sp = sp;
    state->pc = pc;
    return !asleep_is_restarted(pid, number, arg);
}

bool asleep_is_not(pid_t pid, pid_t tid)
{
    char text[256];
    return asleep_read(pid, tid, text, sizeof text) && strncmp(text, "running", 7) == 0;
}

bool asleep_still(pid_t pid, pid_t tid, const struct asleep_state *state)
{
    char text[sizeof state->text];
    return asleep_read(pid, tid, text, sizeof text) && strcmp(text, state->text) == 0;
}

/* ---- its stack ---- */

struct asleep_thread {
    pid_t tid;
    const struct asleep_state *state;
};

/* The one thread of which a stack is asked for: libdw passes no argument of dwfl_getthread_frames
 * to its callbacks. */
static struct asleep_thread asleep_thread;

static pid_t asleep_next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
    struct asleep_thread *thread = arg;
    (void)dwfl;
    if (*thread_arg)
        return 0;
    *thread_arg = thread;
    return thread->tid;
}

static bool asleep_memory_read(Dwfl *dwfl, Dwarf_Addr addr, Dwarf_Word *result, void *arg)
{
    struct iovec to = {result, sizeof *result}, from = {(void *)(uintptr_t)addr, sizeof *result};
    (void)arg;
    return process_vm_readv(dwfl_pid(dwfl), &to, 1, &from, 1, 0) == sizeof *result;
}

static bool asleep_set_registers(Dwfl_Thread *thread, void *arg)
{
    const struct asleep_thread *of = arg;
    if (ASLEEP_SP >= 0 && !dwfl_thread_state_registers(thread, ASLEEP_SP, 1, &of->state->sp))
        return false;
    dwfl_thread_state_register_pc(thread, of->state->pc);
    return true;
}

Dwfl *asleep_begin(pid_t pid)
{
    static char *path; /* of debug information: the default */
    static const Dwfl_Callbacks files = {.find_elf = dwfl_linux_proc_find_elf,
                                         .find_debuginfo = dwfl_standard_find_debuginfo,
                                         .debuginfo_path = &path};
    static const Dwfl_Thread_Callbacks threads = {.next_thread = asleep_next_thread,
                                                  .memory_read = asleep_memory_read,
                                                  .set_initial_registers = asleep_set_registers};
    Dwfl *dwfl = dwfl_begin(&files);
    if (dwfl && dwfl_linux_proc_report(dwfl, pid) == 0 && dwfl_report_end(dwfl, NULL, NULL) == 0 &&
        dwfl_attach_state(dwfl, NULL, pid, &threads, &asleep_thread))
        return dwfl;
    dwfl_end(dwfl);
    return NULL;
}

void asleep_frames(Dwfl *dwfl, pid_t tid, const struct asleep_state *state,
                   int (*each)(Dwfl_Frame *frame, void *arg), void *arg)
{
    asleep_thread = (struct asleep_thread){tid, state};
    dwfl_getthread_frames(dwfl, tid, each, arg); /* it may end early */
    asleep_thread.state = NULL;
}
