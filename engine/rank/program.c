/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun_init and collrun_finalize: a program that the agent has started (`command:`) becomes a
 * member of the job, and ends its part in it.
 *
 * - The agent leaves the descriptors that collrun-engine gets, and COLLRUN_CONTROL_FD. Shells and
 *   launchers may be in between: the first process that stores its pid in the record is the member.
 * - ATTACHED -> form the groups -> READY -> the program runs -> DONE -> wait for the other members
 *   -> IDLE -> close the groups, end the service thread.
 *
 * Failures:
 *
 * - A step or a call fails: the program gets the status, and decides. Nothing is reported before it
 *   exits with another code than 0; then FAILED has the last error of the thread that exits.
 * - The job fails elsewhere (ABORT): calls return, and nothing else happens to the process.
 */
#include "base/hostmem.h"
#include "core/threads.h"
#include "group/group.h"
#include "group/thread_record.h"
#include "ops/request.h"
#include "rank/engine.h"
#include "rank/task.h"

#include <collrun/collrun.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONTROL_VARIABLE "COLLRUN_CONTROL_FD"

enum program_state { PROGRAM_NEW, PROGRAM_MEMBER, PROGRAM_ENDING, PROGRAM_ENDED, PROGRAM_FAILED };

static struct {
    _Atomic int state; /* enum program_state */
    struct engine *engine;
    struct task task;
    struct engine_failure failure; /* of collrun_init */
} program;

/* ---- finding the agent ---- */

/* A string in YAML also without quotes; a number, true and null are none. */
static bool program_is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "_/.-0123456789";
    const bool begins = strspn(word, plain) && !strchr("0123456789", *word);
    return begins && (word[0] != '.' || word[1] == '/') && (word[0] != '-' || word[1] == '-') &&
           strspn(word, plain) == strlen(word) && strcmp(word, "true") != 0 &&
           strcmp(word, "false") != 0 && strcmp(word, "null") != 0;
}

/* The command line of this process as words of a YAML list: the name of an interpreter alone would
 * not start the program. A long word, or one that needs escapes, such as the code after -c, ends
 * the list with "...". */
static const char *program_words(char *out, size_t size)
{
    enum { MOST = 80 };
    char text[4096] = "";
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    size_t used = 0;
    if (fd >= 0)
        close(fd);
    for (const char *word = text; word < text + len; word += strlen(word) + 1) {
        const char *comma = used ? ", " : "", *quote = program_is_plain(word) ? "" : "\"";
        bool escapes = strpbrk(word, "\"\\") != NULL;
        for (const char *c = word; *c; c++)
            escapes = escapes || (unsigned char)*c < ' ';
        if (escapes || strlen(word) > MOST || used + MOST + 16 > size) {
            snprintf(out + used, size - used, "%s...", comma);
            return out;
        }
        used += (size_t)snprintf(out + used, size - used, "%s%s%s%s", comma, quote, word, quote);
    }
    return used ? out : program_invocation_name;
}

static int program_unavailable(const char *why)
{
    char words[400];
    return error_set(COLLRUN_ERR_UNAVAILABLE,
                     "collrun_init: %s; start this program with `collrun job.yaml`, where job.yaml "
                     "has `workloads: [{command: [%s]}]`",
                     why, program_words(words, sizeof words));
}

/* The socket is a stream, and its other end is open. */
static bool program_is_connected(int fd)
{
    int domain = 0;
    char byte;
    socklen_t len = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX)
        return false;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

static int program_find_agent(struct engine_sockets *fds)
{
    const char *text = getenv(CONTROL_VARIABLE);
    char *end = NULL;
    long fd = text ? strtol(text, &end, 10) : -1;
    if (!text)
        return program_unavailable(getenv("COLLRUN_RANK")
                                       ? "this process has no connection to collrun: another "
                                         "process of the rank has it, or one in between removed "
                                         "COLLRUN_CONTROL_FD from the environment"
                                       : "this process was not started by collrun");
    if (*end || fd < 0 || fd > 1 << 20 || !program_is_connected((int)fd))
        return program_unavailable("COLLRUN_CONTROL_FD is not a connection to a running collrun; "
                                   "a process in between may have closed it");
    *fds = (struct engine_sockets){(int)fd, RECORD_FD, HOSTMEM_FD};
    return COLLRUN_OK;
}

static void program_unmap(struct record_head *record)
{
    if (record)
        record_unmap(record, record_len(record));
}

