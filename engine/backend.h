/* SPDX-License-Identifier: Apache-2.0
 *
 * struct backend: one backend of this process. What a plugin's const struct says is copied, as much
 * of it as both sides know, into a complete table whose every function can be called: holes get
 * fillers that answer "not supported" or do the harmless default. Beside it stands what the engine
 * asks on every call, precomputed: which (kind, dtype, operator) are native. A backend is loaded
 * (it describes itself), then opened (it may work here); both once per process.
 */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include "base/diag.h"
#include "services.h"

#include <collrun/backend.h>

enum { BACKEND_NAME_LEN = 32 };

struct backend {
    struct collrun_backend table;
    char name[BACKEND_NAME_LEN];
    char *path;    /* as it was loaded; "" for one that came without a file */
    bool has_exec; /* else every call goes through start and test */
    bool has_start, has_order, has_alloc;
    uint32_t memory; /* set of enum collrun_memory that its operations work on */
    uint16_t native[COLLRUN_KIND_COUNT]
                   [COLLRUN_DTYPE_COUNT]; /* bit per operator; bit 0 if the kind has none */
    struct services services;
    bool is_open;
    void *state; /* the backend's own, from open */
};

/* Fills in *out from a plugin's struct; path is copied. Refuses what breaks the ABI, with one
 * sentence. */
int backend_adopt(const struct collrun_backend *theirs, const char *path, struct backend *out,
                  struct diag *d);
int backend_load(const char *path, struct backend *out, struct diag *d);
/* UNAVAILABLE with the backend's reason in `why`, or OK. */
int backend_probe(struct backend *b, char *why, size_t len);
/* Probes and opens; nothing to do if it is open. */
int backend_open(struct backend *b, struct diag *d);
void backend_close(struct backend *b); /* frees, too; the object stays loaded */

enum backend_support { BACKEND_NATIVE, BACKEND_EMULATED, BACKEND_UNSUPPORTED };
enum backend_support backend_supports(const struct backend *b, enum collrun_kind kind);

/* "gloo 1.0 (Gloo 0.5), ABI 1": what all ranks of a group must agree on. */
void backend_identity(const struct backend *b, char *out, size_t size);

/* Which kinds have an operator. */
static inline bool kind_reduces(enum collrun_kind kind)
{
    const unsigned reducing = 1u << COLLRUN_ALLREDUCE | 1u << COLLRUN_REDUCE |
                              1u << COLLRUN_REDUCE_SCATTER | 1u << COLLRUN_REDUCE_SCATTERV;
    return reducing >> kind & 1;
}

/* Of a checked call. */
static inline bool backend_is_native(const struct backend *b, const struct collrun_call *call)
{
    unsigned dtype = call->kind == COLLRUN_BARRIER ? 0 : call->dtype;
    unsigned op = kind_reduces(call->kind) ? call->op : 0;
    return b->native[call->kind][dtype] >> op & 1;
}

#endif
