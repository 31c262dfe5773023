/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as a pure function: where ranks go, what they are bound to, which backend `auto` takes,
 * what the environment passes on. Jobs are read from files in memory; hosts and plugins are made
 * up.
 */
#include "plan/peek.h"
#include "plan/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD "version: 1\nworkloads: [{plugin: work}]\n"

static struct prefix_plugin backend_files[] = {
    {"alpha", "/alpha.so"}, {"beta", "/beta.so"}, {"gpu", "/gpu.so"}, {"near", "/near.so"}};
static struct prefix_plugins backends = {backend_files, 4};
static struct prefix_plugin workload_files[] = {{"work", "/work.so"}};
static struct prefix_plugins workloads = {workload_files, 1};

struct planning {
    struct arena arena;
    struct diag_list diags;
    struct job job;
    struct desc desc;
    struct described plugins[5];
    struct topology topology;
    const struct topology *topologies[8];
    struct plan_input in;
};

static const char *const nothing[] = {NULL};

/* Two NUMA nodes of two cores with two threads each: cpus 0-3 and their siblings 4-7. */
static struct topology_cpu cpus[] = {{0, 0, 0}, {4, 0, 0}, {1, 1, 0}, {5, 1, 0},
                                     {2, 2, 1}, {6, 2, 1}, {3, 3, 1}, {7, 3, 1}};

static void plan_init(struct planning *p)
{
    memset(p, 0, sizeof *p);
    arena_init(&p->arena);
    diag_list_init(&p->diags);
    static const uint64_t flags[] = {0, 0, COLLRUN_BACKEND_NEEDS_DEVICE, COLLRUN_BACKEND_ONE_HOST};
    for (int i = 0; i < 4; i++)
        p->plugins[i] = (struct described){.kind = DESCRIBE_BACKEND,
                                           .path = backend_files[i].path,
                                           .name = backend_files[i].name,
                                           .available = true,
                                           .flags = flags[i],
                                           .any_option = true,
                                           .hint = "",
                                           .reason = "broken"};
    p->plugins[4] = (struct described){
        .kind = DESCRIBE_WORKLOAD, .path = "/work.so", .name = "work", .hint = ""};
    p->topology = (struct topology){cpus, 8, 4, 2};
    for (int i = 0; i < 8; i++)
        p->topologies[i] = &p->topology;
    p->in = (struct plan_input){.topologies = p->topologies,
                                .backends = &backends,
                                .workloads = &workloads,
                                .plugins = p->plugins,
                                .nplugins = 5,
                                .environ = nothing,
                                .run_id = "r1"};
}

