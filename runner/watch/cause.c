/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes, the choice, and the sentences.
 */
#include "watch/cause.h"

#include "base/parse.h"
#include "watch/deadlock.h"
#include "watch/rendezvous.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

const char *rank_stage_text(enum rank_stage stage)
{
    static const char *const texts[] = {
        [STAGE_WAITING] = "not started",
        [STAGE_SPAWNED] = "loading its plugins",
        [STAGE_ATTACHED] = "forming its groups or in a workload's init",
        [STAGE_READY] = "ready",
        [STAGE_RUNNING] = "running",
        [STAGE_DONE] = "done",
        [STAGE_IDLE] = "idle",
        [STAGE_FINISHING] = "closing its groups",
    };
    return texts[stage];
}

/* Signals that a process brings upon itself: a crash while cleaning up is still a consequence. */
static bool self_inflicted(int sig)
{
    return sig == SIGSEGV || sig == SIGABRT || sig == SIGBUS || sig == SIGFPE || sig == SIGILL ||
           sig == SIGSYS;
}

static enum cause_class class_of_signal(const struct rank_state *r, int sig)
{
    if (r->killed && (sig == SIGKILL || sig == SIGTERM))
        return CAUSE_STOPPED;
    if (r->memory[0])
        return CAUSE_OOM;
    return r->told && self_inflicted(sig) ? CAUSE_PEER : CAUSE_SIGNAL;
}

static enum cause_class class_of_failure(const struct rank_state *r)
{
    int code = r->failure.code;
    if (r->told || code == COLLRUN_ERR_PEER_FAILED || code == COLLRUN_ERR_ABORTED)
        return CAUSE_PEER;
    if (code == COLLRUN_ERR_TIMEOUT)
        return CAUSE_TIMEOUT;
    return r->phase == WIRE_PHASE_LOAD || r->phase == WIRE_PHASE_GROUPS ? CAUSE_LAUNCH : CAUSE_EXIT;
}

enum cause_class cause_of(const struct rank_state *r)
{
    if (r->exited && WIFSIGNALED(r->status))
        return class_of_signal(r, WTERMSIG(r->status));
    if (r->failed)
        return class_of_failure(r);
    if (r->exited && (WEXITSTATUS(r->status) || r->stage != STAGE_FINISHING))
        return r->told ? CAUSE_STOPPED : CAUSE_EXIT;
    return CAUSE_NONE;
}

static int exit_code_of(const struct rank_state *r, enum cause_class class)
{
    if (r->exited && WIFSIGNALED(r->status))
        return 128 + WTERMSIG(r->status);
    int code = r->exited ? WEXITSTATUS(r->status) : 0;
    if (class == CAUSE_LAUNCH)
        return code == 125 || code == 127 ? 125 : 126;
    if (class == CAUSE_TIMEOUT && r->phase == WIRE_PHASE_GROUPS)
        return 124;
    return code ? code : 1;
}

static bool takes_part(const struct desc_workload *w, uint32_t rank)
{
    for (uint32_t i = 0; i < w->ranks.n; i++) {
        if (w->ranks.items[i] == rank)
            return true;
    }
    return false;
}

/* The workload that failed; for a rank that could not say so, the one it has, if that is one. NULL:
 * not known, or the sentence names it. */
static const char *which_workload(const struct desc *desc, const struct rank_state *r,
                                  uint32_t rank)
{
    const char *only = NULL;
    if (r->failed && strncmp(r->failure.text, "workload", 8) == 0)
        return NULL;
    if (r->failed)
        return r->workload < desc->nworkloads ? desc->workloads[r->workload].name : NULL;
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        if (!takes_part(&desc->workloads[i], rank))
            continue;
        if (only)
            return NULL;
        only = desc->workloads[i].name;
    }
    return only;
}

