/* SPDX-License-Identifier: Apache-2.0 */
#include "run/call_places.h"

#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/quote.h"
#include "base/wire_fields.h"
#include "prefix.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void call_places_end(struct call_places *p)
{
    call_places_cancel(p);
    p->done(p->ctx);
}

static void call_places_on_timer(struct loop_timer *t)
{
    debug_log(DEBUG_PROOF, "not all places of calls have arrived in time");
    call_places_end(t->owner);
}

void call_places_ask(struct call_places *p, const struct stacks_call *calls, uint32_t n,
                     void (*done)(void *ctx), void *ctx)
{
    struct wire_item_look looks[CALL_PLACES_MAX];
    struct wire_item_site sites[CALL_PLACES_MAX];
    struct buf b;
    p->done = done;
    p->ctx = ctx;
    p->timer = (struct loop_timer){.fired = call_places_on_timer, .owner = p};
    p->nasked = n < CALL_PLACES_MAX ? n : CALL_PLACES_MAX;
    if (!p->nasked) {
        done(ctx);
        return;
    }
    for (uint32_t i = 0; i < p->nasked; i++) {
        p->asked[i] = calls[i].rank;
        rank_forget_look(&p->run->ranks[calls[i].rank]); /* an older answer has other places */
        sites[i].address = calls[i].site;
        looks[i] = (struct wire_item_look){.rank = calls[i].rank, .sites = {&sites[i], 1}};
    }
    buf_init(&b);
    wire_put_read_stacks(&b, &(struct wire_read_stacks){.ranks = {looks, p->nasked}});
    hosts_send_all(p->run, WIRE_READ_STACKS, &b);
    buf_fini(&b);
    loop_timer_set(p->run->loop, &p->timer, CALL_PLACES_NS);
}

void call_places_on_stacks(struct call_places *p)
{
    uint32_t answers = 0;
    for (uint32_t i = 0; i < p->nasked; i++) {
        const struct rank_state *r = &p->run->ranks[p->asked[i]];
        answers += r->stacks.received || r->end == RANK_EXITED;
    }
    if (p->nasked && answers == p->nasked)
        call_places_end(p);
}

void call_places_cancel(struct call_places *p)
{
    if (p->nasked)
        loop_timer_clear(p->run->loop, &p->timer);
    p->nasked = 0;
}

/* ---- after the end of the ranks ---- */

/* An address, and where its place is stored. */
struct call_places_one {
    uint32_t rank;
    uint64_t site;
    struct stacks_site *to;
};
struct call_places_list {
    struct call_places_one items[CALL_PLACES_MAX + RECORD_MISTAKES];
    uint32_t n;
};

/* The calls that the verdict is about, and those of its warnings. */
static void call_places_find(struct run_state *run, const struct verdict *v, struct arena *arena,
                             struct call_places_list *list)
{
    const bool calls = v->class == CAUSE_MISMATCH || v->class == CAUSE_ERROR;
    list->n = 0;
    for (uint32_t i = 0; calls && i < v->ncalls && i < CALL_PLACES_MAX; i++)
        list->items[list->n++] = (struct call_places_one){v->calls[i].rank, v->calls[i].site,
                                                          &run->ranks[v->calls[i].rank].place};
    for (uint32_t i = 0; i < v->nwarnings && list->n < CALL_PLACES_MAX + RECORD_MISTAKES; i++) {
        const struct verdict_warning *w = &v->warnings[i];
        struct rank_state *r = &run->ranks[w->rank];
        if (!w->site)
            continue;
        if (!r->mistake_places)
            r->mistake_places = arena_calloc(arena, RECORD_MISTAKES, sizeof *r->mistake_places);
        list->items[list->n++] =
            (struct call_places_one){w->rank, w->site, &r->mistake_places[w->mistake]};
    }
}

