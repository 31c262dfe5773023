/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of memory: tables that the engine refuses, kinds that are found, missing or declared twice,
 * pointers, numbers of devices, copies, and host memory. Two kinds stand for accelerators; memory
 * of each is an array, and a copy must be the kind's.
 */
#include "core/memory_kind.h"

#include "core/backend.h"
#include "core/error.h"
#include "core/memory_kinds.h"
#include "core/process.h"
#include "group/group.h"
#include "group/route.h"
#include "ops/bounce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char red_memory[64], blue_memory[64];
static int red_copies, blue_copies, host_allocs, host_frees, synchronized_number;
static int open_answer;

/* ---- two kinds ---- */

static int none_listed(const struct collrun_services *services, struct collrun_device *out,
                       uint32_t max, char *why, size_t len)
{
    (void)services;
    (void)out;
    (void)max;
    snprintf(why, len, "none is installed");
    return 0;
}

static int open_red(const struct collrun_services *s, void **kind)
{
    *kind = NULL;
    return open_answer ? (s->fail)(s->ctx, open_answer, "the driver is missing") : COLLRUN_OK;
}

static int in(const char *memory, const void *ptr)
{
    return (const char *)ptr >= memory && (const char *)ptr < memory + 64;
}

/* Half of the memory is of device 5, half of device 7. */
static int locate_red(void *kind, const void *ptr, int32_t *device)
{
    (void)kind;
    *device = (const char *)ptr < red_memory + 32 ? 5 : 7;
    return in(red_memory, ptr);
}

static int locate_blue(void *kind, const void *ptr, int32_t *device)
{
    (void)kind;
    *device = -1;
    return in(blue_memory, ptr);
}

static int copy_red(void *kind, const struct collrun_memory_copy *c)
{
    (void)kind;
    assert_false(in(blue_memory, c->dst) || in(blue_memory, c->src));
    red_copies++;
    memmove(c->dst, c->src, c->len);
    return COLLRUN_OK;
}

static int copy_blue(void *kind, const struct collrun_memory_copy *c)
{
    (void)kind;
    assert_false(in(red_memory, c->dst) || in(red_memory, c->src));
    blue_copies++;
    memmove(c->dst, c->src, c->len);
    return COLLRUN_OK;
}

static int take_host(void *kind, size_t len, void **ptr)
{
    static void *taken[64]; /* so that memory which is not reused is no leak */
    static unsigned n;
    (void)kind;
    host_allocs++;
    *ptr = taken[n++ % 64] = malloc(len);
    return COLLRUN_OK;
}

static void give_host(void *kind, void *ptr, size_t len)
{
    (void)kind;
    (void)len;
    host_frees++;
    free(ptr);
}

static int event_record(void *kind, int32_t device, void *stream, void **event)
{
    (void)kind, (void)device, (void)stream, (void)event;
    return COLLRUN_ERR_BACKEND;
}

static int synchronize(void *kind, int32_t device)
{
    (void)kind;
    synchronized_number = device;
    return COLLRUN_OK;
}

static const struct collrun_memory_kind red = {.size = sizeof red,
                                               .name = "red",
                                               .title = "Red",
                                               .devices = none_listed,
                                               .open = open_red,
                                               .locate = locate_red,
                                               .copy = copy_red,
                                               .synchronize = synchronize};
static const struct collrun_memory_kind blue = {.size = sizeof blue,
                                                .name = "blue",
                                                .mask = "BLUE_DEVICES",
                                                .devices = none_listed,
                                                .locate = locate_blue,
                                                .copy = copy_blue,
                                                .host_alloc = take_host,
                                                .host_free = give_host};

/* ---- backends ---- */

static int group_open_none(void *backend, const struct collrun_group_desc *desc, void **group)
{
    (void)backend;
    (void)desc;
    (void)group;
    return COLLRUN_OK;
}

static void group_nothing(void *group)
{
    (void)group;
}

static int exec_none(void *group, const struct collrun_call *calls, uint32_t n)
{
    (void)group;
    (void)calls;
    (void)n;
    return COLLRUN_OK;
}

static const struct collrun_capability on_devices[] = {
    COLLRUN_MOVES(COLLRUN_SEND, COLLRUN_MEMORY_DEVICE), {0}};

static int adopt(const char *name, const struct collrun_memory_kind *kind, struct backend *out,
                 struct diag *d)
{
    const struct collrun_backend table = {COLLRUN_BACKEND_HEAD,
                                          .name = name,
                                          .version = "1",
                                          .native = on_devices,
                                          .group_open = group_open_none,
                                          .group_abort = group_nothing,
                                          .group_close = group_nothing,
                                          .exec = exec_none,
                                          .memory_kind = kind};
    diag_init(d);
    return backend_adopt(&table, "here.so", out, d);
}

