/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema table is sound (every default is a legal value, every key is explained), and the JSON
 * Schema has its names; names and host ranges, and what a job looks like once it is read: defaults,
 * places, host defaults, the implicit group.
 */
#include "spec/job.h"
#include "spec/names.h"
#include "spec/schema.h"
#include "spec/schema_text.h"
#include "spec/walk.h"

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
#include <jansson.h>

/* ---- the table ---- */

static void check_type(const struct schema_type *type, const char *path, unsigned *keys);

static void check_default(const struct schema_key *key, const char *path)
{
    struct arena arena;
    struct diag_list diags;
    arena_init(&arena);
    diag_list_init(&diags);
    void *out = arena_alloc(&arena, 4096);
    struct node *node = node_scalar(&arena, key->def);
    walk_read(key->type, node, out, &(struct parse_rank_names){0}, &arena, &diags);
    for (uint32_t i = 0; i < diags.n; i++) /* a default may be something that a later build does */
        if (!strstr(diags.items[i].text, "not supported by this build"))
            fail_msg("default of %s: %s", path, diags.items[i].text);
    diag_list_fini(&diags);
    arena_fini(&arena);
}

static void check_keys(const struct schema_type *map, const char *path, unsigned *keys)
{
    for (const struct schema_key *key = map->keys; key->name; key++) {
        char inner[256];
        snprintf(inner, sizeof inner, "%s.%s", path, key->name);
        (*keys)++;
        if (!key->help || strlen(key->help) < 8 || key->help[strlen(key->help) - 1] == '.')
            fail_msg("%s: the help has no full stop", inner);
        if (key->required && key->def)
            fail_msg("%s: required, and has a default", inner);
        for (const struct schema_key *other = map->keys; other != key; other++)
            assert_string_not_equal(other->name, key->name);
        if (key->def)
            check_default(key, inner);
        check_type(key->type, inner, keys);
    }
}

static void check_type(const struct schema_type *type, const char *path, unsigned *keys)
{
    if (type->kind == SCHEMA_CHOICE)
        assert_non_null(type->choices);
    else if (!type->expects)
        fail_msg("%s: what does it expect?", path);
    if (type->kind == SCHEMA_LIST || type->kind == SCHEMA_NAMED) {
        assert_true(type->item->size > 0);
        check_type(type->item, path, keys);
    }
    if (type->kind == SCHEMA_MAP)
        check_keys(type, path, keys);
    if (type->kind == SCHEMA_EITHER && type->map)
        check_type(type->map, path, keys);
    if (type->kind == SCHEMA_INT)
        assert_true(type->min <= type->max);
}

static void the_schema_table_is_consistent(void **state)
{
    (void)state;
    unsigned keys = 0;
    check_type(&schema_job, "", &keys);
    assert_true(keys > 80);
}

static void check_names(const struct schema_type *map, const json_t *schema)
{
    for (const struct schema_key *key = map->keys; key->name; key++) {
        const json_t *property = json_object_get(json_object_get(schema, "properties"), key->name);
        char *text = json_dumps(property, 0), name[64];
        assert_non_null(text);
        for (const struct schema_choice *c = key->type->choices; c && c->name; c++) {
            snprintf(name, sizeof name, "\"%s\"", c->name);
            if (!strstr(text, name))
                fail_msg("the JSON Schema of %s lacks %s", key->name, name);
        }
        free(text);
        if (key->type->kind == SCHEMA_MAP) /* or a variable */
            check_names(key->type, json_array_get(json_object_get(property, "anyOf"), 0));
    }
}

static void the_json_schema_has_every_name(void **state)
{
    (void)state;
    char *text;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    schema_write_json(out);
    fclose(out);
    json_t *schema = json_loads(text, 0, NULL);
    check_names(&schema_job, schema);
    json_decref(schema);
    free(text);
}

/* ---- names ---- */

static void expect_hosts(const char *text, const char *want)
{
    struct arena arena;
    const char **names;
    uint32_t n;
    char got[512] = "";
    arena_init(&arena);
    int code = name_expand_hosts(text, &arena, &names, &n, NULL);
    for (uint32_t i = 0; code == 0 && i < n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "", names[i]);
    if (strcmp(code == 0 ? got : "refused", want) != 0)
        fail_msg("%s: %s, not %s", text, got, want);
    arena_fini(&arena);
}

