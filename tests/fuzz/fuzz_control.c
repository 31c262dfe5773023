/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for what a rank reads from its agent: the description of the job in WELCOME, and
 * the frames after it, among them the answers that threads wait for. The first byte chooses: an
 * even one is followed by a description, an odd one by a stream of frames, while requests for keys,
 * fences and agreements are pending. The sanitizers and the time limit are the oracle, and: what a
 * description says about ranks, hosts, groups and backends is in range; an agreement lists each
 * member once at most.
 *
 * The static functions that decode are called where no thread and no socket is needed.
 *
 * fuzz_control --seeds FOLDER writes inputs to start from.
 */
#include "core/agreement.c"
#include "core/control.c"
#include "core/rendezvous.c"
#include "fuzz/seed_frames.h"
#include "fuzz/seed_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { REQUESTS = 4 };

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

/* ---- inputs to start from ---- */

static void seed_description(const char *folder)
{
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, 0);
    desc_encode(seed_desc(), &b);
    seed_write(folder, "description", b.data, b.len);
    buf_fini(&b);
}

static void seed_stream(const char *folder)
{
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, 1);
    seed_frame(&b, WIRE_GO, WIRE_HOST, "");
    seed_frame(&b, WIRE_REPLY, 1, "s=s s=key 4=0 4=5 t=value");
    seed_frame(&b, WIRE_FENCED, 1, "s=s 4=0 4=0 4=2 s=a 4=1 t=b s=c 4=1 t=d");
    /* An agreement, in which rank 0 has four voices. */
    seed_frame(&b, WIRE_FENCED, 1,
               "s=t 4=0 4=0 4=5 s=0 4=8 4=0 4=0 s=x 4=8 4=0 4=0 s=y 4=8 4=0 4=0 s=z 4=8 4=0 4=0 "
               "s=2 4=8 4=2 4=0xfffffff6");
    seed_frame(&b, WIRE_FENCED, 1, "s=s 4=1 4=0xfffffff6 d=too-late");
    seed_frame(&b, WIRE_RANK_LOST, WIRE_HOST, "4=2 s=it-exited");
    seed_frame(&b, WIRE_ABORT, WIRE_HOST, "4=0xfffffff6 4=2 s=rank-2-failed");
    seed_frame(&b, WIRE_STOP_BACKGROUND, WIRE_HOST, "");
    seed_frame(&b, WIRE_FINISH, WIRE_HOST, "");
    seed_write(folder, "stream", b.data, b.len);
    buf_fini(&b);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (*argc != 3 || strcmp((*argv)[1], "--seeds") != 0)
        return 0;
    seed_description((*argv)[2]);
    seed_stream((*argv)[2]);
    exit(0);
}

/* ---- the description ---- */

static void check_ranks(const struct desc *desc, const struct desc_ranks *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        must(list->items[i] < desc->nranks, "a rank is in range");
}

static void check_parts(const struct desc *desc)
{
    for (uint32_t i = 0; i < desc->nkinds; i++)
        must(desc->kinds[i].backend < desc->nbackends, "a kind has a backend");
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        const struct desc_group *g = &desc->groups[i];
        must(g->backend < desc->nbackends && g->ranks.n > 0, "a group has a backend and members");
        check_ranks(desc, &g->ranks);
        for (uint32_t k = 0; k < g->nroutes; k++)
            must(g->routes[k].backend < desc->nbackends, "a route has a backend");
        for (uint32_t k = 0; k < g->ndevices; k++)
            must(g->devices[k].kind < desc->nkinds, "devices have a kind");
    }
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        const struct desc_workload *w = &desc->workloads[i];
        check_ranks(desc, &w->ranks);
        for (uint32_t k = 0; k < w->ngroups; k++)
            must(w->groups[k] < desc->ngroups, "the group of a workload exists");
        for (uint32_t k = 0; k < w->noverrides; k++)
            check_ranks(desc, &w->overrides[k].ranks);
    }
}

static void read_description(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct desc desc;
    struct diag d;
    arena_init(&arena);
    diag_init(&d);
    if (desc_decode(&arena, &desc, data, size, &d) == COLLRUN_OK) {
        must(desc.nranks && desc.nhosts, "a job has ranks and hosts");
        must(!(desc.record_entries & (desc.record_entries - 1)), "entries are a power of 2");
        for (uint32_t i = 0; i < desc.nranks; i++) {
            must(desc.ranks[i].host < desc.nhosts, "a rank has a host");
            for (uint32_t k = 0; k < desc.ranks[i].ndevices; k++)
                must(desc.ranks[i].devices[k].kind < desc.nkinds, "a device has a kind");
            desc_find_command(&desc, i);
        }
        check_ranks(&desc, &desc.with_stdin);
        check_ranks(&desc, &desc.wrapped);
        check_parts(&desc);
    }
    arena_fini(&arena);
}

/* ---- the stream ---- */

static void on_culprit(void *ctx, uint32_t rank)
{
    (void)ctx, (void)rank;
}

static void on_abort(void *ctx)
{
    (void)ctx;
}

static void on_lost(void *ctx, uint32_t rank, const char *text)
{
    (void)ctx, (void)rank;
    must(text != NULL, "a loss has a text");
}

static void read_agreement(const struct buf *answer)
{
    uint32_t items[] = {0, 1, 2}, ranks[3];
    int statuses[3];
    struct agreement a = {.ranks = ranks, .statuses = statuses};
    agreement_read(&(struct desc_ranks){items, 3}, answer, &a);
    must(a.n <= 3, "an agreement lists each member once");
}

static void read_fence(const struct buf *answer)
{
    static struct rendezvous r;
    char value[16];
    size_t len;
    memset(&r, 0, sizeof r);
    r.spec.name = "world";
    rendezvous_keep_fenced(&r, answer);
    for (size_t i = 0; i < r.pairs.n; i++)
        rendezvous_copy_out(&r, &r.pairs.items[i], value, sizeof value, &len);
    rdv_pairs_free(&r.pairs);
}

static void read_stream(const uint8_t *data, size_t size)
{
    struct control c = {.fd = -1,
                        .wake_fd = -1,
                        .hooks = {.culprit = on_culprit, .abort = on_abort, .lost = on_lost}};
    struct control_request requests[REQUESTS] = {
        {.answer_type = WIRE_REPLY, .scope = "s", .key = "key"},
        {.answer_type = WIRE_FENCED, .scope = "s", .key = ""},
        {.answer_type = WIRE_FENCED, .scope = "s", .key = "", .number = 1},
        {.answer_type = WIRE_FENCED, .scope = "t", .key = ""}};
    struct diag d;
    diag_init(&d);
    control_init_locks(&c);
    arena_init(&c.arena);
    for (int i = 0; i < REQUESTS; i++)
        control_request_add(&c, &requests[i]);
    buf_put(&c.in, data, size);
    int rc = control_deliver(&c, &d);
    must((rc < 0) == (d.code != COLLRUN_OK), "a refusal comes with an error");
    for (int i = 0; i < REQUESTS; i++) {
        if (requests[i].done && requests[i].failure.code == COLLRUN_OK) {
            read_fence(&requests[i].value);
            read_agreement(&requests[i].value);
        }
        control_request_fini(&c, &requests[i]);
    }
    control_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] % 2)
        read_stream(data + 1, size - 1);
    else if (size)
        read_description(data + 1, size - 1);
    return 0;
}
