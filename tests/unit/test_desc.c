/* SPDX-License-Identifier: Apache-2.0
 *
 * The codec of struct desc: a round trip gives the same bytes; a description cut at any byte is
 * refused; and whatever random damage lets through is safe to walk (the sanitizers watch).
 */
#include "base/desc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct desc_kv pairs[] = {{"bytes", "16MiB", {NULL, 3, 4, 5}},
                                 {"verify", "true", {"--set #1", 1, 2, 4}}};
static struct desc_host hosts[] = {{"node1", 2, "", {NULL, 5, 6, 1}},
                                   {"node2", 1, "/scratch", {NULL, 0, 0, 0}},
                                   {"spare", 0, "", {NULL, 0, 0, 0}}};
static struct desc_gpu gpus[] = {{3, "GPU-3"}, {0, ""}};
static struct desc_rank ranks[] = {
    {0, 0, "0-3", gpus, 2}, {1, 0, "", NULL, 0}, {0, 1, "4,5", gpus, 1}};
static struct desc_backend backends[] = {
    {"shm", "/lib/libcollrun_shm.so", {NULL, 0}, {NULL, 0, 0, 0}},
    {"gloo", "/lib/libcollrun_gloo.so", {pairs, 1}, {NULL, 9, 9, 4}}};
static uint32_t all[] = {2, 0, 1}, pair[] = {0, 2};
static struct desc_group groups[] = {
    {"world", 1, 0, true, {all, 3}, 600, DESC_CHECK_ASYNC, 0, false, {pairs, 2}, {NULL, 7, 3, 5}},
    {"node/node1", 0, 2, false, {pair, 2}, 1, DESC_CHECK_OFF, 1, true, {NULL, 0}, {NULL, 8, 3, 4}}};
static uint32_t both[] = {0, 1};
static struct desc_override overrides[] = {{{pair, 1}, {pairs, 2}}, {{NULL, 0}, {NULL, 0}}};
static struct desc_workload workloads[] = {
    {"hello",
     "/lib/hello.so",
     {all, 3},
     both,
     2,
     {pairs, 2},
     overrides,
     2,
     true,
     77,
     {NULL, 20, 13, 5}},
    {"ring", "/lib/ring.so", {pair, 2}, NULL, 0, {NULL, 0}, NULL, 0, false, 0, {NULL, 21, 13, 4}}};
static const struct desc sample = {.run_id = "k3f9",
                                   .run_dir = "/runs/k3f9",
                                   .job_name = "study",
                                   .job_file = "job.yaml",
                                   .interface = "10.0.0.0/8",
                                   .attempt = 2,
                                   .hosts = hosts,
                                   .nhosts = 3,
                                   .ranks = ranks,
                                   .nranks = 3,
                                   .backends = backends,
                                   .nbackends = 2,
                                   .groups = groups,
                                   .ngroups = 2,
                                   .workloads = workloads,
                                   .nworkloads = 2,
                                   .env_pass = {pairs, 1},
                                   .env_set = {pairs, 2},
                                   .env_unset = {pairs, 1},
                                   .start_timeout_ns = 1,
                                   .rendezvous_timeout_ns = 2,
                                   .grace_ns = UINT64_MAX};

static void test_round_trip(void **state)
{
    (void)state;
    struct buf bytes, again;
    struct arena arena;
    struct desc desc;
    struct diag d;
    buf_init(&bytes);
    buf_init(&again);
    arena_init(&arena);
    desc_encode(&sample, &bytes);
    assert_int_equal(desc_decode(&arena, &desc, bytes.data, bytes.len, &d), 0);
    assert_string_equal(desc.groups[1].name, "node/node1");
    assert_int_equal(desc.groups[0].ranks.items[0], 2);
    assert_string_equal(desc.workloads[0].overrides[0].params.items[1].loc.file, "--set #1");
    assert_null(desc.workloads[0].loc.file);
    assert_true(desc.workloads[0].background);
    assert_int_equal(desc.grace_ns, UINT64_MAX);
    desc_encode(&desc, &again);
    assert_int_equal(again.len, bytes.len);
    assert_memory_equal(again.data, bytes.data, bytes.len);
    arena_fini(&arena);
    buf_fini(&again);
    buf_fini(&bytes);
}

