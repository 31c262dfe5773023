/* SPDX-License-Identifier: Apache-2.0 */
#include "report/top.h"

#include "base/buf.h"
#include "base/text_stream.h"
#include "report/top_screen.h"
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
