/* SPDX-License-Identifier: Apache-2.0
 *
 * The console on pipes that are full, shared, or closed. Each test puts pipes in the places of
 * stdout and stderr, and gives these back before it judges.
 */
#include "report/console.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int broken[2], taken;

static void on_broken(void *ctx, const char *which, int err)
{
    (void)ctx;
    broken[strcmp(which, "stderr") == 0] = err;
}

static void on_taken(void *ctx)
{
    (void)ctx;
    taken++;
}

struct place { /* a pipe in the place of stdout, and one, or the same, in that of stderr */
    int saved[2], reader[2];
    struct console *console;
};

static void enter(struct place *p, bool same)
{
    int fds[2];
    const struct console_hooks hooks = {.broken = on_broken, .written = on_taken};
    memset(broken, 0, sizeof broken);
    taken = 0;
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        p->saved[i] = dup(i + 1);
        p->reader[i] = -1;
        if (i == 1 && same) {
            dup2(STDOUT_FILENO, STDERR_FILENO);
            continue;
        }
        if (pipe(fds) < 0)
            abort();
        dup2(fds[1], i + 1);
        close(fds[1]);
        p->reader[i] = fds[0];
        fcntl(fds[0], F_SETFL, O_NONBLOCK);
    }
    p->console = console_new();
    console_attach(p->console, NULL, &hooks);
}

static void leave(struct place *p)
{
    console_free(p->console);
    for (int i = 0; i < 2; i++) {
        dup2(p->saved[i], i + 1);
        close(p->saved[i]);
        if (p->reader[i] >= 0)
            close(p->reader[i]);
    }
}

static void full(void **state)
{
    static char bytes[1 << 20], back[1 << 20];
    struct place p;
    struct pollfd poll_fds[2];
    size_t got = 0;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i % 251);
    enter(&p, false);
    bool ready = console_ready(p.console);
    console_put(p.console, 1, bytes, sizeof bytes);
    console_push(p.console); /* would block here */
    size_t pending = console_pending(p.console);
    nfds_t nfds = console_poll(p.console, poll_fds);
    bool busy = !console_ready(p.console);
    fprintf(console_stderr(p.console), "a word\n");
    char word[16] = "";
    ssize_t word_len = read(p.reader[1], word, sizeof word);
    for (ssize_t n; (n = read(p.reader[0], back + got, sizeof back - got)) > 0; got += (size_t)n)
        console_push(p.console);
    bool done = console_pending(p.console) == 0 && console_ready(p.console);
    leave(&p);
    assert_true(ready && busy && done);
    assert_true(pending >= 1 && pending <= sizeof bytes - 1);
    assert_int_equal(nfds, 1);
    assert_int_equal(got, sizeof bytes);
    assert_memory_equal(bytes, back, sizeof bytes);
    assert_true(taken > 1);
    assert_int_equal(word_len, 7); /* a full stdout does not hold stderr */
    assert_string_equal(word, "a word\n");
}

static void one_file(void **state)
{
    struct place p;
    char back[64] = "";
    (void)state;
    enter(&p, true);
    console_put(p.console, 1, "one\n", 4);
    console_put(p.console, 2, "two\n", 4);
    console_put(p.console, 1, "three\n", 6);
    fprintf(console_stderr(p.console), "four\n");
    ssize_t n = read(p.reader[0], back, sizeof back - 1);
    leave(&p);
    assert_int_equal(n, 19);
    assert_string_equal(back, "one\ntwo\nthree\nfour\n");
}

static void forgotten(void **state)
{
    static char line[100000];
    struct place p;
    char back[4096];
    size_t got = 0, last = 0;
    (void)state;
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    enter(&p, true);
    console_put(p.console, 1, line, sizeof line);
    console_push(p.console);
    console_put(p.console, 1, line, sizeof line);
    console_forget(p.console);
    fprintf(console_stderr(p.console), "the end\n");
    for (ssize_t n; (n = read(p.reader[0], back, sizeof back)) > 0; got += (size_t)n) {
        last = (size_t)n;
        console_push(p.console);
    }
    leave(&p);
    assert_int_equal(got, sizeof line + 8); /* the line that was begun, then what came later */
    assert_memory_equal(back + last - 8, "the end\n", 8);
}

static void closed(void **state)
{
    struct place p;
    (void)state;
    enter(&p, false);
    close(p.reader[0]);
    p.reader[0] = -1;
    console_put(p.console, 1, "lost\n", 5);
    console_push(p.console);
    bool empty = console_pending(p.console) == 0;
    leave(&p);
    assert_true(empty);
    assert_int_equal(broken[0], EPIPE);
    assert_int_equal(broken[1], 0);
}

/* A regular file in the place of stdout is written by a thread. */
static void regular(void **state)
{
    static char bytes[3 << 20], back[sizeof bytes];
    char path[] = "/tmp/test_console.XXXXXX";
    struct pollfd poll_fds[2];
    (void)state;
    memset(bytes, 'a', sizeof bytes);
    int file = mkstemp(path), saved = dup(STDOUT_FILENO);
    unlink(path);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    struct console *c = console_new();
    console_attach(c, NULL, &(struct console_hooks){.broken = on_broken});
    console_put(c, 1, bytes, sizeof bytes);
    for (int i = 0; i < 10000 && (console_push(c), console_pending(c)); i++)
        poll(poll_fds, console_poll(c, poll_fds), 1000);
    size_t pending = console_pending(c);
    ssize_t n = pread(file, back, sizeof back, 0);
    console_free(c);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(file);
    assert_int_equal(pending, 0);
    assert_int_equal(n, sizeof bytes);
    assert_memory_equal(bytes, back, sizeof bytes);
}

/* The file cannot be written: the reason is reported once, also for the last bytes. */
static void regular_full(void **state)
{
    char path[] = "/tmp/test_console.XXXXXX";
    struct pollfd poll_fds[2];
    (void)state;
    int file = mkstemp(path), saved = dup(STDOUT_FILENO), only_read = open(path, O_RDONLY);
    unlink(path);
    fflush(stdout);
    dup2(only_read, STDOUT_FILENO);
    memset(broken, 0, sizeof broken);
    struct console *c = console_new();
    console_attach(c, NULL, &(struct console_hooks){.broken = on_broken});
    console_put(c, 1, "x", 1);
    for (int i = 0; i < 100 && (console_push(c), console_pending(c)); i++)
        poll(poll_fds, console_poll(c, poll_fds), 1000);
    console_push(c);
    int first = broken[0];
    broken[0] = 0;
    console_put(c, 1, "x", 1);
    console_push(c);
    size_t pending = console_pending(c);
    console_free(c);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(only_read);
    close(file);
    assert_int_equal(first, EBADF);
    assert_int_equal(broken[0], 0);
    assert_int_equal(pending, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(full),      cmocka_unit_test(one_file),
                                       cmocka_unit_test(forgotten), cmocka_unit_test(closed),
                                       cmocka_unit_test(regular),   cmocka_unit_test(regular_full)};
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