static void who(char *out, size_t size, const struct desc *desc, const struct rank_state *r,
                uint32_t rank)
{
    const char *host = desc->hosts[desc->ranks[rank].host].name;
    const char *workload = which_workload(desc, r, rank);
    snprintf(out, size, "rank %u (%s, pid %d)%s%s%s", rank, host, (int)r->pid,
             workload ? ", workload \"" : "", workload ? workload : "",
             !workload   ? ""
             : r->failed ? "\""
                         : "\",");
}

/* "in allreduce train#12 (1024 x float32, sum)", or "while it was running" */
static const char *when(const struct rank_state *r, char *out, size_t size)
{
    char inside[192];
    if (seen_inside(&r->seen, inside, sizeof inside))
        snprintf(out, size, "in %s", inside);
    else
        snprintf(out, size, "while it was %s",
                 rank_stage_text(r->sign_ns ? r->sign_stage : r->stage));
    return out;
}

/* Time ran out, and whoever says so may only have waited for others. "; rank 3 has not called it":
 * the members of the group that have not come to this operation, if any has. */
static void add_absent(const struct desc *desc, const struct rank_state *ranks, const char *group,
                       uint64_t number, const char *it, struct diag *d)
{
    char text[200];
    uint32_t n = 0, called = 0, *list = calloc(desc->nranks + 1, sizeof *list);
    for (uint32_t i = 0; list && i < desc->nranks; i++) {
        if (seen_called(&ranks[i].seen, group, number))
            called++;
        else if (seen_member(&ranks[i].seen, group))
            list[n++] = i;
    }
    ranks_format(text, sizeof text, list, n);
    free(list);
    size_t len = strlen(d->text);
    if (n && called)
        snprintf(d->text + len, sizeof d->text - len, "; rank%s %s %s not called %s",
                 n == 1 ? "" : "s", text, n == 1 ? "has" : "have", it);
}

/* The same for the collective that anybody has been waiting in for longest. */
static void add_waited_for(const struct desc *desc, const struct rank_state *ranks, struct diag *d)
{
    const struct seen_group *oldest = NULL;
    char it[96];
    for (uint32_t i = 0; i < desc->nranks; i++) {
        for (uint32_t k = 0; k < ranks[i].seen.n; k++) {
            const struct seen_group *g = &ranks[i].seen.groups[k];
            if (g->kind < COLLRUN_SEND && g->started > g->done &&
                (!oldest || g->age_ns > oldest->age_ns))
                oldest = g;
        }
    }
    if (!oldest)
        return;
    snprintf(it, sizeof it, "%s#%llu", oldest->name, (unsigned long long)oldest->started);
    add_absent(desc, ranks, oldest->name, oldest->started, it, d);
}

/* Why time ran out, if the ranks waited for each other. */
static bool add_deadlock(const struct desc *desc, const struct rank_state *ranks, struct diag *d)
{
    struct diag why;
    diag_init(&why);
    if (!deadlock_find(desc, ranks, true, &why))
        return false;
    size_t len = strlen(d->text);
    snprintf(d->text + len, sizeof d->text - len, "; %s", why.text);
    if (!d->hint[0] && why.hint[0])
        diag_hint(d, "%s", why.hint);
    return true;
}

static void add_late(const struct desc *desc, const struct rank_state *ranks,
                     const struct rank_state *r, struct diag *d)
{
    if (add_deadlock(desc, ranks, d))
        return;
    if (!r || !r->operation)
        add_waited_for(desc, ranks, d);
    else if (seen_called(&r->seen, r->group, r->operation))
        add_absent(desc, ranks, r->group, r->operation, "it", d);
}

