/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory and its clock. The ticks of the CPU are used where they count at one rate on all cores
 * and in all power states, and the kernel has not found them unstable. Their rate is measured over
 * the time since record_make, so its error shrinks: 50 ns in all, at any time.
 */
#include "base/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

_Static_assert(sizeof(struct record_head) == 4096, "the head has a fixed shape");
_Static_assert(offsetof(struct record_head, next) % 64 == 0 &&
                   offsetof(struct record_head, groups_used) % 64 == 0,
               "what the rank writes begins at a cache line");
_Static_assert(sizeof(struct record_module) == 256, "a module has a fixed shape");
_Static_assert(sizeof(struct record_group) == 256, "a group has a fixed shape");
_Static_assert(sizeof(struct record_marks) == 4096, "marks have a fixed shape");
_Static_assert(sizeof(struct record_entry) == 64, "an entry has a fixed shape");
_Static_assert(sizeof(struct record_op) == 32, "an operation has a fixed shape");
_Static_assert(sizeof(struct record_thread) == 128, "a thread has a fixed shape");
_Static_assert(sizeof(struct record_request) == 64, "a request has a fixed shape");
_Static_assert(sizeof(struct record_channel) == 64, "a channel has a fixed shape");
_Static_assert(sizeof(struct record_line) == 256, "a line has a fixed shape");
_Static_assert(sizeof(struct record_mistake) == 256, "a mistake has a fixed shape");

/* ---- the clock ---- */

/* True for an invariant counter, unless the kernel uses another clock because it distrusts it. */
static bool record_has_tsc(void)
{
    bool usable = false;
#if defined __x86_64__
    enum { INVARIANT = 1 << 8 };
    unsigned a, b, c, d;
    char name[32] = "";
    usable = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & INVARIANT);
    FILE *f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (f) {
        usable = usable && fgets(name, sizeof name, f) && strncmp(name, "hpet", 4) != 0 &&
                 strncmp(name, "acpi_pm", 7) != 0;
        fclose(f);
    }
#endif
    return usable;
}

uint64_t record_mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Both clocks at one moment: the closest of a few pairs. */
static void record_read_clocks(const struct record_head *head, uint64_t *ticks, uint64_t *ns)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t before = record_ticks(head), now = record_mono_ns(), after = record_ticks(head);
        if (after - before >= best)
            continue;
        best = after - before;
        *ticks = before + best / 2;
        *ns = now;
    }
}

void record_calibrate(struct record_head *head)
{
    uint64_t ticks = 0, ns = 0;
    if (!head->has_tsc)
        return;
    record_read_clocks(head, &ticks, &ns);
    if (ticks > head->ticks0 && ns > head->mono_ns0)
        head->ticks_mult = (uint64_t)((double)(ns - head->mono_ns0) * 4294967296.0 /
                                      (double)(ticks - head->ticks0));
}

static void record_start_clock(struct record_head *head)
{
    head->has_tsc = record_has_tsc();
    head->ticks_mult = UINT64_C(1) << 32;
    if (head->has_tsc)
        record_read_clocks(head, &head->ticks0, &head->mono_ns0);
}

/* ---- the memory ---- */

struct record_layout record_layout(const struct record_head *head)
{
    struct record_layout at;
    at.modules = sizeof *head;
    at.groups = at.modules + head->nmodules * sizeof(struct record_module);
    at.marks = at.groups + head->ngroups * sizeof(struct record_group);
    at.counts = at.marks + head->nmarks * sizeof(struct record_marks);
    at.entries = at.counts + head->ncounts * sizeof(uint64_t);
    at.threads = at.entries + head->entries * sizeof(struct record_entry);
    at.waits = at.threads + head->nthreads * sizeof(struct record_thread);
    at.requests = at.waits + head->nthreads * RECORD_WAITS * sizeof(uint32_t);
    at.channels = at.requests + head->nrequests * sizeof(struct record_request);
    at.lines = at.channels + head->nchannels * sizeof(struct record_channel);
    at.mistakes = at.lines + head->nlines * sizeof(struct record_line);
    at.members = at.mistakes + head->nmistakes * sizeof(struct record_mistake);
    at.size = at.members + head->nmembers * sizeof(uint32_t);
    return at;
}

int record_make(uint32_t rank, uint32_t entries)
{
    struct record_head head = {.nmodules = RECORD_MODULES,
                               .ngroups = RECORD_GROUPS,
                               .nmarks = RECORD_GROUPS,
                               .ncounts = entries ? RECORD_COUNTS : 0,
                               .entries = entries,
                               .rank = rank,
                               .timed = 1,
                               .nthreads = RECORD_THREADS,
                               .nrequests = RECORD_REQUESTS,
                               .nchannels = RECORD_CHANNELS,
                               .nlines = RECORD_LINES,
                               .nmistakes = RECORD_MISTAKES,
                               .nmembers = RECORD_MEMBERS};
    memcpy(head.magic, RECORD_MAGIC, sizeof head.magic);
    if (entries > RECORD_ENTRIES_MAX || (entries & (entries - 1)))
        return -EINVAL;
    int fd = memfd_create("collrun-record", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    record_start_clock(&head);
    if (ftruncate(fd, (off_t)record_layout(&head).size) < 0 ||
        pwrite(fd, &head, sizeof head, 0) != sizeof head ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}

static bool record_is_ours(const struct record_head *head)
{
    return memcmp(head->magic, RECORD_MAGIC, sizeof head->magic) == 0 &&
           head->nmodules == RECORD_MODULES && head->ngroups == RECORD_GROUPS &&
           head->nmarks == RECORD_GROUPS && head->entries <= RECORD_ENTRIES_MAX &&
           (head->entries & (head->entries - 1)) == 0 &&
           head->ncounts == (head->entries ? RECORD_COUNTS : 0) &&
           head->nthreads == RECORD_THREADS && head->nrequests == RECORD_REQUESTS &&
           head->nchannels == RECORD_CHANNELS && head->nlines == RECORD_LINES &&
           head->nmistakes == RECORD_MISTAKES && head->nmembers == RECORD_MEMBERS;
}

struct record_head *record_map(int fd)
{
    struct stat st;
    struct record_head head;
    if (pread(fd, &head, sizeof head, 0) != sizeof head || !record_is_ours(&head) ||
        fstat(fd, &st) < 0 || st.st_size != (off_t)record_layout(&head).size)
        return NULL;
    void *mem = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return mem == MAP_FAILED ? NULL : mem;
}

void record_unmap(struct record_head *head, size_t len)
{
    if (head)
        munmap(head, len);
}

size_t record_len(const struct record_head *head)
{
    return record_layout(head).size;
}
