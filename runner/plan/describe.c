/* SPDX-License-Identifier: Apache-2.0
 *
 * One child process describes all plugins; its stdout is read line by line under a deadline.
 * - Line N describes plugin N.
 * - If the child ends early, the plugin whose line is missing ended it; a new child describes the
 *   plugins after it.
 * - Anything else that a plugin prints on stdout is not a JSON object with the path of that plugin,
 *   and is skipped.
 */
#include "plan/describe.h"

#include "base/buf.h"
#include "base/exit_codes.h"
#include "base/names.h"
#include "plan/engine_child.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <jansson.h>

/* ---- one line ---- */

static const char *describe_text(struct arena *arena, const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? arena_strdup(arena, s) : NULL;
}

static const char *describe_text_or_empty(struct arena *arena, const json_t *object,
                                          const char *key)
{
    const char *s = describe_text(arena, object, key);
    return s ? s : "";
}

static uint64_t describe_read_flags(const json_t *list)
{
    uint64_t flags = 0;
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        for (unsigned bit = 0; backend_flag_name(bit); bit++)
            if (json_is_string(item) &&
                strcmp(json_string_value(item), backend_flag_name(bit)) == 0)
                flags |= UINT64_C(1) << bit;
    }
    return flags;
}

static void describe_read_operations(const json_t *object, enum describe_how *out)
{
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++) {
        const char *how = json_string_value(json_object_get(object, kind_name(kind)));
        if (how && strcmp(how, "native") == 0)
            out[kind] = DESCRIBE_NATIVE;
        else if (how && strcmp(how, "emulated") == 0)
            out[kind] = DESCRIBE_EMULATED;
    }
}

static enum collrun_param_type describe_read_type(const json_t *param, const char *key)
{
    static const char *const names[] = {"string", "int",      "float", "bool",
                                        "size",   "duration", "enum",  "list"};
    const char *type = json_string_value(json_object_get(param, key));
    for (unsigned i = 0; type && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(type, names[i]) == 0)
            return (enum collrun_param_type)i;
    return COLLRUN_PARAM_STRING;
}

static void describe_read_params(struct arena *arena, const json_t *list, struct described *out)
{
    size_t n = json_array_size(list);
    out->params = arena_calloc(arena, n, sizeof *out->params);
    for (size_t i = 0; i < n; i++) {
        const json_t *param = json_array_get(list, i);
        out->params[out->nparams++] = (struct describe_param){
            .name = describe_text_or_empty(arena, param, "name"),
            .def = describe_text(arena, param, "default"),
            .min = describe_text(arena, param, "min"),
            .max = describe_text(arena, param, "max"),
            .help = describe_text_or_empty(arena, param, "help"),
            .type = describe_read_type(param, "type"),
            .item = describe_read_type(param, "item"),
            .choices = describe_text(arena, param, "choices"),
            .per_direction = describe_text(arena, param, "per_direction"),
        };
    }
}

static uint32_t describe_read_works_on(const json_t *list)
{
    uint32_t set = 0;
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        bool device = json_is_string(item) && strcmp(json_string_value(item), "device") == 0;
        set |= device ? COLLRUN_MEMORY_DEVICE : COLLRUN_MEMORY_HOST;
    }
    return set;
}

static void describe_read_memory(struct arena *arena, const json_t *object,
                                 struct describe_memory *out)
{
    const char *name = describe_text(arena, object, "name");
    *out = (struct describe_memory){
        .name = name,
        .title = describe_text_or_empty(arena, object, "title"),
        .mask = describe_text_or_empty(arena, object, "mask"),
        .gpus = name && json_is_true(json_object_get(object, "gpus")),
        .declares = name && json_is_true(json_object_get(object, "declares")),
    };
}

/* Fills in `out` if the line describes this plugin. */
static bool describe_read_line(struct arena *arena, const char *line, size_t len,
                               struct described *out)
{
    json_t *root = json_loadb(line, len, 0, NULL);
    const char *path = json_string_value(json_object_get(root, "path"));
    bool mine = path && strcmp(path, out->path) == 0;
    if (mine) {
        out->error = describe_text(arena, root, "error");
        out->hint = describe_text_or_empty(arena, root, "hint");
        out->name = describe_text_or_empty(arena, root, "name");
        out->version = describe_text_or_empty(arena, root, "version");
        out->abi = (uint32_t)json_integer_value(json_object_get(root, "abi"));
        out->available = json_is_true(json_object_get(root, "available"));
        out->found = describe_text_or_empty(arena, root, "found");
        out->reason = describe_text_or_empty(arena, root, "reason");
        out->flags = describe_read_flags(json_object_get(root, "flags"));
        out->works_on = describe_read_works_on(json_object_get(root, "memory"));
        describe_read_memory(arena, json_object_get(root, "memory_kind"), &out->memory);
        out->summary = describe_text_or_empty(arena, root, "summary");
        out->has_check = json_is_true(json_object_get(root, "check"));
        describe_read_operations(json_object_get(root, "operations"), out->operations);
        const json_t *options = json_object_get(root, "options");
        out->any_option = !options;
        describe_read_params(arena, options ? options : json_object_get(root, "params"), out);
    }
    json_decref(root);
    return mine;
}

