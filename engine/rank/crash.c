/* SPDX-License-Identifier: Apache-2.0
 *
 * The handler calls nothing that locks or allocates: the unwinder is linked in, dladdr finds the
 * objects, write prints the text. It runs on an alternate stack, since a full stack is a common
 * reason to crash. Under the sanitizers, which do this better, nothing is installed.
 *
 *  - With collrun-stack in the libexec folder of this library, a child process prints the frames
 *    with function, file and line. It reads the frames from a memory file, and has CRASH_WAIT_MS.
 *  - Without it, or when it fails, the handler prints the names that dladdr knows.
 *  - Of several threads that crash, the first one reports; the others wait for the end of the
 *    process. A crash inside the handler ends the process at once.
 */
#include "rank/crash.h"

#include "base/record.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

static struct record_head *crash_record; /* NULL: none, or this process is not the rank */
static _Thread_local uint32_t own_workload;

void crash_ends_rank(void)
{
    if (crash_record && own_workload)
        atomic_store_explicit(&crash_record->ended_by, own_workload, memory_order_relaxed);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

enum { STACK_LEN = 64 << 10, MOST_FRAMES = 16, CRASH_WAIT_MS = 3000 };

/* A fault this far below a stack, or above its end, is one of the stack. */
enum { STACK_BELOW = 64 << 10, STACK_ABOVE = 4 << 10 };

static uint32_t crashing_rank;
static bool crash_in_child, crash_in_query;
static pthread_key_t stack_key;
static char engine_program[4096], stack_program[4096]; /* "": there is no collrun-stack */
static char library_path[8192];                        /* its environment */
static _Atomic int crashing_thread;                    /* 0: none */

/* The stack of this thread. */
static _Thread_local struct {
    uintptr_t low;
    size_t len, guard;
} own_stack;

struct frame {
    uintptr_t pc;
    Dl_info info;
    bool known;
};

struct backtrace {
    struct frame frames[MOST_FRAMES];
    int n; /* -1: above the frame that the signal hit */
};

/* One line of text, built without stdio's locks. */
struct line {
    char text[4352];
    size_t len;
};

static void crash_add(struct line *l, const char *s)
{
    while (*s && l->len < sizeof l->text - 1)
        l->text[l->len++] = *s++;
}

static void crash_add_number(struct line *l, uintptr_t v, unsigned base)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do {
        digits[--at] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v);
    crash_add(l, digits + at);
}

static void crash_out(struct line *l, int fd)
{
    crash_add(l, "\n");
    ssize_t n = write(fd, l->text, l->len);
    (void)n;
    l->len = 0;
}

/* ---- frames ---- */

static _Unwind_Reason_Code crash_add_frame(struct _Unwind_Context *context, void *arg)
{
    struct backtrace *b = arg;
    int before = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    if (!pc || b->n >= MOST_FRAMES)
        return _URC_END_OF_STACK;
    if (b->n < 0 && !before)
        return _URC_NO_REASON; /* the handler's own frames, above the one that the signal hit */
    if (b->n < 0)
        b->n = 0;
    else
        pc--; /* the call, not the instruction after it */
    struct frame *f = &b->frames[b->n++];
    f->pc = pc;
    f->known = dladdr((void *)pc, &f->info) && f->info.dli_fname;
    return _URC_NO_REASON;
}

/* "#0 load_batch in train.so+0x1139" */
static void crash_print_frame(const struct frame *f, int number)
{
    struct line l = {.len = 0};
    crash_add(&l, "  #");
    crash_add_number(&l, (uintptr_t)number, 10);
    if (f->known) {
        const char *slash = strrchr(f->info.dli_fname, '/');
        crash_add(&l, " ");
        crash_add(&l, f->info.dli_sname ? f->info.dli_sname : "?");
        crash_add(&l, " in ");
        crash_add(&l, slash ? slash + 1 : f->info.dli_fname);
        crash_add(&l, "+0x");
        crash_add_number(&l, f->pc - (uintptr_t)f->info.dli_fbase, 16);
    } else {
        crash_add(&l, " 0x");
        crash_add_number(&l, f->pc, 16);
    }
    crash_out(&l, STDERR_FILENO);
}

/* ---- collrun-stack ---- */