/* Makes this process the member of its rank. */
static int program_claim(const struct engine_sockets *fds)
{
    struct record_head *record = record_map(fds->record);
    struct hostmem memory = {.fd = -1};
    uint32_t member = 0;
    if (!record || !hostmem_map(&memory, fds->hostmem)) {
        program_unmap(record);
        return program_unavailable("a process between collrun and this one has closed descriptors "
                                   "4 and 5, which collrun_init needs");
    }
    bool mine = atomic_compare_exchange_strong(&record->member, &member, (uint32_t)getpid());
    uint32_t rank = record->rank;
    program_unmap(record);
    hostmem_unmap(&memory);
    return mine ? COLLRUN_OK
                : error_set(COLLRUN_ERR_EXISTS,
                            "collrun_init: process %u has called it for rank %u; a rank has one "
                            "member process",
                            member, rank);
}

/* ---- the end of the process ---- */

static void program_on_exit(int status, void *arg)
{
    int state = atomic_load(&program.state);
    struct engine *e = program.engine;
    (void)arg;
    if (fork_guard_in_child || !(status & 0xff) || !e->connected ||
        (state != PROGRAM_MEMBER && state != PROGRAM_FAILED))
        return;
    if (state == PROGRAM_FAILED) {
        engine_send_failed(e, &program.failure);
        return;
    }
    struct task *task = &program.task;
    if (!task->fail_text[0])
        memcpy(task->fail_text, task->thread_text, sizeof task->fail_text);
    task_fail_at_exit(task, status & 0xff);
    engine_send_task_failed(e, task);
}

/* ---- collrun_init ---- */

static int program_refuse_again(enum engine_owner owner)
{
    if (owner == ENGINE_OF_WORKLOADS)
        return error_set(COLLRUN_ERR_EXISTS, "collrun_init is for programs; a workload gets its "
                                             "context as an argument of init and run");
    switch (atomic_load(&program.state)) {
    case PROGRAM_NEW:
        return error_set(COLLRUN_ERR_EXISTS, "collrun_init: another thread is inside it");
    case PROGRAM_MEMBER:
        return error_set(COLLRUN_ERR_EXISTS, "collrun_init was called before; its context is valid "
                                             "until collrun_finalize");
    case PROGRAM_FAILED:
        return error_set(program.failure.diag.code, "collrun_init was called before and failed: %s",
                         program.failure.diag.text);
    default:
        return error_set(COLLRUN_ERR_EXISTS, "collrun_init: this process has called "
                                             "collrun_finalize, and is a member only once");
    }
}

static int program_adopt_task(struct engine *e)
{
    int rc = task_adopt(&program.task, e, &program.failure.diag);
    if (rc != COLLRUN_OK)
        return rc;
    e->tasks = &program.task;
    e->ntasks = 1;
    return COLLRUN_OK;
}

static int program_form_groups(struct engine *e)
{
    struct engine_failure *f = &program.failure;
    f->workload = program.task.ctx.index;
    f->phase = WIRE_PHASE_GROUPS;
    engine_send_attached(e);
    return engine_form_groups(e, f);
}

static int program_join(struct engine *e, const struct engine_sockets *fds)
{
    program.engine = e;
    engine_failure_init(&program.failure, WIRE_PHASE_LOAD);
    unsetenv(CONTROL_VARIABLE);
    threads_main_is_caller();
    on_exit(program_on_exit, NULL);
    int rc = engine_connect(e, fds, &program.failure);
    if (rc == COLLRUN_OK)
        rc = program_adopt_task(e);
    if (rc == COLLRUN_OK)
        rc = engine_serve(e, &program.failure);
    if (rc == COLLRUN_OK)
        rc = program_form_groups(e);
    if (rc != COLLRUN_OK) {
        atomic_store(&program.state, PROGRAM_FAILED);
        return error_set(rc, "collrun_init: %s", program.failure.diag.text);
    }
    control_lock(&e->process.control);
    program.task.state = TASK_RUNNING;
    control_unlock(&e->process.control);
    control_send(&e->process.control, WIRE_READY);
    thread_context = &program.task.ctx;
    atomic_store(&program.state, PROGRAM_MEMBER);
    return COLLRUN_OK;
}

int collrun_init(struct collrun_ctx **out)
{
    struct engine_sockets fds = {-1, -1, -1};
    enum engine_owner owner = ENGINE_UNUSED;
    if (!out)
        return error_set(COLLRUN_ERR_INVALID,
                         "collrun_init: the output pointer for the context is NULL");
    if (fork_guard_in_child)
        return fork_guard_refuse("collrun_init");
    if (engine_is_taken(&owner))
        return program_refuse_again(owner);
    int rc = program_find_agent(&fds);
    if (rc != COLLRUN_OK) /* a thread that has joined meanwhile takes the variable away */
        return engine_is_taken(&owner) ? program_refuse_again(owner) : rc;
    owner = ENGINE_OF_PROGRAM;
    struct engine *e = engine_take(&owner);
    if (!e)
        return program_refuse_again(owner);
    rc = program_claim(&fds);
    if (rc != COLLRUN_OK) {
        engine_give_back();
        return rc;
    }
    rc = program_join(e, &fds);
    if (rc == COLLRUN_OK)
        *out = &program.task.ctx;
    return rc;
}

