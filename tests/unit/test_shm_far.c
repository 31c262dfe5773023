/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of the shm backend between ranks that read slowly what others have written
 * (distance.h), so that they read each other's memory: every kind, root and variant, some ranks far
 * and some not, and a kernel that refuses in the middle of the job.
 */
#include "../../backends/shm/group.h"
#include "coll_sweeps.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cmocka.h>

/* Which ranks have found that they read slowly. */
static void mark_far(const struct harness_rank *r, bool far)
{
    const struct shm_group *g = r->group->handle;
    atomic_store(&g->seg.processes[g->rank].reads_slowly, far);
}

static struct coll_case case_of(const struct harness_rank *r, size_t kind, size_t count,
                                uint32_t turn)
{
    struct coll_case c = {.kind = coll_kinds[kind], .count = count, .salt = turn};
    const uint32_t variant = turn % 3;
    c.dtype = turn % 2 ? COLLRUN_FLOAT32 : COLLRUN_INT64;
    c.root = turn % r->nranks;
    c.in_place = variant == 1 && coll_has_in_place(c.kind);
    c.memory = variant == 2 && turn % 5 == 0 ? COLL_HEAP : COLL_PLAIN;
    return c;
}

/* `far`: a bit for each rank. */
static int every_kind(struct harness_rank *r, uint32_t far, uint32_t turns)
{
    static const size_t counts[] = {4095, 4096, 8192, 20001, 100000};
    for (uint32_t turn = 0; turn < turns; turn++)
        for (size_t k = 0; k < COLL_NKINDS; k++) {
            mark_far(r, far >> r->rank & 1);
            const struct coll_case c = case_of(r, k, counts[turn % 5], turn);
            if (coll_case_run(r, r->group, &c) != 0)
                return 1;
        }
    return 0;
}

static int all_far(struct harness_rank *r)
{
    return every_kind(r, ~0u, 15);
}

static int some_far(struct harness_rank *r)
{
    return every_kind(r, 5, 15);
}

/* From then on every read fails, of ranks that have read before. */
static void deny_reading(void)
{
    struct sock_filter deny[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof deny / sizeof *deny, deny};
    /* Without seccomp in the kernel, this is the case above again. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* In place, a rank that cannot read has lost what it sends, and fails the group: left out. */
static int refused_later(struct harness_rank *r)
{
    for (uint32_t turn = 0; turn < 10; turn++)
        for (size_t k = 0; k < COLL_NKINDS; k++) {
            struct coll_case c = case_of(r, k, 20001, turn);
            c.in_place = false;
            mark_far(r, true);
            if (turn == 5 && k == 0 && r->rank == 1)
                deny_reading();
            if (coll_case_run(r, r->group, &c) != 0)
                return 1;
        }
    return 0;
}

static void run(uint32_t nranks, int (*body)(struct harness_rank *))
{
    const struct harness_options options = {
        .path = harness_backend_path("shm"), .nranks = nranks, .ncpus = 64, .limit_s = 120};
    assert_int_equal(harness_run(&options, body), 0);
}

static void every_collective_reads_the_memory_of_others(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 3; n++)
        run(n, all_far);
}

static void some_ranks_are_far_and_some_are_not(void **state)
{
    (void)state;
    run(3, some_far);
}

static void what_cannot_be_read_any_more_is_copied(void **state)
{
    (void)state;
    run(2, refused_later);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_reads_the_memory_of_others),
        cmocka_unit_test(some_ranks_are_far_and_some_are_not),
        cmocka_unit_test(what_cannot_be_read_any_more_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