static void host_ranges_are_expanded(void **state)
{
    (void)state;
    expect_hosts("gpu01", "gpu01");
    expect_hosts("gpu[01-03]", "gpu01 gpu02 gpu03");
    expect_hosts("n[1,3-4,10]x", "n1x n3x n4x n10x");
    expect_hosts("n[8-11]", "n8 n9 n10 n11");
    expect_hosts("n[008-010]", "n008 n009 n010");
    expect_hosts("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2");
    expect_hosts("10.2.0.[13-14]", "10.2.0.13 10.2.0.14");
    static const char *const bad[] = {
        "",       "n[",         "n[]",           "n[1-]",         "n[-1]", "n[2-1]",
        "n[a]",   "n[1",        "n[1]]",         "n 1",           "-n",    "n[1,]",
        "n[1;2]", "n[1-99999]", "n[1-99][1-99]", "n[9999999999]", "n\n",   "n[1-2-3]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_hosts(bad[i], "refused");
}

static void interfaces_and_networks_are_checked(void **state)
{
    (void)state;
    static const char *const good[] = {"eth0",      "default-route", "10.2.0.0/16",
                                       "0.0.0.0/0", "fd00::/8",      "br-1a2b.100"};
    static const char *const bad[] = {
        "",          "10.2.0.1", "fd00::1", "10.2.0.0/33",           "10.2.0/16",  "fd00::/129",
        "10.2.0.0/", "/16",      "eth 0",   "averyveryverylongname", "10.2.0.0/1x"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(name_check_interface(good[i], NULL), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_true(name_check_interface(bad[i], NULL) < 0);
    uint16_t first, last;
    assert_true(name_parse_ports("1-65535", &first, &last) && first == 1 && last == 65535);
    assert_true(name_parse_ports("20000-20000", &first, &last) && last == 20000);
    static const char *const no_ports[] = {"",      "0-5",    "5-4",  "1-65536", "20000",
                                           "1-2-3", " 1-200", "+1-2", "1-2 ",    "1 -2"};
    for (size_t i = 0; i < sizeof no_ports / sizeof no_ports[0]; i++)
        assert_true(name_check_ports(no_ports[i], NULL) < 0);
    assert_int_equal(name_check_env("_A1", NULL), 0);
    assert_true(name_check_env("1A", NULL) < 0 && name_check_env("A-B", NULL) < 0 &&
                name_check_env("A*", NULL) < 0);
    assert_int_equal(name_check_env_pattern("OMP_*", NULL), 0);
    assert_true(name_matches("OMP_*", "OMP_") && name_matches("*", "X") &&
                !name_matches("OMP_*", "OMP"));
    assert_int_equal(name_check_group("dp-0.a_b", NULL), 0);
    assert_true(name_check_group("-a", NULL) < 0 && name_check_group("a/b", NULL) < 0 &&
                name_check_group("", NULL) < 0);
    assert_true(name_check_backend("abcdefghijklmnopqrstuvwxyz012345", NULL) < 0); /* 32 */
}

/* ---- a job ---- */

struct reading {
    struct arena arena;
    struct diag_list diags;
    struct job job;
};

static int read_job(struct reading *r, const char *text)
{
    char path[64];
    arena_init(&r->arena);
    diag_list_init(&r->diags);
    int fd = memfd_create("job", MFD_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int code = job_read(&r->job, &(struct job_request){.file = arena_strdup(&r->arena, path)},
                        &r->arena, &r->diags);
    close(fd);
    return code;
}

static void done(struct reading *r)
{
    diag_list_fini(&r->diags);
    arena_fini(&r->arena);
}

static void the_smallest_job_gets_all_defaults(void **state)
{
    (void)state;
    struct reading r;
    assert_int_equal(read_job(&r, "version: 1\nprocesses: {count: 4}\nworkloads: [{plugin: "
                                  "./dir/libfoo.so}, {plugin: x}, {plugin: x}]\n"),
                     0);
    const struct job *job = &r.job;
    assert_true(job->complete);
    assert_int_equal(job->processes.count.v, 4);
    assert_int_equal(job->processes.count.loc.column, 20);
    assert_int_equal(job->hosts.n, 1);
    assert_int_equal(job->hosts.nodes[0].transport.kind.v, JOB_TRANSPORT_LOCAL);
    assert_int_equal(job->ngroups, 1);
    assert_string_equal(job->groups[0].name, "world");
    assert_int_equal(job->groups[0].name_loc.line, 0);
    assert_true(job->groups[0].ranks.all);
    assert_string_equal(job->groups[0].backend.v, "auto");
    assert_int_equal(job->groups[0].timeout.v, INT64_C(600000000000));
    assert_string_equal(job->workloads[0].name.v, "foo");
    assert_string_equal(job->workloads[1].name.v, "x");
    assert_string_equal(job->workloads[2].name.v, "x#2");
    assert_int_equal(job->workloads[0].timeout.v, 0);
    assert_int_equal(job->timeouts.grace.v, INT64_C(5000000000));
    assert_int_equal(job->timeouts.run.v, 0);
    assert_string_equal(job->network.interface.v, "default-route");
    assert_string_equal(job->logging.console.label.v, "[{rank}]");
    assert_null(job->logging.dir.v);
    assert_int_equal(job->ssh.parallel.v, 32);
    done(&r);
}

static void host_defaults_reach_every_host(void **state)
{
    (void)state;
    struct reading r;
    assert_int_equal(
        read_job(
            &r,
            "version: 1\nprocesses: {count: 4}\nworkloads: [{plugin: x}]\n"
            "hosts:\n"
            "  defaults: {user: bench, slots: 8, gpus: 8, transport: local, workdir: /scratch}\n"
            "  nodes: [\"gpu[01-02]\", {name: three, port: 2222, gpus: [0, 2], slots: 4, workdir: "
            "/tmp}]\n"),
        0);
    const struct job_host *nodes = r.job.hosts.nodes;
    assert_int_equal(r.job.hosts.n, 3);
    assert_string_equal(nodes[1].name.v, "gpu02");
    assert_int_equal(nodes[1].loc.line, 6);
    assert_string_equal(nodes[1].user.v, "bench");
    assert_int_equal(nodes[1].port.v, 22);
    assert_int_equal(nodes[1].slots.v, 8);
    assert_int_equal(nodes[1].slots.loc.line, 5);
    assert_int_equal(nodes[1].gpus.count.v, 8);
    assert_int_equal(nodes[2].port.v, 2222);
    assert_int_equal(nodes[2].slots.v, 4);
    assert_int_equal(nodes[2].gpus.list.n, 2);
    assert_int_equal(nodes[2].gpus.list.items[1].v, 2);
    assert_int_equal(nodes[2].gpus.count.loc.line, 0);
    assert_string_equal(nodes[2].workdir.v, "/tmp");
    done(&r);
}

/* What is refused keeps its default, and the rest of the job is there. */
static void wrong_values_keep_their_defaults(void **state)
{
    (void)state;
    struct reading r;
    assert_true(
        read_job(&r,
                 "version: 1\nprocesses: {count: many, map: cyclic}\nworkloads: [{plugin: x}, 7]\n"
                 "timeouts: {start: soon, grace: 1s}\n") < 0);
    assert_int_equal(diag_list_count(&r.diags), 3);
    assert_true(r.job.complete);
    assert_int_equal(r.job.processes.count.v, 0);
    assert_int_equal(r.job.processes.map.kind.v, JOB_MAP_CYCLIC);
    assert_int_equal(r.job.timeouts.start.v, INT64_C(120000000000));
    assert_int_equal(r.job.timeouts.grace.v, 1000000000);
    assert_int_equal(r.job.nworkloads, 2);
    assert_null(r.job.workloads[1].plugin.v);
    done(&r);
    assert_true(read_job(&r, "version: [") < 0);
    assert_false(r.job.complete);
    done(&r);
}

static void ranks_has_knows_members(void **state)
{
    (void)state;
    struct reading r;
    assert_int_equal(read_job(&r, "version: 1\nprocesses: {count: 10}\nworkloads: [{plugin: "
                                  "x}]\ngroups: {a: {ranks: \"7,0-5:2\"}}\n"),
                     0);
    const struct job_ranks *ranks = &r.job.groups[1].ranks;
    for (uint32_t rank = 0; rank < 12; rank++)
        assert_int_equal(job_ranks_has(ranks, rank),
                         rank == 7 || rank == 0 || rank == 2 || rank == 4);
    assert_int_equal(ranks->parts[1].loc.column, 24);
    assert_int_equal(ranks->parts[1].loc.width, 5);
    done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_schema_table_is_consistent),
        cmocka_unit_test(the_json_schema_has_every_name),
        cmocka_unit_test(host_ranges_are_expanded),
        cmocka_unit_test(interfaces_and_networks_are_checked),
        cmocka_unit_test(the_smallest_job_gets_all_defaults),
        cmocka_unit_test(host_defaults_reach_every_host),
        cmocka_unit_test(wrong_values_keep_their_defaults),
        cmocka_unit_test(ranks_has_knows_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
