/* SPDX-License-Identifier: Apache-2.0
 *
 * Adoption: validate, copy min(size), fill the holes.
 */
#include "core/backend.h"

#include "base/debug.h"
#include "base/names.h"
#include "core/error.h"
#include "core/plugin.h"
#include "core/signals.h"
#include "core/threads.h"

#include <collrun/collrun.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int backend_probe_available(const struct collrun_services *services, char *why, size_t len)
{
    (void)services;
    (void)why;
    (void)len;
    return COLLRUN_OK;
}

static int backend_open_nothing(const struct collrun_services *services, void **backend)
{
    (void)services;
    *backend = NULL;
    return COLLRUN_OK;
}

static void backend_close_nothing(void *backend)
{
    (void)backend;
}

static int backend_no_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    (void)group;
    (void)calls;
    (void)ncalls;
    return COLLRUN_ERR_UNSUPPORTED;
}

static int backend_no_start(void *group, const struct collrun_call *calls, uint32_t ncalls,
                            void **request)
{
    (void)group;
    (void)calls;
    (void)ncalls;
    (void)request;
    return COLLRUN_ERR_UNSUPPORTED;
}

static int backend_no_test(void *group, void *request)
{
    (void)group;
    (void)request;
    return COLLRUN_ERR_UNSUPPORTED;
}

enum { ALIGNMENT = 4096 };

static int backend_alloc_plain(void *group, size_t len, void **ptr)
{
    (void)group;
    return posix_memalign(ptr, ALIGNMENT, len ? len : 1) ? COLLRUN_ERR_NO_MEMORY : COLLRUN_OK;
}

static int backend_free_plain(void *group, void *ptr)
{
    (void)group;
    free(ptr);
    return COLLRUN_OK;
}

static int backend_no_alloc_on(void *group, uint32_t device, size_t len, void **ptr)
{
    (void)group;
    (void)device;
    (void)len;
    (void)ptr;
    return COLLRUN_ERR_UNSUPPORTED;
}

static void backend_fill_holes(struct backend *b)
{
    struct collrun_backend *t = &b->table;
    b->has_order = t->order != NULL;
    b->has_exec = t->exec != NULL;
    b->has_start = t->start != NULL;
    b->has_alloc = t->alloc != NULL;
    b->has_alloc_on = t->alloc_on != NULL;
    b->has_withdraw = t->withdraw != NULL;
    b->has_transport = t->transport != NULL;
    if (b->has_transport)
        t->flags |= COLLRUN_BACKEND_TAGS | COLLRUN_BACKEND_RECV_ANY | COLLRUN_BACKEND_ENVELOPES;
    t->probe = t->probe ? t->probe : backend_probe_available;
    t->open = t->open ? t->open : backend_open_nothing;
    t->close = t->close ? t->close : backend_close_nothing;
    t->exec = t->exec ? t->exec : backend_no_exec;
    t->start = t->start ? t->start : backend_no_start;
    t->test = t->test ? t->test : backend_no_test;
    t->alloc = t->alloc ? t->alloc : backend_alloc_plain;
    t->free = t->free ? t->free : backend_free_plain;
    t->alloc_on = t->alloc_on ? t->alloc_on : backend_no_alloc_on;
}

static bool backend_name_is_good(const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++) {
        if (!islower((unsigned char)name[i]) && !isdigit((unsigned char)name[i]) &&
            !strchr("-_", name[i]))
            return false;
    }
    return len > 0 && len < BACKEND_NAME_LEN;
}

static bool backend_is_variable(const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_')
            return false;
    return len > 0 && !isdigit((unsigned char)name[0]);
}

/* The first contradiction between a complete table of a kind of memory and the operations. */
static const char *backend_kind_flaw(const struct collrun_memory_kind *kind, uint32_t memory)
{
    bool none = !kind->devices && !kind->open && !kind->close && !kind->locate && !kind->copy &&
                !kind->host_alloc && !kind->host_free && !kind->alloc && !kind->free &&
                !kind->synchronize && !kind->event_record && !kind->event_query &&
                !kind->event_free;
    if (!kind->name)
        return memory & COLLRUN_MEMORY_DEVICE
                   ? "its operations work on device memory, but memory_kind has no name"
                   : NULL;
    if (!backend_name_is_good(kind->name) || strcmp(kind->name, "host") == 0)
        return "the name of its memory_kind must be 1 to 31 lower case letters, digits, - or _, "
               "and not \"host\"";
    if (kind->mask && !backend_is_variable(kind->mask))
        return "the mask of its memory_kind is not the name of an environment variable";
    if (!none && (!kind->devices || !kind->locate || !kind->copy))
        return "its memory_kind lacks devices, locate or copy";
    if (!kind->host_alloc != !kind->host_free || !kind->alloc != !kind->free)
        return "its memory_kind has only one function of a pair: host_alloc and host_free, or "
               "alloc and free";
    if (!kind->event_record != !kind->event_query || !kind->event_record != !kind->event_free)
        return "its memory_kind has some, but not all, of event_record, event_query and event_free";
    return NULL;
}