static void refused(const struct collrun_memory_kind *kind, const char *why)
{
    struct backend b;
    struct diag d;
    assert_int_equal(adopt("bad", kind, &b, &d), COLLRUN_ERR_INVALID);
    if (!strstr(d.text, why))
        fail_msg("\"%s\" lacks \"%s\"", d.text, why);
}

static void broken_kinds_are_refused(void **state)
{
    struct collrun_memory_kind k;
    (void)state;
    refused(NULL, "work on device memory, but memory_kind has no name");
    k = red, k.name = NULL;
    refused(&k, "memory_kind has no name");
    k = red, k.name = "host";
    refused(&k, "not \"host\"");
    k = red, k.name = "Red Hot";
    refused(&k, "lower case letters");
    k = red, k.name = "";
    refused(&k, "lower case letters");
    k = red, k.mask = "RED DEVICES";
    refused(&k, "environment variable");
    k = red, k.mask = "";
    refused(&k, "environment variable");
    k = red, k.devices = NULL;
    refused(&k, "lacks devices, locate or copy");
    k = red, k.locate = NULL;
    refused(&k, "lacks devices, locate or copy");
    k = red, k.copy = NULL;
    refused(&k, "lacks devices, locate or copy");
    k = blue, k.host_free = NULL;
    refused(&k, "only one function of a pair");
    k = blue, k.size = offsetof(struct collrun_memory_kind, host_free); /* an older one */
    refused(&k, "only one function of a pair");
    k = blue, k.event_record = event_record;
    refused(&k, "some, but not all, of event_record, event_query and event_free");
}

static void a_kind_has_a_title_and_may_be_a_name_alone(void **state)
{
    const struct collrun_memory_kind name = {.size = sizeof name, .name = "red"};
    struct backend b;
    struct diag d;
    (void)state;
    assert_int_equal(adopt("other", &name, &b, &d), COLLRUN_OK);
    assert_false(b.declares_kind);
    assert_string_equal(b.kind.title, "red");
    backend_close(&b);
    assert_int_equal(adopt("reds", &red, &b, &d), COLLRUN_OK);
    assert_true(b.declares_kind);
    assert_string_equal(b.kind.title, "Red");
    backend_close(&b);
}

/* ---- the kinds of a process ---- */

static struct desc_device owned[] = {{0, 7, "red-7"}, {0, 5, "red-5"}};
static struct desc_rank one_rank = {.cpus = "", .devices = owned, .ndevices = 2};
static struct desc_backend job_backends[] = {{.name = "reds"}, {.name = "blues"}};
static struct desc_kind job_kinds[] = {{.name = "red", .title = "Red", .mask = ""},
                                       {.name = "blue", .title = "blue", .backend = 1}};

static struct backend *add(struct process *e, const char *name,
                           const struct collrun_memory_kind *kind)
{
    struct backend b, *added;
    struct diag d;
    assert_int_equal(adopt(name, kind, &b, &d), COLLRUN_OK);
    assert_int_equal(registry_add(&e->registry, &b, &added, &d), COLLRUN_OK);
    services_init(&added->services, &e->control, NULL, NULL, "%s", name);
    return added;
}

static struct process *process_new(uint32_t ndevices)
{
    static struct desc_rank rank;
    struct process *e = calloc(1, sizeof *e);
    rank = one_rank;
    rank.ndevices = ndevices;
    e->desc = (struct desc){.ranks = &rank,
                            .nranks = 1,
                            .backends = job_backends,
                            .nbackends = 2,
                            .kinds = job_kinds,
                            .nkinds = 2};
    registry_init(&e->registry);
    memory_kinds_init(&e->kinds);
    open_answer = COLLRUN_OK;
    return e;
}

static void process_free(struct process *e)
{
    memory_kinds_fini(&e->kinds);
    registry_fini(&e->registry);
    free(e);
}

static void a_kind_is_that_of_the_backend_which_declares_it(void **state)
{
    const struct collrun_memory_kind name = {.size = sizeof name, .name = "red"};
    struct memory_kind *first, *second;
    struct diag d;
    (void)state;
    struct process *e = process_new(0);
    struct backend *reds = add(e, "reds", &red), *others = add(e, "others", &name);
    assert_int_equal(memory_kinds_of_backend(e, others, &first, &d), COLLRUN_OK);
    assert_int_equal(memory_kinds_of_backend(e, reds, &second, &d), COLLRUN_OK);
    assert_ptr_equal(first, second);
    assert_ptr_equal(first->table.copy, copy_red);
    assert_int_equal(others->services.table.memory_kind(&others->services, red_memory),
                     COLLRUN_MEMORY_DEVICE);
    assert_int_equal(others->services.table.memory_kind(&others->services, blue_memory),
                     COLLRUN_MEMORY_HOST);
    process_free(e);
}

