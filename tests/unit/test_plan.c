/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as a pure function: placement, binding, the choice of `auto`, the environment. Jobs are
 * read from memory; hosts and plugins are simulated.
 */
#include "plan/plan.h"
#include "plan/plugin_query.h"

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
    struct described plugins[6];
    struct topology topology;
    const struct topology *topologies[8];
    struct plan_input in;
};

static const char *const nothing[] = {NULL};

/* Two NUMA nodes of two cores with two threads each: cpus 0-3 and their siblings 4-7. */
static struct topology_cpu cpus[] = {{0, {0, 0, 0, 0}}, {4, {0, 0, 0, 0}}, {1, {1, 0, 0, 0}},
                                     {5, {1, 0, 0, 0}}, {2, {2, 1, 1, 0}}, {6, {2, 1, 1, 0}},
                                     {3, {3, 1, 1, 0}}, {7, {3, 1, 1, 0}}};

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
    p->plugins[2].memory = (struct describe_memory){
        .name = "cuda", .title = "GPU", .mask = "CUDA_MASK", .gpus = true, .declares = true};
    p->plugins[4] = (struct described){
        .kind = DESCRIBE_WORKLOAD, .path = "/work.so", .name = "work", .hint = ""};
    p->topology = (struct topology){cpus, 8, {4, 2, 2, 1}};
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
    job_read(&p->job, &(struct job_request){.file = arena_strdup(&p->arena, path)}, &p->arena,
             &p->diags);
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

static void ranks_are_placed_on_hosts(void **state)
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
            const char *bound = p.desc.ranks[rank].cpus; /* two hosts here are one machine: "" */
            assert_true(!*bound || strcmp(bound, DESC_CPUS_AUTO) == 0);
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

static void ranks_are_bound_to_cores(void **state)
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

static void auto_chooses_by_capabilities(void **state)
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
    assert_true(strstr(p.diags.items[0].text, "needs a separate GPU for every member") != NULL);
    plan_fini(&p);
}

/* Four GPUs of one machine; the first two are near the first NUMA node. */
static struct device four[] = {{"GPU-a", "X", "0-1,4-5"},
                               {"GPU-b", "X", "0-1,4-5"},
                               {"GPU-c", "X", "2-3,6-7,9"},
                               {"GPU-d", "X", ""}};
static struct device two[] = {{"hpu-a", "Y", "0"}, {"hpu-b", "Y", "1"}};
static struct plan_pool pools[] = {{"cuda", {four, 4, "hidden"}}, {"hpu", {two, 2, ""}}};
static const struct plan_pools machine = {pools, 2};
/* The devices of another machine, which have the same ids. */
static struct plan_pool far_pools[] = {{"hpu", {two, 2, ""}}};
static const struct plan_pools far_machine = {far_pools, 1};

static void expect_devices(const struct planning *p, uint32_t rank, const char *uuids)
{
    char got[64] = "";
    const struct desc_rank *r = &p->desc.ranks[rank];
    for (uint32_t i = 0; i < r->ndevices; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "",
                 *r->devices[i].id ? r->devices[i].id : "?");
    assert_string_equal(got, uuids);
}

#define LOCAL "hosts: {defaults: {transport: local}, nodes: "
static void gpus_are_dealt_to_ranks(void **state)
{
    (void)state;
    struct planning p;
    const struct plan_pools *known[8] = {&machine, &machine, &machine};

    plan_init(&p);
    p.in.pools = known;
    assert_true(plan(&p, HEAD "processes: {count: 2, gpus_per_process: 2}\n"));
    expect_devices(&p, 0, "GPU-a GPU-b");
    expect_devices(&p, 1, "GPU-c GPU-d");
    assert_string_equal(backend_of(&p, 0), "gpu"); /* auto: the group owns GPUs */
    assert_int_equal(p.desc.groups[0].devices[0].count, 2);
    plan_fini(&p);

    plan_init(&p); /* a group's members alone; the greediest group counts */
    p.in.pools = known;
    assert_true(plan(&p, HEAD "processes: {count: 3}\ngroups:\n"
                              "  one: {ranks: [2, 1], gpus_per_process: 1}\n"
                              "  two: {ranks: 2, gpus_per_process: 2}\n"));
    expect_devices(&p, 0, "");
    expect_devices(&p, 1, "GPU-a");
    expect_devices(&p, 2, "GPU-b GPU-c");
    plan_fini(&p);

    plan_init(&p); /* hosts that are one machine share its GPUs; lists are taken as they are */
    p.in.pools = known;
    assert_true(plan(&p, HEAD LOCAL "[{name: a, slots: 1}, {name: b, slots: 2}, "
                                    "{name: c, slots: 1, gpus: [3]}]}\n"
                                    "processes: {count: 4, gpus_per_process: 1}\n"));
    expect_devices(&p, 0, "GPU-a");
    expect_devices(&p, 1, "GPU-b");
    expect_devices(&p, 2, "GPU-c");
    expect_devices(&p, 3, "GPU-d");
    plan_fini(&p);

    plan_init(&p); /* not examined yet */
    assert_true(plan(&p, HEAD "hosts: {nodes: [a]}\nprocesses: {count: 2, gpus_per_process: 3}\n"));
    expect_devices(&p, 1, "? ? ?");
    assert_int_equal(p.desc.ranks[1].devices[2].index, 5);
    plan_fini(&p);

    plan_init(&p);
    p.in.pools = known;
    assert_false(plan(&p, HEAD "processes: {count: 5, gpus_per_process: 1}\n"));
    assert_true(strstr(p.diags.items[0].text, "has 4 GPUs, but its 5 ranks need 5") != NULL);
    plan_fini(&p);
}