static bool backend_transport_is_complete(const struct collrun_transport *theirs)
{
    struct collrun_transport t;
    COLLRUN_COPY(&t, theirs);
    return t.send && t.recv && t.progress && t.message_size >= sizeof(struct collrun_message) &&
           (!t.post || t.unpost);
}

/* The first missing or contradictory member of a copied table; NULL = none. */
static const char *backend_flaw(const struct collrun_backend *t)
{
    if (!t->name || !backend_name_is_good(t->name))
        return "its name must be 1 to 31 lower case letters, digits, - or _";
    if (!t->version || !t->version[0])
        return "it has no version";
    if (t->call_size < sizeof(uint32_t) || !t->capability_size || !t->param_size)
        return "it does not begin with COLLRUN_BACKEND_HEAD";
    if (!t->native)
        return "it has no table of native operations";
    if (!t->group_open || !t->group_abort || !t->group_close)
        return "group_open, group_abort or group_close is missing";
    if (!t->start != !t->test)
        return "it has only one of start and test";
    if (!t->exec && !t->start && !t->transport)
        return "it has neither exec, nor start and test, nor a transport";
    if (t->transport && !backend_transport_is_complete(t->transport))
        return "its transport lacks send, recv or progress, has post without unpost, or its "
               "message_size is too small";
    if (!t->alloc != !t->free)
        return "it has only one of alloc and free";
    return NULL;
}

