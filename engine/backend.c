/* SPDX-License-Identifier: Apache-2.0
 *
 * Adoption: validate, copy min(size), fill the holes.
 */
#include "backend.h"

#include "error.h"
#include "names.h"
#include "plugin.h"
#include "threads.h"

#include <collrun/collrun.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int probe_available(const struct collrun_services *services, char *why, size_t len)
{
    (void)services;
    (void)why;
    (void)len;
    return COLLRUN_OK;
}

static int open_nothing(const struct collrun_services *services, void **backend)
{
    (void)services;
    *backend = NULL;
    return COLLRUN_OK;
}

static void close_nothing(void *backend)
{
    (void)backend;
}

static int no_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    (void)group;
    (void)calls;
    (void)ncalls;
    return COLLRUN_ERR_UNSUPPORTED;
}

static int no_start(void *group, const struct collrun_call *calls, uint32_t ncalls, void **request)
{
    (void)group;
    (void)calls;
    (void)ncalls;
    (void)request;
    return COLLRUN_ERR_UNSUPPORTED;
}

static int no_test(void *group, void *request)
{
    (void)group;
    (void)request;
    return COLLRUN_ERR_UNSUPPORTED;
}

enum { ALIGNMENT = 4096 };

static int alloc_plain(void *group, size_t len, void **ptr)
{
    (void)group;
    return posix_memalign(ptr, ALIGNMENT, len ? len : 1) ? COLLRUN_ERR_NO_MEMORY : COLLRUN_OK;
}

static int free_plain(void *group, void *ptr)
{
    (void)group;
    free(ptr);
    return COLLRUN_OK;
}

static int no_alloc_on(void *group, uint32_t device, size_t len, void **ptr)
{
    (void)group;
    (void)device;
    (void)len;
    (void)ptr;
    return COLLRUN_ERR_UNSUPPORTED;
}

static void fill_holes(struct backend *b)
{
    struct collrun_backend *t = &b->table;
    b->has_order = t->order != NULL;
    b->has_exec = t->exec != NULL;
    b->has_start = t->start != NULL;
    b->has_alloc = t->alloc != NULL;
    t->probe = t->probe ? t->probe : probe_available;
    t->open = t->open ? t->open : open_nothing;
    t->close = t->close ? t->close : close_nothing;
    t->exec = t->exec ? t->exec : no_exec;
    t->start = t->start ? t->start : no_start;
    t->test = t->test ? t->test : no_test;
    t->alloc = t->alloc ? t->alloc : alloc_plain;
    t->free = t->free ? t->free : free_plain;
    t->alloc_on = t->alloc_on ? t->alloc_on : no_alloc_on;
}

static bool name_is_good(const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++) {
        if (!islower((unsigned char)name[i]) && !isdigit((unsigned char)name[i]) &&
            !strchr("-_", name[i]))
            return false;
    }
    return len > 0 && len < BACKEND_NAME_LEN;
}

/* What is missing or contradictory in a copied table; NULL = nothing. */
static const char *flaw(const struct collrun_backend *t)
{
    if (!t->name || !name_is_good(t->name))
        return "its name is not 1 to 31 lower case letters, digits, - and _";
    if (!t->version || !t->version[0])
        return "it has no version";
    if (!t->native)
        return "it has no table of native operations";
    if (!t->group_open || !t->group_abort || !t->group_close)
        return "group_open, group_abort or group_close is missing";
    if (!t->start != !t->test)
        return "start and test only work together";
    if (!t->exec && !t->start)
        return "it has neither exec nor start and test";
    if (!t->alloc != !t->free)
        return "alloc and free only work together";
    return NULL;
}

/* Rows count for host memory, or for a GPU's where the backend works on nothing else. */
static void index_native(struct backend *b)
{
    const struct collrun_capability *row;
    for (row = b->table.native; row->memory; row++)
        b->memory |= row->memory;
    uint32_t home = b->memory & COLLRUN_MEMORY_HOST ? COLLRUN_MEMORY_HOST : COLLRUN_MEMORY_CUDA;
    for (row = b->table.native; row->memory; row++) {
        if (row->kind >= COLLRUN_KIND_COUNT || !(row->memory & home))
            continue;
        uint64_t dtypes = row->kind == COLLRUN_BARRIER ? UINT64_MAX : row->dtypes;
        for (unsigned dtype = 0; dtype < COLLRUN_DTYPE_COUNT; dtype++) {
            if (dtypes >> dtype & 1)
                b->native[row->kind][dtype] |= row->ops ? (uint16_t)row->ops : 1u;
        }
    }
}