/* "1139 /path/train.so" a line. */
static int crash_write_frames(const struct backtrace *b)
{
    int fd = memfd_create("collrun-crash", MFD_CLOEXEC);
    for (int i = 0; fd >= 0 && i < b->n; i++) {
        const struct frame *f = &b->frames[i];
        struct line l = {.len = 0};
        if (f->known) {
            crash_add_number(&l, f->pc - (uintptr_t)f->info.dli_fbase, 16);
            crash_add(&l, " ");
            crash_add(&l, strchr(f->info.dli_fname, '/') ? f->info.dli_fname : engine_program);
        } else {
            crash_add(&l, "0x");
            crash_add_number(&l, f->pc, 16);
        }
        crash_out(&l, fd);
    }
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

/* True: the child has printed the frames. */
static bool crash_wait(pid_t child)
{
    for (int ms = 0; ms < CRASH_WAIT_MS; ms += 2) {
        int status = 0;
        pid_t got = waitpid(child, &status, WNOHANG);
        if (got)
            return got == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    kill(child, SIGKILL);
    return false;
}

static bool crash_resolve(const struct backtrace *b)
{
    char *argv[] = {"collrun-stack", "--resolve", NULL};
    char *envp[] = {library_path[0] ? library_path : NULL, NULL};
    int fd = stack_program[0] ? crash_write_frames(b) : -1;
    pid_t child = fd >= 0 ? _Fork() : -1;
    if (child == 0) {
        if (dup2(fd, STDIN_FILENO) == STDIN_FILENO &&
            dup2(STDERR_FILENO, STDOUT_FILENO) == STDOUT_FILENO)
            execve(stack_program, argv, envp);
        _exit(1);
    }
    if (fd >= 0)
        close(fd);
    return child > 0 && crash_wait(child);
}

/* ---- the handler ---- */

static uintptr_t crash_stack_pointer(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.sp;
#else
    (void)context;
    return own_stack.low;
#endif
}

/* The fault is at the end of this thread's stack, and so is the stack pointer. */
static bool crash_is_overflow(uintptr_t address, const ucontext_t *context)
{
    uintptr_t end = own_stack.low + own_stack.guard, sp = crash_stack_pointer(context);
    return own_stack.len && address + STACK_BELOW >= own_stack.low && address < end + STACK_ABOVE &&
           sp < end + STACK_BELOW && sp + (1u << 20) >= own_stack.low;
}

/* The address of the instruction that the signal hit, and a way back to the function that has
 * called it, where there is no such code: a call of NULL, or of a pointer that has been
 * overwritten. */
static uintptr_t crash_program_counter(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#else
    (void)context;
    return 1;
#endif
}

static void crash_return_from_call(ucontext_t *context)
{
#if defined(__x86_64__)
    const uintptr_t *sp = (const uintptr_t *)crash_stack_pointer(context);
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)(*sp - 1);
    context->uc_mcontext.gregs[REG_RSP] += (greg_t)sizeof *sp;
#elif defined(__aarch64__)
    context->uc_mcontext.pc = context->uc_mcontext.regs[30] - 4;
#else
    (void)context;
#endif
}

/* The fault is the fetch of an instruction. */
static bool crash_is_wild_call(const siginfo_t *info, const ucontext_t *context)
{
    Dl_info code;
    uintptr_t pc = crash_program_counter(context);
    return info->si_code > 0 && info->si_signo == SIGSEGV && (uintptr_t)info->si_addr == pc &&
           !dladdr((void *)pc, &code);
}

static void crash_print_headline(int sig, const siginfo_t *info, const ucontext_t *context)
{
    struct line l = {.len = 0};
    const char *name = sigabbrev_np(sig);
    const bool sent = info->si_code <= 0; /* by kill(2) and the like: there is no address */
    const bool fault = !sent && (sig == SIGSEGV || sig == SIGBUS);
    crash_add(&l, crash_in_query   ? "\035the plugin"
                  : crash_in_child ? "a process forked by rank "
                                   : "rank ");
    if (!crash_in_query)
        crash_add_number(&l, crashing_rank, 10);
    crash_add(&l, " crashed: SIG");
    crash_add(&l, name ? name : "?");
    if (sent && info->si_pid > 0 && info->si_pid != getpid()) {
        crash_add(&l, ", sent by process ");
        crash_add_number(&l, (unsigned)info->si_pid, 10);
    } else if (fault && info->si_code == SI_KERNEL) {
        crash_add(&l,
                  ": general protection fault, for which there is no address: a pointer that is "
                  "not canonical (overwritten or uninitialized, not NULL), or a misaligned "
                  "vector access");
    } else if (fault || (!sent && (sig == SIGFPE || sig == SIGILL))) {
        crash_add(&l, " at address 0x");
        crash_add_number(&l, (uintptr_t)info->si_addr, 16);
    }
    if (crash_is_wild_call(info, context))
        crash_add(&l, info->si_addr ? ": call of an address without code"
                                    : ": call of a function pointer that is NULL");
    if (fault && crash_is_overflow((uintptr_t)info->si_addr, context)) {
        crash_add(&l, ": stack overflow; the stack of this thread has ");
        crash_add_number(&l, own_stack.len >> 10, 10);
        crash_add(&l, " KiB (processes.limits.stack)");
    }
    crash_out(&l, STDERR_FILENO);
}

static void crash_end(int sig)
{
    signal(sig, SIG_DFL);
    raise(sig);
}

static void crash_on_crash(int sig, siginfo_t *info, void *context)
{
    int none = 0, me = (int)syscall(SYS_gettid);
    if (!atomic_compare_exchange_strong(&crashing_thread, &none, me)) {
        if (none == me)
            crash_end(sig);
        for (;;)
            pause();
    }
    struct backtrace b = {.n = -1};
    crash_ends_rank();
    crash_print_headline(sig, info, context);
    /* The unwinder reads what the signal has saved. A core file has it unchanged. */
    const ucontext_t saved = *(ucontext_t *)context;
    if (crash_is_wild_call(info, context))
        crash_return_from_call(context);
    _Unwind_Backtrace(crash_add_frame, &b);
    ((ucontext_t *)context)->uc_mcontext = saved.uc_mcontext;
    if (b.n > 0 && !crash_resolve(&b)) {
        for (int i = 0; i < b.n; i++)
            crash_print_frame(&b.frames[i], i);
    }
    crash_end(sig);
}

/* ---- installation ---- */

static void crash_find_own_stack(void)
{
    pthread_attr_t attributes;
    void *low;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &low, &own_stack.len) == 0)
        own_stack.low = (uintptr_t)low;
    pthread_attr_getguardsize(&attributes, &own_stack.guard);
    pthread_attr_destroy(&attributes);
}

