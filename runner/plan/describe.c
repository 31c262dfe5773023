/* SPDX-License-Identifier: Apache-2.0
 *
 * One child, its stdout read line by line under a deadline. Line N speaks of plugin N; when the
 * child ends early, the plugin whose line is missing is what ended it, and a new child gets those
 * after it. What else a plugin prints on stdout while it is loaded is no JSON object with that
 * plugin's path, and is skipped.
 */
#include "plan/describe.h"

#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

enum { LINE_MAX_LEN = 4 << 20 };

/* ---- one line ---- */

static const char *take_text(struct arena *arena, const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? arena_strdup(arena, s) : NULL;
}

static const char *take_word(struct arena *arena, const json_t *object, const char *key)
{
    const char *s = take_text(arena, object, key);
    return s ? s : "";
}

static uint64_t take_flags(const json_t *list)
{
    static const char *const names[] = {"one_host", "needs_device", "tags",
                                        "recv_any", "inline_check", "starts_all"};
    uint64_t flags = 0;
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        for (unsigned bit = 0; bit < sizeof names / sizeof names[0]; bit++)
            if (json_is_string(item) && !strcmp(json_string_value(item), names[bit]))
                flags |= UINT64_C(1) << bit;
    }
    return flags;
}

const char *const describe_operations[COLLRUN_KIND_COUNT] = {
    "barrier",         "allreduce",      "reduce",   "broadcast",  "allgather", "gather",
    "scatter",         "reduce_scatter", "alltoall", "allgatherv", "gatherv",   "scatterv",
    "reduce_scatterv", "alltoallv",      "send",     "recv",       "recv_any"};

static void take_operations(const json_t *object, enum describe_how *out)
{
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++) {
        const char *how = json_string_value(json_object_get(object, describe_operations[kind]));
        if (how && !strcmp(how, "native"))
            out[kind] = DESCRIBE_NATIVE;
        else if (how && !strcmp(how, "emulated"))
            out[kind] = DESCRIBE_EMULATED;
    }
}

static enum collrun_param_type take_type(const json_t *param)
{
    static const char *const names[] = {"string", "int", "float", "bool", "size", "duration"};
    const char *type = json_string_value(json_object_get(param, "type"));
    for (unsigned i = 0; type && i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(type, names[i]))
            return (enum collrun_param_type)i;
    return COLLRUN_PARAM_STRING;
}

static void take_params(struct arena *arena, const json_t *list, struct described *out)
{
    size_t n = json_array_size(list);
    out->params = arena_calloc(arena, n, sizeof *out->params);
    for (size_t i = 0; i < n && out->params; i++) {
        const json_t *param = json_array_get(list, i);
        out->params[out->nparams++] = (struct describe_param){
            .name = take_word(arena, param, "name"),
            .def = take_text(arena, param, "default"),
            .min = take_text(arena, param, "min"),
            .max = take_text(arena, param, "max"),
            .help = take_word(arena, param, "help"),
            .type = take_type(param),
        };
    }
}

/* Fills in from a line, if it speaks of this plugin. */
static bool take_line(struct arena *arena, const char *line, size_t len, struct described *out)
{
    json_t *root = json_loadb(line, len, 0, NULL);
    const char *path = json_string_value(json_object_get(root, "path"));
    bool mine = path && !strcmp(path, out->path);
    if (mine) {
        out->error = take_text(arena, root, "error");
        out->hint = take_word(arena, root, "hint");
        out->name = take_word(arena, root, "name");
        out->version = take_word(arena, root, "version");
        out->abi = (uint32_t)json_integer_value(json_object_get(root, "abi"));
        out->available = json_is_true(json_object_get(root, "available"));
        out->found = take_word(arena, root, "found");
        out->reason = take_word(arena, root, "reason");
        out->flags = take_flags(json_object_get(root, "flags"));
        out->summary = take_word(arena, root, "summary");
        take_operations(json_object_get(root, "operations"), out->operations);
        const json_t *options = json_object_get(root, "options");
        out->any_option = !options;
        take_params(arena, options ? options : json_object_get(root, "params"), out);
    }
    json_decref(root);
    return mine;
}

/* ---- the child ---- */

struct loader {
    pid_t pid;
    int fd;               /* its stdout */
    uint32_t deadline_ms; /* from its start */
    struct timespec started;
    bool late;
};

/* In the child, between fork and exec. */
static void become_engine(const char *engine, char *const *argv, int out, pid_t parent)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && nothing >= 0 &&
        dup2(nothing, 0) == 0 && dup2(out, 1) == 1 && dup2(nothing, 2) == 2)
        execv(engine, argv);
    _exit(127);
}

