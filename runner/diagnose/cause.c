/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts the end of a rank into a class and writes its error message.
 */
#include "diagnose/cause.h"

#include "base/exit_codes.h"
#include "base/names.h"
#include "base/parse.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

const char *cause_class_name(enum cause_class class)
{
    static const char *const names[] = {[CAUSE_INTERRUPTED] = "interrupted",
                                        [CAUSE_LAUNCH] = "plugin",
                                        [CAUSE_OOM] = "oom",
                                        [CAUSE_SIGNAL] = "signal",
                                        [CAUSE_EXIT] = "exit",
                                        [CAUSE_HOST_LOST] = "host_lost",
                                        [CAUSE_ERROR] = "error",
                                        [CAUSE_MISMATCH] = "mismatch",
                                        [CAUSE_DEADLOCK] = "deadlock",
                                        [CAUSE_MISSING] = "missing",
                                        [CAUSE_TIMEOUT] = "timeout",
                                        [CAUSE_PEER] = "peer",
                                        [CAUSE_STOPPED] = "stopped",
                                        [CAUSE_NONE] = "ok"};
    return names[class];
}

/* ---- the class ---- */

/* Signals of a crash. */
static bool cause_self_inflicted(int sig)
{
    return sig == SIGSEGV || sig == SIGABRT || sig == SIGBUS || sig == SIGFPE || sig == SIGILL ||
           sig == SIGSYS;
}

/* collrun had sent it SIGTERM before it ended. A handler of that may end it by another signal. */
static bool cause_is_terminated(const struct rank_state *r)
{
    return r->killed || (r->command && r->part == PART_OUTSIDE && r->disturbed);
}

/* What the status of a failed call says about the rank that got it: nothing is its fault, or the
 * calls of all members show whose fault it is; INVALID, of a call of MPI: its own fault is known.
 * CAUSE_NONE: the failure is its own. */
static enum cause_class cause_class_of_status(int status)
{
    return status == COLLRUN_ERR_PEER_FAILED || status == COLLRUN_ERR_ABORTED ? CAUSE_PEER
           : status == COLLRUN_ERR_TIMEOUT                                    ? CAUSE_TIMEOUT
           : status == COLLRUN_ERR_MISMATCH                                   ? CAUSE_MISMATCH
           : status == COLLRUN_ERR_INVALID                                    ? CAUSE_ERROR
                                                                              : CAUSE_NONE;
}

static enum cause_class cause_class_of_signal(const struct rank_state *r, bool consequence)
{
    int sig = WTERMSIG(r->status);
    if (r->killed && (sig == SIGKILL || sig == SIGTERM))
        return CAUSE_STOPPED;
    /* The agent sends SIGTERM to programs that do not receive ABORT. */
    if (r->command && r->stop_requested && sig == SIGTERM)
        return CAUSE_STOPPED;
    if (r->memory[0])
        return CAUSE_OOM;
    if (consequence && cause_self_inflicted(sig))
        return CAUSE_PEER;
    if (cause_self_inflicted(sig) && cause_class_of_status(r->why.status) != CAUSE_NONE)
        return cause_class_of_status(r->why.status); /* the program aborts after a failed call */
    return cause_is_terminated(r) ? CAUSE_STOPPED : CAUSE_SIGNAL;
}

static enum cause_class cause_class_of_failure(const struct rank_state *r)
{
    int code = r->failure.code;
    enum cause_class why = cause_class_of_status(code);
    if (why == CAUSE_PEER || why == CAUSE_TIMEOUT)
        return why;
    if (r->failed_phase == WIRE_PHASE_LOAD || r->failed_phase == WIRE_PHASE_GROUPS)
        return CAUSE_LAUNCH;
    if (code > 0)
        why = cause_class_of_status(r->why.status);
    if (why != CAUSE_NONE)
        return why;
    /* A code of the workload is positive; if the text is about the rank, it called collrun_fail. */
    return code > 0 && r->subject == WIRE_SUBJECT_WORKLOAD ? CAUSE_EXIT : CAUSE_ERROR;
}

bool cause_is_mpi_abort(const struct rank_state *r)
{
    return r->command && r->part == PART_OUTSIDE && r->failed && r->failure.code > 0 &&
           r->failed_phase == WIRE_PHASE_RUN && r->subject == WIRE_SUBJECT_RANK;
}

/* A command that has failed, such as in MPI_Abort, may wait until it is killed, as may a rank that
 * has left its part: the failure is its end. MPI_Abort may also crash, as that of MPICH 5 does. */
static bool cause_is_signal(const struct rank_state *r)
{
    return r->end == RANK_EXITED && WIFSIGNALED(r->status) && !cause_is_mpi_abort(r) &&
           !((r->command || r->detached) && r->failed &&
             (WTERMSIG(r->status) == SIGTERM || WTERMSIG(r->status) == SIGKILL));
}

