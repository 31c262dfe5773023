/* SPDX-License-Identifier: Apache-2.0
 *
 * One record per thread, allocated at its first failure: thread-local storage of the library itself
 * has to stay small, because the loader has little room for it in a program that loads libcollrun
 * with dlopen, as Python does. A text that is too long is cut and ends in "...".
 */
#include "core/error.h"

#include "base/call_text.h"
#include "base/diag.h"
#include "base/names.h"
#include "base/quote.h"
#include "base/record_queue.h"
#include "base/record_view.h"

#include <collrun/collrun.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct error_record *error_mine;
static pthread_key_t error_key; /* frees the record when the thread ends */
static pthread_once_t error_once = PTHREAD_ONCE_INIT;
/* The rank has one record, whichever thread fails. It is set before the rank has groups. */
static struct record_head *_Atomic error_recorder;

static void error_free(void *record)
{
    error_mine = NULL;
    free(record);
}

static void error_make_key(void)
{
    (void)pthread_key_create(&error_key, error_free);
}

/* Without memory, threads share a record. */
static struct error_record *error_new(void)
{
    static struct error_record shared;
    pthread_once(&error_once, error_make_key);
    struct error_record *record = calloc(1, sizeof *record);
    if (!record)
        return &shared;
    (void)pthread_setspecific(error_key, record);
    error_mine = record;
    return record;
}

const char *collrun_strstatus(int status)
{
    return status_text(status);
}

static void error_vput(char *to, size_t size, const char *format, va_list args)
{
    int n = vsnprintf(to, size, format, args);
    if (n >= 0 && (size_t)n >= size)
        utf8_mark_cut(to, size);
}

