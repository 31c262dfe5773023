/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's reasons why a GPU stopped. CUDA only reports "unspecified launch failure"; the
 * driver numbers the reasons: the Xid.
 *
 * Happy path
 *   - a thread waits for Xid events of this process's GPUs through NVML and logs each one;
 *   - error messages about that GPU then include the Xid.
 * Failures
 *   - NVML is missing, or this user may not subscribe: error messages lack the reason, nothing
 *     else.
 */
#include "context.h"

#include <stdio.h>
#include <string.h>

#define XID_WAIT_NS 300000000ull
#define XID_POLL_NS 100000000ull

static const struct {
    unsigned xid;
    const char *meaning;
} xid_meanings[] = {
    {13, "the program made the GPU fault"},
    {31, "an access outside the memory it owns"},
    {43, "the program stopped the GPU"},
    {45, "work was cleaned up after an earlier error"},
    {48, "a double-bit memory error"},
    {62, "the GPU's microcontroller halted"},
    {63, "a page of memory is being retired"},
    {64, "a page of memory could not be retired"},
    {74, "an NVLink error"},
    {79, "the GPU has fallen off the bus"},
    {92, "many single-bit memory errors"},
    {94, "a contained memory error"},
    {95, "an uncontained memory error"},
    {119, "the GPU's system processor does not answer"},
    {145, "an NVLink error"},
};

static const char *xid_meaning(uint64_t xid)
{
    for (size_t i = 0; i < sizeof xid_meanings / sizeof *xid_meanings; i++)
        if (xid_meanings[i].xid == xid)
            return xid_meanings[i].meaning;
    return "see NVIDIA's list of Xid errors";
}

const char *xid_text(const struct device *device, char *out, size_t len)
{
    uint64_t xid = atomic_load(&device->xid);
    out[0] = '\0';
    if (xid)
        snprintf(out, len, " (Xid %llu on GPU %s: %s)", (unsigned long long)xid, device->pci,
                 xid_meaning(xid));
    return out;
}

void xid_await(const struct context *context, const struct device *device)
{
    uint64_t until = context_now_ns(context) + XID_WAIT_NS;
    while (context->xid.running && !atomic_load(&device->xid) && context_now_ns(context) < until)
        context_sleep_ns(2000000);
}

/* The GPU of this process that an event is about; NULL: none. */
static struct device *xid_device(const struct context *context, nvmlDevice_t which)
{
    for (int i = 0; i < context->lib.device_count; i++) {
        nvmlDevice_t handle;
        struct device *d = &context->devices[i];
        if (d->pci[0] &&
            context->lib.nvml.nvmlDeviceGetHandleByPciBusId_v2(d->pci, &handle) == NVML_SUCCESS &&
            handle == which)
            return d;
    }
    return NULL;
}

static void xid_on_event(const struct context *context, const nvmlEventData_t *event)
{
    const struct collrun_services *s = context->services;
    struct device *d = xid_device(context, event->device);
    char text[160];
    if (!d || !(event->eventType & NVML_EVENT_XID_CRITICAL))
        return;
    atomic_store(&d->xid, event->eventData);
    s->log(s->ctx, COLLRUN_LOG_ERROR, "the driver reports a GPU error%s",
           xid_text(d, text, sizeof text));
}

static bool xid_subscribe(const struct context *context, nvmlEventSet_t set)
{
    bool any = false;
    for (int i = 0; i < context->lib.device_count; i++) {
        nvmlDevice_t handle;
        const char *pci = context->devices[i].pci;
        any |= pci[0] &&
               context->lib.nvml.nvmlDeviceGetHandleByPciBusId_v2(pci, &handle) == NVML_SUCCESS &&
               context->lib.nvml.nvmlDeviceRegisterEvents(handle, NVML_EVENT_XID_CRITICAL, set) ==
                   NVML_SUCCESS;
    }
    return any;
}

/* Without waiting in NVML, which may read the environment while this backend sets a variable. */
static int xid_poll(struct context *context, nvmlEventData_t *event)
{
    pthread_mutex_lock(&context->set_lock);
    const int rc = context->lib.nvml.nvmlEventSetWait_v2(context->xid.set, event, 0);
    pthread_mutex_unlock(&context->set_lock);
    return rc;
}

static void *xid_thread(void *arg)
{
    struct context *context = arg;
    const struct nvml_api *nvml = &context->lib.nvml;
    nvmlEventData_t event;
    int rc = NVML_SUCCESS;
    while ((rc == NVML_SUCCESS || rc == NVML_ERROR_TIMEOUT) && !atomic_load(&context->xid.stop)) {
        rc = xid_poll(context, &event);
        if (rc == NVML_SUCCESS)
            xid_on_event(context, &event);
        else
            context_sleep_ns(XID_POLL_NS);
    }
    nvml->nvmlEventSetFree(context->xid.set);
    nvml->nvmlShutdown();
    return NULL;
}

/* Not in the thread: NVML may read the environment meanwhile. */
void xid_start(struct context *context)
{
    const struct collrun_services *s = context->services;
    const struct nvml_api *nvml = &context->lib.nvml;
    struct xid_watch *x = &context->xid;
    if (!context->lib.has_nvml || nvml->nvmlInit_v2() != NVML_SUCCESS)
        return;
    if (nvml->nvmlEventSetCreate(&x->set) == NVML_SUCCESS) {
        x->running = xid_subscribe(context, x->set) &&
                     s->thread_start(s->ctx, xid_thread, context, &x->thread) == COLLRUN_OK;
        if (x->running)
            return;
        nvml->nvmlEventSetFree(x->set);
    }
    nvml->nvmlShutdown();
}

void xid_stop(struct context *context)
{
    if (!context->xid.running)
        return;
    atomic_store(&context->xid.stop, true);
    pthread_join(context->xid.thread, NULL);
}