void crash_thread(uint32_t workload)
{
    own_workload = workload;
    stack_t stack = {.ss_sp = malloc(STACK_LEN), .ss_size = STACK_LEN};
    crash_find_own_stack();
    if (stack.ss_sp && sigaltstack(&stack, NULL) == 0)
        pthread_setspecific(stack_key, stack.ss_sp);
    else
        free(stack.ss_sp);
}

static void crash_drop_stack(void *stack)
{
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    free(stack);
}

static void crash_find_programs(void)
{
    const char *libraries = getenv("LD_LIBRARY_PATH");
    ssize_t n = readlink("/proc/self/exe", engine_program, sizeof engine_program - 1);
    engine_program[n > 0 ? n : 0] = '\0';
    Dl_info library;
    const char *file = dladdr(stack_program, &library) ? library.dli_fname : "";
    const char *slash = strrchr(file, '/');
    int made = snprintf(stack_program, sizeof stack_program, "%.*s../libexec/collrun/collrun-stack",
                        slash ? (int)(slash - file) + 1 : 0, file);
    if (made < 0 || (size_t)made >= sizeof stack_program || access(stack_program, X_OK) < 0)
        stack_program[0] = '\0';
    if (libraries)
        snprintf(library_path, sizeof library_path, "LD_LIBRARY_PATH=%s", libraries);
}

static bool crash_has_default(int sig)
{
    struct sigaction now;
    return sigaction(sig, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
           now.sa_handler == SIG_DFL;
}

void crash_install(uint32_t rank, bool in_program, struct record_head *record)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_sigaction = crash_on_crash,
                               .sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_NODEFER)};
    crashing_rank = rank;
    crash_record = record;
    crash_find_programs();
    pthread_key_create(&stack_key, crash_drop_stack);
    crash_thread(0);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!in_program || crash_has_default(signals[i]))
            sigaction(signals[i], &action, NULL);
}

void crash_install_query(void)
{
    crash_in_query = true;
    crash_install(0, false, NULL);
}

void crash_forget(void)
{
    crash_in_child = true;
    crash_record = NULL;
}

#else

void crash_install(uint32_t rank, bool in_program, struct record_head *record)
{
    (void)rank;
    (void)in_program;
    crash_record = record;
}

void crash_install_query(void)
{
}

void crash_forget(void)
{
    crash_record = NULL;
}

void crash_thread(uint32_t workload)
{
    own_workload = workload;
}

#endif
