/* SPDX-License-Identifier: Apache-2.0
 *
 * struct backend: one backend of this process. The plugin's const struct is copied, up to the
 * smaller of both sizes, into a complete table in which every function can be called: missing ones
 * return "not supported" or do the default. The table of native (kind, dtype, operator) is
 * precomputed, since every call reads it. A backend is loaded (it describes itself), then opened
 * (it works on this host), each once per process.
 */
#ifndef ENGINE_CORE_BACKEND_H
#define ENGINE_CORE_BACKEND_H

#include "base/diag.h"
#include "core/services.h"

#include <collrun/backend.h>
#include <stdatomic.h>

enum { BACKEND_NAME_LEN = 32 };

struct backend {
    struct collrun_backend table;
    char name[BACKEND_NAME_LEN];
    char *path;    /* as it was loaded; "" for one without a file */
    bool has_exec; /* else every call goes through start and test */
    bool has_start, has_order, has_alloc, has_alloc_on, has_withdraw;
    bool has_transport;              /* the engine matches its messages (progress/p2p.h) */
    bool same_calls;                 /* its struct collrun_call has the size of the engine's */
    uint32_t memory;                 /* set of enum collrun_memory that its operations work on */
    struct collrun_memory_kind kind; /* of its device memory, complete; name NULL: it has none */
    bool declares_kind;              /* else `kind` is the name of one of another backend */
    uint16_t native[COLLRUN_KIND_COUNT]
                   [COLLRUN_DTYPE_COUNT]; /* bit per operator; bit 0 if the kind has none */
    struct services services;
    bool is_open;
    atomic_bool has_groups; /* it has opened one */
    void *state;            /* of the backend, from open */
    void *converted[2];     /* its tables in the engine's stride, where they had another; owned */
};

/* Fills in *out from a plugin's struct; path is copied. Rejects a table that
 * breaks the ABI, with an error message. */
int backend_adopt(const struct collrun_backend *theirs, const char *path, struct backend *out,
                  struct diag *d);
int backend_load(const char *path, struct backend *out, struct diag *d);
/* UNAVAILABLE with the backend's reason in `why`, or OK. */
int backend_probe(struct backend *b, char *why, size_t len);
/* Probes and opens; nothing to do if it is open. */
int backend_open(struct backend *b, struct diag *d);
void backend_close(struct backend *b); /* frees, too; the object stays loaded */

/* True if the backend itself executes a checked call on buffers in device memory. */
bool backend_works_on_device(const struct backend *b, const struct collrun_call *call);

enum backend_support { BACKEND_NATIVE, BACKEND_EMULATED, BACKEND_UNSUPPORTED };
enum backend_support backend_supports(const struct backend *b, enum collrun_kind kind);
/* True if it has SEND and RECV, from which collectives are emulated. */
bool backend_emulates(const struct backend *b);

/* The backend's exec, start, test and order, with calls in the stride that the backend knows. */
int backend_exec_converted(const struct backend *b, void *handle, const struct collrun_call *calls,
                           uint32_t ncalls);
int backend_start_converted(const struct backend *b, void *handle, const struct collrun_call *calls,
                            uint32_t ncalls, void **request);
int backend_test_converted(const struct backend *b, void *handle, void *request);
int backend_order_converted(const struct backend *b, void *handle, void *request, uint32_t device,
                            void *stream);

/* Withdraws a started request; OK frees it. */
int backend_withdraw(const struct backend *b, void *handle, void *request);

static inline int backend_exec(const struct backend *b, void *handle,
                               const struct collrun_call *calls, uint32_t ncalls)
{
    return b->same_calls ? b->table.exec(handle, calls, ncalls)
                         : backend_exec_converted(b, handle, calls, ncalls);
}

static inline int backend_start(const struct backend *b, void *handle,
                                const struct collrun_call *calls, uint32_t ncalls, void **request)
{
    return b->same_calls ? b->table.start(handle, calls, ncalls, request)
                         : backend_start_converted(b, handle, calls, ncalls, request);
}

static inline int backend_test(const struct backend *b, void *handle, void *request)
{
    return b->same_calls ? b->table.test(handle, request)
                         : backend_test_converted(b, handle, request);
}

static inline int backend_order(const struct backend *b, void *handle, void *request,
                                uint32_t device, void *stream)
{
    return b->same_calls ? b->table.order(handle, request, device, stream)
                         : backend_order_converted(b, handle, request, device, stream);
}

/* In place, if the receive blocks are the send blocks; backends want them apart. */
static inline bool call_is_in_place_alltoallv(const struct collrun_call *call)
{
    return call->kind == COLLRUN_ALLTOALLV && call->send && call->send == call->recv;
}

/* The call has been checked. */
static inline bool backend_is_native(const struct backend *b, const struct collrun_call *call)
{
    unsigned dtype = call->kind == COLLRUN_BARRIER ? 0 : call->dtype;
    unsigned op = collrun_kind_reduces(call->kind) ? call->op : 0;
    if (call->user_op || call_is_in_place_alltoallv(call))
        return false;
    return b->native[call->kind][dtype] >> op & 1;
}

#endif