static void error_put(char *to, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void error_put(char *to, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vput(to, size, format, args);
    va_end(args);
}

struct error_record *error_get(void)
{
    return error_mine ? error_mine : error_new();
}

int error_vcause(int status, const char *format, va_list args)
{
    struct error_record *mine = error_get();
    error_vput(mine->cause, sizeof mine->cause, format, args);
    return status;
}

int error_cause(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vcause(status, format, args);
    va_end(args);
    return status;
}

void error_clear_cause(void)
{
    if (error_mine)
        error_mine->cause[0] = '\0';
}

/* ---- the record of the rank ---- */

void error_attach(struct record_head *record)
{
    atomic_store(&error_recorder, record);
}

/* After one of these, the group cannot be used any more. */
static bool error_ends_group(int status)
{
    return status == COLLRUN_ERR_MISMATCH || status == COLLRUN_ERR_TIMEOUT ||
           status == COLLRUN_ERR_PEER_FAILED || status == COLLRUN_ERR_ABORTED ||
           status == COLLRUN_ERR_BACKEND;
}

static void error_note(const struct error_record *mine)
{
    struct record_failure f = {.status = mine->status, .at = mine->at, .number = mine->number};
    if (!error_ends_group(mine->status))
        return;
    error_put(f.group, sizeof f.group, "%s", mine->group);
    error_put(f.text, sizeof f.text, "%s", mine->text);
    record_queue_note_failure(atomic_load(&error_recorder), &f);
}

/* The call of this thread fails now. */
static void error_happens(struct error_record *mine)
{
    mine->at = record_queue_now(atomic_load(&error_recorder));
    error_note(mine);
}

void error_hand_over(struct error_record *out)
{
    struct error_record *mine = error_get();
    mine->at.thread = 0;
    error_note(mine);
    *out = *mine;
}

void error_deliver(const struct error_record *record)
{
    struct error_record *mine = error_get();
    *mine = *record;
    error_happens(mine);
}

static bool error_view(struct record_view *v)
{
    struct record_head *head = atomic_load(&error_recorder);
    struct diag d;
    if (head)
        record_calibrate(head);
    return head && record_view_init(v, head, record_len(head), &d) == COLLRUN_OK;
}

void error_last_of_rank(bool stopping, struct record_view_failure *out)
{
    const struct error_record *mine = error_get();
    struct record_view v;
    *out = (struct record_view_failure){0};
    if (error_view(&v)) {
        record_view_failure(&v, stopping ? UINT64_MAX : RECORD_VIEW_RECENT_NS, out);
    } else if (error_ends_group(mine->status)) {
        out->status = mine->status;
        out->number = mine->number;
        error_put(out->group, sizeof out->group, "%s", mine->group);
        error_put(out->text, sizeof out->text, "%s", mine->text);
    }
}

bool error_is_past(void)
{
    struct record_view v;
    return error_view(&v) && record_view_is_past(&v, &error_get()->at, RECORD_VIEW_RECENT_NS);
}

/* ---- the record of a thread ---- */

int error_set(int status, const char *format, ...)
{
    struct error_record *mine = error_get();
    va_list args;
    va_start(args, format);
    error_vput(mine->text, sizeof mine->text, format, args);
    va_end(args);
    mine->cause[0] = '\0';
    mine->group[0] = '\0';
    mine->number = 0;
    mine->status = status;
    error_happens(mine);
    return status;
}

int error_wrap(int status, const char *group, uint64_t number, const char *where)
{
    struct error_record *mine = error_get();
    if (!mine->cause[0])
        error_put(mine->cause, sizeof mine->cause, "%s", status_text(status));
    error_put(mine->text, sizeof mine->text, "%s: %s", where, mine->cause);
    mine->cause[0] = '\0'; /* used up: the next failure must not show it */
    error_put(mine->group, sizeof mine->group, "%s", group);
    mine->number = number;
    mine->status = status;
    error_happens(mine);
    return status;
}

void error_restore(const struct error_record *record)
{
    *error_get() = *record;
}

int error_from_diag(const struct diag *d)
{
    return error_set(d->code, "%s", d->text);
}

const char *collrun_error(void)
{
    return error_mine ? error_mine->text : "";
}

/* ---- texts of failures ---- */

enum { NAME_LEN = 64 };

/* "rank 1", with its rank in the job where that is another. */
static void failure_text_rank(const uint32_t *world_rank, uint32_t rank, char out[NAME_LEN])
{
    if (world_rank && world_rank[rank] != rank)
        snprintf(out, NAME_LEN, "rank %u (world rank %u)", rank, world_rank[rank]);
    else
        snprintf(out, NAME_LEN, "rank %u", rank);
}

static void failure_text_call(const struct collrun_call *call, char out[CALL_TEXT_LEN])
{
    if (call->kind == COLLRUN_ALLGATHER && call->op)
        snprintf(out, CALL_TEXT_LEN, "%s", kind_name((unsigned)call->op - 1));
    else
        call_text(call, out, CALL_TEXT_LEN);
}

void failure_text_mismatch(const uint32_t *world_rank, const struct failure_call *a,
                           const struct failure_call *b, char *out, size_t len)
{
    char names[2][NAME_LEN], calls[2][CALL_TEXT_LEN];
    failure_text_rank(world_rank, a->rank, names[0]);
    failure_text_rank(world_rank, b->rank, names[1]);
    failure_text_call(a->call, calls[0]);
    failure_text_call(b->call, calls[1]);
    snprintf(out, len, "%s calls %s, %s calls %s", names[0], calls[0], names[1], calls[1]);
}

void failure_text_counts(const uint32_t *world_rank, const struct collrun_count_mismatch *counts,
                         char *out, size_t len)
{
    char call[CALL_TEXT_LEN], sender[NAME_LEN], receiver[NAME_LEN];
    call_text(counts->call, call, sizeof call);
    failure_text_rank(world_rank, counts->sender, sender);
    failure_text_rank(world_rank, counts->receiver, receiver);
    snprintf(out, len, "%s: %s sends %llu elements to %s, which receives %llu", call, sender,
             (unsigned long long)counts->sent, receiver, (unsigned long long)counts->received);
}

/* "rank 3", "ranks 0-2, 5"; cut with "..." where there is no room. */
static void failure_text_ranks(const uint32_t *ranks, uint32_t n, char *out, size_t len)
{
    size_t at = (size_t)snprintf(out, len, n == 1 ? "rank" : "ranks");
    for (uint32_t i = 0, last; i < n; i = last + 1) {
        char run[32];
        for (last = i; last + 1 < n && ranks[last + 1] == ranks[last] + 1;)
            last++;
        if (last > i)
            snprintf(run, sizeof run, "%u-%u", ranks[i], ranks[last]);
        else
            snprintf(run, sizeof run, "%u", ranks[i]);
        if (at + strlen(run) + 6 > len) {
            snprintf(out + at, len - at, "...");
            return;
        }
        at += (size_t)snprintf(out + at, len - at, "%s%s", i ? ", " : " ", run);
    }
}

void failure_text_timeout(const uint32_t *world_rank, const struct failure_wait *wait, char *out,
                          size_t len)
{
    char name[NAME_LEN], ranks[128];
    failure_text_rank(world_rank, wait->rank, name);
    if (wait->nmissing == 0) {
        failure_text_expired(name, wait->waited_ns, out, len);
        return;
    }
    failure_text_ranks(wait->missing, wait->nmissing, ranks, sizeof ranks);
    snprintf(out, len, "%s waited %.1f s for %s", name, (double)wait->waited_ns / 1e9, ranks);
}

void failure_text_expired(const char *subject, uint64_t waited_ns, char *out, size_t len)
{
    snprintf(out, len, "%s timed out after %.1f s", subject, (double)waited_ns / 1e9);
}
