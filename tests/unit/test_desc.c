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

static struct desc_item sizes[] = {{"8", {NULL, 3, 9, 1}}, {"1KiB", {NULL, 3, 12, 4}}};
static struct desc_kv pairs[] = {{"bytes", "16MiB", {NULL, 3, 4, 5}, false, NULL, 0},
                                 {"verify", "", {"--set #1", 1, 2, 4}, true, sizes, 2}};
static struct desc_host hosts[] = {
    {.name = "node1", .nranks = 2, .workdir = "", .devices_loc = {NULL, 5, 6, 1}},
    {.name = "node2", .nranks = 1, .workdir = "/scratch", .workdir_loc = {NULL, 7, 8, 9}},
    {.name = "spare", .workdir = ""}};
static struct desc_device devices[] = {{0, 3, "GPU-3"}, {1, 0, ""}};
static struct desc_kind kinds[] = {{"cuda", "GPU", "CUDA_VISIBLE_DEVICES", 1, true},
                                   {"hpu", "HPU", "", 0, false}};
static struct desc_rank ranks[] = {
    {0, 0, "0-3", devices, 2, NULL}, {1, 0, "", NULL, 0, NULL}, {0, 1, "4,5", devices, 1, NULL}};
static struct desc_backend backends[] = {
    {"shm", "/lib/libcollrun_shm.so", {NULL, 0}, {NULL, 0, 0, 0}, false, "", 0, false, "", ""},
    {"gloo",
     "/lib/libcollrun_gloo.so",
     {pairs, 1},
     {NULL, 9, 9, 4},
     true,
     "cuda",
     2,
     true,
     "",
     ""}};
static uint32_t all[] = {2, 0, 1}, pair[] = {0, 2};
static struct desc_route routes[] = {{0, 1}, {1, 0}};
static struct desc_need needs[] = {{1, 4, true}};
static struct desc_group groups[] = {{.name = "world",
                                      .backend = 1,
                                      .is_auto = true,
                                      .on_demand = true,
                                      .ranks = {all, 3},
                                      .timeout_ns = 600,
                                      .check = COLLRUN_CHECK_ASYNC,
                                      .options = {pairs, 2},
                                      .loc = {NULL, 7, 3, 5}},
                                     {.name = "node/node1",
                                      .routes = routes,
                                      .nroutes = 2,
                                      .ranks = {pair, 2},
                                      .timeout_ns = 1,
                                      .check = COLLRUN_CHECK_OFF,
                                      .devices = needs,
                                      .ndevices = 1,
                                      .loc = {NULL, 8, 3, 4}}};
static uint32_t both[] = {0, 1};
static struct desc_override overrides[] = {{{pair, 1}, {pairs, 2}}, {{NULL, 0}, {NULL, 0}}};
static struct desc_workload workloads[] = {
    {.name = "hello",
     .plugin = "/lib/hello.so",
     .ranks = {all, 3},
     .groups = both,
     .ngroups = 2,
     .params = {pairs, 2},
     .overrides = overrides,
     .noverrides = 2,
     .background = true,
     .timeout_ns = 77,
     .loc = {NULL, 20, 13, 5}},
    {.name = "train",
     .plugin = "",
     .ranks = {pair, 2},
     .loc = {NULL, 21, 13, 4},
     .command = {(const char *[]){"/usr/bin/python3", "train.py"}, 2},
     .folder = "/home/me",
     .workdir = "src",
     .workdir_loc = {NULL, 22, 13, 3},
     .env = {pairs, 1}}};
static uint32_t wrapped[] = {0, 2};
static const char *wrap[] = {"gdb", "--args"};
static const struct desc sample = {
    .run_id = "k3f9",
    .run_dir = "/runs/k3f9",
    .job_name = "study",
    .job_file = "job.yaml",
    .interface = "10.0.0.0/8",
    .first_port = 20000,
    .last_port = 65535,
    .attempt = 2,
    .hosts = hosts,
    .nhosts = 3,
    .ranks = ranks,
    .nranks = 3,
    .roles = (struct desc_role[]){{"ps", 0, 1}, {"worker", 1, 2}},
    .nroles = 2,
    .mesh = {(struct desc_axis[]){{"dp", 2}, {"tp", 1}}, 2, {wrapped, 2}},
    .backends = backends,
    .nbackends = 2,
    .kinds = kinds,
    .nkinds = 2,
    .groups = groups,
    .ngroups = 2,
    .workloads = workloads,
    .nworkloads = 2,
    .env_pass = {pairs, 1},
    .env_set = {pairs, 2},
    .env_unset = {pairs, 1},
    .start_timeout_ns = 1,
    .rendezvous_timeout_ns = 2,
    .grace_ns = UINT64_MAX,
    .limits = {[DESC_LIMIT_CORE] = {65536, {.line = 7, .column = 3, .width = 2}}},
    .wrapped = {wrapped, 2},
    .wrap = {wrap, 2},
    .terminal = {.used = true, .rank = 2, .rows = 24, .columns = 80, .type = "xterm"},
    .record_entries = 1 << 20,
    .trace = true};