/* Reads and plans `text`; true if neither found fault. */
static bool plan(struct planning *p, const char *text)
{
    char path[64];
    int fd = memfd_create("job", MFD_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    job_read(&p->job, arena_strdup(&p->arena, path), NULL, 0, &p->arena, &p->diags);
    close(fd);
    if (p->job.complete)
        plan_make(&p->job, &p->in, &p->arena, &p->desc, &p->diags);
    return diag_list_count(&p->diags) == 0;
}

static void plan_fini(struct planning *p)
{
    diag_list_fini(&p->diags);
    arena_fini(&p->arena);
}

/* Which host each rank is on: "0011". */
static const char *hosts_of(struct planning *p)
{
    char *s = arena_alloc(&p->arena, p->desc.nranks + 1);
    for (uint32_t i = 0; i < p->desc.nranks; i++)
        s[i] = (char)('0' + p->desc.ranks[i].host);
    return s;
}

#define HOSTS "hosts: {defaults: {transport: local}, nodes: "

static void test_placement(void **state)
{
    (void)state;
    static const struct {
        const char *job, *hosts;
    } cases[] = {
        {HEAD "processes: {count: 3}\n", "000"},
        {HEAD "processes: {count: 7}\n" HOSTS "[a, b, c]}\n", "0001122"},
        {HEAD "processes: {count: 2}\n" HOSTS "[a, b, c]}\n", "01"},
        {HEAD "processes: {count: 7, map: cyclic}\n" HOSTS "[a, b, c]}\n", "0120120"},
        {HEAD "processes: {count: 5}\n" HOSTS "[{name: a, slots: 3}, {name: b, slots: 4}]}\n",
         "00011"},
        {HEAD "processes: {count: 5, map: cyclic}\n" HOSTS
              "[{name: a, slots: 1}, {name: b, slots: 4}]}\n",
         "01111"},
        {HEAD "processes: {count: 4}\n" HOSTS "[a, {name: b, slots: 3}]}\n",
         "0111"}, /* no slots among slots: one */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct planning p;
        plan_init(&p);
        assert_true(plan(&p, cases[i].job));
        assert_string_equal(hosts_of(&p), cases[i].hosts);
        for (uint32_t rank = 0; rank < p.desc.nranks; rank++) {
            uint32_t before = 0; /* local ranks count up with world ranks */
            for (uint32_t other = 0; other < rank; other++)
                before += p.desc.ranks[other].host == p.desc.ranks[rank].host;
            assert_int_equal(p.desc.ranks[rank].local_rank, before);
            assert_string_equal(p.desc.ranks[rank].cpus, "");
        }
        plan_fini(&p);
    }
}

static void expect_cpus(const char *job, const char *const *want)
{
    struct planning p;
    plan_init(&p);
    bool good = plan(&p, job);
    assert_int_equal(good, want != NULL);
    for (uint32_t i = 0; want && i < p.desc.nranks; i++)
        assert_string_equal(p.desc.ranks[i].cpus, want[i]);
    if (!want)
        assert_true(strstr(p.diags.items[0].text, "cores, too few for") != NULL);
    plan_fini(&p);
}

static void test_binding(void **state)
{
    (void)state;
    expect_cpus(HEAD "processes: {count: 3, bind: core}\n",
                (const char *const[]){"0,4", "1,5", "2,6"});
    expect_cpus(HEAD "processes: {count: 2, bind: core, cpus_per_process: 2}\n",
                (const char *const[]){"0,4,1,5", "2,6,3,7"});
    expect_cpus(HEAD "processes: {count: 5, bind: core}\n", NULL);
    expect_cpus(HEAD "processes: {count: 3, bind: core, cpus_per_process: 2}\n", NULL);
    expect_cpus(HEAD "processes: {count: 3, bind: numa}\n",
                (const char *const[]){"0,4,1,5", "0,4,1,5", "2,6,3,7"});
    /* two hosts on one machine do not get the same core */
    expect_cpus(HEAD "processes: {count: 4, bind: core, map: cyclic}\n" HOSTS "[a, b]}\n",
                (const char *const[]){"0,4", "1,5", "2,6", "3,7"});
    expect_cpus(HEAD "processes: {count: 6, bind: core}\n" HOSTS "[a, b]}\n", NULL);
}

static const char *backend_of(struct planning *p, uint32_t group)
{
    return p->desc.backends[p->desc.groups[group].backend].name;
}

static void test_auto(void **state)
{
    (void)state;
    struct planning p;
    plan_init(&p);
    assert_true(plan(
        &p, HEAD
        "processes: {count: 4}\n" HOSTS "[a, b]}\n"
        "groups: {left: {ranks: 0-1}, node: {split: host}, named: {ranks: 2-3, backend: BETA}}\n"));
    assert_int_equal(p.desc.ngroups, 5);
    assert_string_equal(backend_of(&p, 0),
                        "alpha"); /* world, two hosts: the first that needs neither host nor GPU */
    assert_string_equal(backend_of(&p, 1), "near");
    assert_string_equal(p.desc.groups[2].name, "node/a");
    assert_string_equal(backend_of(&p, 3), "near");
    assert_string_equal(backend_of(&p, 4), "beta");
    assert_int_equal(p.desc.nbackends, 3);
    assert_int_equal(p.desc.workloads[0].ngroups, 5);
    plan_fini(&p);

    plan_init(&p);
    p.plugins[3].available = false;
    p.plugins[0].error = "cannot be loaded";
    assert_true(plan(&p, HEAD "processes: {count: 4}\n"));
    assert_string_equal(backend_of(&p, 0), "beta"); /* what does not work here is passed over */
    plan_fini(&p);

    plan_init(&p);
    for (int i = 0; i < 4; i++)
        p.plugins[i].available = false;
    assert_false(plan(&p, HEAD "processes: {count: 4}\n"));
    assert_int_equal(p.diags.items[0].code, COLLRUN_ERR_UNAVAILABLE);
    assert_true(strstr(p.diags.items[0].hint, "beta is not available here (broken)") != NULL);
    plan_fini(&p);

    plan_init(&p);
    assert_false(plan(&p, HEAD "processes: {count: 4}\ngroups: {world: {backend: gpu}}\n"));
    assert_true(strstr(p.diags.items[0].text, "needs a GPU for every member") != NULL);
    plan_fini(&p);
}

/* Four GPUs of one machine; the first two are near the first NUMA node. */
static struct gpu four[] = {{"GPU-a", "X", "0-1,4-5"},
                            {"GPU-b", "X", "0-1,4-5"},
                            {"GPU-c", "X", "2-3,6-7,9"},
                            {"GPU-d", "X", ""}};
static const struct gpus machine = {four, 4, "hidden"};

static void expect_gpus(const struct planning *p, uint32_t rank, const char *uuids)
{
    char got[64] = "";
    const struct desc_rank *r = &p->desc.ranks[rank];
    for (uint32_t i = 0; i < r->ngpus; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "",
                 *r->gpus[i].uuid ? r->gpus[i].uuid : "?");
    assert_string_equal(got, uuids);
}

#define LOCAL "hosts: {defaults: {transport: local}, nodes: "
static void test_gpus(void **state)
{
    (void)state;
    struct planning p;
    const struct gpus *known[8] = {&machine, &machine, &machine};

    plan_init(&p);
    p.in.gpus = known;
    assert_true(plan(&p, HEAD "processes: {count: 2, gpus_per_process: 2}\n"));
    expect_gpus(&p, 0, "GPU-a GPU-b");
    expect_gpus(&p, 1, "GPU-c GPU-d");
    assert_string_equal(backend_of(&p, 0), "gpu"); /* auto: the group owns GPUs */
    assert_int_equal(p.desc.groups[0].gpus_per_process, 2);
    plan_fini(&p);

    plan_init(&p); /* a group's members alone; the greediest group counts */
    p.in.gpus = known;
    assert_true(plan(&p, HEAD "processes: {count: 3}\ngroups:\n"
                              "  one: {ranks: [2, 1], gpus_per_process: 1}\n"
                              "  two: {ranks: 2, gpus_per_process: 2}\n"));
    expect_gpus(&p, 0, "");
    expect_gpus(&p, 1, "GPU-a");
    expect_gpus(&p, 2, "GPU-b GPU-c");
    plan_fini(&p);

    plan_init(&p); /* hosts that are one machine share its GPUs; lists are taken as they are */
    p.in.gpus = known;
    assert_true(plan(&p, HEAD LOCAL "[{name: a, slots: 1}, {name: b, slots: 2}, "
                                    "{name: c, slots: 1, gpus: [3]}]}\n"
                                    "processes: {count: 4, gpus_per_process: 1}\n"));
    expect_gpus(&p, 0, "GPU-a");
    expect_gpus(&p, 1, "GPU-b");
    expect_gpus(&p, 2, "GPU-c");
    expect_gpus(&p, 3, "GPU-d");
    plan_fini(&p);

    plan_init(&p); /* nobody has looked */
    assert_true(plan(&p, HEAD "hosts: {nodes: [a]}\nprocesses: {count: 2, gpus_per_process: 3}\n"));
    expect_gpus(&p, 1, "? ? ?");
    assert_int_equal(p.desc.ranks[1].gpus[2].index, 5);
    plan_fini(&p);

    plan_init(&p);
    p.in.gpus = known;
    assert_false(plan(&p, HEAD "processes: {count: 5, gpus_per_process: 1}\n"));
    assert_true(strstr(p.diags.items[0].text, "has 4 GPUs, its 5 ranks need 5") != NULL);
    plan_fini(&p);
}

static void test_near_gpus(void **state)
{
    (void)state;
    struct planning p;
    const struct gpus *known[8] = {&machine};

    plan_init(&p);
    p.in.gpus = known;
    assert_true(plan(&p, HEAD "processes: {count: 3, gpus_per_process: 1, bind: gpu}\n"));
    assert_string_equal(p.desc.ranks[0].cpus, "0-1,4-5");
    assert_string_equal(p.desc.ranks[1].cpus, "0-1,4-5");
    assert_string_equal(p.desc.ranks[2].cpus, "2-3,6-7"); /* cpu 9 may not be used */
    plan_fini(&p);

    plan_init(&p);
    p.in.gpus = known;
    assert_true(plan(&p, HEAD "processes: {count: 1, gpus_per_process: 3, bind: gpu}\n"));
    assert_string_equal(p.desc.ranks[0].cpus, "0-7");
    plan_fini(&p);

    plan_init(&p); /* the last GPU's neighbours are not known */
    p.in.gpus = known;
    assert_false(plan(&p, HEAD "processes: {count: 4, gpus_per_process: 1, bind: gpu}\n"));
    plan_fini(&p);

    plan_init(&p); /* another machine: its agent knows */
    p.topologies[0] = NULL;
    assert_true(plan(
        &p, HEAD "hosts: {nodes: [a]}\nprocesses: {count: 1, gpus_per_process: 1, bind: gpu}\n"));
    assert_string_equal(p.desc.ranks[0].cpus, DESC_CPUS_NEAR_GPUS);
    plan_fini(&p);
}

static void test_environment(void **state)
{
    (void)state;
    static const char *const variables[] = {
        "PATH=/bin", "OMP_NUM=4", "OMPX=no", "OMP_EMPTY=", "TOKEN=secret", "BROKEN", NULL};
    struct planning p;
    plan_init(&p);
    p.in.environ = variables;
    assert_true(plan(&p, HEAD "processes: {count: 1}\nenv: {pass: [\"OMP_*\", PATH, PATH, NONE], "
                              "set: {A: \"{rank}\"}, unset: [B], "
                              "secrets: [TOKEN]}\n"));
    static const char *const want[][2] = {
        {"OMP_NUM", "4"}, {"OMP_EMPTY", ""}, {"PATH", "/bin"}, {"TOKEN", "secret"}};
    assert_int_equal(p.desc.env_pass.n, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(p.desc.env_pass.items[i].key, want[i][0]);
        assert_string_equal(p.desc.env_pass.items[i].value, want[i][1]);
    }
    assert_int_equal(p.desc.env_set.n, 1);
    assert_string_equal(p.desc.env_set.items[0].value, "{rank}");
    assert_string_equal(p.desc.env_unset.items[0].key, "B");
    plan_fini(&p);
}

/* What comes out of the plan passes the codec's own checks. */
static void test_encodes(void **state)
{
    (void)state;
    struct planning p;
    struct buf bytes;
    struct desc back;
    struct diag d;
    plan_init(&p);
    buf_init(&bytes);
    assert_true(plan(&p, HEAD
                     "processes: {count: 9, map: cyclic}\n" HOSTS "[a, b, c, spare]}\n"
                     "groups: {node: {split: host}, some: {ranks: [8, 1-3], options: {A: b}}}\n"));
    desc_encode(&p.desc, &bytes);
    if (desc_decode(&p.arena, &back, bytes.data, bytes.len, &d) < 0)
        fail_msg("%s", d.text);
    assert_int_equal(back.ngroups, p.desc.ngroups);
    buf_fini(&bytes);
    plan_fini(&p);
}

/* The flags of a real backend, and no harm from a damaged one. */
static void test_peek(void **state)
{
    (void)state;
    const char *build = getenv("BUILD");
    char path[512];
    uint64_t flags = 99;
    assert_false(peek_backend_flags("/no/such/file.so", &flags));
    assert_false(peek_backend_flags("/proc/self/exe", &flags)); /* ELF, but no backend */
    assert_int_equal(flags, 99);
    snprintf(path, sizeof path, "%s/lib/collrun/backends/libcollrun_shm.so",
             build ? build : "build/release");
    FILE *file = fopen(path, "re");
    if (!file)
        skip();
    assert_true(peek_backend_flags(path, &flags));
    assert_true(flags & COLLRUN_BACKEND_ONE_HOST);
    static unsigned char bytes[8 << 20];
    size_t len = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    int fd = memfd_create("damaged", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    uint64_t seed = 7;
    for (int round = 0; round < 400; round++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t cut = round % 2 ? len : (size_t)(seed >> 20) % len;
        unsigned char saved[64];
        memcpy(saved, bytes, 64);
        bytes[(seed >> 40) % 64] = (unsigned char)(seed >> 56); /* the head of the file */
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bytes, cut, 0), cut);
        peek_backend_flags(path, &flags);
        memcpy(bytes, saved, 64);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placement), cmocka_unit_test(test_binding),
        cmocka_unit_test(test_auto),      cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_near_gpus), cmocka_unit_test(test_environment),
        cmocka_unit_test(test_encodes),   cmocka_unit_test(test_peek),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
