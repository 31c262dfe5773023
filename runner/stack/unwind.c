/* SPDX-License-Identifier: Apache-2.0 */
#include "stack/unwind.h"

#include "stack/asleep.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

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