/* A backend of job.yaml declares the kind "hpu". */
#define HCCL "backends: {hccl: {path: /hccl.so}}\n"
static void plan_init_hpus(struct planning *p, const struct plan_pools *const *known)
{
    plan_init(p);
    p->in.pools = known;
    p->plugins[5] = (struct described){
        .kind = DESCRIBE_BACKEND,
        .path = "/hccl.so",
        .name = "hccl",
        .available = true,
        .flags = COLLRUN_BACKEND_NEEDS_DEVICE,
        .memory = {.name = "hpu", .title = "HPU", .mask = "HPU_MASK", .declares = true},
        .any_option = true,
        .hint = "",
        .reason = ""};
    p->in.nplugins = 6;
}

static void devices_of_each_kind_are_dealt_to_ranks(void **state)
{
    (void)state;
    struct planning p;
    const struct plan_pools *known[8] = {&machine, &machine};

    plan_init_hpus(&p, known); /* both kinds; auto takes the backend of the group's kind */
    assert_true(plan(&p, HEAD HCCL "processes: {count: 2, gpus_per_process: 1}\ngroups:\n"
                                   "  one: {devices: {hpu: 1, cuda: 0}}\n"));
    expect_devices(&p, 0, "GPU-a hpu-a");
    expect_devices(&p, 1, "GPU-b hpu-b");
    assert_string_equal(p.desc.kinds[1].name, "hpu");
    assert_string_equal(p.desc.kinds[1].mask, "HPU_MASK");
    assert_string_equal(p.desc.backends[p.desc.kinds[1].backend].path, "/hccl.so");
    assert_string_equal(backend_of(&p, 0), "gpu");  /* world */
    assert_string_equal(backend_of(&p, 1), "hccl"); /* one */
    assert_false(p.desc.backends[p.desc.kinds[1].backend].unused);
    assert_int_equal(p.desc.groups[1].ndevices, 1);
    assert_int_equal(p.desc.groups[1].devices[0].kind, 1);
    plan_fini(&p);

    plan_init_hpus(&p, known); /* by kind of memory */
    assert_true(plan(&p, HEAD HCCL "processes: {count: 2, devices: {hpu: 1}}\ngroups:\n"
                                   "  world: {backend: {host: near, hpu: hccl}}\n"));
    assert_int_equal(p.desc.nkinds, 1); /* nothing asks for GPUs */
    assert_int_equal(p.desc.groups[0].nroutes, 1);
    assert_string_equal(p.desc.backends[p.desc.groups[0].routes[0].backend].name, "hccl");
    assert_string_equal(backend_of(&p, 0), "near");
    plan_fini(&p);

    plan_init_hpus(&p, known); /* devices for a backend of host memory: the kind alone */
    assert_true(plan(&p, HEAD HCCL "processes: {count: 2, devices: {hpu: 1}}\ngroups:\n"
                                   "  world: {backend: near}\n"));
    assert_true(p.desc.backends[p.desc.kinds[0].backend].unused);
    plan_fini(&p);
}

