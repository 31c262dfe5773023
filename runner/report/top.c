/* SPDX-License-Identifier: Apache-2.0 */
#include "report/top.h"

#include "base/buf.h"
#include "base/quote.h"
#include "report/live.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

/* The alternate screen, without cursor; back. */
#define TOP_ENTER "\033[?1049h\033[?25l\033[2J"
#define TOP_LEAVE "\033[?25h\033[?1049l"

enum { TOP_LINE_MAX = 64 << 20 };

struct top {
    const struct top_options *options;
    int fd, signal_fd;
    struct buf in;
    json_t *state; /* the last one; NULL: none yet */
    struct termios before;
    bool has_keys, entered;
    size_t first, shown; /* ranks */
};

/* ---- the socket ---- */

static int top_no_socket(const char *folder, int err, struct diag *d)
{
    struct stat st;
    if (stat(folder, &st) < 0)
        return diag_sys(d, errno, "cannot read the run directory %s", folder);
    if (!S_ISDIR(st.st_mode))
        return diag_set(d, COLLRUN_ERR_INVALID, "%s is not a run directory, but a file", folder);
    if (err != ENOENT && err != ECONNREFUSED)
        return diag_sys(d, err, "cannot connect to %s/top.sock", folder);
    diag_set(d, COLLRUN_ERR_INVALID, "no run is in progress in %s", folder);
    diag_hint(d, "a run with --run-dir or logging.dir can be watched on its machine while it runs");
    return d->code;
}

/* The path of a socket has 107 bytes at most, so it is opened from its folder. */
static int top_connect(struct top *t, struct diag *d)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int dir = open(t->options->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return top_no_socket(t->options->folder, errno, d);
    t->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/top.sock", dir);
    int rc = connect(t->fd, (const struct sockaddr *)&at, sizeof at), err = errno;
    if (rc < 0 && err == ECONNREFUSED)
        unlinkat(dir, "top.sock", 0); /* of a runner that was killed */
    close(dir);
    return rc < 0 ? top_no_socket(t->options->folder, err, d) : COLLRUN_OK;
}

/* Takes whole lines; the last one is the state. */
static void top_take_lines(struct top *t)
{
    const char *begin, *end;
    while (buf_pending(&t->in) && (begin = (const char *)t->in.data + t->in.start) &&
           (end = memchr(begin, '\n', buf_pending(&t->in)))) {
        json_t *state = json_loadb(begin, (size_t)(end - begin), JSON_REJECT_DUPLICATES, NULL);
        if (state) {
            json_decref(t->state);
            t->state = state;
        }
        buf_consume(&t->in, (size_t)(end - begin) + 1);
    }
}

/* False: the run has ended. */
static bool top_read(struct top *t)
{
    enum { CHUNK = 1 << 16 };
    void *to = buf_reserve(&t->in, CHUNK);
    ssize_t n = to && buf_pending(&t->in) < TOP_LINE_MAX ? read(t->fd, to, CHUNK) : 0;
    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0)
        return false;
    buf_commit(&t->in, (size_t)n);
    top_take_lines(t);
    return true;
}

/* ---- the terminal ---- */