static void a_kind_that_no_backend_declares_is_an_error(void **state)
{
    const struct collrun_memory_kind green = {.size = sizeof green, .name = "green"};
    struct memory_kind *kind;
    struct diag d;
    (void)state;
    struct process *e = process_new(0);
    struct backend *greens = add(e, "greens", &green);
    diag_init(&d);
    assert_int_equal(memory_kinds_of_backend(e, greens, &kind, &d), COLLRUN_ERR_NOT_FOUND);
    assert_string_equal(d.text,
                        "backend \"greens\": no backend of this job declares memory of kind "
                        "\"green\"");
    const struct collrun_memory_kind name = {.size = sizeof name, .name = "blue"};
    add(e, "blues", &red); /* job.yaml expects it to declare blue */
    struct backend *others = add(e, "others", &name);
    assert_int_equal(memory_kinds_of_backend(e, others, &kind, &d), COLLRUN_ERR_NOT_FOUND);
    assert_non_null(strstr(d.text, "backend \"blues\" (here.so) declares no memory of kind"));
    process_free(e);
}

static void a_kind_that_two_backends_declare_is_served_by_one(void **state)
{
    struct collrun_memory_kind again = red;
    struct memory_kind *first, *second;
    struct diag d;
    (void)state;
    struct process *e = process_new(0);
    again.copy = copy_blue;
    struct backend *reds = add(e, "reds", &red), *twins = add(e, "twins", &again);
    assert_int_equal(memory_kinds_of_backend(e, twins, &first, &d), COLLRUN_OK);
    assert_int_equal(memory_kinds_of_backend(e, reds, &second, &d), COLLRUN_OK);
    assert_ptr_equal(first, second);
    assert_ptr_equal(first->table.copy, copy_red); /* the plan names "reds" for the kind */
    process_free(e);
}

static void a_kind_that_cannot_be_opened_has_no_pointers(void **state)
{
    struct memory_kind *kind;
    struct diag d;
    (void)state;
    struct process *e = process_new(0);
    struct backend *reds = add(e, "reds", &red);
    open_answer = COLLRUN_ERR_UNAVAILABLE;
    assert_int_equal(memory_kinds_of_backend(e, reds, &kind, &d), COLLRUN_OK);
    assert_false(memory_kind_locate(kind, red_memory, NULL));
    assert_int_equal(memory_kind_synchronize(kind, 0), COLLRUN_ERR_UNAVAILABLE);
    assert_string_equal(error_get()->cause, "the driver is missing");
    process_free(e);
    e = process_new(0);
    reds = add(e, "reds", &red);
    open_answer = COLLRUN_ERR_BACKEND; /* any other failure is the rank's */
    assert_int_equal(memory_kinds_of_backend(e, reds, &kind, &d), COLLRUN_ERR_BACKEND);
    assert_non_null(strstr(d.text, "failed to open memory of kind \"red\": the driver is missing"));
    process_free(e);
}

static void devices_have_the_order_of_the_rank(void **state)
{
    struct diag d;
    int device;
    (void)state;
    struct process *e = process_new(2);
    add(e, "reds", &red);
    assert_int_equal(memory_kinds_open_owned(e, &d), COLLRUN_OK);
    assert_int_equal(e->kinds.nowned, 1);
    struct memory_kind *kind = e->kinds.open.items[0];
    assert_int_equal(kind->ndevices, 2); /* 7, then 5: there is no mask that renumbers them */
    assert_true(memory_kind_locate(kind, red_memory, &device));
    assert_int_equal(device, 1);
    assert_true(memory_kind_locate(kind, red_memory + 40, &device));
    assert_int_equal(device, 0);
    assert_false(memory_kind_locate(kind, blue_memory, &device));
    assert_int_equal(device, -1);
    assert_int_equal(memory_kind_synchronize(kind, 1), COLLRUN_OK);
    assert_int_equal(synchronized_number, 5);
    void *none;
    assert_int_equal(memory_kind_alloc(kind, 0, 8, &none), COLLRUN_ERR_UNSUPPORTED);
    assert_string_equal(error_get()->cause, "the backend of Red memory cannot allocate it");
    process_free(e);
}

/* ---- copies ---- */

static struct memory_kind_set both(struct process *e)
{
    struct memory_kind_set set = {.n = 2};
    struct diag d;
    assert_int_equal(memory_kinds_of_backend(e, add(e, "reds", &red), &set.items[0], &d),
                     COLLRUN_OK);
    assert_int_equal(memory_kinds_of_backend(e, add(e, "blues", &blue), &set.items[1], &d),
                     COLLRUN_OK);
    return set;
}

static int copy(const struct memory_kind_set *set, void *to, const void *from, size_t len)
{
    return memory_kind_copy(
        set, &(struct collrun_memory_copy){.size = sizeof(struct collrun_memory_copy),
                                           .dst = to,
                                           .src = from,
                                           .len = len,
                                           .stream_device = -1});
}

