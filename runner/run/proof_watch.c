/* SPDX-License-Identifier: Apache-2.0 */
#include "run/proof_watch.h"

#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/wire_fields.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>

#define PROOF_WATCH_PAUSE_NS UINT64_C(10000000)
#define PROOF_WATCH_SHARE 10
#define PROOF_WATCH_LOOK_NS UINT64_C(100000000)
#define PROOF_WATCH_ANSWER_NS UINT64_C(1000000000)
/* Wait reports prove the same soon after. */
#define PROOF_WATCH_REPORTS_NS UINT64_C(1000000000)

static void proof_watch_move(struct proof_watch *w, enum proof_watch_state to)
{
    static const unsigned next[] = {
        [PROOF_WATCH_NONE] = 1u << PROOF_WATCH_FOUND,
        [PROOF_WATCH_FOUND] = 1u << PROOF_WATCH_ASKED,
        [PROOF_WATCH_ASKED] =
            1u << PROOF_WATCH_NONE | 1u << PROOF_WATCH_CONFIRMED | 1u << PROOF_WATCH_OVER,
        [PROOF_WATCH_CONFIRMED] = 1u << PROOF_WATCH_ASKED_AGAIN,
        [PROOF_WATCH_ASKED_AGAIN] = 1u << PROOF_WATCH_NONE | 1u << PROOF_WATCH_OVER,
        [PROOF_WATCH_OVER] = 0,
    };
    assert(next[w->state] >> to & 1u);
    (void)next;
    w->state = to;
}

static bool proof_watch_has_asked(const struct proof_watch *w)
{
    return w->state == PROOF_WATCH_ASKED || w->state == PROOF_WATCH_ASKED_AGAIN;
}

static void proof_watch_set(struct proof_watch *w, uint64_t after_ns)
{
    loop_timer_set(w->run->loop, &w->timer, after_ns);
}

/* The SIGINT of timeouts.warn raises KeyboardInterrupt in Python, whose default handler may count
 * as harmless. */
static bool proof_watch_is_warned(const struct proof_watch *w)
{
    const struct job_warn *warn = &w->run->job->timeouts.warn;
    return warn->before.v && warn->signal.v == SIGINT;
}

static bool proof_watch_is_over(const struct proof_watch *w)
{
    return w->state == PROOF_WATCH_OVER || w->stop->step != STOP_NONE || proof_watch_is_warned(w);
}

/* Cuts that have arrived meanwhile are judged now. */
static void proof_watch_drop(struct proof_watch *w)
{
    proof_watch_move(w, PROOF_WATCH_NONE);
    arena_fini(&w->arena);
    if (w->fresh && !proof_watch_is_over(w))
        proof_watch_set(w, w->pause_ns);
}

static void proof_watch_note(struct proof_watch *w, const char *text)
{
    run_state_log(w->run, text);
    rundir_internal(w->run->rundir, text);
}

/* ---- the second look ---- */

/* A host that has ended has nothing to say; if it ends before it has answered, all are asked once
 * more. */
static bool proof_watch_all_have_answered(const struct proof_watch *w)
{
    bool all = true;
    for (uint32_t i = 0; i < w->run->desc->nhosts; i++) {
        const struct host *host = &w->run->hosts[i];
        all = all && (!conn_is_open(&host->conn) || !host->has_job || host->look == w->look);
    }
    return all;
}

static void proof_watch_look(struct proof_watch *w)
{
    struct buf b;
    if (!proof_watch_has_asked(w)) { /* else the number stays: a host may answer late */
        w->look++;
        proof_watch_move(w, w->state == PROOF_WATCH_FOUND ? PROOF_WATCH_ASKED
                                                          : PROOF_WATCH_ASKED_AGAIN);
    }
    buf_init(&b);
    wire_put_look(&b, &(struct wire_look){w->look});
    hosts_send_all(w->run, WIRE_LOOK, &b);
    buf_fini(&b);
    proof_watch_set(w, PROOF_WATCH_ANSWER_NS);
}

static void proof_watch_withdraw(struct proof_watch *w)
{
    char text[sizeof w->proof.diag.text + 40];
    snprintf(text, sizeof text, "proof withdrawn: %s", w->proof.diag.text);
    proof_watch_note(w, text);
    proof_watch_move(w, PROOF_WATCH_OVER);
    arena_fini(&w->arena);
}

/* The cuts that have arrived meanwhile show more: which ranks wait behind these, and what most of
 * them have called. As no thread of the proof has returned, they prove it, too. */
static void proof_watch_complete(struct proof_watch *w)
{
    struct arena arena;
    struct cuts_proof now;
    arena_init(&arena);
    if (!cuts_prove(&w->cuts, &arena, &now) || now.ncalls < w->proof.ncalls) {
        arena_fini(&arena);
        return;
    }
    arena_fini(&w->arena);
    w->arena = arena;
    w->proof = now;
}

/* The same proof, as no cuts were taken since, with the places of its calls. */
static void proof_watch_on_places(void *ctx)
{
    struct proof_watch *w = ctx;
    w->cuts.places = w->run->ranks;
    proof_watch_complete(w);
    w->stop->job_failure.diag = w->proof.diag;
    stop_begin(w->stop, COLLRUN_ERR_ABORTED, WIRE_HOST, w->proof.diag.text);
}

