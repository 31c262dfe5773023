/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous of these groups is a list: their one rank gets what it has put itself.
 */
#include "nccl_pair.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define FORMING_NS 20000000000ull

/* ---- the rendezvous ---- */

static int pair_put(void *ctx, const char *key, const void *value, size_t len)
{
    struct nccl_fixture *f = ctx;
    assert_true(f->nvalues < PAIR_KEYS && len <= PAIR_VALUE_LEN);
    struct nccl_pair_value *v = &f->values[f->nvalues++];
    snprintf(v->key, sizeof v->key, "%s", key);
    memcpy(v->value, value, len);
    v->len = len;
    return COLLRUN_OK;
}

static int pair_get(void *ctx, const char *key, void *value, size_t capacity, size_t *len)
{
    const struct nccl_fixture *f = ctx;
    for (uint32_t i = f->nvalues; i-- > 0;) { /* the last group's */
        const struct nccl_pair_value *v = &f->values[i];
        if (strcmp(v->key, key) != 0)
            continue;
        *len = v->len;
        memcpy(value, v->value, *len < capacity ? *len : capacity);
        return COLLRUN_OK;
    }
    return COLLRUN_ERR_BACKEND;
}

static int pair_nothing(void *ctx)
{
    (void)ctx;
    return COLLRUN_OK;
}

/* ---- the backend ---- */

/* $BUILD/tests/test_NAME -> $BUILD/tests/fake/NAME */
static void pair_use_stand_in(const char *variable, const char *name)
{
    char path[4200] = "";
    assert_true(readlink("/proc/self/exe", path, 4000) > 0);
    snprintf(strrchr(path, '/'), 200, "/fake/%s", name);
    setenv(variable, path, 1);
}

int nccl_fixture_open(struct nccl_fixture *f)
{
    static const char *const settings[] = {"messages", "direct", NULL};
    pair_use_stand_in("COLLRUN_LIBCUDART", "libcudart.so.13");
    pair_use_stand_in("COLLRUN_LIBNCCL", "libnccl.so.2");
    pair_use_stand_in("COLLRUN_LIBNVML", "libnvidia-ml.so.1");
    *f = (struct nccl_fixture){.options.settings = settings,
                               .rank = {.nranks = 1, .options = &f->options},
                               .rendezvous = {.size = sizeof f->rendezvous,
                                              .ctx = f,
                                              .put = pair_put,
                                              .get = pair_get,
                                              .fence = pair_nothing,
                                              .alive = pair_nothing}};
    f->services = harness_services(&f->rank);
    void *library = dlopen(harness_backend_path("nccl"), RTLD_NOW | RTLD_LOCAL), *context = NULL;
    f->backend = library ? dlsym(library, "collrun_backend_v1") : NULL;
    if (!f->backend || f->backend->open(&f->services, &context) != COLLRUN_OK)
        return -1;
    f->context = context;
    f->real = f->context->lib;
    for (int i = 0; i < PAIR_GPUS; i++) {
        f->real.cuda.cudaSetDevice(i);
        f->real.cuda.cudaStreamCreateWithFlags(&f->stream[i], cudaStreamNonBlocking);
        f->real.cuda.cudaMalloc(&f->buffer[i], 2 * PAIR_COUNT * sizeof(int));
    }
    f->real.cuda.cudaSetDevice(0);
    return 0;
}

void nccl_fixture_close(struct nccl_fixture *f)
{
    f->backend->close(f->context);
    for (int i = 0; i < PAIR_GPUS; i++) {
        f->real.cuda.cudaStreamDestroy(f->stream[i]);
        f->real.cuda.cudaFree(f->buffer[i]);
    }
}

/* ---- groups ---- */

struct nccl_pair nccl_pair_open(struct nccl_fixture *f, const char *name)
{
    static const uint32_t zero;
    static const int32_t devices[PAIR_GPUS] = {0, 1};
    struct collrun_group_desc desc = {.size = sizeof desc,
                                      .nranks = 1,
                                      .nlocal = 1,
                                      .ndevices = PAIR_GPUS,
                                      .ncpus = 1,
                                      .name = name,
                                      .world_rank = &zero,
                                      .host_of = &zero,
                                      .devices = devices,
                                      .address = "127.0.0.1",
                                      .timeout_ns = FORMING_NS,
                                      .deadline_ns = harness_now_ns() + FORMING_NS,
                                      .rendezvous = &f->rendezvous,
                                      .services = &f->services};
    void *collectives = NULL, *messages = NULL;
    assert_int_equal(f->backend->group_open(f->context, &desc, &collectives), COLLRUN_OK);
    desc.collectives_handle = collectives;
    assert_int_equal(f->backend->group_open(f->context, &desc, &messages), COLLRUN_OK);
    return (struct nccl_pair){collectives, messages};
}

void nccl_pair_close(const struct nccl_fixture *f, struct nccl_pair *p)
{
    f->backend->group_close(p->messages);
    f->backend->group_close(p->collectives);
}

struct nccl_group *nccl_pair_part(const struct nccl_pair *p, uint32_t from)
{
    struct nccl_group *part = atomic_load(&p->messages->parts);
    while (part && part->from != from)
        part = part->next_part;
    assert_non_null(part);
    return part;
}