int backend_adopt(const struct collrun_backend *theirs, const char *path, struct backend *out,
                  struct diag *d)
{
    if (theirs->abi != COLLRUN_BACKEND_ABI)
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "backend %s was built for backend ABI %u; this collrun has %u", path,
                        theirs->abi, COLLRUN_BACKEND_ABI);
    if (theirs->size < offsetof(struct collrun_backend, alloc))
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "backend %s: its table is %u bytes, too short to be one", path,
                        theirs->size);
    struct backend b = {0};
    memcpy(&b.table, theirs, theirs->size < sizeof b.table ? theirs->size : sizeof b.table);
    const char *wrong = flaw(&b.table);
    if (wrong)
        return diag_set(d, COLLRUN_ERR_INVALID, "backend %s breaks the ABI: %s", path, wrong);
    fill_holes(&b);
    index_native(&b);
    snprintf(b.name, sizeof b.name, "%s", b.table.name);
    b.path = strdup(path);
    if (!b.path)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for backend %s", path);
    *out = b;
    return COLLRUN_OK;
}

int backend_load(const char *path, struct backend *out, struct diag *d)
{
    const void *symbol = NULL;
    int rc = plugin_open("backend", path, "collrun_backend_v1", &symbol, d);
    return rc == COLLRUN_OK ? backend_adopt(symbol, path, out, d) : rc;
}

int backend_probe(struct backend *b, char *why, size_t len)
{
    why[0] = '\0';
    error_clear_cause();
    int rc = b->table.probe(&b->services.lent, why, len);
    if (rc != COLLRUN_OK && !why[0])
        snprintf(why, len, "%s",
                 error_get()->cause[0] ? error_get()->cause : collrun_strstatus(rc));
    return rc == COLLRUN_OK ? COLLRUN_OK : COLLRUN_ERR_UNAVAILABLE;
}

int backend_open(struct backend *b, struct diag *d)
{
    char why[512];
    if (b->is_open)
        return COLLRUN_OK;
    if (backend_probe(b, why, sizeof why) != COLLRUN_OK)
        return diag_set(d, COLLRUN_ERR_UNAVAILABLE, "backend \"%s\" does not work here: %s",
                        b->name, why);
    error_clear_cause();
    struct adoption own;
    adoption_begin(&own, b->name);
    int rc = b->table.open(&b->services.lent, &b->state);
    adoption_end(&own);
    if (rc != COLLRUN_OK)
        return diag_set(d, rc, "backend \"%s\" cannot be opened: %s", b->name,
                        error_get()->cause[0] ? error_get()->cause : collrun_strstatus(rc));
    b->is_open = true;
    return COLLRUN_OK;
}

void backend_close(struct backend *b)
{
    if (b->is_open)
        b->table.close(b->state);
    b->is_open = false;
    free(b->path);
    b->path = NULL;
}

static bool has_row(const struct backend *b, enum collrun_kind kind)
{
    for (const struct collrun_capability *row = b->table.native; row->memory; row++) {
        if (row->kind == (uint32_t)kind)
            return true;
    }
    return false;
}

enum backend_support backend_supports(const struct backend *b, enum collrun_kind kind)
{
    if (has_row(b, kind))
        return BACKEND_NATIVE;
    bool messages =
        b->native[COLLRUN_SEND][COLLRUN_UINT8] && b->native[COLLRUN_RECV][COLLRUN_UINT8];
    return messages && kind < COLLRUN_SEND ? BACKEND_EMULATED : BACKEND_UNSUPPORTED;
}

void backend_identity(const struct backend *b, char *out, size_t size)
{
    snprintf(out, size, "%s %s, ABI %u", b->name, b->table.version, b->table.abi);
}
