/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a file, chooses its reader, and checks what all formats have in common: each operation is
 * in a group that its rank is a member of, its peer is another member, and its sizes are possible.
 */
#include "format.h"

#include <collrun/collrun.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what holds in every format ---- */

static int format_check_op(struct trace *t, const struct op *op)
{
    const struct trace_group *g = &t->groups[op->group];
    uint64_t most = TRACE_BYTES_MAX / collrun_dtype_size(op->dtype) / (uint64_t)g->size;
    bool message = op->kind == COLLRUN_SEND || op->kind == COLLRUN_RECV;
    bool rooted = !message && collrun_kind_has_root((enum collrun_kind)op->kind);
    if (t->rank >= 0 && trace_group_rank(g, t->rank) < 0)
        return trace_fail(t, op->place, "%s in group %s, which rank %d is not in",
                          trace_kind_name(op->kind), g->name, t->rank);
    if ((message || rooted) && trace_group_rank(g, op->peer) < 0)
        return trace_fail(t, op->place, "%s: %s %d is not in group %s", trace_kind_name(op->kind),
                          rooted ? "root" : "peer", op->peer, g->name);
    if (op->count > most)
        return trace_fail(t, op->place, "%s of %zu elements: more than 1 TiB",
                          trace_kind_name(op->kind), op->count);
    for (size_t i = 0; op->kind == COLLRUN_ALLTOALLV && i < 2 * (size_t)g->size; i++)
        if (t->counts[op->counts + i] > most)
            return trace_fail(t, op->place, "%s of %zu elements: more than 1 TiB",
                              trace_kind_name(op->kind), t->counts[op->counts + i]);
    return 0;
}

static int format_check(struct trace *t)
{
    if (t->world_size < 1)
        return trace_fail(t, TRACE_FILE, "the file does not say how many ranks were traced");
    for (int i = 0; i < t->ngroups; i++)
        for (int k = 0; k < t->groups[i].size; k++)
            if (t->groups[i].ranks[k] < 0 || t->groups[i].ranks[k] >= t->world_size)
                return trace_fail(t, TRACE_FILE, "group %s has rank %d; the trace has %d ranks",
                                  t->groups[i].name, t->groups[i].ranks[k], t->world_size);
    for (size_t i = 0; i < t->nops; i++)
        if (t->ops[i].kind != TRACE_WAIT && format_check_op(t, &t->ops[i]))
            return -1;
    return 0;
}

/* ---- files ---- */

static enum format format_guess(const char *file, const char *text, size_t len)
{
    size_t name = strlen(file);
    if (name > 3 && strcmp(file + name - 3, ".et") == 0)
        return FORMAT_CHAKRA;
    size_t at = strspn(text, " \t\r\n");
    if (at < len && (text[at] == '{' || text[at] == '['))
        return FORMAT_PYTORCH;
    return text[at] == '#' || strncmp(text + at, "MPI_", 4) == 0 ? FORMAT_MPI : FORMAT_AUTO;
}

int format_parse(struct trace *t, char *text, size_t len, enum format format)
{
    int rc = 0;
    if (len > 1 && (unsigned char)text[0] == 0x1f && (unsigned char)text[1] == 0x8b)
        return trace_fail(t, TRACE_FILE,
                          "the file is compressed; unpack it first: gunzip, or tar -xzf");
    if (format == FORMAT_AUTO)
        format = format_guess(t->file, text, len);
    t->unit = format == FORMAT_MPI ? "line" : "node";
    if (format == FORMAT_MPI)
        rc = mpi_read(t, text, len);
    else if (format == FORMAT_PYTORCH)
        rc = pytorch_read(t, text, len);
    else if (format == FORMAT_CHAKRA)
        rc = chakra_read(t, text, len);
    else
        return trace_fail(t, TRACE_FILE,
                          "the format is unknown: no MPI calls of liballprof, no "
                          "execution trace of PyTorch in JSON, and the name does not end with .et");
    return rc ? rc : format_check(t);
}

static char *format_load(struct trace *t, size_t *len)
{
    struct stat st;
    FILE *f = fopen(t->file, "rbe");
    if (!f || fstat(fileno(f), &st)) {
        trace_fail(t, TRACE_FILE, "%s", strerror(errno));
        if (f)
            (void)fclose(f);
        return NULL;
    }
    size_t size = (size_t)st.st_size;
    char *text = S_ISREG(st.st_mode) && size <= FORMAT_FILE_MAX ? malloc(size + 1) : NULL;
    if (!text) {
        trace_fail(t, TRACE_FILE,
                   S_ISREG(st.st_mode) ? "out of memory for the file" : "not a file");
    } else {
        *len = fread(text, 1, size, f);
        text[*len] = '\0';
    }
    (void)fclose(f);
    return text;
}

int format_read(struct trace *t, const char *file, enum format format, int rank, int world_size)
{
    size_t len = 0;
    *t = (struct trace){.file = file, .unit = "line", .rank = rank, .world_size = world_size};
    char *text = format_load(t, &len);
    int rc = text ? format_parse(t, text, len, format) : -1;
    free(text);
    return rc;
}

int format_read_times(struct trace *t, const char *file)
{
    size_t len = 0;
    const char *trace = t->file;
    t->file = file;
    char *text = format_load(t, &len);
    int rc = text ? kineto_read(t, text, len) : -1;
    free(text);
    t->file = trace;
    return rc;
}