static void auto_prefers_a_backend_for_rdma_where_every_host_has_a_device(void **state)
{
    (void)state;
    struct planning p;
    plan_init(&p);
    for (int i = 0; i < 4; i++)
        if (strcmp(p.plugins[i].name, "beta") == 0)
            p.plugins[i].flags |= COLLRUN_BACKEND_RDMA | COLLRUN_BACKEND_HOST_AWARE;
    assert_true(plan(&p,
                     HEAD "processes: {count: 4}\n" HOSTS "[a, b]}\n"
                          "groups: {near: {ranks: 0-1}, named: {ranks: all, backend: ALPHA}}\n"));
    assert_string_equal(backend_of(&p, 0), "alpha"); /* before the hosts are known */
    assert_true(p.desc.backends[p.desc.groups[0].backend_rdma].unused);
    assert_true(plan_choose_rdma(&p.desc, true));
    assert_string_equal(backend_of(&p, 0), "beta");
    assert_string_equal(backend_of(&p, 1), "near");
    assert_string_equal(backend_of(&p, 2), "alpha"); /* job.yaml names it */
    assert_false(p.desc.backends[p.desc.groups[0].backend].unused);
    assert_false(plan_choose_rdma(&p.desc, false)); /* another attempt, on other hosts */
    assert_string_equal(backend_of(&p, 0), "alpha");
    assert_true(p.desc.backends[p.desc.groups[0].backend_rdma].unused);
    plan_fini(&p);

    plan_init(&p);
    assert_true(plan(&p, HEAD "processes: {count: 4}\n" HOSTS "[a, b]}\n"));
    assert_false(plan_choose_rdma(&p.desc, true)); /* no backend is for RDMA */
    assert_string_equal(backend_of(&p, 0), "alpha");
    plan_fini(&p);
}

static void an_id_is_that_of_one_device_on_one_machine_only(void **state)
{
    (void)state;
    struct planning p;
    const struct plan_pools *one[8] = {&machine, &machine}, *each[8] = {&machine, &far_machine};
    const char *job = HEAD HCCL LOCAL "[{name: a, slots: 1, devices: {hpu: [0]}}, "
                                      "{name: b, slots: 1, devices: {hpu: [0]}}]}\n"
                                      "processes: {count: 2, devices: {hpu: 1}}\n";
    plan_init_hpus(&p, one);
    assert_false(plan(&p, job));
    assert_non_null(strstr(p.diags.items[0].text, "ranks 0 and 1 share HPU 0"));
    plan_fini(&p);

    plan_init_hpus(&p, each);
    assert_true(plan(&p, job));
    expect_devices(&p, 0, "hpu-a");
    expect_devices(&p, 1, "hpu-a");
    plan_fini(&p);
}

static void demands_that_no_kind_or_host_meets_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *job, *text, *hint;
    } cases[] = {
        {"processes: {count: 1, devices: {hpux: 1}}\n",
         "processes.devices: no backend declares a kind of memory named \"hpux\"",
         "did you mean \"hpu\"? known here: cuda, hpu"},
        {"processes: {count: 1, devices: {host: 1}}\n", "kind of memory named \"host\"",
         "known here: cuda, hpu"},
        {"processes: {count: 1}\ngroups: {world: {backend: {host: near, cudda: gpu}}}\n",
         "groups.world.backend: no backend declares a kind of memory named \"cudda\"",
         "did you mean \"cuda\"? known here: host, cuda, hpu"},
        {"hosts: {nodes: [{name: \"a[1-3]\", devices: {hpux: 4}}]}\nprocesses: {count: 1}\n",
         "devices: no backend declares", "did you mean \"hpu\"?"},
        {"processes: {count: 3, devices: {hpu: 1}}\n",
         "processes.devices.hpu: host \"h\" has 2 HPUs, but its 3 ranks need 3", ""},
        {"processes: {count: 1}\ngroups: {world: {devices: {hpu: 3}}}\n",
         "groups.world.devices.hpu: host \"h\" has 2 HPUs, but its 1 rank needs 3", ""},
        {"processes: {count: 1, devices: {cuda: 1}, gpus_per_process: 1}\n",
         "processes.devices.cuda: the number of GPUs is set twice", ""},
        {"processes: {count: 1, devices: {hpu: 1}}\nenv: {set: {HPU_MASK: \"0\"}}\n",
         "env.set.HPU_MASK: collrun sets this variable",
         "hosts.nodes[].devices.hpu selects the HPUs of a host"},
        {"processes: {count: 1}\ngroups: {world: {backend: hccl}}\n",
         "needs a separate HPU for every member, but the group has devices.hpu 0", ""},
        {"processes: {count: 1, gpus_per_process: 1}\n"
         "groups: {world: {backend: {host: near, cuda: hccl}}}\n",
         "works only on hpu memory, but backend.cuda is for cuda memory", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct planning p;
        char text[512];
        const struct plan_pools *known[8] = {&machine};
        plan_init_hpus(&p, known);
        bool hosts = strstr(cases[i].job, "hosts:") != NULL;
        snprintf(text, sizeof text, "%s%s%s%s", HEAD, HCCL,
                 hosts ? "" : "hosts: {nodes: [{name: h, transport: local}]}\n", cases[i].job);
        assert_false(plan(&p, text));
        assert_int_equal(diag_list_count(&p.diags), 1);
        assert_non_null(strstr(p.diags.items[0].text, cases[i].text));
        assert_non_null(strstr(p.diags.items[0].hint, cases[i].hint));
        plan_fini(&p);
    }
}

