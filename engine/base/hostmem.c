/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hostmem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOSTMEM_MAGIC "collhst1"
#define SEGMENT_ALIGN (1ull << 20)
/* A slot has room for so much of each rank of the host. Only the file's size grows with it, which
 * must stay below 2^63. */
#define SLOT_BYTES_PER_RANK (128ull << 30)
#define MOST_RANKS 4096u
/* Scopes that fail because a member never joins stay until their place is needed. */
#define SCOPES_PER_RANK 4u
#define MORE_SCOPES 64u

_Static_assert(SLOT_BYTES_PER_RANK *MOST_RANKS <= (1ull << 62) / HOSTMEM_SEGMENTS,
               "the file's size stays below 2^63");

static uint64_t hostmem_round(uint64_t len, uint64_t to)
{
    return (len + to - 1) / to * to;
}

static int hostmem_init_head(int fd, const struct hostmem_head *head, struct diag *d)
{
    pthread_mutexattr_t attr;
    struct hostmem_head *h =
        mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (h == MAP_FAILED)
        return diag_sys(d, errno, "cannot map the memory that the ranks of this host share");
    *h = *head;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&h->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    munmap(h, sizeof *h);
    return COLLRUN_OK;
}

static int hostmem_refused(int error, struct diag *d)
{
    diag_sys(d, error, "cannot create the memory that the ranks of this host share");
    if (error == EFBIG)
        diag_hint(d, "raise the hard limit of file sizes (ulimit -Hf): the file is long, and "
                     "sparse");
    return d->code;
}

int hostmem_make(uint32_t nranks, int *out, struct diag *d)
{
    if (nranks > MOST_RANKS)
        return diag_set(d, COLLRUN_ERR_UNSUPPORTED, "%u ranks on one host; %u are supported",
                        nranks, MOST_RANKS);
    struct hostmem_head head = {.nranks = nranks,
                                .nscopes = SCOPES_PER_RANK * nranks + MORE_SCOPES,
                                .segment_len = nranks * SLOT_BYTES_PER_RANK};
    memcpy(head.magic, HOSTMEM_MAGIC, sizeof head.magic);
    head.scope_len = (uint32_t)hostmem_round(
        sizeof(struct hostmem_scope) + nranks * sizeof(struct hostmem_member), 64);
    head.scopes_offset = hostmem_round(sizeof head, 64);
    head.mapped_len = hostmem_round(head.scopes_offset + (uint64_t)head.nscopes * head.scope_len,
                                    (uint64_t)sysconf(_SC_PAGESIZE));
    head.segments_offset = hostmem_round(head.mapped_len, SEGMENT_ALIGN);
    const uint64_t len = head.segments_offset + HOSTMEM_SEGMENTS * head.segment_len;
    int fd = memfd_create("collrun", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int rc = COLLRUN_OK;
    if (fd < 0 || ftruncate(fd, (off_t)len) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        rc = hostmem_refused(errno, d);
    if (rc == COLLRUN_OK)
        rc = hostmem_init_head(fd, &head, d);
    if (rc == COLLRUN_OK)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return rc;
}

bool hostmem_map(struct hostmem *m, int fd)
{
    char magic[8];
    uint64_t len;
    *m = (struct hostmem){.fd = -1};
    if (pread(fd, magic, sizeof magic, 0) != sizeof magic ||
        memcmp(magic, HOSTMEM_MAGIC, sizeof magic) != 0 ||
        pread(fd, &len, sizeof len, offsetof(struct hostmem_head, mapped_len)) != sizeof len)
        return false;
    void *head = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (head == MAP_FAILED)
        return false;
    *m = (struct hostmem){.head = head, .fd = fd};
    return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

void hostmem_unmap(struct hostmem *m)
{
    if (m->head)
        munmap(m->head, m->head->mapped_len);
    m->head = NULL;
}

/* A rank that was killed may leave one scope half written. The group of that scope fails with the
 * rank. */
void hostmem_lock(struct hostmem *m)
{
    if (pthread_mutex_lock(&m->head->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&m->head->lock);
}

void hostmem_unlock(struct hostmem *m)
{
    pthread_mutex_unlock(&m->head->lock);
}

struct hostmem_scope *hostmem_scope_at(const struct hostmem *m, uint32_t index)
{
    char *base = (char *)m->head;
    return (void *)(base + m->head->scopes_offset + (size_t)index * m->head->scope_len);
}

bool hostmem_segment_take(struct hostmem *m, uint32_t nmembers, uint32_t *out)
{
    struct hostmem_head *h = m->head;
    for (uint32_t i = 0; i < HOSTMEM_SEGMENTS; i++) {
        const uint32_t slot = (h->next_segment + i) % HOSTMEM_SEGMENTS;
        if (atomic_load_explicit(&h->segment_refs[slot], memory_order_acquire))
            continue;
        /* No thread writes it before the scope, with this slot, is released as complete. */
        atomic_store_explicit(&h->segment_refs[slot], nmembers + 1, memory_order_relaxed);
        h->next_segment = slot + 1;
        *out = slot;
        return true;
    }
    return false;
}

void hostmem_segment_release(struct hostmem *m, uint32_t segment)
{
    _Atomic uint32_t *refs = &m->head->segment_refs[segment];
    if (atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) != 2)
        return;
    if (fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)hostmem_segment_offset(m, segment), (off_t)m->head->segment_len) == 0)
        atomic_store_explicit(refs, 0, memory_order_release);
}

uint64_t hostmem_segment_offset(const struct hostmem *m, uint32_t segment)
{
    return m->head->segments_offset + segment * m->head->segment_len;
}