/* A rank of this machine, and a whole path. */
static bool call_places_file(const struct run_state *run, const struct call_places_one *c,
                             char *path, uint64_t *offset)
{
    const struct rank_state *r = &run->ranks[c->rank];
    const uint32_t host = run->desc->ranks[c->rank].host;
    return c->site && c->site < RECORD_PYTHON_SITE && r->record_bytes && host < run->job->hosts.n &&
           run->job->hosts.nodes[host].transport.kind.v == JOB_TRANSPORT_LOCAL &&
           record_view_module(&r->record, c->site - 1, path, offset) && path[0] == '/';
}

/* The input of collrun-stack --resolve, which repeats a line that is no address: "--" ends what it
 * says about a call. False: there is no address. */
static bool call_places_input(const struct run_state *run, const struct call_places_list *list,
                              struct buf *b)
{
    bool any = false;
    for (uint32_t i = 0; i < list->n; i++) {
        char path[RECORD_VIEW_PATH], line[RECORD_VIEW_PATH + 32];
        uint64_t offset;
        const bool found = call_places_file(run, &list->items[i], path, &offset);
        const int n =
            found ? snprintf(line, sizeof line, "%llx %s\n--\n", (unsigned long long)offset, path)
                  : snprintf(line, sizeof line, "--\n");
        buf_put(b, line, (size_t)n);
        any = any || found;
    }
    return any;
}

_Noreturn static void call_places_child(const char *program, int in, int out)
{
    const char *argv[] = {"collrun-stack", "--resolve", NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_WRONLY);
    if (null >= 0 && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(null, 2) == 2)
        execv(program, (char **)(uintptr_t)argv);
    _exit(EXIT_EXEC);
}

/* Reads until the end of file, or until the time has passed. */
static void call_places_read(int fd, struct buf *b)
{
    const uint64_t end_ns = now_ns() + CALL_PLACES_NS;
    for (uint64_t now = now_ns(); now < end_ns; now = now_ns()) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)((end_ns - now) / 1000000) + 1) <= 0)
            continue;
        char *room = buf_reserve(b, 4096);
        ssize_t n = room ? read(fd, room, 4096) : 0;
        if (n <= 0)
            return;
        buf_commit(b, (size_t)n);
    }
}

static void call_places_run(const char *program, const struct buf *in, struct buf *out)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) < 0)
        return;
    if (pipe2(from, O_CLOEXEC) < 0) {
        close(to[0]);
        close(to[1]);
        return;
    }
    const pid_t pid = fork();
    if (pid == 0)
        call_places_child(program, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    /* The input is shorter than what a pipe holds, so this does not wait. */
    const ssize_t wrote = pid > 0 ? write(to[1], in->data, buf_pending(in)) : -1;
    close(to[1]);
    if (wrote > 0)
        call_places_read(from[0], out);
    close(from[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* Lines "  #0 FUNCTION (FILE:LINE)"; the first one of a call that has a line is its place. */
static bool call_places_take(const struct call_places_list *list, char *text)
{
    uint32_t call = 0;
    bool any = false;
    for (char *line = text, *next; line && call < list->n; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        const struct call_places_one *one = &list->items[call];
        const char *frame = strncmp(line, "  #", 3) == 0 ? strchr(line + 3, ' ') : NULL;
        if (frame && strcmp(frame + 1, "--") == 0) {
            call++;
        } else if (frame && !one->to->address && stacks_has_line(frame + 1)) {
            utf8_clean(line, strlen(line) + 1, line, strlen(line));
            *one->to = (struct stacks_site){one->site, frame + 1};
            any = true;
        }
    }
    return any;
}

bool call_places_resolve(struct run_state *run, const struct verdict *v, struct arena *arena)
{
    struct diag unused = {0};
    struct buf in, out;
    struct call_places_list list;
    bool any = false;
    call_places_find(run, v, arena, &list);
    buf_init(&in);
    buf_init(&out);
    if (call_places_input(run, &list, &in)) {
        const char *program = prefix_path(arena, "libexec/collrun/collrun-stack", &unused);
        if (program && access(program, X_OK) == 0)
            call_places_run(program, &in, &out);
        char *text = arena_strndup(arena, (const char *)out.data, buf_pending(&out));
        any = text && call_places_take(&list, text);
    }
    buf_fini(&in);
    buf_fini(&out);
    return any;
}
