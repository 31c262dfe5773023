/* SPDX-License-Identifier: Apache-2.0
 *
 * One child process for all workloads that have a check. It reads the plan from a memory file and
 * prints its lines in the order of the workloads, so the one without a "done" ended it.
 */
#include "plan/checks.h"

#include "plan/engine_child.h"
#include "plan/planner.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jansson.h>

struct checks {
    const struct desc *desc;
    struct arena *arena;
    struct diag_list *diags;
    uint32_t *indices; /* of the workloads */
    uint32_t n, ndone;
};

/* "workloads[0].per_ranks[1].params", of the mapping that holds `kv`. */
static const char *checks_path(const struct checks *c, uint32_t index, const struct desc_kv *kv)
{
    const struct desc_workload *w = &c->desc->workloads[index];
    for (uint32_t i = 0; i < w->noverrides; i++)
        for (uint32_t k = 0; k < w->overrides[i].params.n; k++)
            if (kv == &w->overrides[i].params.items[k])
                return arena_printf(c->arena, "workloads[%u].per_ranks[%u].params", index, i);
    return arena_printf(c->arena, "workloads[%u].params", index);
}

static bool checks_has_reported(const struct checks *c, const struct diag *d)
{
    for (uint32_t i = 0; i < c->diags->n; i++) {
        const struct diag *other = &c->diags->items[i];
        if (other->loc.line == d->loc.line && other->loc.column == d->loc.column &&
            strcmp(other->text, d->text) == 0)
            return true;
    }
    return false;
}

static void checks_add_error(struct checks *c, struct diag_loc loc, const char *path,
                             const char *text)
{
    struct diag d;
    diag_at(&d, loc, "%s: %s", path, text);
    if (!checks_has_reported(c, &d))
        diag_list_add(c->diags, &d);
}

static void checks_refused(struct checks *c, const json_t *line, uint32_t index)
{
    const struct desc_workload *w = &c->desc->workloads[index];
    const char *param = json_string_value(json_object_get(line, "param"));
    const char *text = json_string_value(json_object_get(line, "error"));
    uint32_t rank = (uint32_t)json_integer_value(json_object_get(line, "rank"));
    const struct desc_kv *kv = param ? desc_find_param(w, rank, param) : NULL;
    const char *path = checks_path(c, index, kv);
    if (param)
        path = arena_printf(c->arena, "%s.%s", path, param);
    checks_add_error(c, kv ? kv->loc : w->loc, path, text ? text : "");
}

static void checks_read_line(struct checks *c, const char *text, size_t len)
{
    json_t *line = json_loadb(text, len, 0, NULL);
    const json_t *number = json_object_get(line, "workload");
    bool expected = json_is_integer(number) && c->ndone < c->n &&
                    json_integer_value(number) == (json_int_t)c->indices[c->ndone];
    if (expected && json_is_true(json_object_get(line, "done")))
        c->ndone++;
    else if (expected)
        checks_refused(c, line, c->indices[c->ndone]);
    json_decref(line);
}

static void checks_read_lines(struct checks *c, struct buf *in)
{
    for (;;) {
        const char *line = buf_pending(in) ? (const char *)in->data + in->start : NULL;
        const char *end = line ? memchr(line, '\n', buf_pending(in)) : NULL;
        if (!end)
            return;
        checks_read_line(c, line, (size_t)(end - line));
        buf_consume(in, (size_t)(end - line) + 1);
    }
}

static void checks_find(struct checks *c, const struct plan_input *in)
{
    c->indices = arena_calloc(c->arena, c->desc->nworkloads, sizeof *c->indices);
    for (uint32_t i = 0; i < c->desc->nworkloads; i++) {
        const struct described *what =
            lookup_described(in, DESCRIBE_WORKLOAD, c->desc->workloads[i].plugin);
        if (what && !what->error && what->has_check)
            c->indices[c->n++] = i;
    }
}

/* The plan in a memory file, for the stdin of the child. Returns a descriptor, or a negative code.
 */
static int checks_write_plan(const struct desc *desc, struct diag *d)
{
    struct buf bytes;
    buf_init(&bytes);
    desc_encode(desc, &bytes);
    int fd = memfd_create("plan", MFD_CLOEXEC);
    int code = fd;
    if (fd < 0)
        code = diag_sys(d, errno, "cannot make a memory file");
    else if (write(fd, bytes.data, bytes.len) != (ssize_t)bytes.len || lseek(fd, 0, SEEK_SET) != 0)
        code = diag_sys(d, errno, "cannot write a memory file");
    if (fd >= 0 && code < 0)
        close(fd);
    buf_fini(&bytes);
    return code;
}

static int checks_start(struct checks *c, struct engine_child *child, const char *engine,
                        struct diag *d)
{
    char **argv = arena_calloc(c->arena, (size_t)c->n + 3, sizeof *argv);
    for (uint32_t i = 0; i < c->n; i++)
        argv[i + 2] = arena_printf(c->arena, "%u", c->indices[i]);
    argv[0] = (char *)engine;
    argv[1] = (char *)"--check";
    int input = checks_write_plan(c->desc, d);
    if (input < 0)
        return input;
    int code = engine_child_start(child, engine, argv, input, d);
    close(input);
    return code;
}

/* Reads the lines of the child until each workload is done or the child ends. Returns its status.
 */
static int checks_collect(struct checks *c, struct engine_child *child)
{
    struct buf output;
    buf_init(&output);
    for (bool more = true; more && c->ndone < c->n;) {
        more = engine_child_read(child, &output);
        checks_read_lines(c, &output);
    }
    buf_fini(&output);
    if (c->ndone == c->n) /* do not wait for its destructors */
        kill(child->pid, SIGKILL);
    return engine_child_end(child);
}

/* The workload whose "done" is missing ended the child. */
static void checks_add_failure(struct checks *c, const struct engine_child *child, int status)
{
    uint32_t index = c->indices[c->ndone];
    checks_add_error(c, c->desc->workloads[index].loc,
                     arena_printf(c->arena, "workloads[%u].plugin", index),
                     engine_child_failure(child, status, "the check of the parameters",
                                          "checks the parameters", c->arena));
}

int checks_run(const struct desc *desc, const struct plan_input *in, const char *engine,
               uint32_t deadline_ms, struct diag_list *diags, struct diag *d)
{
    struct arena arena;
    struct checks c = {.desc = desc, .arena = &arena, .diags = diags};
    struct engine_child child = {.fd = -1, .deadline_ms = deadline_ms};
    arena_init(&arena);
    checks_find(&c, in);
    int code = 0;
    if (c.n)
        code = checks_start(&c, &child, engine, d);
    if (code == 0 && c.n) {
        int status = checks_collect(&c, &child);
        if (c.ndone < c.n)
            checks_add_failure(&c, &child, status);
    }
    arena_fini(&arena);
    return code;
}
