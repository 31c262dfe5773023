/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes are forked before any library is loaded, so that each loads its own copy. An alarm ends
 * a process that hangs. The stderr of all goes to one file, which the caller can search.
 */
#include "fake_procs.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS_MAX = 60 };

struct fake_api fake;

void procs_check(bool ok, const char *file, int line, const char *text)
{
    if (ok)
        return;
    dprintf(2, "%s:%d: false: %s\n", file, line, text);
    _exit(1);
}

void procs_is(long got, long wanted, const char *file, int line, const char *text)
{
    if (got == wanted)
        return;
    dprintf(2, "%s:%d: %s is %ld, not %ld\n", file, line, text, got, wanted);
    _exit(1);
}

void procs_pause_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

void procs_await(struct procs *procs, int i, int value)
{
    for (int ms = 0; ms < SECONDS_MAX * 500; ms++) {
        if (atomic_load(&procs->flags[i]) >= value)
            return;
        procs_pause_ms(1);
    }
    MUST(false && "timed out");
}

void procs_barrier(struct procs *procs)
{
    int mine = atomic_fetch_add(&procs->arrived, 1);
    int all = (mine / procs->nprocs + 1) * procs->nprocs;
    for (int ms = 0; atomic_load(&procs->arrived) < all; ms++) {
        MUST(ms < SECONDS_MAX * 500);
        procs_pause_ms(1);
    }
}

/* Loads $BUILD/tests/fake/...; this program is $BUILD/tests/test_x. */
static void *load(const char *folder, const char *name)
{
    char self[PATH_MAX] = "", path[PATH_MAX + 64];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return NULL;
    *strrchr(self, '/') = '\0';
    snprintf(path, sizeof path, "%s/fake/%s%s", self, folder, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        dprintf(2, "%s\n", dlerror());
    MUST(library != NULL);
    return library;
}

#define LOAD(name) fake.name = (__typeof__(fake.name))(uintptr_t)dlsym(library, #name);
static void load_all(const char *which)
{
    void *library = load("", "libcudart.so.13");
    FAKE_CUDA_FUNCTIONS(LOAD)
    library = load(strcmp(which, "old") ? "" : "old/", "libnccl.so.2");
    FAKE_NCCL_FUNCTIONS(LOAD)
    library = load("", "libnvidia-ml.so.1");
    FAKE_NVML_FUNCTIONS(LOAD)
}

static void procs_rank_main(struct procs *procs, int rank, int printed, const char *which,
                            void (*body)(struct procs *, int rank))
{
    dup2(printed, 2);
    for (int signal_number = 1; signal_number < 32;
         signal_number++) /* cmocka sets handlers for some */
        signal(signal_number, SIG_DFL);
    alarm(SECONDS_MAX);
    load_all(which);
    body(procs, rank);
    _exit(0);
}

int procs_run(struct procs **out, int nprocs, const char *which,
              void (*body)(struct procs *, int rank))
{
    struct procs *procs =
        mmap(NULL, sizeof *procs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int printed = memfd_create("printed", MFD_CLOEXEC), result = 0, status;
    pid_t pids[PROCS_MAX];
    if (procs == MAP_FAILED || printed < 0)
        abort();
    procs->nprocs = nprocs;
    fflush(NULL);
    for (int rank = 0; rank < nprocs; rank++)
        if ((pids[rank] = fork()) == 0)
            procs_rank_main(procs, rank, printed, which, body);
    for (int rank = 0; rank < nprocs; rank++) {
        while (waitpid(pids[rank], &status, 0) < 0 && errno == EINTR)
            continue;
        result = result ? result : status;
    }
    ssize_t n = pread(printed, procs->printed, sizeof procs->printed - 1, 0);
    close(printed);
    if (result && n > 0)
        printf("# %s\n", procs->printed);
    *out = procs;
    return result;
}

void procs_free(struct procs *procs)
{
    munmap(procs, sizeof *procs);
}