static void say(const struct desc *desc, const struct rank_state *ranks, uint32_t rank,
                struct diag *d)
{
    const struct rank_state *r = &ranks[rank];
    char name[256], stage[256];
    who(name, sizeof name, desc, r, rank);
    if (r->exited && r->memory[0]) {
        char most[32];
        diag_set(d, COLLRUN_ERR_PEER_FAILED,
                 "%s was killed by the kernel for lack of memory (%s; it held up to %s) %s", name,
                 r->memory, format_size(r->max_rss, most), when(r, stage, sizeof stage));
    } else if (r->exited && WIFSIGNALED(r->status)) {
        int sig = WTERMSIG(r->status);
        const char *abbrev = sigabbrev_np(sig);
        diag_set(d, COLLRUN_ERR_PEER_FAILED, "%s was killed by signal %d (SIG%s)%s %s", name, sig,
                 abbrev ? abbrev : "?", sig == SIGKILL ? ", sender unknown," : "",
                 when(r, stage, sizeof stage));
    } else if (r->failed) {
        *d = r->failure;
        diag_wrap(d, "%s", name);
        if (d->code == COLLRUN_ERR_TIMEOUT)
            add_late(desc, ranks, r, d);
    } else if (WEXITSTATUS(r->status)) {
        diag_set(d, COLLRUN_ERR_PEER_FAILED, "%s exited with code %d %s", name,
                 WEXITSTATUS(r->status), when(r, stage, sizeof stage));
    } else {
        diag_set(d, COLLRUN_ERR_PEER_FAILED, "%s left the job early: it exited with code 0 %s",
                 name, when(r, stage, sizeof stage));
        diag_hint(d, "a workload ends by returning from run, not by exit()");
    }
    d->rank = -1; /* the sentence names it */
}

void cause_find(const struct desc *desc, const struct rank_state *ranks, const struct verdict *job,
                uint64_t job_ns, struct verdict *out)
{
    uint64_t best_ns = job_ns;
    *out = *job;
    for (uint32_t i = 0; i < desc->nranks; i++) {
        enum cause_class class = cause_of(&ranks[i]);
        if (class == CAUSE_NONE || class > out->class ||
            (class == out->class && ranks[i].sign_ns >= best_ns))
            continue;
        out->class = class;
        out->rank = i;
        best_ns = ranks[i].sign_ns;
    }
    if (out->rank == WIRE_HOST && out->class == CAUSE_TIMEOUT)
        add_late(desc, ranks, NULL, &out->diag);
    if (out->rank == WIRE_HOST || out->class == CAUSE_NONE)
        return;
    out->exit_code = exit_code_of(&ranks[out->rank], out->class);
    say(desc, ranks, out->rank, &out->diag);
}

/* The kinds of cause_consequences. */
enum end { END_OWN, END_PEER, END_STOPPED, END_KILLED, END_UNTOLD };

static enum end end_of(const struct rank_state *r)
{
    enum cause_class class = cause_of(r);
    if (class == CAUSE_STOPPED)
        return r->exited && WIFSIGNALED(r->status) ? END_KILLED : END_STOPPED;
    return class == CAUSE_PEER ? END_PEER : class <= CAUSE_EXIT ? END_OWN : END_UNTOLD;
}

void cause_consequences(const struct desc *desc, const struct rank_state *ranks,
                        const struct verdict *v, char *out, size_t size)
{
    static const char *const words[END_UNTOLD] = {[END_OWN] = "also failed",
                                                  [END_PEER] = "failed because of it",
                                                  [END_STOPPED] = "stopped when told to",
                                                  [END_KILLED] = "had to be killed by collrun"};
    size_t len = 0;
    uint32_t *list = calloc(desc->nranks, sizeof *list);
    out[0] = '\0';
    for (int end = 0; list && end < END_UNTOLD; end++) {
        uint32_t n = 0;
        char text[256];
        for (uint32_t i = 0; i < desc->nranks; i++) {
            if (i != v->rank && end_of(&ranks[i]) == (enum end)end)
                list[n++] = i;
        }
        if (!n)
            continue;
        ranks_format(text, sizeof text, list, n);
        int wrote = snprintf(out + len, size - len, "%srank%s %s %s", len ? "; " : "",
                             n == 1 ? "" : "s", text, words[end]);
        len += wrote > 0 && (size_t)wrote < size - len ? (size_t)wrote : 0;
    }
    free(list);
}
