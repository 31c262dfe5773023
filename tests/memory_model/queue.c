/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocking calls that enter a queue directly, without its lock, while the group is closed: none is
 * inside, or enters, once pq_evict has returned. A plain word stands for the backend's handle.
 */
#include "comm/progress_queue.h"
#include "memory_model/model.h"

static struct progress_queue queue;
static unsigned handle;

static void clear(void)
{
    queue = (struct progress_queue){.lock = PTHREAD_MUTEX_INITIALIZER};
    handle = 0;
}

static void call_directly(void)
{
    if (!pq_enter_direct(&queue))
        return;
    handle++;
    pq_leave_direct(&queue);
}

/* The last thread closes the group; the others call at the same time. */
static void evict(uint32_t self)
{
    if (self < 2) {
        call_directly();
        return;
    }
    pq_evict(&queue);
    handle++;
}

int main(int argc, char **argv)
{
    const struct model_test tests[] = {
        {.name = "calls beside an eviction", .nthreads = 3, .setup = clear, .thread = evict},
    };
    return model_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