static void hosts_offer_devices_of_each_kind(void **state)
{
    (void)state;
    struct planning p;
    const struct plan_pools *known[8] = {&machine, &machine};
    plan_init_hpus(&p, known);
    assert_true(plan(&p,
                     HEAD HCCL "processes: {count: 2, devices: {hpu: 1}, gpus_per_process: 1}\n"
                               "groups: {world: {backend: alpha}}\n"
                               "hosts:\n"
                               "  defaults: {transport: local, devices: {hpu: [1], cuda: [3]}}\n"
                               "  nodes: [a, {name: b, gpus: [2], devices: {hpu: [0]}}]\n"));
    expect_devices(&p, 0, "GPU-d hpu-b");
    expect_devices(&p, 1, "GPU-c hpu-a");
    plan_fini(&p);
}

static void bind_gpu_takes_the_cpus_beside_the_gpus(void **state)
{
    (void)state;
    struct planning p;
    const struct plan_pools *known[8] = {&machine};

    plan_init(&p);
    p.in.pools = known;
    assert_true(plan(&p, HEAD "processes: {count: 3, gpus_per_process: 1, bind: gpu}\n"));
    assert_string_equal(p.desc.ranks[0].cpus, "0-1,4-5");
    assert_string_equal(p.desc.ranks[1].cpus, "0-1,4-5");
    assert_string_equal(p.desc.ranks[2].cpus, "2-3,6-7"); /* cpu 9 may not be used */
    plan_fini(&p);

    plan_init(&p);
    p.in.pools = known;
    assert_true(plan(&p, HEAD "processes: {count: 1, gpus_per_process: 3, bind: gpu}\n"));
    assert_string_equal(p.desc.ranks[0].cpus, "0-7");
    plan_fini(&p);

    plan_init(&p); /* the last GPU's neighbours are not known */
    p.in.pools = known;
    assert_false(plan(&p, HEAD "processes: {count: 4, gpus_per_process: 1, bind: gpu}\n"));
    plan_fini(&p);

    plan_init(&p); /* another machine: its agent knows */
    p.topologies[0] = NULL;
    assert_true(plan(
        &p, HEAD "hosts: {nodes: [a]}\nprocesses: {count: 1, gpus_per_process: 1, bind: gpu}\n"));
    assert_string_equal(p.desc.ranks[0].cpus, DESC_CPUS_NEAR_DEVICES);
    plan_fini(&p);
}

static void the_environment_is_passed_set_and_unset(void **state)
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
static void a_plan_survives_the_codec(void **state)
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
static void backend_flags_are_read_without_loading(void **state)
{
    (void)state;
    const char *build = getenv("BUILD");
    char path[512];
    uint64_t flags = 99;
    assert_false(elf_backend_flags("/no/such/file.so", &flags));
    assert_false(elf_backend_flags("/proc/self/exe", &flags)); /* ELF, but no backend */
    assert_int_equal(flags, 99);
    snprintf(path, sizeof path, "%s/lib/collrun/backends/libcollrun_shm.so",
             build ? build : "build/release");
    FILE *file = fopen(path, "re");
    if (!file)
        skip();
    assert_true(elf_backend_flags(path, &flags));
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
        elf_backend_flags(path, &flags);
        memcpy(bytes, saved, 64);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_placed_on_hosts),
        cmocka_unit_test(ranks_are_bound_to_cores),
        cmocka_unit_test(auto_chooses_by_capabilities),
        cmocka_unit_test(auto_prefers_a_backend_for_rdma_where_every_host_has_a_device),
        cmocka_unit_test(gpus_are_dealt_to_ranks),
        cmocka_unit_test(devices_of_each_kind_are_dealt_to_ranks),
        cmocka_unit_test(an_id_is_that_of_one_device_on_one_machine_only),
        cmocka_unit_test(demands_that_no_kind_or_host_meets_are_refused),
        cmocka_unit_test(hosts_offer_devices_of_each_kind),
        cmocka_unit_test(bind_gpu_takes_the_cpus_beside_the_gpus),
        cmocka_unit_test(the_environment_is_passed_set_and_unset),
        cmocka_unit_test(a_plan_survives_the_codec),
        cmocka_unit_test(backend_flags_are_read_without_loading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