static void top_write(const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = write(STDOUT_FILENO, bytes, len);
        if (n < 0 && errno != EINTR)
            return;
        bytes += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

static void top_restore(void *ctx)
{
    const struct top *t = ctx;
    top_write(TOP_LEAVE, strlen(TOP_LEAVE));
    if (t->has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
}

static void top_enter(struct top *t)
{
    t->has_keys = tcgetattr(STDIN_FILENO, &t->before) == 0;
    if (t->has_keys) {
        struct termios raw = t->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    }
    top_write(TOP_ENTER, strlen(TOP_ENTER));
    t->entered = true;
    xalloc_on_end(top_restore, t);
}

static void top_leave(struct top *t)
{
    if (!t->entered)
        return;
    t->entered = false;
    xalloc_on_end(NULL, NULL);
    top_restore(t);
}

/* Each line is written over the old one, and what is left of the old screen is erased. */
static void top_draw(struct top *t)
{
    struct winsize size = {0};
    char *lines = NULL, *text = NULL;
    size_t len = 0;
    if (!t->state || !t->entered)
        return;
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    struct top_view view = {.width = size.ws_col ? size.ws_col : 80,
                            .height = size.ws_row ? size.ws_row : 24,
                            .first = t->first,
                            .color = t->options->color};
    FILE *f = text_stream_open(&lines, &len);
    t->shown = top_screen_draw(t->state, &view, f);
    text_stream_close(f, &lines);
    f = text_stream_open(&text, &len);
    fputs("\033[H", f);
    for (const char *line = lines; *line;) {
        size_t n = strcspn(line, "\n");
        bool last = !line[n] || !line[n + 1];
        fprintf(f, "%.*s\033[K%s", (int)n, line, last ? "" : "\r\n");
        line += n + (line[n] == '\n');
    }
    fputs("\033[J", f);
    text_stream_close(f, &text);
    top_write(text, len);
    free(lines);
    free(text);
}

/* ---- keys and signals ---- */

static void top_scroll(struct top *t, long by)
{
    size_t n = json_array_size(json_object_get(t->state, "ranks"));
    long last = (long)n - (t->shown ? (long)t->shown : 1), first = (long)t->first + by;
    first = first > last ? last : first;
    t->first = first > 0 ? (size_t)first : 0;
    top_draw(t);
}

/* False: q, or the terminal is gone. */
static bool top_on_key(struct top *t)
{
    static const struct {
        const char *code;
        int pages, lines;
    } keys[] = {{"\033[A", 0, -1}, {"\033[B", 0, 1},     {"\033OA", 0, -1},  {"\033OB", 0, 1},
                {"k", 0, -1},      {"j", 0, 1},          {"\033[5~", -1, 0}, {"\033[6~", 1, 0},
                {" ", 1, 0},       {"\033[H", -1000, 0}, {"g", -1000, 0}};
    char code[16];
    ssize_t n = read(STDIN_FILENO, code, sizeof code - 1);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    code[n] = '\0';
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(code, keys[i].code) == 0)
            top_scroll(t, keys[i].pages * (long)(t->shown + 1) + keys[i].lines);
    return !strchr(code, 'q');
}

/* Returns a signal that ends the process, or 0. */
static int top_on_signal(struct top *t)
{
    struct signalfd_siginfo info;
    if (read(t->signal_fd, &info, sizeof info) != sizeof info)
        return 0;
    int sig = (int)info.ssi_signo;
    if (sig == SIGWINCH) {
        top_draw(t);
    } else if (sig == SIGTSTP) {
        top_leave(t);
        raise(SIGSTOP);
        top_enter(t);
        top_draw(t);
    }
    return sig == SIGWINCH || sig == SIGTSTP ? 0 : sig;
}

static int top_open_signals(struct top *t)
{
    static const int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        sigaddset(&set, wanted[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTOU, SIG_IGN); /* tcsetattr, when the shell has taken the terminal back */
    t->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return t->signal_fd < 0 ? -1 : 0;
}

/* ---- the command ---- */

/* Until the run ends, or a key or a signal ends it. */
static int top_watch(struct top *t)
{
    top_enter(t);
    for (;;) {
        struct pollfd p[3] = {{.fd = t->fd, .events = POLLIN},
                              {.fd = t->signal_fd, .events = POLLIN},
                              {.fd = t->has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
        if (poll(p, 3, -1) < 0 && errno != EINTR)
            return 0;
        int sig = p[1].revents ? top_on_signal(t) : 0;
        if (sig)
            return 128 + sig;
        if (p[2].revents && !top_on_key(t))
            return 0;
        if (!p[0].revents)
            continue;
        if (!top_read(t))
            return 0;
        top_draw(t);
    }
}

/* One state, as text or as JSON. */
static int top_print(struct top *t, struct diag *d)
{
    const struct top_view view = {0};
    while (!t->state && top_read(t))
        ;
    if (!t->state)
        return diag_set(d, COLLRUN_ERR_INVALID, "the run in %s has ended", t->options->folder);
    if (t->options->json) {
        json_dumpf(t->state, stdout, JSON_INDENT(2));
        printf("\n");
    } else {
        top_screen_draw(t->state, &view, stdout);
    }
    return 0;
}

int top_command(const struct top_options *options, struct diag *d)
{
    struct top t = {.options = options, .fd = -1, .signal_fd = -1};
    const char *term = getenv("TERM");
    buf_init(&t.in);
    int rc = top_connect(&t, d);
    bool screen = !options->json && isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    if (rc == COLLRUN_OK && screen && top_open_signals(&t) < 0)
        rc = diag_sys(d, errno, "cannot create a signalfd");
    if (rc == COLLRUN_OK)
        rc = screen ? top_watch(&t) : top_print(&t, d);
    top_leave(&t);
    if (t.fd >= 0)
        close(t.fd);
    if (t.signal_fd >= 0)
        close(t.signal_fd);
    json_decref(t.state);
    buf_fini(&t.in);
    return rc;
}

/* ---- the screen ---- */

enum top_style { TOP_PLAIN, TOP_BOLD, TOP_WARNING, TOP_ERROR };

struct top_screen {
    const struct top_view *view;
    FILE *out;
    size_t lines, columns; /* that were written; columns of this line */
};

/* ---- lines and cells ---- */

/* Writes a text as far as the line has room. */
static void top_put(struct top_screen *s, enum top_style style, const char *text)
{
    static const char *const codes[] = {"", "\033[1m", "\033[33m", "\033[31m"};
    char harmless[512];
    size_t at = 0, width = s->view->width;
    utf8_clean(harmless, sizeof harmless, text, strlen(text));
    while (harmless[at] && (!width || s->columns < width)) {
        size_t len = utf8_len(harmless + at, strlen(harmless + at));
        size_t columns = len > 2 ? 2 : 1; /* at most */
        if (width && s->columns + columns > width)
            break;
        s->columns += columns;
        at += len ? len : 1;
    }
    bool colored = s->view->color && style != TOP_PLAIN;
    fprintf(s->out, "%s%.*s%s", colored ? codes[style] : "", (int)at, harmless,
            colored ? "\033[0m" : "");
}

/* A cell of a table; a negative width: at the right end. Two spaces follow. */
static void top_put_cell(struct top_screen *s, enum top_style style, int width, const char *text)
{
    char cell[160];
    snprintf(cell, sizeof cell, width < 0 ? "%*.*s  " : "%-*.*s  ", width < 0 ? -width : width,
             width < 0 ? -width : width, text);
    top_put(s, style, cell);
}

static bool top_has_room(const struct top_screen *s)
{
    return !s->view->height || s->lines < s->view->height;
}

static void top_end_line(struct top_screen *s)
{
    fputc('\n', s->out);
    s->lines++;
    s->columns = 0;
}

static void top_put_line(struct top_screen *s, enum top_style style, const char *text)
{
    if (!top_has_room(s))
        return;
    top_put(s, style, text);
    top_end_line(s);
}

/* ---- members of the state ---- */

static const char *top_text(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    return text ? text : "";
}

static double top_number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

static bool top_is_known(const json_t *o, const char *name)
{
    return json_is_number(json_object_get(o, name));
}

/* "12 us", "3.4 ms", "-" if it is not known. */
static void top_latency(const json_t *o, const char *name, char *out, size_t size)
{
    double us = top_number(o, name);
    if (!top_is_known(o, name))
        snprintf(out, size, "-");
    else if (us < 1e3)
        snprintf(out, size, us < 9.95 ? "%.1f us" : "%.0f us", us);
    else if (us < 1e6)
        snprintf(out, size, us < 9.95e3 ? "%.1f ms" : "%.0f ms", us / 1e3);
    else
        snprintf(out, size, "%.1f s", us / 1e6);
}

static void top_scaled(const json_t *o, const char *name, const char *unit, char out[48])
{
    char number[32];
    units_scaled(number, sizeof number, top_number(o, name));
    if (!top_is_known(o, name))
        snprintf(out, 48, "-");
    else
        snprintf(out, 48, "%s%s%s", number, *unit && !strchr(number, ' ') ? " " : "", unit);
}

/* ---- the head ---- */

static void top_put_workloads(struct top_screen *s, const json_t *state)
{
    const json_t *list = json_object_get(state, "workloads");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *w = json_array_get(list, i);
        char line[512];
        double total = top_number(w, "total");
        if (total <= 0)
            continue;
        snprintf(line, sizeof line, "%.128s %.0f%% %.128s", top_text(w, "name"),
                 100 * top_number(w, "done") / total, top_text(w, "what"));
        top_put_line(s, TOP_PLAIN, line);
    }
}

static void top_put_head(struct top_screen *s, const json_t *state)
{
    char line[512], time[32], attempt[48] = "";
    units_duration(time, sizeof time, top_number(state, "seconds"));
    if (top_number(state, "attempt") > 0)
        snprintf(attempt, sizeof attempt, "  attempt %.0f", top_number(state, "attempt"));
    snprintf(line, sizeof line, "%.128s  %.128s  %s%s  %.0f/%zu ranks up", top_text(state, "job"),
             top_text(state, "run_id"), time, attempt, top_number(state, "up"),
             json_array_size(json_object_get(state, "ranks")));
    top_put_line(s, TOP_BOLD, line);
    if (top_text(state, "waits")[0])
        top_put_line(s, TOP_WARNING, top_text(state, "waits"));
    top_put_workloads(s, state);
}

/* ---- the tables ---- */

/* As wide as the widest text of the column, at most `most`. */
static int top_width(const json_t *list, const char *name, size_t least, size_t most)
{
    size_t width = least;
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t len = strlen(top_text(json_array_get(list, i), name));
        width = len > width ? len : width;
    }
    return (int)(width < most ? width : most);
}

static void top_put_last(struct top_screen *s, const json_t *last)
{
    char text[128];
    if (!json_is_object(last)) {
        top_put(s, TOP_PLAIN, "-");
        return;
    }
    double share = top_number(last, "share"), late_ms = top_number(last, "late_ms");
    snprintf(text, sizeof text, "rank %.0f, %.0f%% of calls, %.*f ms late",
             top_number(last, "rank"), 100 * share, late_ms < 9.95 ? 1 : 0, late_ms);
    top_put(s, share > 0.5 && late_ms >= 1 ? TOP_WARNING : TOP_PLAIN, text);
}

static void top_put_group(struct top_screen *s, const json_t *g, int name, int backend)
{
    char text[48];
    top_put_cell(s, TOP_PLAIN, name, top_text(g, "name"));
    snprintf(text, sizeof text, "%.0f", top_number(g, "ranks"));
    top_put_cell(s, TOP_PLAIN, -5, text);
    top_put_cell(s, TOP_PLAIN, backend, top_text(g, "backend"));
    top_scaled(g, "operations_per_s", "", text);
    top_put_cell(s, TOP_PLAIN, -6, text);
    top_scaled(g, "bytes_per_s", "B", text);
    top_put_cell(s, TOP_PLAIN, -7, text);
    top_latency(g, "latency_us", text, sizeof text);
    top_put_cell(s, TOP_PLAIN, -7, text);
    top_latency(g, "longest_us", text, sizeof text);
    top_put_cell(s, TOP_PLAIN, -7, text);
    top_put_last(s, json_object_get(g, "last"));
    top_end_line(s);
}

/* At most half of the screen. */
static void top_put_groups(struct top_screen *s, const json_t *list)
{
    size_t n = json_array_size(list), most = s->view->height ? s->view->height / 2 : n;
    int name = top_width(list, "name", 5, 32), backend = top_width(list, "backend", 7, 16);
    char line[200];
    top_put_line(s, TOP_PLAIN, "");
    snprintf(line, sizeof line, "%-*s  %5s  %-*s  %6s  %7s  %7s  %7s  %s", name, "GROUP", "RANKS",
             backend, "BACKEND", "OP/S", "B/S", "LATENCY", "LONGEST", "LAST TO ARRIVE");
    top_put_line(s, TOP_BOLD, line);
    for (size_t i = 0; i < n && top_has_room(s); i++) {
        if (i + 1 >= most && n > most) {
            snprintf(line, sizeof line, "%zu more groups", n - i);
            top_put_line(s, TOP_PLAIN, line);
            return;
        }
        top_put_group(s, json_array_get(list, i), name, backend);
    }
}

static enum top_style top_style_of(const json_t *r)
{
    const char *state = top_text(r, "state");
    bool failed = strcmp(state, "exited") == 0 && strcmp(top_text(r, "doing"), "with code 0") != 0;
    return failed || strcmp(state, "killed") == 0 || strcmp(state, "stopped") == 0 ? TOP_ERROR
                                                                                   : TOP_PLAIN;
}

static void top_put_rank(struct top_screen *s, const json_t *r, int host, int state)
{
    char text[48], for_s[48] = "";
    snprintf(text, sizeof text, "%.0f", top_number(r, "rank"));
    top_put_cell(s, TOP_PLAIN, -4, text);
    top_put_cell(s, TOP_PLAIN, host, top_text(r, "host"));
    snprintf(text, sizeof text, "%.0f", top_number(r, "pid"));
    top_put_cell(s, TOP_PLAIN, -7, text);
    top_put_cell(s, top_style_of(r), state, top_text(r, "state"));
    snprintf(text, sizeof text, top_is_known(r, "cpu") ? "%.0f%%" : "-",
             100 * top_number(r, "cpu"));
    top_put_cell(s, TOP_PLAIN, -5, text);
    top_scaled(r, "memory", "B", text);
    top_put_cell(s, TOP_PLAIN, -6, text);
    if (top_number(r, "seconds") >= 0.95)
        snprintf(for_s, sizeof for_s, ", for %.0f s", top_number(r, "seconds"));
    top_put(s, TOP_PLAIN, top_text(r, "doing"));
    top_put(s, TOP_PLAIN, for_s);
    top_end_line(s);
}

/* Returns how many. If some have no room, the last line says so. */
static size_t top_put_ranks(struct top_screen *s, const json_t *list)
{
    size_t n = json_array_size(list), first = s->view->first < n ? s->view->first : 0, i = first;
    int host = top_width(list, "host", 4, 24), state = top_width(list, "state", 5, 20);
    char line[200];
    top_put_line(s, TOP_PLAIN, "");
    snprintf(line, sizeof line, "%4s  %-*s  %7s  %-*s  %5s  %6s  %s", "RANK", host, "HOST", "PID",
             state, "STATE", "CPU", "MEMORY", "DOING");
    top_put_line(s, TOP_BOLD, line);
    bool all = !s->view->height || (!first && s->lines + n <= s->view->height);
    for (; i < n && top_has_room(s) && (all || s->lines + 1 < s->view->height); i++)
        top_put_rank(s, json_array_get(list, i), host, state);
    snprintf(line, sizeof line, "ranks %zu-%zu of %zu: up and down scroll, q quits", first,
             i > first ? i - 1 : first, n);
    if (!all)
        top_put_line(s, TOP_PLAIN, line);
    return i - first;
}

size_t top_screen_draw(const json_t *state, const struct top_view *view, FILE *out)
{
    struct top_screen s = {.view = view, .out = out};
    top_put_head(&s, state);
    top_put_groups(&s, json_object_get(state, "groups"));
    return top_put_ranks(&s, json_object_get(state, "ranks"));
}
