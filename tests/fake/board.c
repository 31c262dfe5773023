/* SPDX-License-Identifier: Apache-2.0
 *
 * The id holds the maker's process and descriptor. The file is sparse and as long as the largest
 * communicator needs, so that nobody has to know the number of ranks in advance. The maker's
 * descriptor is closed when its own rank has joined; a maker that is no rank keeps it.
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

struct address { /* what is inside an ncclUniqueId */
    char magic[16];
    uint64_t id;
    int32_t pid, fd;
};
static const char magic[16] = "fake-nccl-id";

static size_t length(int nranks)
{
    size_t n = (size_t)nranks;
    return sizeof(struct board) + n * SLOT + n * n * sizeof(struct channel);
}

char *board_slot(const struct ncclComm *comm, int rank)
{
    return (char *)(comm->board + 1) + (size_t)rank * SLOT;
}

struct channel *board_channel(const struct ncclComm *comm, int from, int to)
{
    struct channel *channels = (struct channel *)(void *)board_slot(comm, comm->nranks);
    return &channels[from * comm->nranks + to];
}

void board_ring(struct board *board)
{
    atomic_fetch_add(&board->bell, 1);
    syscall(SYS_futex, &board->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void board_listen(struct board *board, uint32_t heard)
{
    const struct timespec most = {0, 100000000};
    syscall(SYS_futex, &board->bell, FUTEX_WAIT, heard, &most, NULL, 0);
}

int board_make(struct ncclUniqueId *id)
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
    if (pwrite(fd, &address.id, sizeof address.id, offsetof(struct board, id)) < 0)
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
        return comm_fail(comm, ncclInvalidArgument, "this is no id of ncclGetUniqueId");
    snprintf(path, sizeof path, "/proc/%d/fd/%d", address.pid, address.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return comm_fail(comm, ncclSystemError, "cannot open %s: %s", path, strerror(errno));
    size_t len = length(comm->nranks);
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return comm_fail(comm, ncclSystemError, "cannot map %s: %s", path, strerror(errno));
    comm->board = at;
    comm->board_len = len;
    comm->id = address.id;
    if (comm->board->id == address.id)
        return ncclSuccess;
    board_leave(comm);
    return comm_fail(comm, ncclSystemError, "the id is not valid any more");
}

/* Ranks with the same one are on one machine. */
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

static int check_lines(struct ncclComm *comm)
{
    const struct line *lines = comm->board->lines;
    for (int r = 0; r < comm->nranks; r++) {
        if (lines[r].nranks != comm->nranks)
            return comm_fail(comm, ncclInvalidArgument, "rank %d says %d ranks, rank %d says %d",
                             comm->rank, comm->nranks, r, lines[r].nranks);
        for (int k = 0; k < r; k++)
            if (lines[k].host == lines[r].host && lines[k].gpu == lines[r].gpu)
                return comm_fail(comm, ncclInvalidUsage,
                                 "Duplicate GPU detected : rank %d and rank %d both on CUDA device "
                                 "%s",
                                 k, r, lines[r].bus_id);
    }
    return ncclSuccess;
}

/* The maker of the id does not need its descriptor any more. */
static void close_own(const struct ncclComm *comm)
{
    struct address address;
    uint64_t id = 0;
    memcpy(&address, comm->unique.internal, sizeof address);
    if (address.pid == getpid() &&
        pread(address.fd, &id, sizeof id, offsetof(struct board, id)) == sizeof id &&
        id == address.id)
        close(address.fd);
}

int board_join(struct ncclComm *comm)
{
    int result = attach(comm);
    if (result != ncclSuccess)
        return result;
    while (comm->lost && !comm_stopped(comm))
        board_listen(comm->board, atomic_load(&comm->board->bell));
    struct line *line = &comm->board->lines[comm->rank];
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&line->joined, &none, 1))
        return comm_fail(comm, ncclInvalidUsage, "rank %d has joined with this id before",
                         comm->rank);
    line->nranks = comm->nranks;
    line->gpu = fake_gpu_of(comm->device);
    line->host = host_hash();
    fake_gpu_bus_id(line->gpu, 4, line->bus_id, sizeof line->bus_id);
    snprintf(line->name, sizeof line->name, "%s", comm->name);
    atomic_store(&line->joined, 2);
    board_ring(comm->board);
    for (int r = 0; r < comm->nranks;) {
        uint32_t heard = atomic_load(&comm->board->bell);
        if (atomic_load(&comm->board->lines[r].joined) == 2)
            r++;
        else if (comm_stopped(comm))
            return ncclInternalError;
        else
            board_listen(comm->board, heard);
    }
    close_own(comm);
    return check_lines(comm);
}

void board_leave(struct ncclComm *comm)
{
    if (!comm->board)
        return;
    atomic_store(&comm->board->lines[comm->rank].left, 1);
    board_ring(comm->board);
    munmap(comm->board, comm->board_len);
    comm->board = NULL;
}
