/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: what members, which know the secret, may send to the coordinator of the nccl
 * backend. The first byte says which connections have had their HELLO; then one byte chooses a
 * connection, and one what happens: it ends, a round ends, or it gets a frame whose fields the next
 * bytes choose. Closed connections come again. The sanitizers see what goes wrong.
 */
#include "coord/server.c"

#include "core/match.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { FUZZ_RANKS = 3, FUZZ_DEVICES = 2, FUZZ_CONNS = 2 * FUZZ_RANKS, FUZZ_SECRET = 7 };

struct fuzz_input {
    const uint8_t *bytes;
    size_t len;
};

static int fuzz_fail(void *ctx, int status, const char *format, ...)
{
    (void)ctx, (void)format;
    return status;
}

/* No thread: the target calls what the thread would. */
static int fuzz_thread_start(void *ctx, void *(*run)(void *), void *arg, pthread_t *thread)
{
    (void)ctx, (void)run, (void)arg, (void)thread;
    return COLLRUN_OK;
}

static uint8_t fuzz_take(struct fuzz_input *in)
{
    if (in->len == 0)
        return 0;
    in->len--;
    return *in->bytes++;
}

/* A rank of the communicator, one that does not exist, or any. */
static uint32_t fuzz_take_rank(struct fuzz_input *in)
{
    const uint8_t b = fuzz_take(in);
    return b == 255   ? COLLRUN_ANY_SOURCE
           : b == 254 ? UINT32_MAX - 15
                      : b % (FUZZ_RANKS * FUZZ_DEVICES + 1);
}

static void fuzz_take_request(struct fuzz_input *in, uint8_t how, struct coord_match_req *req)
{
    *req = (struct coord_match_req){.count = fuzz_take(in), .id = fuzz_take(in) % 8};
    req->comm_rank = fuzz_take_rank(in);
    req->peer = fuzz_take_rank(in);
    req->tag = how & 128 ? COLLRUN_ANY_TAG : fuzz_take(in) % 3;
    req->kind = COLLRUN_SEND + fuzz_take(in) % 3;
    req->dtype = fuzz_take(in) % 14;
    req->at_most = fuzz_take(in) & 1;
    req->direct = fuzz_take(in) % 5 == 0;
    if (how == 255)
        req->id = MAX_ID - 1;
}

static void fuzz_take_frame(struct fuzz_input *in, struct coord_frame *f)
{
    static const uint32_t types[] = {COORD_MATCH_REQ, COORD_MATCH_REQ, COORD_PROBE, COORD_WITHDRAW,
                                     COORD_WITHDRAW,  COORD_COMMIT,    COORD_CUTS,  COORD_WANT,
                                     COORD_FORM,      COORD_HELLO,     COORD_ANSWER};
    const uint8_t how = fuzz_take(in);
    memset(f, 0, sizeof *f);
    f->type = types[how % (sizeof types / sizeof *types)];
    switch (f->type) {
    case COORD_HELLO:
        f->hello = (struct coord_hello){.secret = FUZZ_SECRET, .rank = fuzz_take(in) % 4};
        f->hello.world_rank = fuzz_take(in);
        f->hello.forms = fuzz_take(in) & 1;
        break;
    case COORD_MATCH_REQ:
        fuzz_take_request(in, how, &f->match_req);
        break;
    case COORD_PROBE:
    case COORD_WITHDRAW:
        f->question.comm_rank = fuzz_take_rank(in);
        f->question.peer = fuzz_take_rank(in);
        f->question.tag = fuzz_take(in) % 3;
        f->question.id = fuzz_take(in) % 9;
        f->question.more = fuzz_take(in) & 1;
        break;
    case COORD_COMMIT:
        f->count = fuzz_take(in);
        break;
    case COORD_CUTS:
        f->cuts = fuzz_take(in);
        break;
    case COORD_WANT:
        f->want.handle = fuzz_take(in) % 5;
        f->want.from = fuzz_take_rank(in);
        f->want.to = fuzz_take_rank(in);
        break;
    case COORD_FORM:
        f->form.handle = fuzz_take(in) % 6;
        f->form.step = fuzz_take(in) % 14;
        f->form.from = fuzz_take_rank(in);
        f->form.to = fuzz_take_rank(in);
        break;
    default:
        break;
    }
}

/* A descriptor that takes whatever the coordinator sends. */
static void fuzz_connect(struct coord_conn *c)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) < 0)
        abort();
    close(ends[1]);
    c->fd = ends[0];
}

static void fuzz_end_round(struct coord_server *s)
{
    for (uint32_t i = 0; i < s->nconns; i++) {
        struct coord_conn *c = &s->conns[i];
        if (c->last_match > c->out_count)
            abort();
        c->last_match = c->out_count = 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const struct collrun_services services = {.size = sizeof services,
                                              .fail = fuzz_fail,
                                              .thread_start = fuzz_thread_start,
                                              .match = &match_ops};
    struct fuzz_input in = {bytes, len};
    struct coord_server *s = coord_server_new(&services, -1, FUZZ_SECRET, FUZZ_RANKS, FUZZ_DEVICES);
    const uint8_t greeted = fuzz_take(&in);
    for (uint32_t i = 0; i < FUZZ_CONNS; i++) {
        struct coord_frame hello = {
            .type = COORD_HELLO,
            .hello = {FUZZ_SECRET, i % FUZZ_RANKS, i % FUZZ_RANKS, i >= FUZZ_RANKS}};
        fuzz_connect(&s->conns[i]);
        if (greeted >> i & 1 && !coord_server_on_frame(s, &s->conns[i], &hello))
            abort();
    }
    while (in.len > 0 && !s->failed) {
        struct coord_conn *c = &s->conns[fuzz_take(&in) % FUZZ_CONNS];
        const uint8_t what = fuzz_take(&in);
        struct coord_frame f;
        if (c->fd < 0)
            fuzz_connect(c);
        if (what % 16 == 1) {
            fuzz_end_round(s);
            continue;
        }
        fuzz_take_frame(&in, &f);
        if (what == 250 || !coord_server_on_frame(s, c, &f))
            coord_server_disconnect(s, c);
    }
    for (uint32_t i = 0; i < s->nconns; i++)
        if (s->conns[i].fd >= 0)
            coord_server_disconnect(s, &s->conns[i]);
    coord_server_release(s);
    return 0;
}