/* ---- the child ---- */

static int describe_start(struct engine_child *child, const char *engine, struct described *items,
                          uint32_t n, struct arena *arena, struct diag *d)
{
    char **argv = arena_calloc(arena, (size_t)n + 3, sizeof *argv);
    argv[0] = (char *)engine;
    argv[1] = (char *)"--describe";
    for (uint32_t i = 0; i < n; i++) {
        const char *kind = items[i].kind == DESCRIBE_BACKEND ? "backend" : "workload";
        argv[i + 2] = arena_printf(arena, "%s:%s", kind, items[i].path);
    }
    return engine_child_start(child, engine, argv, -1, d);
}

/* Consumes whole lines of `in`; returns the number of plugins described so far. */
static uint32_t describe_read_lines(struct buf *in, struct described *items, uint32_t n,
                                    uint32_t done, struct arena *arena)
{
    for (;;) {
        const char *line = buf_pending(in) ? (const char *)in->data + in->start : NULL;
        const char *end = line ? memchr(line, '\n', buf_pending(in)) : NULL;
        if (!end)
            return done;
        if (done < n && describe_read_line(arena, line, (size_t)(end - line), &items[done]))
            done++;
        buf_consume(in, (size_t)(end - line) + 1);
    }
}

/* A crash names the file and, unless its place is known, the way to a stack. */
static const char *describe_hint(const char *engine, const struct described *item,
                                 const struct engine_child *child, int status, struct arena *arena)
{
    /* What AddressSanitizer prints when it is not loaded first. */
    if (strstr(child->words, "ASan runtime does not come first"))
        return "preload it: env: {set: {LD_PRELOAD: FILE}}; cc -print-file-name=libasan.so "
               "prints FILE";
    if (!WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL)
        return "";
    if (child->crash[0])
        return arena_printf(arena, "a constructor of %s or of one of its libraries crashes",
                            item->path);
    return arena_printf(arena,
                        "a constructor of %s or of one of its libraries crashes; to see where: gdb "
                        "-batch -ex run -ex bt --args %s --describe %s:%s",
                        item->path, engine, item->kind == DESCRIBE_BACKEND ? "backend" : "workload",
                        item->path);
}

/* Runs one child for `items`. Returns how many are done, at least one, or a negative code. */
static int describe_some(const char *engine, uint32_t deadline_ms, struct described *items,
                         uint32_t n, struct arena *arena, struct diag *d)
{
    struct engine_child child = {.fd = -1, .deadline_ms = deadline_ms};
    int code = describe_start(&child, engine, items, n, arena, d);
    if (code < 0)
        return code;
    struct buf in;
    buf_init(&in);
    uint32_t done = 0;
    bool more = true;
    while (done < n && more) {
        more = engine_child_read(&child, &in);
        done = describe_read_lines(&in, items, n, done, arena);
    }
    buf_fini(&in);
    if (done == n && !child.late) /* all lines are there: do not wait for its destructors */
        kill(child.pid, SIGKILL);
    int status = engine_child_end(&child);
    if (done == 0 && !child.late && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_EXEC)
        return diag_set(d, COLLRUN_ERR_SYSTEM, "cannot start %s%s%.300s", engine,
                        child.words[0] ? ": " : "", child.words);
    if (done == n)
        return (int)n;
    items[done].error =
        engine_child_failure(&child, status, "loading the plugin", "is loaded", arena);
    items[done].hint = describe_hint(engine, &items[done], &child, status, arena);
    return (int)done + 1;
}

int describe(const char *engine, uint32_t deadline_ms, struct described *items, uint32_t n,
             struct arena *arena, struct diag *d)
{
    for (uint32_t done = 0; done < n;) {
        int more = describe_some(engine, deadline_ms, items + done, n - done, arena, d);
        if (more < 0)
            return more;
        done += (uint32_t)more;
    }
    return 0;
}
