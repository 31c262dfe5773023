/* SPDX-License-Identifier: Apache-2.0
 *
 * Long messages of the shm backend, which a receiver reads from the sender's memory or takes block
 * by block: with and without the kernel's permission, and when either side is killed meanwhile.
 */
#include "backend_harness.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

static struct harness_options options_for(uint32_t nranks)
{
    return (struct harness_options){
        .path = harness_backend_path("shm"), .nranks = nranks, .limit_s = 180};
}

static unsigned char byte_of(uint32_t from, int round, size_t i)
{
    return (unsigned char)(from * 31 + (uint32_t)round * 7 + i % 251 + i / 4099);
}

/* Every rank sends to the next one and receives from the one before. */
static int shift(struct harness_rank *r, int round, size_t len)
{
    const uint32_t next = (r->rank + 1) % r->nranks;
    const uint32_t before = (r->rank + r->nranks - 1) % r->nranks;
    unsigned char *out = calloc(2, len), *in = out ? out + len : NULL;
    size_t wrong = 0;
    HARNESS_CHECK(r, out);
    for (size_t i = 0; i < len; i++)
        out[i] = byte_of(r->rank, round, i);
    const struct collrun_call calls[2] = {harness_message(COLLRUN_SEND, out, len, next, 0),
                                          harness_message(COLLRUN_RECV, in, len, before, 0)};
    const int status = harness_exec(r->group, calls, 2);
    for (size_t i = 0; i < len; i++)
        wrong += in[i] != byte_of(before, round, i);
    free(out);
    HARNESS_CHECK(r, status == COLLRUN_OK && wrong == 0);
    return 0;
}

/* Several messages of a length, so that receivers take both ways. */
static int long_messages(struct harness_rank *r)
{
    static const size_t lengths[] = {4 * MIB - 1, 4 * MIB, 5 * MIB + 5};
    for (int i = 0; i < 18; i++)
        if (shift(r, i, lengths[i % 3]) != 0)
            return 1;
    return 0;
}

/* What the kernel does where a rank reads memory of another one. */
static void filter_reads(uint32_t action)
{
    struct sock_filter deny[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof deny / sizeof *deny, deny};
    /* Without seccomp in the kernel, this is the case above again. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* What a container's seccomp profile does. */
static int deny_and_send(struct harness_rank *r)
{
    filter_reads(SECCOMP_RET_ERRNO | EPERM);
    return long_messages(r);
}

static int forbid_and_send(struct harness_rank *r)
{
    filter_reads(SECCOMP_RET_KILL_PROCESS);
    return shift(r, 0, 4 * MIB) || shift(r, 1, 5 * MIB);
}

static void no_rank_reads_the_memory_of_another_one_with_cma_off(void **state)
{
    static const char *const settings[] = {"cma", "off", NULL};
    struct harness_options options = options_for(2);
    (void)state;
    options.settings = settings;
    assert_int_equal(harness_run(&options, forbid_and_send), 0);
}

static void long_messages_arrive(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        struct harness_options options = options_for(n);
        assert_int_equal(harness_run(&options, long_messages), 0);
        options.threads = true;
        assert_int_equal(harness_run(&options, long_messages), 0);
    }
}

static void long_messages_arrive_where_the_kernel_refuses_reading(void **state)
{
    (void)state;
    const struct harness_options options = options_for(3);
    assert_int_equal(harness_run(&options, deny_and_send), 0);
}

/* Rank 1 dies in the middle of messages that one of ranks 0 and 1 streams to the other. */
static int kill_amid(struct harness_rank *r, uint32_t sender)
{
    const size_t len = 256u << 20;
    unsigned char *buf = malloc(len);
    int status = COLLRUN_OK;
    if (r->rank == 2) {
        free(buf);
        HARNESS_UNTIL(r, harness_inside_ms(r, 1) >= 5);
        harness_kill(r, 1);
        return 0;
    }
    for (int i = 0; status == COLLRUN_OK && i < 10000; i++) {
        const struct collrun_call call = harness_message(
            r->rank == sender ? COLLRUN_SEND : COLLRUN_RECV, buf, len, 1 - r->rank, 0);
        status = harness_exec(r->group, &call, 1);
    }
    *(uint64_t *)r->scratch = harness_now_ns() - harness_abort_ns(r);
    free(buf);
    HARNESS_CHECK(r, status == COLLRUN_ERR_ABORTED);
    return 0;
}

static int kill_receiver(struct harness_rank *r)
{
    return kill_amid(r, 0);
}

static int kill_sender(struct harness_rank *r)
{
    return kill_amid(r, 1);
}

static void kill_one(int (*fn)(struct harness_rank *r))
{
    const bool may_die[3] = {false, true, false};
    struct harness_options options = options_for(3);
    options.may_die = may_die;
    options.abort_on_death = true;
    assert_int_equal(harness_run(&options, fn), 0);
    print_message("# out after %.1f ms\n", (double)*(const uint64_t *)harness_scratch() / 1e6);
}

static void a_killed_receiver_does_not_block_its_sender(void **state)
{
    (void)state;
    kill_one(kill_receiver);
}

static void a_killed_sender_does_not_block_its_receiver(void **state)
{
    (void)state;
    kill_one(kill_sender);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_rank_reads_the_memory_of_another_one_with_cma_off),
        cmocka_unit_test(long_messages_arrive),
        cmocka_unit_test(long_messages_arrive_where_the_kernel_refuses_reading),
        cmocka_unit_test(a_killed_receiver_does_not_block_its_sender),
        cmocka_unit_test(a_killed_sender_does_not_block_its_receiver),
    };
    return cmocka_run_group_tests_name("shm_long", tests, NULL, NULL);
}