static void a_copy_is_made_by_the_kind_of_its_memory(void **state)
{
    char host[8] = "abcdefg", other[8] = "";
    (void)state;
    struct process *e = process_new(0);
    struct memory_kind_set set = both(e);
    red_copies = blue_copies = 0;
    assert_int_equal(copy(&set, other, host, 8), COLLRUN_OK);
    assert_string_equal(other, "abcdefg");
    assert_int_equal(red_copies + blue_copies, 0);
    assert_int_equal(copy(&set, red_memory, host, 8), COLLRUN_OK);
    assert_int_equal(red_copies, 1);
    assert_int_equal(copy(&set, blue_memory, red_memory, 8), COLLRUN_OK); /* through the host */
    assert_int_equal(red_copies, 2);
    assert_int_equal(blue_copies, 1);
    memset(host, 0, sizeof host);
    assert_int_equal(copy(&set, host, blue_memory, 8), COLLRUN_OK);
    assert_int_equal(blue_copies, 2);
    assert_string_equal(host, "abcdefg");
    assert_int_equal(copy(&set, red_memory, host, 0), COLLRUN_OK);
    assert_int_equal(red_copies, 2);
    process_free(e);
}

static void host_memory_is_kept_for_reuse(void **state)
{
    (void)state;
    struct process *e = process_new(0);
    struct memory_kind_set set = both(e);
    host_allocs = host_frees = 0;
    void *first = memory_kind_host_take(set.items[1], 5000);
    memory_kind_host_give(set.items[1], first, 5000);
    assert_ptr_equal(memory_kind_host_take(set.items[1], 8000), first); /* the same class */
    assert_int_equal(host_allocs, 1);
    memory_kind_host_give(set.items[1], first, 8000);
    void *plain = memory_kind_host_take(set.items[0], 100); /* red has none: plain memory */
    assert_non_null(plain);
    memory_kind_host_give(set.items[0], plain, 100);
    assert_int_equal(host_allocs, 1);
    process_free(e);
    assert_int_equal(host_frees, 1);
}

/* How much memory of the host a call needs whose two buffers are copied there, after one before it
 * has ended with `status`. */
static int allocated_after(struct collrun_group *g, int status)
{
    const struct route route = {.gb = g->backends, .bounced = true};
    const struct collrun_call given = {.size = sizeof given,
                                       .kind = COLLRUN_SCAN,
                                       .send = blue_memory,
                                       .recv = blue_memory + 32,
                                       .count = 4,
                                       .dtype = COLLRUN_INT32,
                                       .timeout_ns = UINT64_MAX};
    const int ends[] = {status, COLLRUN_OK};
    for (int i = 0; i < 2; i++) {
        struct collrun_call call = given;
        struct bounce *bounce = NULL;
        host_allocs = 0;
        assert_int_equal(bounce_in(&route, &call, 1, &bounce), COLLRUN_OK);
        assert_ptr_not_equal(call.send, given.send);
        assert_int_equal(bounce_out(bounce, ends[i]), ends[i]);
    }
    return host_allocs;
}

static void copies_that_a_device_may_still_access_are_not_reused(void **state)
{
    (void)state;
    struct process *e = process_new(0);
    struct backend b = {.memory = COLLRUN_MEMORY_DEVICE};
    struct collrun_group *g = calloc(1, sizeof *g);
    assert_non_null(g);
    struct group_backend gb = {.backend = &b, .comm_size = 1, .group = g};
    g->kinds = both(e);
    g->backends = &gb;
    g->nbackends = 1;
    gb.kind = g->kinds.items[1];
    assert_int_equal(allocated_after(g, COLLRUN_OK), 0);
    assert_int_equal(allocated_after(g, COLLRUN_ERR_TIMEOUT), 2);
    b.memory = COLLRUN_MEMORY_HOST; /* it has ended with the call */
    assert_int_equal(allocated_after(g, COLLRUN_ERR_TIMEOUT), 0);
    free(g);
    process_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_kinds_are_refused),
        cmocka_unit_test(a_kind_has_a_title_and_may_be_a_name_alone),
        cmocka_unit_test(a_kind_is_that_of_the_backend_which_declares_it),
        cmocka_unit_test(a_kind_that_no_backend_declares_is_an_error),
        cmocka_unit_test(a_kind_that_two_backends_declare_is_served_by_one),
        cmocka_unit_test(a_kind_that_cannot_be_opened_has_no_pointers),
        cmocka_unit_test(devices_have_the_order_of_the_rank),
        cmocka_unit_test(a_copy_is_made_by_the_kind_of_its_memory),
        cmocka_unit_test(host_memory_is_kept_for_reuse),
        cmocka_unit_test(copies_that_a_device_may_still_access_are_not_reused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
