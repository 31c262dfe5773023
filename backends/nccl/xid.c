/* SPDX-License-Identifier: Apache-2.0
 *
 * When a GPU stops, CUDA only says "unspecified launch failure"; the driver knows why, and numbers
 * the reasons: the Xid. A thread listens to NVML for them on the GPUs of this process, logs each,
 * and what fails on that GPU afterwards mentions it. Without NVML, or without the right to
 * listen, nothing is lost but that sentence.
 */
#include "group.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_NS 300000000ull

static const struct {
    unsigned xid;
    const char *meaning;
} meanings[] = {
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

static const char *meaning_of(uint64_t xid)
{
    for (size_t i = 0; i < sizeof(meanings) / sizeof(*meanings); i++)
        if (meanings[i].xid == xid)
            return meanings[i].meaning;
    return "see NVIDIA's list of Xid errors";
}

const char *xid_words(const struct device *device, char *out, size_t len)
{
    const uint64_t xid = atomic_load(&device->xid);
    out[0] = '\0';
    if (xid)
        snprintf(out, len, " (Xid %llu on GPU %s: %s)", (unsigned long long)xid, device->pci,
                 meaning_of(xid));
    return out;
}

void xid_await(const struct home *home, const struct device *device)
{
    const uint64_t until = clock_ns() + PATIENCE_NS;
    while (home->xid.running && !atomic_load(&device->xid) && clock_ns() < until)
        pause_ns(2000000);
}

/* The process's GPU that an event is about. */
static struct device *device_of(const struct home *home, nvmlDevice_t which)
{
    for (int i = 0; i < home->lib.device_count; i++) {
        nvmlDevice_t handle;
        struct device *d = &home->devices[i];
        if (d->pci[0] &&
            home->lib.nvml.nvmlDeviceGetHandleByPciBusId_v2(d->pci, &handle) == NVML_SUCCESS &&
            handle == which)
            return d;
    }
    return NULL;
}

static void take_down(const struct home *home, const nvmlEventData_t *event)
{
    const struct collrun_services *s = home->services;
    struct device *d = device_of(home, event->device);
    char words[160];
    if (!d || !(event->eventType & NVML_EVENT_XID_CRITICAL))
        return;
    atomic_store(&d->xid, event->eventData);
    s->log(s->ctx, COLLRUN_LOG_ERROR, "the driver reports a GPU error%s",
           xid_words(d, words, sizeof(words)));
}

static bool subscribe(const struct home *home, nvmlEventSet_t set)
{
    bool any = false;
    for (int i = 0; i < home->lib.device_count; i++) {
        nvmlDevice_t handle;
        const char *pci = home->devices[i].pci;
        any |= pci[0] &&
               home->lib.nvml.nvmlDeviceGetHandleByPciBusId_v2(pci, &handle) == NVML_SUCCESS &&
               home->lib.nvml.nvmlDeviceRegisterEvents(handle, NVML_EVENT_XID_CRITICAL, set) ==
                   NVML_SUCCESS;
    }
    return any;
}

static void *watch_events(void *arg)
{
    struct home *home = arg;
    const struct nvml_api *nvml = &home->lib.nvml;
    nvmlEventSet_t set;
    nvmlEventData_t event;
    if (nvml->nvmlInit_v2() != NVML_SUCCESS)
        return NULL;
    if (nvml->nvmlEventSetCreate(&set) == NVML_SUCCESS) {
        bool listening = subscribe(home, set);
        while (listening && !atomic_load(&home->xid.stop)) {
            const int rc = nvml->nvmlEventSetWait_v2(set, &event, 200);
            if (rc == NVML_SUCCESS)
                take_down(home, &event);
            listening = rc == NVML_SUCCESS || rc == NVML_ERROR_TIMEOUT;
        }
        nvml->nvmlEventSetFree(set);
    }
    nvml->nvmlShutdown();
    return NULL;
}

void xid_start(struct home *home)
{
    sigset_t all, before;
    if (!home->lib.has_nvml)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    home->xid.running = pthread_create(&home->xid.thread, NULL, watch_events, home) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void xid_stop(struct home *home)
{
    if (!home->xid.running)
        return;
    atomic_store(&home->xid.stop, true);
    pthread_join(home->xid.thread, NULL);
}