/* A job that continues without a rank moves it to the last phase. */
static bool cause_is_early(const struct rank_state *r)
{
    enum rank_phase phase = r->first_failure_ns ? r->first_failure_phase : r->phase;
    bool good = r->part >= PART_FINALIZING || phase == PHASE_FINISHING;
    return r->end == RANK_EXITED && (WEXITSTATUS(r->status) || !good);
}

/* A command in the background ends by SIGTERM, or as it likes. */
static bool cause_is_dismissed(const struct rank_state *r)
{
    return r->dismissed && !r->failed &&
           !(WIFSIGNALED(r->status) && cause_self_inflicted(WTERMSIG(r->status)));
}

enum cause_class cause_alone(const struct rank_state *r)
{
    if (r->failed == FAILURE_OVERDUE)
        return CAUSE_TIMEOUT;
    if (cause_is_dismissed(r))
        return CAUSE_NONE;
    if (cause_is_signal(r))
        return cause_class_of_signal(r, r->disturbed);
    if (r->failed)
        return cause_class_of_failure(r);
    if (r->departure != DEPARTURE_EARLY && !cause_is_early(r))
        return CAUSE_NONE;
    enum cause_class why = r->killed ? CAUSE_NONE : cause_class_of_status(r->why.status);
    if (why == CAUSE_MISMATCH || why == CAUSE_TIMEOUT || why == CAUSE_ERROR)
        return why;
    return r->departure != DEPARTURE_EARLY && (r->disturbed || r->killed) ? CAUSE_STOPPED
                                                                          : CAUSE_EXIT;
}

enum cause_class cause_of(const struct rank_state *r)
{
    if (!r->stop_requested)
        return cause_alone(r);
    if (cause_is_signal(r))
        return cause_class_of_signal(r, true);
    return r->failed ? CAUSE_PEER : cause_is_early(r) ? CAUSE_STOPPED : CAUSE_NONE;
}

/* ---- comparing ---- */

/* The text of a failure without the name of its rank: messages of operations begin with the
 * operation, so equal failures have equal texts. */
bool cause_is_alike(const struct rank_state *a, const struct rank_state *b)
{
    if (cause_alone(a) != cause_alone(b) || a->failed != b->failed ||
        (cause_is_by_failed_call(a) && strcmp(a->why.text, b->why.text) != 0))
        return false;
    if (a->failed)
        return a->failure.code == b->failure.code && a->workload == b->workload &&
               strcmp(a->failure.text, b->failure.text) == 0;
    if (a->snapshot.ended_by && b->snapshot.ended_by &&
        a->snapshot.ended_by != b->snapshot.ended_by)
        return false;
    return a->end == RANK_EXITED && b->end == RANK_EXITED && a->status == b->status;
}

int cause_exit_code(const struct rank_state *r, enum cause_class class)
{
    if (r->failed == FAILURE_OVERDUE)
        return EXIT_TIMEOUT;
    if (r->detached && r->failed) /* its code may be that of the engine */
        return EXIT_FAILED;
    if (cause_is_signal(r))
        return 128 + WTERMSIG(r->status);
    /* A rank that has not exited yet has the code that its workload returned. */
    int reported = r->failed && r->failure.code > 0 ? r->failure.code : 0;
    int code = r->end == RANK_EXITED ? WEXITSTATUS(r->status) : reported;
    if (r->command && r->failed && r->failure.code > 0)
        return r->failure.code & 0xff ? r->failure.code & 0xff : EXIT_FAILED;
    if (class == CAUSE_LAUNCH)
        return code == EXIT_INTERNAL || code == EXIT_EXEC ? EXIT_INTERNAL : EXIT_LOAD;
    if (class >= CAUSE_DEADLOCK && r->failed_phase == WIRE_PHASE_GROUPS)
        return class == CAUSE_PEER ? EXIT_FAILED : EXIT_TIMEOUT;
    return code ? code : EXIT_FAILED;
}

/* ---- the message ---- */

/* How many of these ranks, which are ascending, run the workload. */
static uint32_t cause_count_running(const struct desc_workload *w, const struct desc_ranks *ranks)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->ranks.n; i++)
        n += bsearch(&w->ranks.items[i], ranks->items, ranks->n, sizeof *ranks->items,
                     rank_compare) != NULL;
    return n;
}

/* The workload that failed. Of ranks that did not report it: the one whose thread has ended them,
 * or their only workload, if all of them have the same one only. NULL: unknown, or the message
 * already names it. */
