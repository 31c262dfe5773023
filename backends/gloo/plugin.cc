/* SPDX-License-Identifier: Apache-2.0
 *
 * gloo: collrun's operations on the Gloo library, by its public interface. This file is the
 * exported table. Gloo's algorithms do the operations that Gloo has; the engine builds the others
 * from messages, which go over Gloo's send and receive.
 */
#include "group.h"

#include <cstdio>
#include <dlfcn.h>
#include <new>
#include <time.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define GLOO_RELEASE TEXT(GLOO_VERSION_MAJOR) "." TEXT(GLOO_VERSION_MINOR) " of " TEXT(GLOO_API)

namespace collrun_gloo
{

namespace
{

constexpr uint64_t death_wait_ns = 1000000000;

/* Libraries of all years have one name. A function that is new in each tells them apart. */
int library_year()
{
    if (dlsym(RTLD_DEFAULT, "_ZN4gloo9transport3tcp16CreateLazyDeviceERKNS1_4attrE"))
        return 2025;
    return dlsym(RTLD_DEFAULT, "_ZN4gloo9transport7Context24createAndConnectAllPairsERNS_6IStoreE")
               ? 2023
               : 2022;
}

int probe(const collrun_services *, char *why, size_t len)
{
    const int year = library_year();
    if (year == GLOO_API) {
        std::snprintf(why, len, "Gloo %s", GLOO_RELEASE);
        return COLLRUN_OK;
    }
    std::snprintf(why, len, "built for Gloo %s; the library is that of %d", GLOO_RELEASE, year);
    return COLLRUN_ERR_UNAVAILABLE;
}

int backend_open(const collrun_services *s, void **out)
{
    *out = new (std::nothrow) backend;
    return *out ? COLLRUN_OK : s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

void backend_close(void *b)
{
    const no_sigpipe guard;
    delete static_cast<backend *>(b);
}

/* A connection of a member that dies may end before its death is known. */
failure cause_of(const collrun_rendezvous &r, const failure &f)
{
    const struct timespec pause = {0, 1000000};
    const uint64_t until = now_ns() + death_wait_ns;
    while (f.status == COLLRUN_ERR_BACKEND && now_ns() < until) {
        const int status = r.alive(r.ctx);
        if (status != COLLRUN_OK)
            return {status, ""};
        nanosleep(&pause, nullptr);
    }
    return f;
}

int group_open(void *b, const collrun_group_desc *given, void **out)
{
    collrun_group_desc desc;
    COLLRUN_COPY(&desc, given);
    try {
        const no_sigpipe guard;
        *out = new group(*static_cast<backend *>(b), desc);
        return COLLRUN_OK;
    } catch (...) {
        return store(*desc.services, cause_of(*desc.rendezvous, caught()));
    }
}

group *group_of(void *handle)
{
    return static_cast<group *>(handle);
}

p2p_message *message_of(collrun_message *m)
{
    return reinterpret_cast<p2p_message *>(m);
}

void group_abort(void *g)
{
    group_of(g)->abort();
}

void group_close(void *g)
{
    const no_sigpipe guard;
    delete group_of(g);
}

int group_exec(void *g, const collrun_call *calls, uint32_t)
{
    return group_of(g)->exec(calls[0]);
}

int transport_send(void *g, collrun_message *m)
{
    return group_of(g)->with_messages([m](transport &t) { t.send(message_of(m)); });
}

int transport_post(void *g, collrun_message *m)
{
    return group_of(g)->with_messages([m](transport &t) { t.post(message_of(m)); });
}

void transport_unpost(void *g, collrun_message *m)
{
    group_of(g)->unpost(message_of(m));
}

int transport_recv(void *g, collrun_message *m, const void *packet, size_t len)
{
    return group_of(g)->with_messages([&](transport &t) { t.recv(message_of(m), packet, len); });
}

int transport_progress(void *g, uint64_t wait_ns)
{
    bool moved = false;
    const int rc = group_of(g)->with_messages([&](transport &t) { moved = t.progress(wait_ns); });
    return rc == COLLRUN_OK && moved ? COLLRUN_AGAIN : rc;
}

void transport_fail(void *g, uint32_t peer, int status, const char *text)
{
    group_of(g)->with_messages([&](transport &t) { t.fail(peer, status, text); });
}

void transport_wake(void *g)
{
    group_of(g)->wake();
}

const collrun_transport messages = {
    sizeof(collrun_transport),
    sizeof(p2p_message),
    transport_send,
    transport_post,
    transport_recv,
    nullptr, /* flush: packets leave at once */
    transport_progress,
    transport_fail,
    transport_unpost,
    transport_wake,
    nullptr, /* send_short, recv_short: another thread moves the bytes */
    nullptr,
};

constexpr uint64_t bit(unsigned n)
{
    return 1ull << n;
}

/* Gloo rounds every partial result: half precision, which has to be summed in float32, is left to
 * the engine where that differs. */
constexpr uint64_t halves = bit(COLLRUN_FLOAT16) | bit(COLLRUN_BFLOAT16);
constexpr uint64_t full_dtypes = (bit(COLLRUN_DTYPE_COUNT) - 1) & ~halves;
constexpr uint64_t every_op = bit(COLLRUN_OP_COUNT) - 1;

constexpr collrun_capability moves(uint32_t kind)
{
    return {kind, COLLRUN_MEMORY_HOST, UINT64_MAX, 0};
}

constexpr collrun_capability reduces(uint32_t kind)
{
    return {kind, COLLRUN_MEMORY_HOST, full_dtypes, every_op};
}

constexpr collrun_capability compares(uint32_t kind)
{
    return {kind, COLLRUN_MEMORY_HOST, halves, bit(COLLRUN_MIN) | bit(COLLRUN_MAX)};
}

const collrun_capability native[] = {
    {COLLRUN_BARRIER, COLLRUN_MEMORY_HOST, 0, 0},
    reduces(COLLRUN_ALLREDUCE),
    compares(COLLRUN_ALLREDUCE),
    reduces(COLLRUN_REDUCE),
    compares(COLLRUN_REDUCE),
    moves(COLLRUN_BROADCAST),
    moves(COLLRUN_ALLGATHER),
    moves(COLLRUN_GATHER),
    moves(COLLRUN_SCATTER),
    moves(COLLRUN_ALLTOALL),
    moves(COLLRUN_ALLGATHERV),
    moves(COLLRUN_ALLTOALLV),
    moves(COLLRUN_SEND),
    moves(COLLRUN_RECV),
    moves(COLLRUN_RECV_ANY),
    {0, 0, 0, 0},
};

const struct collrun_param no_options[] = {{}};

} // namespace

} // namespace collrun_gloo

extern "C" const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    "gloo",
    "2.0 (Gloo " GLOO_RELEASE ")",
    COLLRUN_BACKEND_TAGS | COLLRUN_BACKEND_RECV_ANY,
    collrun_gloo::eager_limit,
    collrun_gloo::native,
    collrun_gloo::no_options,
    collrun_gloo::probe,
    collrun_gloo::backend_open,
    collrun_gloo::backend_close,
    collrun_gloo::group_open,
    collrun_gloo::group_abort,
    collrun_gloo::group_close,
    collrun_gloo::group_exec,
    nullptr, /* start, test: exec blocks */
    nullptr,
    &collrun_gloo::messages,
    nullptr, /* alloc, free: plain memory */
    nullptr,
    nullptr, /* alloc_on, order: no devices */
    nullptr,
};