/* The proof stays for the verdict, also if the job stops for another reason before the places have
 * arrived. */
static void proof_watch_end_job(struct proof_watch *w)
{
    proof_watch_move(w, PROOF_WATCH_OVER);
    if (w->stop->job_failure.class != CAUSE_NONE)
        return;
    proof_watch_complete(w);
    w->stop->job_failure.proof = &w->proof;
    stop_note_job_failure(w->stop, CAUSE_DEADLOCK, EXIT_TIMEOUT, &w->proof.diag);
    call_places_ask(w->call_places, w->proof.sites, w->proof.nsites, proof_watch_on_places, w);
}

/* The ranks send wait reports, too, and those have not proven it in a second. */
static void proof_watch_await_reports(struct proof_watch *w)
{
    char text[sizeof w->proof.diag.text + 80];
    if (w->compared)
        return;
    w->compared = true;
    snprintf(text, sizeof text, "by cuts, and not by wait reports: %s", w->proof.diag.text);
    proof_watch_note(w, text);
}

static void proof_watch_on_answer(struct proof_watch *w)
{
    if (!proof_watch_all_have_answered(w))
        return;
    const enum cuts_check check = cuts_check(&w->cuts, &w->proof);
    debug_log(DEBUG_PROOF, "the second look: %s",
              check == CUTS_HOLDS   ? "no thread has returned"
              : check == CUTS_MOVED ? "a thread has returned"
                                    : "a rank has ended, or is not known");
    loop_timer_clear(w->run->loop, &w->timer);
    if (check == CUTS_MOVED)
        proof_watch_withdraw(w);
    else if (check == CUTS_GONE)
        proof_watch_drop(w);
    else if (!w->proof.engine)
        proof_watch_end_job(w);
    else if (w->state == PROOF_WATCH_ASKED_AGAIN) {
        proof_watch_await_reports(w);
        proof_watch_drop(w);
    } else {
        proof_watch_move(w, PROOF_WATCH_CONFIRMED);
        proof_watch_set(w, PROOF_WATCH_REPORTS_NS);
    }
}

/* ---- proofs ---- */

static void proof_watch_judge(struct proof_watch *w)
{
    const uint64_t begin = now_ns();
    arena_init(&w->arena);
    w->fresh = false;
    const bool proven = cuts_prove(&w->cuts, &w->arena, &w->proof);
    debug_log(DEBUG_PROOF, "deadlock by cuts? %s%s", proven ? "looks again: " : "not proven",
              proven ? w->proof.diag.text : "");
    if (proven) {
        proof_watch_move(w, PROOF_WATCH_FOUND);
        proof_watch_set(w, PROOF_WATCH_LOOK_NS);
    } else {
        arena_fini(&w->arena);
    }
    const uint64_t pause = (now_ns() - begin) * PROOF_WATCH_SHARE;
    w->pause_ns = pause > PROOF_WATCH_PAUSE_NS ? pause : PROOF_WATCH_PAUSE_NS;
}

static void proof_watch_on_timer(struct loop_timer *t)
{
    struct proof_watch *w = t->owner;
    if (proof_watch_is_over(w))
        return;
    if (w->state == PROOF_WATCH_NONE)
        proof_watch_judge(w);
    else
        proof_watch_look(w);
}

bool proof_watch_take(struct proof_watch *w, uint32_t host, const struct wire_frame *f)
{
    if (proof_watch_is_over(w)) /* what ABORT changes is no evidence */
        return true;
    const struct cuts_news news = cuts_take(&w->cuts, w->run->desc, host, f);
    if (news.malformed)
        return false;
    w->fresh = w->fresh || news.blocked;
    if (news.look)
        w->run->hosts[host].look = news.look;
    if (proof_watch_has_asked(w) && news.look == w->look)
        proof_watch_on_answer(w);
    else if (w->fresh && w->state == PROOF_WATCH_NONE && !w->timer.at_ns)
        proof_watch_set(w, w->pause_ns);
    return true;
}

void proof_watch_compare(struct proof_watch *w, const struct graph *by_reports)
{
    struct arena arena;
    struct cuts_proof proof;
    char text[400];
    if (w->compared)
        return;
    arena_init(&arena);
    const bool found = cuts_prove(&w->cuts, &arena, &proof);
    w->compared = true;
    if (cuts_differ(&w->cuts, by_reports, found ? &proof : NULL, text, sizeof text))
        proof_watch_note(w, text);
    arena_fini(&arena);
}

void proof_watch_start(struct proof_watch *w)
{
    w->timer = (struct loop_timer){.fired = proof_watch_on_timer, .owner = w};
    w->pause_ns = PROOF_WATCH_PAUSE_NS;
    cuts_init(&w->cuts, w->run->desc->nranks);
}

void proof_watch_fini(struct proof_watch *w)
{
    arena_fini(&w->arena);
    cuts_fini(&w->cuts);
}