static void what_is_encoded_is_decoded(void **state)
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
    assert_string_equal(desc.kinds[1].title, "HPU");
    assert_int_equal(desc.groups[1].routes[1].kind, 1);
    assert_int_equal(desc_group_devices(&desc.groups[1], 1), 4);
    assert_int_equal(desc_group_devices(&desc.groups[1], 0), 0);
    assert_int_equal(desc_rank_devices(&desc.ranks[0], 1), 1);
    assert_string_equal(desc.workloads[0].overrides[0].params.items[1].loc.file, "--set #1");
    assert_null(desc.workloads[0].loc.file);
    assert_true(desc.workloads[0].background);
    assert_int_equal(desc.workloads[1].command.n, 2);
    assert_string_equal(desc.workloads[1].command.items[1], "train.py");
    assert_int_equal(desc_find_command(&desc, pair[1]), 1);
    assert_int_equal(desc.grace_ns, UINT64_MAX);
    assert_int_equal(desc.limits[DESC_LIMIT_CORE].bytes, 65536);
    assert_int_equal(desc.wrapped.items[1], 2);
    assert_int_equal(desc_find_role(&desc, 2)->n, 2);
    assert_string_equal(desc.mesh.axes[1].name, "tp");
    assert_int_equal(desc.mesh.axes[0].size, 2);
    assert_int_equal(desc.mesh.ranks.items[1], 2);
    assert_string_equal(desc.wrap.items[1], "--args");
    assert_true(desc.terminal.used);
    assert_int_equal(desc.terminal.rank, 2);
    assert_int_equal(desc.terminal.columns, 80);
    assert_string_equal(desc.terminal.type, "xterm");
    assert_int_equal(desc.limits[DESC_LIMIT_CORE].loc.line, 7);
    assert_int_equal(desc.record_entries, 1 << 20);
    assert_true(desc.trace);
    desc_encode(&desc, &again);
    assert_int_equal(again.len, bytes.len);
    assert_memory_equal(again.data, bytes.data, bytes.len);
    arena_fini(&arena);
    buf_fini(&again);
    buf_fini(&bytes);
}

static void a_truncated_description_is_refused(void **state)
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

static void numbers_that_no_job_has_are_refused(void **state)
{
    (void)state;
    const struct desc empty_host = {.hosts = &(struct desc_host){.name = "a", .workdir = ""},
                                    .nhosts = 1};
    struct desc entries = sample, desc;
    const struct desc *const bad[] = {&empty_host, &entries};
    entries.record_entries = 3; /* not a power of 2 */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct arena arena;
        struct buf bytes;
        arena_init(&arena);
        buf_init(&bytes);
        desc_encode(bad[i], &bytes);
        assert_int_equal(desc_decode(&arena, &desc, bytes.data, bytes.len, NULL),
                         COLLRUN_ERR_INVALID);
        buf_fini(&bytes);
        arena_fini(&arena);
    }
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
        for (uint32_t k = 0; k < group->nroutes; k++)
            sum += strlen(desc->backends[group->routes[k].backend].path) +
                   strlen(desc->kinds[group->routes[k].kind].name);
        for (uint32_t k = 0; k < group->ranks.n; k++)
            sum += desc->ranks[group->ranks.items[k]].local_rank;
    }
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        const struct desc_workload *workload = &desc->workloads[i];
        for (uint32_t k = 0; k < workload->ngroups; k++)
            sum += strlen(desc->groups[workload->groups[k]].name);
        for (uint32_t k = 0; k < workload->params.n; k++)
            sum += strlen(workload->params.items[k].value);
        for (uint32_t k = 0; k < workload->command.n; k++)
            sum += strlen(workload->command.items[k]);
    }
    return sum;
}

static void damaged_bytes_do_no_harm(void **state)
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

static void contradictions_are_refused(void **state)
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
    moved[2] = (struct desc_rank){3, 0, "", NULL, 0, NULL}; /* no such host */
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
    struct desc_route no_kind[] = {{2, 0}}, no_backend[] = {{0, 2}};
    changed[1].routes = no_kind;
    changed[1].nroutes = 1;
    refused(desc);
    changed[1].routes = no_backend;
    refused(desc);
    changed[1] = groups[1];
    struct desc_need no_need[] = {{2, 1, false}};
    changed[1].devices = no_need;
    refused(desc);
    changed[1] = groups[1];
    changed[1].check = 3;
    refused(desc);

    struct desc_device shuffled[] = {{1, 0, ""}, {0, 0, ""}}, unknown[] = {{2, 0, ""}};
    desc = sample;
    memcpy(moved, ranks, sizeof moved);
    desc.ranks = moved;
    moved[0].devices = shuffled; /* not by kind */
    refused(desc);
    moved[0].devices = unknown;
    moved[0].ndevices = 1;
    refused(desc);
    desc = sample;
    struct desc_kind undeclared[] = {{"cuda", "GPU", "", 2, true}};
    desc.kinds = undeclared;
    desc.nkinds = 1;
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
        cmocka_unit_test(what_is_encoded_is_decoded),
        cmocka_unit_test(a_truncated_description_is_refused),
        cmocka_unit_test(numbers_that_no_job_has_are_refused),
        cmocka_unit_test(damaged_bytes_do_no_harm),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