/* ---- collrun_finalize ---- */

/* Takes all groups, so that no thread calls any more. The threads of collrun_group_create_start may
 * be creating further ones, which the program has not waited for. */
static int program_enter_groups(struct engine *e)
{
    struct collrun_group *g;
    int rc = COLLRUN_OK;
    pthread_mutex_lock(&e->groups.lock);
    const struct group_creation *c = e->groups.creations;
    while (c && c->has_request)
        c = c->next;
    if (c) {
        /* The message names the group while the lock keeps its name. */
        rc = error_set(COLLRUN_ERR_INVALID,
                       "collrun_finalize: another thread is creating a group%s%s%s",
                       *c->name ? " \"" : "", c->name, *c->name ? "\"" : "");
        pthread_mutex_unlock(&e->groups.lock);
        return rc;
    }
    for (g = e->groups.open; g && (rc = group_enter(g, "finalize")) == COLLRUN_OK;)
        g = g->next;
    for (struct collrun_group *entered = e->groups.open; g && entered != g; entered = entered->next)
        group_leave(entered);
    atomic_store(&e->groups.finalizing, rc == COLLRUN_OK);
    pthread_mutex_unlock(&e->groups.lock);
    return rc;
}

/* Handles stay valid: a late call gets an error, also with a group that a thread has created
 * meanwhile. */
static void program_close_groups(struct engine *e)
{
    atomic_store(&e->process.finalized, true);
    group_start_end_all(&e->groups);
    pthread_mutex_lock(&e->groups.lock);
    for (struct collrun_group *g = e->groups.open; g; g = g->next) {
        atomic_fetch_add(&g->refs, 1);
        group_mark_closed(g);
    }
    pthread_mutex_unlock(&e->groups.lock);
    engine_close_groups(e);
}

static int program_end(struct engine *e, bool at_exit)
{
    struct diag d;
    diag_init(&d);
    control_lock(&e->process.control);
    program.task.state = TASK_ENDED;
    control_unlock(&e->process.control);
    engine_send_done(e, at_exit);
    int rc = engine_await_end(e, &d);
    if (rc != COLLRUN_OK)
        process_set_disturbed(&e->process);
    else
        engine_report_unreceived(e);
    control_send(&e->process.control, WIRE_IDLE);
    program_close_groups(e);
    control_stop(&e->process.control);
    if (rc != COLLRUN_OK)
        return error_set(rc, "collrun_finalize: %s", d.text);
    return program.task.misuse[0] ? error_set(COLLRUN_ERR_INVALID, "%s", program.task.misuse)
                                  : COLLRUN_OK;
}

/* No call follows, whether or not this one returns. */
static void program_record_end(struct record_writer *w)
{
    struct record_thread *t = thread_record_enter(w);
    if (t)
        record_finish(w);
    thread_record_pass(t);
}

static int program_finalize(struct collrun_ctx *ctx, bool at_exit)
{
    int member = PROGRAM_MEMBER;
    if (fork_guard_in_child)
        return fork_guard_refuse("collrun_finalize");
    if (ctx != &program.task.ctx || !program.engine)
        return error_set(COLLRUN_ERR_INVALID,
                         ctx ? "collrun_finalize: the context is not that of collrun_init; a "
                               "workload ends by returning from run"
                             : "collrun_finalize: the context is NULL");
    if (!atomic_compare_exchange_strong(&program.state, &member, PROGRAM_ENDING))
        return error_set(COLLRUN_ERR_INVALID, member == PROGRAM_ENDING
                                                  ? "collrun_finalize: another thread is inside it"
                                                  : "collrun_finalize was called before");
    int rc = program_enter_groups(program.engine);
    if (rc != COLLRUN_OK) {
        atomic_store(&program.state, PROGRAM_MEMBER);
        return rc;
    }
    program_record_end(program.engine->process.writer);
    rc = program_end(program.engine, at_exit);
    atomic_store(&program.state, PROGRAM_ENDED);
    return rc;
}

int collrun_finalize(struct collrun_ctx *ctx)
{
    return program_finalize(ctx, false);
}

int collrun_finalize_at_exit(struct collrun_ctx *ctx)
{
    return program_finalize(ctx, true);
}
