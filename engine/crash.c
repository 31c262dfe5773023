/* SPDX-License-Identifier: Apache-2.0
 *
 * The handler calls nothing that locks or allocates: the unwinder is linked in, names come from
 * dladdr, text goes out by write. It runs on a stack of its own, since a full stack is a common
 * reason to crash. Under the sanitizers, which do this better, nothing is installed.
 */
#include "crash.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

enum { STACK_LEN = 64 << 10, MOST_FRAMES = 16 };

static uint32_t crashing_rank;
static pthread_key_t stack_key;

/* One line of text, built without stdio's locks. */
struct line {
    char text[512];
    size_t len;
};

static void add(struct line *l, const char *s)
{
    while (*s && l->len < sizeof l->text - 1)
        l->text[l->len++] = *s++;
}

static void add_number(struct line *l, uintptr_t v, unsigned base)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do {
        digits[--at] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v);
    add(l, digits + at);
}

static void out(struct line *l)
{
    add(l, "\n");
    ssize_t n = write(STDERR_FILENO, l->text, l->len);
    (void)n;
    l->len = 0;
}

static _Unwind_Reason_Code print_frame(struct _Unwind_Context *context, void *arg)
{
    int *number = arg;
    struct line l = {.len = 0};
    Dl_info info;
    int before = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    if (!pc || *number >= MOST_FRAMES)
        return _URC_END_OF_STACK;
    if (*number < 0 && !before)
        return _URC_NO_REASON; /* the handler's own frames, above the one that the signal hit */
    if (*number < 0)
        *number = 0;
    else
        pc--; /* the call, not what comes after it */
    add(&l, "  #");
    add_number(&l, (uintptr_t)(*number)++, 10);
    if (dladdr((void *)pc, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        add(&l, " ");
        add(&l, info.dli_sname ? info.dli_sname : "?");
        add(&l, " in ");
        add(&l, slash ? slash + 1 : info.dli_fname);
        add(&l, "+0x");
        add_number(&l, pc - (uintptr_t)info.dli_fbase, 16);
    } else {
        add(&l, " 0x");
        add_number(&l, pc, 16);
    }
    out(&l);
    return _URC_NO_REASON;
}

static void on_crash(int sig, siginfo_t *info, void *context)
{
    struct line l = {.len = 0};
    const char *name = sigabbrev_np(sig);
    int number = -1;
    (void)context;
    add(&l, "rank ");
    add_number(&l, crashing_rank, 10);
    add(&l, " crashed: SIG");
    add(&l, name ? name : "?");
    if (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL) {
        add(&l, " at address 0x");
        add_number(&l, (uintptr_t)info->si_addr, 16);
    }
    out(&l);
    _Unwind_Backtrace(print_frame, &number);
    /* SA_RESETHAND has put the default back: the signal ends the process as it would have. */
    raise(sig);
}

void crash_thread(void)
{
    stack_t stack = {.ss_sp = malloc(STACK_LEN), .ss_size = STACK_LEN};
    if (stack.ss_sp && sigaltstack(&stack, NULL) == 0)
        pthread_setspecific(stack_key, stack.ss_sp);
    else
        free(stack.ss_sp);
}

static void drop_stack(void *stack)
{
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    free(stack);
}

void crash_install(uint32_t rank)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_sigaction = on_crash,
                               .sa_flags =
                                   (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER)};
    crashing_rank = rank;
    pthread_key_create(&stack_key, drop_stack);
    crash_thread();
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

#else

void crash_install(uint32_t rank)
{
    (void)rank;
}

void crash_thread(void)
{
}

#endif