static const char *cause_workload(const struct desc *desc, const struct rank_state *r,
                                  const struct desc_ranks *ranks)
{
    const char *only = NULL;
    const uint32_t by = r->snapshot.ended_by;
    if (r->failed && r->subject == WIRE_SUBJECT_WORKLOAD)
        return NULL;
    if (r->failed)
        return r->workload < desc->nworkloads ? desc->workloads[r->workload].name : NULL;
    if (by && by <= desc->nworkloads)
        return desc->workloads[by - 1].name;
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        uint32_t n = cause_count_running(&desc->workloads[i], ranks);
        if (!n)
            continue;
        if (only || n < ranks->n)
            return NULL;
        only = desc->workloads[i].name;
    }
    return only;
}

void cause_ranks_text(const struct desc *desc, const struct rank_state *states,
                      const struct desc_ranks *ranks, char *out, size_t size)
{
    uint32_t first = ranks->items[0];
    char list[160];
    rank_list_format(list, sizeof list, ranks->items, ranks->n);
    char pid[32] = ""; /* of a rank that was not started */
    if (states[first].pid)
        snprintf(pid, sizeof pid, ", pid %d", (int)states[first].pid);
    if (ranks->n == 1)
        snprintf(out, size, "rank %u (%.100s%s)", first, desc->hosts[desc->ranks[first].host].name,
                 pid);
    else if (ranks->n == desc->nranks)
        snprintf(out, size, "all %u ranks", ranks->n);
    else
        snprintf(out, size, "ranks %s", list);
}

/* The ranks, then their workload. */
static void cause_name(const struct desc *desc, const struct rank_state *states,
                       const struct desc_ranks *ranks, char *out, size_t size)
{
    uint32_t first = ranks->items[0];
    const char *workload = cause_workload(desc, &states[first], ranks);
    char who[200];
    cause_ranks_text(desc, states, ranks, who, sizeof who);
    snprintf(out, size, "%s%s%s%s", who, workload ? ", workload \"" : "", workload ? workload : "",
             !workload              ? ""
             : states[first].failed ? "\""
                                    : "\",");
}

bool cause_is_in_fini(const struct desc *desc, const struct rank_state *r, uint32_t rank)
{
    const struct rank_snapshot *s = &r->snapshot;
    if (s->ended_by)
        return s->ended_by <= 64 && s->in_fini >> (s->ended_by - 1) & 1;
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        const struct desc_ranks one = {.items = &rank, .n = 1};
        if (cause_count_running(&desc->workloads[i], &one) && (i >= 64 || !(s->in_fini >> i & 1)))
            return false;
    }
    return s->in_fini != 0;
}

/* " in allreduce train#12 (1024 x float32, sum)", or " while it was loading its plugins". Of a
 * command outside of operations: "". */
static const char *cause_when(const struct desc *desc, const struct rank_state *r, uint32_t rank,
                              bool one, char *out, size_t size)
{
    char inside[192];
    const char *phase = rank_phase_text(r, r->first_failure_ns ? r->first_failure_phase : r->phase);
    const char *its = one ? NULL : strstr(phase, "its ");
    if (snapshot_inside(&r->snapshot, inside, sizeof inside))
        snprintf(out, size, " in %s", inside);
    else if (r->command)
        *out = '\0';
    else if (cause_is_in_fini(desc, r, rank))
        snprintf(out, size, " in %s fini", one ? "its" : "their");
    else if (its)
        snprintf(out, size, " while they were %.*stheir %s", (int)(its - phase), phase, its + 4);
    else
        snprintf(out, size, " while %s %s", one ? "it was" : "they were", phase);
    return out;
}

/* The rank has left with code 0, and others needed it. */
static const char *cause_early_hint(const struct rank_state *r)
{
    if (!r->command)
        return "a workload ends when its run() returns; it must not call exit()";
    if (r->part != PART_OUTSIDE)
        return "other ranks waited for it; collrun_finalize ends its part first";
    if (r->record_bytes && record_tap_has_functions(atomic_load(&r->record.head.tap)))
        return "other ranks waited for it in an operation that it has not called";
    return "other ranks waited for it in a group that it is a member of, but it has not called "
           "collrun_init";
}

static void cause_set_end(const struct desc *desc, const struct rank_state *r, uint32_t rank,
                          const char *name, bool one, struct diag *d)
{
    char stage[256];
    const char *was = one ? "was" : "were";
    cause_when(desc, r, rank, one, stage, sizeof stage);
    if (r->end == RANK_EXITED && r->memory[0]) {
        char most[32];
        diag_set(d, COLLRUN_ERR_PEER_FAILED,
                 "%s %s killed by the kernel for lack of memory (%s; it held up to %s)%s", name,
                 was, r->memory, format_size(r->max_rss, most), stage);
    } else if (r->end == RANK_EXITED && WIFSIGNALED(r->status)) {
        int sig = WTERMSIG(r->status);
        const char *sender = sig != SIGKILL ? ""
                             : stage[0]     ? ", sender unknown,"
                                            : ", sender unknown";
        diag_set(d, COLLRUN_ERR_PEER_FAILED, "%s %s killed by signal %d (%s)%s%s", name, was, sig,
                 signal_name(sig), sender, stage);
    } else if (WEXITSTATUS(r->status)) {
        diag_set(d, COLLRUN_ERR_PEER_FAILED, "%s exited with code %d%s", name,
                 WEXITSTATUS(r->status), stage);
    } else {
        diag_set(d, COLLRUN_ERR_PEER_FAILED, "%s left the job early: %s exited with code 0%s", name,
                 one ? "it" : "they", stage);
        diag_hint(d, "%s", cause_early_hint(r));
    }
}

