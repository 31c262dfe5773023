/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that the ranks of a communicator share. The id has the process and descriptor of its
 * creator. The file is sparse and long enough for the largest communicator, since the number of
 * ranks is not known in advance. The creator's descriptor is closed when its own rank has joined; a
 * creator that is not a rank keeps it.
 */
#include "comm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct address { /* the content of an ncclUniqueId */
    char magic[16];
    uint64_t id;
    int32_t pid, fd;
};
static const char magic[16] = "fake-nccl-id";

static size_t length(int nranks)
{
    size_t n = (size_t)nranks;
    return sizeof(struct shared) + n * SLOT + n * n * sizeof(struct channel);
}

char *shared_slot(const struct ncclComm *comm, int rank)
{
    return (char *)(comm->shared + 1) + (size_t)rank * SLOT;
}

struct channel *shared_channel(const struct ncclComm *comm, int from, int to)
{
    struct channel *channels = (struct channel *)(void *)shared_slot(comm, comm->nranks);
    return &channels[from * comm->nranks + to];
}

void shared_notify(struct shared *shared)
{
    atomic_fetch_add(&shared->changes, 1);
    syscall(SYS_futex, &shared->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void shared_wait(struct shared *shared, uint32_t seen)
{
    const struct timespec most = {0, 100000000};
    syscall(SYS_futex, &shared->changes, FUTEX_WAIT, seen, &most, NULL, 0);
}

int shared_create(struct ncclUniqueId *id)
{
    struct timespec now;
    int fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)length(RANKS_MAX)) < 0)
        return ncclSystemError;
    clock_gettime(CLOCK_REALTIME, &now);
    struct address address = {.pid = getpid(), .fd = fd};
    memcpy(address.magic, magic, sizeof magic);
    address.id = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    address.id = address.id * 65536 + (uint64_t)address.pid * 64 + (uint64_t)fd;
    if (pwrite(fd, &address.id, sizeof address.id, offsetof(struct shared, id)) < 0)
        return ncclSystemError;
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &address, sizeof address);
    return ncclSuccess;
}

/* ---- joining ---- */

static int attach(struct ncclComm *comm)
{
    struct address address;
    char path[64];
    memcpy(&address, comm->unique.internal, sizeof address);
    if (memcmp(address.magic, magic, sizeof magic) != 0)
        return comm_fail(comm, ncclInvalidArgument, "the id is not from ncclGetUniqueId");
    snprintf(path, sizeof path, "/proc/%d/fd/%d", address.pid, address.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return comm_fail(comm, ncclSystemError, "cannot open %s: %s", path, strerror(errno));
    size_t len = length(comm->nranks);
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return comm_fail(comm, ncclSystemError, "cannot map %s: %s", path, strerror(errno));
    comm->shared = at;
    comm->shared_len = len;
    comm->id = address.id;
    if (comm->shared->id == address.id)
        return ncclSuccess;
    shared_leave(comm);
    return comm_fail(comm, ncclSystemError, "the id is no longer valid");
}

/* Ranks with equal hashes are on one machine. */
static uint64_t host_hash(void)
{
    char text[256] = "", boot[64] = "";
    const char *given = getenv("NCCL_HOSTID");
    uint64_t hash = 5381;
    if (given && *given) {
        snprintf(text, sizeof text, "%s", given);
    } else {
        FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
        if (f && !fgets(boot, sizeof boot, f))
            boot[0] = '\0';
        if (f)
            fclose(f);
        gethostname(text, sizeof text - sizeof boot);
        strcat(text, boot);
    }
    for (const char *c = text; *c; c++)
        hash = hash * 33 ^ (unsigned char)*c;
    return hash;
}

static int check_ranks(struct ncclComm *comm)
{
    const struct rank_state *ranks = comm->shared->ranks;
    for (int r = 0; r < comm->nranks; r++) {
        if (ranks[r].nranks != comm->nranks)
            return comm_fail(comm, ncclInvalidArgument, "rank %d gives %d ranks, rank %d gives %d",
                             comm->rank, comm->nranks, r, ranks[r].nranks);
        for (int k = 0; k < r; k++)
            if (ranks[k].host == ranks[r].host && ranks[k].gpu == ranks[r].gpu)
                return comm_fail(comm, ncclInvalidUsage,
                                 "Duplicate GPU detected : rank %d and rank %d both on CUDA device "
                                 "%s",
                                 k, r, ranks[r].bus_id);
    }
    return ncclSuccess;
}

/* The creator of the id no longer needs its descriptor. */
static void close_own(const struct ncclComm *comm)
{
    struct address address;
    uint64_t id = 0;
    memcpy(&address, comm->unique.internal, sizeof address);
    if (address.pid == getpid() &&
        pread(address.fd, &id, sizeof id, offsetof(struct shared, id)) == sizeof id &&
        id == address.id)
        close(address.fd);
}

int shared_join(struct ncclComm *comm)
{
    int result = attach(comm);
    if (result != ncclSuccess)
        return result;
    while (comm->lost && !comm_stopped(comm))
        shared_wait(comm->shared, atomic_load(&comm->shared->changes));
    struct rank_state *state = &comm->shared->ranks[comm->rank];
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&state->joined, &none, 1))
        return comm_fail(comm, ncclInvalidUsage, "rank %d has already joined with this id",
                         comm->rank);
    state->nranks = comm->nranks;
    state->gpu = fake_gpu_of(comm->device);
    state->host = host_hash();
    fake_gpu_bus_id(state->gpu, 4, state->bus_id, sizeof state->bus_id);
    snprintf(state->name, sizeof state->name, "%s", comm->name);
    atomic_store(&state->joined, 2);
    shared_notify(comm->shared);
    for (int r = 0; r < comm->nranks;) {
        uint32_t seen = atomic_load(&comm->shared->changes);
        if (atomic_load(&comm->shared->ranks[r].joined) == 2)
            r++;
        else if (comm_stopped(comm))
            return ncclInternalError;
        else
            shared_wait(comm->shared, seen);
    }
    close_own(comm);
    return check_ranks(comm);
}

void shared_leave(struct ncclComm *comm)
{
    if (!comm->shared)
        return;
    atomic_store(&comm->shared->ranks[comm->rank].left, 1);
    shared_notify(comm->shared);
    munmap(comm->shared, comm->shared_len);
    comm->shared = NULL;
}