static void test_truncation(void **state)
{
    (void)state;
    struct buf bytes;
    buf_init(&bytes);
    desc_encode(&sample, &bytes);
    for (size_t len = 0; len < bytes.len; len++) {
        struct arena arena;
        struct desc desc = {.nranks = 1234};
        struct diag d;
        arena_init(&arena);
        unsigned char *cut = malloc(len ? len : 1); /* so that a read past the end is seen */
        memcpy(cut, bytes.data, len);
        assert_int_equal(desc_decode(&arena, &desc, cut, len, &d), COLLRUN_ERR_INVALID);
        assert_int_equal(desc.nranks, 1234);
        free(cut);
        arena_fini(&arena);
    }
    buf_put_u8(&bytes, 0);
    struct arena arena;
    struct desc desc;
    arena_init(&arena);
    assert_int_equal(desc_decode(&arena, &desc, bytes.data, bytes.len, NULL), COLLRUN_ERR_INVALID);
    arena_fini(&arena);
    buf_fini(&bytes);
}

/* Touches all that a reader of the description would. */
static uint64_t walk(const struct desc *desc)
{
    uint64_t sum = strlen(desc->run_id) + strlen(desc->interface);
    for (uint32_t i = 0; i < desc->nranks; i++)
        sum += strlen(desc->hosts[desc->ranks[i].host].name) + strlen(desc->ranks[i].cpus);
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        const struct desc_group *group = &desc->groups[i];
        sum += strlen(desc->backends[group->backend].path);
        if (group->cuda_backend)
            sum += strlen(desc->backends[group->cuda_backend - 1].path);
        for (uint32_t k = 0; k < group->ranks.n; k++)
            sum += desc->ranks[group->ranks.items[k]].local_rank;
    }
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        const struct desc_workload *workload = &desc->workloads[i];
        for (uint32_t k = 0; k < workload->ngroups; k++)
            sum += strlen(desc->groups[workload->groups[k]].name);
        for (uint32_t k = 0; k < workload->params.n; k++)
            sum += strlen(workload->params.items[k].value);
    }
    return sum;
}

static void test_damage(void **state)
{
    (void)state;
    struct buf bytes;
    buf_init(&bytes);
    desc_encode(&sample, &bytes);
    uint64_t seed = 88172645463325252u, sum = 0;
    unsigned accepted = 0;
    unsigned char *copy = malloc(bytes.len);
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, bytes.data, bytes.len);
        for (int k = 0; k < 1 + round % 3; k++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            copy[seed % bytes.len] = (unsigned char)(seed >> 56);
        }
        struct arena arena;
        struct desc desc;
        arena_init(&arena);
        if (desc_decode(&arena, &desc, copy, bytes.len, NULL) == 0) {
            accepted++;
            sum += walk(&desc);
        }
        arena_fini(&arena);
    }
    assert_true(accepted > 0 && sum > 0); /* damage inside a string is still a description */
    assert_true(accepted < 20000);
    free(copy);
    buf_fini(&bytes);
}

/* One field changed so that it contradicts another: refused. */
static void refused(struct desc desc)
{
    struct buf bytes;
    struct arena arena;
    struct desc out;
    buf_init(&bytes);
    arena_init(&arena);
    desc_encode(&desc, &bytes);
    assert_int_equal(desc_decode(&arena, &out, bytes.data, bytes.len, NULL), COLLRUN_ERR_INVALID);
    arena_fini(&arena);
    buf_fini(&bytes);
}

static void test_contradictions(void **state)
{
    (void)state;
    struct desc desc = sample;
    struct desc_rank moved[3];
    memcpy(moved, ranks, sizeof moved);
    desc.ranks = moved;
    moved[2].local_rank = 0; /* twice the same */
    refused(desc);
    moved[2].local_rank = 2; /* past the host's */
    refused(desc);
    moved[2] = (struct desc_rank){3, 0, "", NULL, 0}; /* no such host */
    refused(desc);

    struct desc_group changed[2];
    uint32_t twice[] = {1, 1}, beyond[] = {3};
    desc = sample;
    desc.groups = changed;
    memcpy(changed, groups, sizeof changed);
    changed[0].ranks = (struct desc_ranks){twice, 2};
    refused(desc);
    changed[0].ranks = (struct desc_ranks){beyond, 1};
    refused(desc);
    changed[0].ranks = (struct desc_ranks){NULL, 0};
    refused(desc);
    memcpy(changed, groups, sizeof changed);
    changed[1].backend = 2;
    refused(desc);
    changed[1].backend = 0;
    changed[1].cuda_backend = 3;
    refused(desc);
    changed[1].cuda_backend = 0;
    changed[1].check = 3;
    refused(desc);

    struct desc_workload work[2];
    uint32_t missing[] = {2};
    desc = sample;
    desc.workloads = work;
    memcpy(work, workloads, sizeof work);
    work[1].groups = missing;
    work[1].ngroups = 1;
    refused(desc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_contradictions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
