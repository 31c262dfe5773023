/* SPDX-License-Identifier: Apache-2.0 */
#include "run/stdin_feed.h"

#include "base/wire_fields.h"
#include "xalloc.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 16 << 10 };

static void stdin_feed_send(struct stdin_feed *f, const void *bytes, size_t len)
{
    const struct desc *desc = f->run->desc;
    for (uint32_t i = 0; i < desc->with_stdin.n; i++) {
        const uint32_t rank = desc->with_stdin.items[i];
        struct host *host = &f->run->hosts[desc->ranks[rank].host];
        if (f->closed[rank] || !conn_is_open(&host->conn))
            continue;
        struct buf *out = conn_out(&host->conn);
        const size_t mark = wire_begin(out, WIRE_STDIN, rank, desc->attempt);
        wire_put_stdin_bytes(out, &(struct wire_stdin_bytes){.bytes = {bytes, len}});
        conn_end(&host->conn, mark);
        conn_flush(&host->conn);
        f->outstanding[rank] += (uint32_t)len;
    }
}

/* Whether every reader takes another chunk, and there is one. */
static bool stdin_feed_has_room(const struct stdin_feed *f)
{
    const struct desc_ranks *readers = &f->run->desc->with_stdin;
    uint32_t open = 0;
    for (uint32_t i = 0; i < readers->n; i++) {
        const uint32_t rank = readers->items[i];
        if (f->closed[rank] || f->run->ranks[rank].end == RANK_EXITED)
            continue;
        if (f->outstanding[rank] + CHUNK > WIRE_STDIN_WINDOW)
            return false;
        open++;
    }
    return open > 0;
}

static void stdin_feed_read(struct stdin_feed *f)
{
    unsigned char bytes[CHUNK];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    f->ended = n <= 0;
    stdin_feed_send(f, bytes, n > 0 ? (size_t)n : 0);
}

/* Reads a file as far as there is room; watches anything else while there is. */
static void stdin_feed_pump(struct stdin_feed *f)
{
    while (f->always && !f->ended && stdin_feed_has_room(f))
        stdin_feed_read(f);
    bool wanted = !f->always && !f->ended && stdin_feed_has_room(f);
    if (wanted && f->watch.fd < 0) {
        f->always = loop_watch(f->run->loop, &f->watch, STDIN_FILENO, EPOLLIN) < 0;
        if (f->always)
            stdin_feed_pump(f);
    } else if (!wanted && f->watch.fd >= 0) {
        loop_unwatch(f->run->loop, &f->watch);
    }
}

static void stdin_feed_on_ready(struct loop_fd *w, uint32_t events)
{
    struct stdin_feed *f = w->owner;
    (void)events;
    stdin_feed_read(f);
    stdin_feed_pump(f);
}

void stdin_feed_start(struct stdin_feed *f)
{
    struct run_state *run = f->run;
    const struct desc_ranks *readers = &run->desc->with_stdin;
    if (!readers->n)
        return;
    f->outstanding = arena_calloc(&run->arena, run->desc->nranks, sizeof *f->outstanding);
    f->closed = arena_calloc(&run->arena, run->desc->nranks, sizeof *f->closed);
    f->started = true;
    f->watch = (struct loop_fd){.fd = -1, .ready = stdin_feed_on_ready, .owner = f};
    stdin_feed_resume(f);
    stdin_feed_resize(f);
    stdin_feed_pump(f);
}

bool stdin_feed_on_taken(struct stdin_feed *f, const struct wire_frame *frame)
{
    struct wire_stdin_taken taken;
    if (!wire_read_stdin_taken(frame, NULL, &taken))
        return false;
    if (!f->started)
        return true;
    if (taken.bytes > f->outstanding[frame->rank])
        return false;
    f->outstanding[frame->rank] -= taken.bytes;
    f->closed[frame->rank] = f->closed[frame->rank] || taken.closed;
    stdin_feed_pump(f);
    return true;
}

void stdin_feed_on_exit(struct stdin_feed *f)
{
    const struct desc_terminal *t = &f->run->desc->terminal;
    if (t->used && f->run->ranks[t->rank].end == RANK_EXITED)
        stdin_feed_suspend(f);
    if (f->started)
        stdin_feed_pump(f);
}

void stdin_feed_resize(const struct stdin_feed *f)
{
    const struct desc *desc = f->run->desc;
    struct host *host = &f->run->hosts[desc->ranks[desc->terminal.rank].host];
    struct buf b;
    struct wire_window window;
    if (!f->terminal.taken || !conn_is_open(&host->conn))
        return;
    terminal_size(&window.rows, &window.columns);
    buf_init(&b);
    wire_put_window(&b, &window);
    conn_send_buf(&host->conn, WIRE_WINDOW, desc->terminal.rank, desc->attempt, &b);
    buf_fini(&b);
}

void stdin_feed_suspend(struct stdin_feed *f)
{
    terminal_give(&f->terminal);
    console_set_raw(f->console, false);
}

void stdin_feed_resume(struct stdin_feed *f)
{
    const struct desc_terminal *t = &f->run->desc->terminal;
    if (f->started && t->used && f->run->ranks[t->rank].end != RANK_EXITED)
        terminal_take(&f->terminal);
    console_set_raw(f->console, f->terminal.taken);
}

void stdin_feed_stop(struct stdin_feed *f)
{
    stdin_feed_suspend(f);
    if (f->started && f->watch.fd >= 0)
        loop_unwatch(f->run->loop, &f->watch);
    f->started = false;
}

/* ---- terminal ---- */

void terminal_size(uint16_t *rows, uint16_t *columns)
{
    struct winsize size = {0};
    ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
    *rows = size.ws_row ? size.ws_row : 24;
    *columns = size.ws_col ? size.ws_col : 80;
}

bool terminal_describe(struct desc_terminal *out)
{
    struct stat in, to;
    const char *type = getenv("TERM");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || fstat(STDIN_FILENO, &in) < 0 ||
        fstat(STDOUT_FILENO, &to) < 0 || in.st_rdev != to.st_rdev ||
        tcgetpgrp(STDIN_FILENO) != getpgrp())
        return false;
    *out = (struct desc_terminal){.used = true, .type = type ? type : ""};
    terminal_size(&out->rows, &out->columns);
    return true;
}

static void terminal_restore(void *ctx)
{
    const struct terminal *t = ctx;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
}

void terminal_take(struct terminal *t)
{
    if (t->taken || tcgetattr(STDIN_FILENO, &t->before) < 0)
        return;
    struct termios raw = t->before;
    cfmakeraw(&raw);
    t->taken = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    xalloc_on_end(t->taken ? terminal_restore : NULL, t);
}

void terminal_give(struct terminal *t)
{
    if (t->taken)
        terminal_restore(t);
    t->taken = false;
    xalloc_on_end(NULL, NULL);
}