static int start(struct loader *loader, const char *engine, struct described *items, uint32_t n,
                 struct arena *arena, struct diag *d)
{
    char **argv = arena_calloc(arena, (size_t)n + 3, sizeof *argv);
    int ends[2];
    if (!argv)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    argv[0] = (char *)engine;
    argv[1] = (char *)"--describe";
    for (uint32_t i = 0; i < n; i++) {
        const char *kind = items[i].kind == DESCRIBE_BACKEND ? "backend" : "workload";
        argv[i + 2] = arena_printf(arena, "%s:%s", kind, items[i].path);
    }
    if (arena_failed(arena))
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (access(engine, X_OK) < 0)
        return diag_sys(d, errno, "cannot run %s", engine);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return diag_sys(d, errno, "cannot make a pipe");
    pid_t parent = getpid();
    loader->pid = fork();
    int err = errno;
    if (loader->pid == 0)
        become_engine(engine, argv, ends[1], parent);
    close(ends[1]);
    if (loader->pid < 0) {
        close(ends[0]);
        return diag_sys(d, err, "cannot start %s", engine);
    }
    loader->fd = ends[0];
    clock_gettime(CLOCK_MONOTONIC, &loader->started);
    return 0;
}

static int ms_left(const struct loader *loader)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ms = loader->deadline_ms - (int64_t)(now.tv_sec - loader->started.tv_sec) * 1000 -
                 (now.tv_nsec - loader->started.tv_nsec) / 1000000;
    return ms > 0 ? (int)ms : 0;
}

/* More of the child's output into `in`. False at its end, or when time is up. */
static bool read_more(struct loader *loader, struct buf *in)
{
    struct pollfd p = {.fd = loader->fd, .events = POLLIN};
    int ready = poll(&p, 1, ms_left(loader));
    if (ready < 0 && errno == EINTR)
        return true;
    if (ready == 0 && ms_left(loader))
        return true;
    if (ready <= 0 || buf_pending(in) > LINE_MAX_LEN) {
        loader->late = true;
        return false;
    }
    void *room = buf_reserve(in, 65536);
    ssize_t n = room ? read(loader->fd, room, 65536) : 0;
    if (n < 0)
        return errno == EINTR;
    buf_commit(in, (size_t)n);
    return n > 0;
}

/* Takes whole lines off `in`; returns how many plugins have spoken in all. */
static uint32_t take_lines(struct buf *in, struct described *items, uint32_t n, uint32_t done,
                           struct arena *arena)
{
    for (;;) {
        const char *line = (const char *)in->data + in->start;
        const char *end = buf_pending(in) ? memchr(line, '\n', buf_pending(in)) : NULL;
        if (!end)
            return done;
        if (done < n && take_line(arena, line, (size_t)(end - line), &items[done]))
            done++;
        buf_consume(in, (size_t)(end - line) + 1);
    }
}

static int reap(struct loader *loader)
{
    int status = 0;
    close(loader->fd);
    if (loader->late)
        kill(loader->pid, SIGKILL);
    while (waitpid(loader->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status;
}

static const char *last_words(const struct loader *loader, int status, struct arena *arena)
{
    if (loader->late)
        return arena_printf(arena, "it does not finish loading within %g seconds",
                            loader->deadline_ms / 1e3);
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        return arena_printf(arena, "it crashes when it is loaded (SIG%s)", name ? name : "?");
    }
    return arena_printf(arena, "it ends the process that loads it (exit code %d)",
                        WEXITSTATUS(status));
}

/* One child for all of `items`; returns how many have been dealt with, at least one, or a negative
 * code. */
static int run_once(const char *engine, uint32_t deadline_ms, struct described *items, uint32_t n,
                    struct arena *arena, struct diag *d)
{
    struct loader loader = {.fd = -1, .deadline_ms = deadline_ms};
    int code = start(&loader, engine, items, n, arena, d);
    if (code < 0)
        return code;
    struct buf in;
    buf_init(&in);
    uint32_t done = 0;
    bool more = true;
    while (done < n && more) {
        more = read_more(&loader, &in);
        done = take_lines(&in, items, n, done, arena);
    }
    bool broken = in.failed;
    buf_fini(&in);
    if (done == n &&
        !loader.late) /* it has nothing more to say; a destructor that hangs is not waited for */
        kill(loader.pid, SIGKILL);
    int status = reap(&loader);
    if (broken || arena_failed(arena))
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (done == 0 && !loader.late && WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return diag_set(d, COLLRUN_ERR_SYSTEM, "cannot start %s", engine);
    if (done == n)
        return (int)n;
    items[done].error = last_words(&loader, status, arena);
    items[done].hint = "";
    return (int)done + 1;
}

int describe(const char *engine, uint32_t deadline_ms, struct described *items, uint32_t n,
             struct arena *arena, struct diag *d)
{
    for (uint32_t done = 0; done < n;) {
        int more = run_once(engine, deadline_ms, items + done, n - done, arena, d);
        if (more < 0)
            return more;
        done += (uint32_t)more;
    }
    return 0;
}
