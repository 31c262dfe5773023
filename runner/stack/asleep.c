/* SPDX-License-Identifier: Apache-2.0 */
#include "stack/asleep.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

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
}
