/* SPDX-License-Identifier: Apache-2.0
 *
 * backends/shm/transport/segment.h: the parts of a segment that members map one by one do not
 * overlap, whatever the number of ranks.
 */
#include "../../backends/shm/transport/segment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEAP_LEN = 4096, PARTS = 8 };

struct part {
    char *at;
    size_t len;
};

static int services_fail(void *ctx, int status, const char *format, ...)
{
    (void)ctx;
    (void)format;
    return status;
}

static const struct collrun_services services = {.fail = services_fail};

/* A sparse file of the length that the backend asks for; `ctx` is its descriptor. */
static int rendezvous_segment(void *ctx, size_t len, int *fd, uint64_t *offset)
{
    *fd = *(const int *)ctx;
    *offset = 0;
    return ftruncate(*fd, (off_t)len) == 0 ? COLLRUN_OK : COLLRUN_ERR_SYSTEM;
}

/* Both handles' parts. */
static void parts_of(const struct segment *seg, const struct segment *second, struct part *parts)
{
    const size_t n = seg->nranks;
    parts[0] = (struct part){seg->base, seg->base_len};
    parts[1] = (struct part){seg->rings, n * RING_BYTES};
    parts[2] = (struct part){(char *)seg->fifos, n * n * sizeof *seg->fifos};
    parts[3] = (struct part){seg->blocks, n * BLOCK_COUNT * BLOCK_BYTES};
    parts[4] = (struct part){(char *)second->fifos, n * n * sizeof *seg->fifos};
    parts[5] = (struct part){second->blocks, n * BLOCK_COUNT * BLOCK_BYTES};
    parts[6] = (struct part){segment_map_heap(seg, 0, HEAP_LEN), HEAP_LEN};
    parts[7] = (struct part){segment_map_heap(seg, seg->nranks - 1, HEAP_LEN), HEAP_LEN};
}

/* The first byte of the last rank's heap is free; that heap is the only one if there is one rank.
 */
static size_t part_begin(const struct segment *seg, size_t i)
{
    return i == PARTS - 1 && seg->nranks == 1 ? 1 : 0;
}

static void check_parts(uint32_t nranks)
{
    struct segment seg, second;
    struct part parts[PARTS];
    int fd = memfd_create("segment", MFD_CLOEXEC);
    const struct collrun_rendezvous rendezvous = {.ctx = &fd, .segment = rendezvous_segment};
    const struct collrun_group_desc desc = {
        .nranks = nranks, .services = &services, .rendezvous = &rendezvous};
    assert_true(fd >= 0);
    assert_int_equal(segment_open(&seg, NULL, &desc), COLLRUN_OK);
    assert_int_equal(segment_open(&second, &seg, &desc), COLLRUN_OK);
    assert_true(segment_map_rings(&seg) && segment_map_messages(&seg));
    assert_true(segment_map_messages(&second));
    parts_of(&seg, &second, parts);
    for (size_t i = 0; i < PARTS; i++) {
        assert_non_null(parts[i].at);
        parts[i].at[part_begin(&seg, i)] = (char)(1 + i);
        parts[i].at[parts[i].len - 1 - part_begin(&seg, i)] = (char)(101 + i);
    }
    for (size_t i = 0; i < PARTS; i++) {
        assert_int_equal(parts[i].at[part_begin(&seg, i)], 1 + i);
        assert_int_equal(parts[i].at[parts[i].len - 1 - part_begin(&seg, i)], 101 + i);
    }
    segment_unmap_heap(parts[6].at, HEAP_LEN);
    segment_unmap_heap(parts[7].at, HEAP_LEN);
    segment_close(&second);
    segment_close(&seg);
    close(fd);
}

static void parts_do_not_overlap(void **state)
{
    static const uint32_t nranks[] = {1, 2, 64, 65, 2047, SEGMENT_MAX_RANKS};
    (void)state;
    for (size_t i = 0; i < sizeof nranks / sizeof *nranks; i++)
        check_parts(nranks[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_do_not_overlap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
