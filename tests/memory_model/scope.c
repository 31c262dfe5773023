/* SPDX-License-Identifier: Apache-2.0
 *
 * A member that waits for another one of its host, beside the service thread, which learns that the
 * other one has failed: the member does not sleep until the group's time-out.
 */
#include "base/hostmem.h"
#include "core/control.h"
#include "core/host_scope.h"
#include "memory_model/model.h"

#include <string.h>

static struct {
    struct hostmem_head head;
    _Alignas(
        64) unsigned char scope[sizeof(struct hostmem_scope) + 2 * sizeof(struct hostmem_member)];
} memory;
static atomic_bool failed[2];
static struct host_scopes scopes;

/* The job goes on without the rank that has failed. */
bool control_aborted(struct control *c, struct diag *why)
{
    (void)c;
    (void)why;
    return false;
}

static void clear(void)
{
    memset(&memory, 0, sizeof memory);
    memory.head.nscopes = 1;
    memory.head.scope_len = sizeof memory.scope;
    memory.head.scopes_offset = (uint64_t)(memory.scope - (unsigned char *)&memory);
    pthread_mutex_init(&memory.head.lock, NULL);
    scopes = (struct host_scopes){
        .mem = {.head = &memory.head, .fd = -1}, .failed = failed, .oversubscribed = true};
    atomic_store(&failed[1], false);
}

static void wait_for_the_other(void)
{
    uint32_t items[] = {0, 1};
    const struct desc_ranks members = {.items = items, .n = 2};
    const struct host_scope_request q = {.name = "g",
                                         .group = "g",
                                         .identity = "shm",
                                         .members = &members,
                                         .timeout_ns = UINT64_C(60000000000)};
    struct diag d;
    uint32_t segment;
    diag_init(&d);
    MODEL_CHECK(host_scope_exchange(&scopes, &q, NULL, &segment, &d) == COLLRUN_ERR_PEER_FAILED);
}

static void fail(uint32_t self)
{
    if (self == 0) {
        wait_for_the_other();
        return;
    }
    atomic_store_explicit(&failed[1], true, memory_order_release);
    host_scope_wake_all(&scopes);
}

int main(int argc, char **argv)
{
    const struct model_test tests[] = {
        {.name = "a member waits for one that fails",
         .nthreads = 2,
         .setup = clear,
         .thread = fail},
    };
    return model_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
