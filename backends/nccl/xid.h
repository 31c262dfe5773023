/* SPDX-License-Identifier: Apache-2.0
 *
 * struct xid_watch: the thread that receives Xid events, the driver's reasons why a GPU failed.
 */
#ifndef NCCL_XID_H
#define NCCL_XID_H

#include "nvml_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct context;
struct device;

struct xid_watch {
    nvmlEventSet_t set;
    pthread_t thread; /* it waits for events of the set */
    bool running;
    atomic_bool stop;
};

/* Without NVML no thread is started, and error messages lack the reason. */
void xid_start(struct context *context);
void xid_stop(struct context *context);
/* After the GPU has failed: waits a moment for the driver's reason. */
void xid_await(const struct context *context, const struct device *device);
/* " (Xid 79 on GPU 0000:17:00.0: ...)", or "". Returns `out`. */
const char *xid_text(const struct device *device, char *out, size_t len);

#endif
