/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of two ranks, as it arrives in pieces of any size, against a reference that handles
 * one byte at a time. stdout is a pipe in the meantime.
 */
#include "report/output.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 2, BYTES = 400000 };

static uint64_t credit;

static void on_credit(void *ctx, uint32_t host, uint32_t bytes)
{
    (void)ctx;
    (void)host;
    credit += bytes;
}

/* ---- the reference ---- */

struct reference {
    struct buf shown, line[RANKS];
    const char *label;
    int open; /* the rank of which `shown` ends with a part of a line; -1: none */
};

/* What is there of the line: `end`: all of it. */
static void reference_show(struct reference *r, int rank, bool end)
{
    char label[16];
    if (r->open >= 0 && r->open != rank)
        buf_put(&r->shown, "\n", 1);
    if (r->label[0] && r->open != rank)
        buf_put(&r->shown, label, (size_t)snprintf(label, sizeof label, "[%d] ", rank));
    buf_put_buf(&r->shown, &r->line[rank]);
    buf_put(&r->shown, "\n", end);
    buf_clear(&r->line[rank]);
    r->open = end ? -1 : rank;
}

static void reference_add(struct reference *r, unsigned rank, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n') {
            reference_show(r, (int)rank, true);
            continue;
        }
        if (r->line[rank].len == OUTPUT_LINE_MAX)
            reference_show(r, (int)rank, false);
        buf_put(&r->line[rank], bytes + i, 1);
    }
}

/* ---- */

struct place { /* a pipe in the place of stdout */
    int saved, reader;
    struct console *console;
    struct output *output;
};

static const struct desc_rank ranks[RANKS] = {{.local_rank = 0}, {.local_rank = 1}};
static const struct desc_host hosts[1] = {{.name = "here"}};
static const struct desc desc = {.nranks = RANKS,
                                 .ranks = (struct desc_rank *)ranks,
                                 .nhosts = 1,
                                 .hosts = (struct desc_host *)hosts,
                                 .run_id = "run"};

static void enter(struct place *p, const char *label)
{
    int fds[2];
    struct job job = {.logging.console = {.ranks = {.all = true}, .label = {.v = label}}};
    fflush(stdout);
    p->saved = dup(STDOUT_FILENO);
    if (pipe(fds) < 0)
        abort();
    dup2(fds[1], STDOUT_FILENO);
    close(fds[1]);
    p->reader = fds[0];
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    p->console = console_new();
    console_attach(p->console, NULL, &(struct console_hooks){0});
    p->output =
        output_new(p->console, NULL, &job, &desc, (struct output_hooks){.credit = on_credit});
    credit = 0;
}

static void take(struct place *p, struct buf *got)
{
    char bytes[65536];
    for (ssize_t n; (n = read(p->reader, bytes, sizeof bytes)) > 0;) {
        buf_put(got, bytes, (size_t)n);
        console_push(p->console);
    }
}

static void leave(struct place *p)
{
    output_free(p->output);
    console_free(p->console);
    dup2(p->saved, STDOUT_FILENO);
    close(p->saved);
    close(p->reader);
}

/* `longest`: of a line; `piece`: of what arrives at once. */
static void compare(const char *label, size_t longest, size_t piece)
{
    static char bytes[RANKS][BYTES];
    size_t at[RANKS] = {0};
    struct buf got = {0};
    struct reference r = {.label = label, .open = -1};
    struct place p;
    for (int rank = 0; rank < RANKS; rank++) {
        for (size_t i = 0, end = 0; i < BYTES; i++, end--) {
            bytes[rank][i] = end ? (char)('a' + rank) : '\n';
            end = end ? end : 1 + (size_t)rand() % (longest + 1);
        }
    }
    enter(&p, label);
    for (unsigned rank = 0; at[0] < BYTES || at[1] < BYTES; rank = (unsigned)rand() % RANKS) {
        size_t n = (size_t)rand() % piece + 1;
        n = n < BYTES - at[rank] ? n : BYTES - at[rank];
        output_add(p.output, rank, 1, 0, bytes[rank] + at[rank], n);
        reference_add(&r, rank, bytes[rank] + at[rank], n);
        at[rank] += n;
        take(&p, &got);
    }
    output_flush_lines(p.output);
    for (unsigned rank = 0; rank < RANKS; rank++) {
        output_end_rank(p.output, rank);
        if (buf_pending(&r.line[rank]) || r.open == (int)rank)
            reference_show(&r, (int)rank, true);
    }
    take(&p, &got);
    leave(&p);
    assert_int_equal(got.len, r.shown.len);
    assert_memory_equal(got.data, r.shown.data, got.len);
    assert_int_equal(credit, RANKS * BYTES); /* all of it is returned in the end */
    buf_fini(&got);
    buf_fini(&r.shown);
    for (int rank = 0; rank < RANKS; rank++)
        buf_fini(&r.line[rank]);
}

static void pieces_of_any_size(void **state)
{
    (void)state;
    srand(7);
    compare("[{rank}]", 3, 65536);
    compare("", 100, 70);
    compare("[{rank}]", 100, 65536);
    compare("[{rank}]", 3000, 5000);
}

static void long_lines(void **state)
{
    (void)state;
    srand(8);
    compare("[{rank}]", OUTPUT_LINE_MAX * 2, 65536);
    compare("", OUTPUT_LINE_MAX * 2, OUTPUT_LINE_MAX * 4);
    for (size_t n = OUTPUT_LINE_MAX - 1; n <= OUTPUT_LINE_MAX + 1; n++) {
        struct reference r = {.label = "", .open = -1};
        struct buf got = {0};
        struct place p;
        char *line = malloc(n + 1);
        memset(line, 'x', n);
        line[n] = '\n';
        for (size_t first = 0; first <= n; first += n / 2) { /* in two pieces, or in one */
            enter(&p, "");
            output_add(p.output, 0, 1, 0, line, first);
            output_add(p.output, 0, 1, 0, line + first, n + 1 - first);
            take(&p, &got);
            leave(&p);
            reference_add(&r, 0, line, n + 1);
        }
        free(line);
        assert_int_equal(got.len, r.shown.len);
        assert_memory_equal(got.data, r.shown.data, got.len);
        buf_fini(&got);
        buf_fini(&r.shown);
        buf_fini(&r.line[0]);
    }
}

static void credit_of_few_bytes_waits(void **state)
{
    struct place p;
    (void)state;
    enter(&p, "");
    output_add(p.output, 0, 1, 0, "few\n", 4);
    const uint64_t early = credit;
    output_flush_lines(p.output);
    leave(&p);
    assert_int_equal(early, 0);
    assert_int_equal(credit, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_of_any_size),
                                       cmocka_unit_test(long_lines),
                                       cmocka_unit_test(credit_of_few_bytes_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