/* Rows are those for host memory, or for device memory if the backend works on that alone. */
static void backend_index_native(struct backend *b)
{
    const struct collrun_capability *row;
    for (row = b->table.native; row->memory; row++)
        b->memory |= row->memory;
    uint32_t home = b->memory & COLLRUN_MEMORY_HOST ? COLLRUN_MEMORY_HOST : COLLRUN_MEMORY_DEVICE;
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

/* A table of the backend in the engine's stride: itself, or a copy, which is kept in *owned. */
static int backend_adopt_table(const void **table, size_t stride, size_t our_stride, size_t key_len,
                               void **owned)
{
    if (!*table || stride == our_stride)
        return COLLRUN_OK;
    size_t n = abi_table_len(*table, stride, key_len);
    *owned = abi_convert(*table, stride, n + 1, our_stride);
    *table = *owned;
    return *owned ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

/* The tables of the backend that the engine reads. A row of capabilities ends with memory 0, one of
 * options with name NULL. */
static int backend_adopt_tables(struct backend *b)
{
    const void *native = b->table.native, *options = b->table.options;
    int rc =
        backend_adopt_table(&native, b->table.capability_size, sizeof(struct collrun_capability),
                            sizeof(uint64_t), &b->converted[0]);
    if (rc == COLLRUN_OK)
        rc = backend_adopt_table(&options, b->table.param_size, sizeof(struct collrun_param),
                                 sizeof(char *), &b->converted[1]);
    b->table.native = native;
    b->table.options = options;
    return rc;
}

static void backend_adopt_kind(struct backend *b)
{
    if (b->table.memory_kind)
        COLLRUN_COPY(&b->kind, b->table.memory_kind);
    b->declares_kind = b->kind.devices != NULL;
    if (!b->kind.title || !b->kind.title[0])
        b->kind.title = b->kind.name;
}

int backend_adopt(const struct collrun_backend *theirs, const char *path, struct backend *out,
                  struct diag *d)
{
    if (theirs->abi != COLLRUN_BACKEND_ABI)
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "backend %s was built for backend ABI %u; this collrun has %u", path,
                        theirs->abi, COLLRUN_BACKEND_ABI);
    if (theirs->size < offsetof(struct collrun_backend, transport))
        return diag_set(d, COLLRUN_ERR_INVALID, "backend %s: its table has only %u bytes", path,
                        theirs->size);
    struct backend b = {0};
    memcpy(&b.table, theirs, theirs->size < sizeof b.table ? theirs->size : sizeof b.table);
    const char *wrong = backend_flaw(&b.table);
    if (wrong)
        return diag_set(d, COLLRUN_ERR_INVALID, "backend %s breaks the ABI: %s", path, wrong);
    backend_fill_holes(&b);
    b.same_calls = b.table.call_size == sizeof(struct collrun_call);
    b.path = strdup(path);
    if (backend_adopt_tables(&b) != COLLRUN_OK || !b.path) {
        backend_close(&b);
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for backend %s", path);
    }
    backend_index_native(&b);
    backend_adopt_kind(&b);
    wrong = backend_kind_flaw(&b.kind, b.memory);
    if (wrong) {
        backend_close(&b);
        return diag_set(d, COLLRUN_ERR_INVALID, "backend %s breaks the ABI: %s", path, wrong);
    }
    snprintf(b.name, sizeof b.name, "%s", b.table.name);
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
    int rc = b->table.probe(&b->services.table, why, len);
    debug_log(DEBUG_GROUP, "probe of backend \"%s\" (%s): status %d, \"%s\"", b->name, b->path, rc,
              why);
    if (rc != COLLRUN_OK && !why[0])
        snprintf(why, len, "%s", error_get()->cause[0] ? error_get()->cause : status_text(rc));
    return rc == COLLRUN_OK ? COLLRUN_OK : COLLRUN_ERR_UNAVAILABLE;
}

int backend_open(struct backend *b, struct diag *d)
{
    char why[512];
    struct signals_before before;
    if (b->is_open)
        return COLLRUN_OK;
    signals_begin(&before);
    if (backend_probe(b, why, sizeof why) != COLLRUN_OK)
        return diag_set(d, COLLRUN_ERR_UNAVAILABLE, "backend \"%s\" does not work here: %s",
                        b->name, why);
    error_clear_cause();
    struct thread_tag own;
    thread_tag_begin(&own, b->name, true);
    int rc = b->table.open(&b->services.table, &b->state);
    thread_tag_end(&own);
    signals_end(&before);
    if (rc != COLLRUN_OK)
        return diag_set(d, rc, "backend \"%s\" failed to open: %s", b->name,
                        error_get()->cause[0] ? error_get()->cause : status_text(rc));
    debug_log(DEBUG_GROUP, "backend \"%s\" is open, flags 0x%llx", b->name,
              (unsigned long long)b->table.flags);
    b->is_open = true;
    return COLLRUN_OK;
}

void backend_close(struct backend *b)
{
    if (b->is_open)
        b->table.close(b->state);
    b->is_open = false;
    free(b->path);
    free(b->converted[0]);
    free(b->converted[1]);
    b->path = NULL;
    b->converted[0] = b->converted[1] = NULL;
}

/* ---- calls in the backend's stride ---- */

/* A request of a backend with another struct collrun_call: its calls have to outlive it. */
struct converted_request {
    struct collrun_call *calls;
    void *theirs;
};

int backend_exec_converted(const struct backend *b, void *handle, const struct collrun_call *calls,
                           uint32_t ncalls)
{
    struct collrun_call *own = abi_convert_calls(calls, ncalls, b->table.call_size);
    int rc = own ? b->table.exec(handle, own, ncalls) : COLLRUN_ERR_NO_MEMORY;
    free(own);
    return rc;
}

int backend_start_converted(const struct backend *b, void *handle, const struct collrun_call *calls,
                            uint32_t ncalls, void **request)
{
    struct converted_request *r = calloc(1, sizeof *r);
    if (r)
        r->calls = abi_convert_calls(calls, ncalls, b->table.call_size);
    int rc = r && r->calls ? b->table.start(handle, r->calls, ncalls, &r->theirs)
                           : COLLRUN_ERR_NO_MEMORY;
    if (rc == COLLRUN_OK) {
        *request = r;
        return rc;
    }
    if (r)
        free(r->calls);
    free(r);
    return rc;
}

int backend_test_converted(const struct backend *b, void *handle, void *request)
{
    struct converted_request *r = request;
    int rc = b->table.test(handle, r->theirs);
    if (rc != COLLRUN_AGAIN) {
        free(r->calls);
        free(r);
    }
    return rc;
}

int backend_order_converted(const struct backend *b, void *handle, void *request, uint32_t device,
                            void *stream)
{
    return b->table.order(handle, ((struct converted_request *)request)->theirs, device, stream);
}

int backend_withdraw(const struct backend *b, void *handle, void *request)
{
    struct converted_request *r = b->same_calls ? NULL : request;
    int rc = b->table.withdraw(handle, r ? r->theirs : request);
    if (r && rc == COLLRUN_OK) {
        free(r->calls);
        free(r);
    }
    return rc;
}

static bool backend_has_row(const struct backend *b, enum collrun_kind kind)
{
    for (const struct collrun_capability *row = b->table.native; row->memory; row++) {
        if (row->kind == (uint32_t)kind)
            return true;
    }
    return false;
}

bool backend_works_on_device(const struct backend *b, const struct collrun_call *call)
{
    for (const struct collrun_capability *row = b->table.native; row->memory; row++) {
        if (row->kind != (uint32_t)call->kind || !(row->memory & COLLRUN_MEMORY_DEVICE))
            continue;
        bool dtype = call->kind == COLLRUN_BARRIER || row->dtypes >> call->dtype & 1;
        if (dtype && (!collrun_kind_reduces(call->kind) || row->ops >> call->op & 1))
            return true;
    }
    return false;
}

bool backend_emulates(const struct backend *b)
{
    return b->native[COLLRUN_SEND][COLLRUN_UINT8] && b->native[COLLRUN_RECV][COLLRUN_UINT8];
}

enum backend_support backend_supports(const struct backend *b, enum collrun_kind kind)
{
    if (backend_has_row(b, kind))
        return BACKEND_NATIVE;
    return backend_emulates(b) && !collrun_kind_is_message(kind) ? BACKEND_EMULATED
                                                                 : BACKEND_UNSUPPORTED;
}
