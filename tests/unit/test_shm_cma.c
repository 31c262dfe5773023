/* SPDX-License-Identifier: Apache-2.0
 *
 * backends/shm/transport/cma.h between two processes: what is read, what a kernel refuses, and
 * memory or processes that are gone. A rank of the test is a process with a struct shm_group of
 * its own and a common segment of nothing but processes.
 */
#include "../../backends/shm/group.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { LEN = 3 << 20, PAGE = 4096, DENIED = 77 };

struct shared {
    struct process processes[2];
    struct failure failure;
    _Atomic uint64_t buffer; /* of the process that is read */
};

static struct shared *shared;
static struct shm_group ranks[2];

static int rank_fail(void *ctx, int status, const char *format, ...)
{
    (void)ctx;
    (void)format;
    return status;
}

static uint64_t rank_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const struct collrun_services services = {.fail = rank_fail, .now_ns = rank_now_ns};

static void rank_init(uint32_t rank)
{
    struct shm_group *g = &ranks[rank];
    *g = (struct shm_group){.services = &services, .rank = rank, .nranks = 2};
    g->seg.processes = shared->processes;
    g->failure = &shared->failure;
    g->cma = &g->own_cma;
    assert_int_equal(cma_init(&g->own_cma, 2), COLLRUN_OK);
}

static int setup(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rank_init(0);
    rank_init(1);
    return shared == MAP_FAILED;
}

static int teardown(void **state)
{
    (void)state;
    cma_fini(&ranks[0].own_cma);
    cma_fini(&ranks[1].own_cma);
    return munmap(shared, sizeof *shared);
}

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i % 251 + i / PAGE);
}

/* Starts the process of rank 1, which has a buffer of LEN bytes and an inaccessible page after it.
 * This process does not have the buffer. */
static pid_t start_owner(void)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        unsigned char *buffer =
            mmap(NULL, LEN + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t i = 0; i < LEN; i++)
            buffer[i] = byte_at(i);
        mprotect(buffer + LEN, PAGE, PROT_NONE);
        cma_publish(&ranks[1]);
        atomic_store(&shared->buffer, (uintptr_t)buffer);
        for (;;)
            pause();
    }
    while (atomic_load(&shared->buffer) == 0)
        usleep(100);
    return pid;
}

static void stop_owner(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A sandbox may forbid the call to all of this test. */
static void skip_unless_permitted(pid_t pid)
{
    char byte;
    const struct iovec to = {&byte, 1};
    const struct iovec from = {(void *)(uintptr_t)atomic_load(&shared->buffer), 1};
    if (process_vm_readv(pid, &to, 1, &from, 1, 0) == 1)
        return;
    print_message("the kernel refuses process_vm_readv of a child: %s\n", strerror(errno));
    stop_owner(pid);
    skip();
}

static void memory_of_another_process_is_read(void **state)
{
    (void)state;
    const pid_t owner = start_owner();
    unsigned char *to = malloc(LEN);
    size_t moved = 0;
    skip_unless_permitted(owner);
    assert_true(cma_can_read(&ranks[0], 1));
    assert_int_equal(cma_read(&ranks[0], 1, to, shared->buffer, LEN, &moved), COLLRUN_OK);
    assert_int_equal(moved, LEN);
    for (size_t i = 0; i < LEN; i++)
        assert_int_equal(to[i], byte_at(i));
    free(to);
    stop_owner(owner);
}

static void a_read_ends_where_memory_is_not_accessible(void **state)
{
    (void)state;
    const pid_t owner = start_owner();
    unsigned char to[3 * PAGE];
    size_t moved = 0;
    skip_unless_permitted(owner);
    assert_int_equal(cma_read(&ranks[0], 1, to, shared->buffer + LEN - PAGE, sizeof to, &moved),
                     COLLRUN_OK);
    assert_int_equal(moved, PAGE);
    stop_owner(owner);
}

static void a_process_that_is_gone_ends_a_read(void **state)
{
    (void)state;
    const pid_t owner = start_owner();
    unsigned char to[PAGE];
    size_t moved = 1;
    skip_unless_permitted(owner);
    assert_true(cma_can_read(&ranks[0], 1));
    stop_owner(owner);
    assert_int_equal(cma_read(&ranks[0], 1, to, shared->buffer, PAGE, &moved), COLLRUN_OK);
    assert_int_equal(moved, 0);
}

/* As in another PID namespace. */
static void another_process_with_the_same_number_is_not_read(void **state)
{
    (void)state;
    const pid_t owner = start_owner();
    shared->processes[1].token++;
    assert_false(cma_can_read(&ranks[0], 1));
    stop_owner(owner);
}

static void a_rank_that_has_published_nothing_is_not_read(void **state)
{
    (void)state;
    unsigned char to[PAGE];
    size_t moved = 1;
    assert_false(cma_can_read(&ranks[0], 1));
    assert_int_equal(cma_read(&ranks[0], 1, to, 0, PAGE, &moved), COLLRUN_OK);
    assert_int_equal(moved, 0);
}

static void a_rank_of_this_process_is_read(void **state)
{
    (void)state;
    unsigned char from[PAGE], to[PAGE] = {0};
    size_t moved = 0;
    memset(from, 7, sizeof from);
    cma_publish(&ranks[1]);
    if (!cma_can_read(&ranks[0], 1))
        skip();
    assert_int_equal(cma_read(&ranks[0], 1, to, (uintptr_t)from, PAGE, &moved), COLLRUN_OK);
    assert_int_equal(moved, PAGE);
    assert_memory_equal(to, from, PAGE);
}

static void after_a_failure_nothing_counts_as_read(void **state)
{
    (void)state;
    const pid_t owner = start_owner();
    unsigned char to[PAGE];
    size_t moved = 1;
    skip_unless_permitted(owner);
    assert_true(cma_can_read(&ranks[0], 1));
    shared->failure.status = COLLRUN_ERR_ABORTED;
    atomic_store(&shared->failure.state, FAILURE_SET);
    assert_int_equal(cma_read(&ranks[0], 1, to, shared->buffer, PAGE, &moved), COLLRUN_ERR_ABORTED);
    stop_owner(owner);
}

/* What a container's seccomp profile does. */
static void deny_cma(void)
{
    struct sock_filter deny[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof deny / sizeof *deny, deny};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(DENIED);
}

static void a_refusal_of_the_kernel_is_no_error(void **state)
{
    (void)state;
    int status;
    const pid_t owner = start_owner(), reader = fork();
    if (reader == 0) {
        unsigned char to[PAGE];
        size_t moved = 1;
        deny_cma();
        if (cma_can_read(&ranks[0], 1))
            _exit(1);
        _exit(cma_read(&ranks[0], 1, to, shared->buffer, PAGE, &moved) || moved ? 2 : 0);
    }
    waitpid(reader, &status, 0);
    stop_owner(owner);
    if (WEXITSTATUS(status) == DENIED) {
        print_message("this kernel has no seccomp filters\n");
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_of_another_process_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_read_ends_where_memory_is_not_accessible, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_process_that_is_gone_ends_a_read, setup, teardown),
        cmocka_unit_test_setup_teardown(another_process_with_the_same_number_is_not_read, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_rank_that_has_published_nothing_is_not_read, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_rank_of_this_process_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(after_a_failure_nothing_counts_as_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refusal_of_the_kernel_is_no_error, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