void cause_how_text(const struct rank_state *r, char *out, size_t size)
{
    char inside[192];
    const char *in =
        !r->failed && snapshot_inside(&r->snapshot, inside, sizeof inside) ? " in " : "";
    if (r->end == RANK_EXITED && r->memory[0])
        snprintf(out, size, "killed by the kernel for lack of memory");
    else if (cause_is_signal(r))
        snprintf(out, size, "killed by signal %d (%s)%s%s", WTERMSIG(r->status),
                 signal_name(WTERMSIG(r->status)), in, *in ? inside : "");
    else if (r->failed)
        snprintf(out, size, "%s", r->failure.text);
    else
        snprintf(out, size, "exited with code %d%s%s", WEXITSTATUS(r->status), in,
                 *in ? inside : "");
}

bool cause_is_by_failed_call(const struct rank_state *r)
{
    enum cause_class class = cause_alone(r);
    return (class == CAUSE_MISMATCH || class == CAUSE_TIMEOUT || class == CAUSE_ERROR) &&
           r->why.status && class == cause_class_of_status(r->why.status);
}

/* The text is that of the failed call. How the rank ended is a hint, unless its own text has that
 * of the call. */
static void cause_set_failed_call(const struct desc *desc, const struct rank_state *r,
                                  uint32_t rank, const char *who, struct diag *d)
{
    const char *name = r->workload < desc->nworkloads ? desc->workloads[r->workload].name : NULL;
    const bool own = r->failed && !cause_is_signal(r);
    const bool quotes = own && strstr(r->failure.text, r->why.text);
    diag_init(d);
    if (own)
        *d = r->failure; /* its place */
    d->code = r->why.status;
    if (!quotes)
        snprintf(d->text, sizeof d->text, "%s", r->why.text);
    if (!own && WIFSIGNALED(r->status))
        diag_hint(d, "after that, rank %u was killed by signal %d (%s)", rank, WTERMSIG(r->status),
                  signal_name(WTERMSIG(r->status)));
    else if (!own)
        diag_hint(d, "after that, rank %u exited with code %d", rank, WEXITSTATUS(r->status));
    else if (!quotes)
        diag_hint(d, "after that, rank %u ended: %s", rank, r->failure.text);
    if (own && name)
        diag_wrap(d, "%s, workload \"%s\"", who, name);
    else
        diag_wrap(d, "%s", who);
}

void cause_set_text(const struct desc *desc, const struct rank_state *states,
                    const struct desc_ranks *ranks, struct diag *d)
{
    const struct rank_state *r = &states[ranks->items[0]];
    char name[400], who[200];
    cause_name(desc, states, ranks, name, sizeof name);
    cause_ranks_text(desc, states, ranks, who, sizeof who);
    if (cause_is_by_failed_call(r)) {
        cause_set_failed_call(desc, r, ranks->items[0], who, d);
    } else if (r->failed && !(r->end == RANK_EXITED && r->memory[0]) && !cause_is_signal(r)) {
        *d = r->failure;
        diag_wrap(d, "%s", name);
    } else {
        cause_set_end(desc, r, ranks->items[0], name, ranks->n == 1, d);
    }
    /* A program without its own message in the report, such as sys.exit("no data"). */
    const bool silent = !r->failed || (r->failure.code > 0 && r->subject == WIRE_SUBJECT_WORKLOAD);
    /* Beside the text of the failure, "application called MPI_Abort(...)" says nothing new. */
    const bool aborted = cause_is_mpi_abort(r) && !strstr(r->last_words, "MPI_Abort(");
    if (silent && !cause_is_by_failed_call(r) && WIFEXITED(r->status) && r->exception &&
        !r->exception->thread[0]) {
        char text[640]; /* type, 200 bytes of text, place */
        const size_t len = strlen(d->text);
        rank_exception_text(r->exception, text, sizeof text);
        snprintf(d->text + len, sizeof d->text - len, ": %s", text);
    } else if (r->last_words[0] && !cause_is_by_failed_call(r) &&
               ((silent && WIFEXITED(r->status)) || aborted)) {
        const size_t len = strlen(d->text);
        snprintf(d->text + len, sizeof d->text - len, "; it wrote last: %s", r->last_words);
    }
    d->rank = -1; /* the text names it */
}
