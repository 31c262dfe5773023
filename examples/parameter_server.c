/* SPDX-License-Identifier: Apache-2.0
 *
 * A sharded parameter server: a program as a rank (configs/parameter_server.yaml). Ranks of the
 * role `server` each own a part of the parameters (a shard); the others are workers, which train
 * on their share of the images without waiting for each other. mlp.h has network and images.
 *
 *   cc parameter_server.c $(pkg-config --cflags --libs collrun) -lm -o parameter_server
 *
 * - A worker repeats: PULL of every shard, the gradient of a batch of its images, PUSH of every
 *   shard's part of the gradient, which the server applies at once. DONE ends it.
 * - A server probes for the next message of any worker, and its tag says which of the three it is.
 *   It ends after the last DONE.
 * - The parameters of a batch may be older than those that its gradient changes, so that losses
 *   differ from run to run. At the end all ranks evaluate the model together: it must recognize
 *   ACCURACY of the images.
 */
#include "mlp.h"

#include <collrun/collrun.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_PULL = 1, TAG_PARAMS, TAG_PUSH, TAG_DONE };
enum { IMAGES = 500, BATCH = 25, STEPS = 400 /* of a worker */ };
static const double RATE = 0.2, ACCURACY = 0.95;

struct model {
    struct collrun_group *world;
    int servers;
    double params[MLP_PARAMS], grad[MLP_PARAMS];
};

/* The first parameter of a server's shard; that of the next server is its end. */
static size_t shard_begin(const struct model *m, int server)
{
    return (size_t)MLP_PARAMS * (size_t)server / (size_t)m->servers;
}

static size_t shard_size(const struct model *m, int server)
{
    return shard_begin(m, server + 1) - shard_begin(m, server);
}

/* ---- messages with a tag ---- */

static int send_to(struct model *m, const double *values, size_t count, int peer, uint32_t tag)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SEND);
    call.send = values;
    call.count = count;
    call.dtype = COLLRUN_FLOAT64;
    call.peer = peer;
    call.tag = tag;
    return collrun_run(m->world, &call, 1);
}

static int recv_from(struct model *m, double *values, size_t count, int peer, uint32_t tag)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
    call.recv = values;
    call.count = count;
    call.dtype = COLLRUN_FLOAT64;
    call.peer = peer;
    call.tag = tag;
    return collrun_run(m->world, &call, 1);
}

/* ---- server ---- */

/* Receives the message that a probe has found, and answers it. */
static int serve_message(struct model *m, const struct collrun_message_info *message)
{
    int server = collrun_rank(m->world);
    size_t begin = shard_begin(m, server), size = shard_size(m, server);
    int rc = recv_from(m, m->grad, message->count, message->source, message->tag);
    if (rc == COLLRUN_OK && message->tag == TAG_PULL)
        return send_to(m, m->params + begin, size, message->source, TAG_PARAMS);
    for (size_t i = 0; rc == COLLRUN_OK && message->tag == TAG_PUSH && i < size; i++)
        m->params[begin + i] -= RATE * m->grad[i];
    return rc;
}

static int serve(struct model *m)
{
    int rc = COLLRUN_OK, workers = collrun_size(m->world) - m->servers;
    while (workers > 0 && rc == COLLRUN_OK) {
        struct collrun_message_info message = {.size = sizeof message};
        rc = collrun_probe(m->world, COLLRUN_ANY_PEER, COLLRUN_ANY_TAG, &message);
        if (rc == COLLRUN_OK)
            rc = serve_message(m, &message);
        workers -= rc == COLLRUN_OK && message.tag == TAG_DONE;
    }
    return rc;
}

/* ---- worker ---- */

/* Sends each server a message: an empty one, or its part of the gradient. */
static int send_servers(struct model *m, uint32_t tag)
{
    int rc = COLLRUN_OK;
    for (int s = 0; s < m->servers && rc == COLLRUN_OK; s++)
        rc =
            send_to(m, m->grad + shard_begin(m, s), tag == TAG_PUSH ? shard_size(m, s) : 0, s, tag);
    return rc;
}

static int pull(struct model *m)
{
    int rc = send_servers(m, TAG_PULL);
    for (int s = 0; s < m->servers && rc == COLLRUN_OK; s++)
        rc = recv_from(m, m->params + shard_begin(m, s), shard_size(m, s), s, TAG_PARAMS);
    return rc;
}

static int work(struct model *m)
{
    int workers = collrun_size(m->world) - m->servers, me = collrun_rank(m->world) - m->servers;
    int64_t image = me;
    for (int step = 0; step < STEPS / workers; step++) {
        int rc = pull(m);
        if (rc != COLLRUN_OK)
            return rc;
        double right = 0;
        memset(m->grad, 0, sizeof m->grad);
        for (int i = 0; i < BATCH; i++, image += workers)
            mlp_train_image(m->params, m->grad, image % IMAGES, &right);
        for (int i = 0; i < MLP_PARAMS; i++)
            m->grad[i] /= (double)BATCH;
        if ((rc = send_servers(m, TAG_PUSH)) != COLLRUN_OK)
            return rc;
    }
    return send_servers(m, TAG_DONE);
}

/* ---- all ranks ---- */

/* The share of the images that the final model recognizes. */
static int evaluate(struct model *m, double *accuracy)
{
    int rc = COLLRUN_OK;
    for (int s = 0; s < m->servers && rc == COLLRUN_OK; s++)
        rc = collrun_broadcast(m->world, m->params + shard_begin(m, s), shard_size(m, s),
                               COLLRUN_FLOAT64, s);
    double right = 0;
    for (int64_t i = collrun_rank(m->world); i < IMAGES; i += collrun_size(m->world))
        mlp_train_image(m->params, m->grad, i, &right);
    if (rc == COLLRUN_OK)
        rc = collrun_allreduce(m->world, &right, accuracy, 1, COLLRUN_FLOAT64, COLLRUN_SUM);
    *accuracy /= (double)IMAGES;
    return rc;
}

/* The servers come first: they are this rank's role, or all ranks but that. */
static int count_servers(int ranks)
{
    const char *role = getenv("ROLE_NAME"), *size = getenv("ROLE_WORLD_SIZE");
    int mine = size ? atoi(size) : 0;
    return role && strcmp(role, "server") == 0 ? mine : ranks - mine;
}

static int train(struct collrun_ctx *ctx, struct model *m)
{
    double accuracy = 0;
    int rc = collrun_group_get(ctx, "world", &m->world);
    if (rc != COLLRUN_OK)
        return rc;
    m->servers = count_servers(collrun_size(m->world));
    if (m->servers < 1 || m->servers >= collrun_size(m->world))
        return collrun_fail(ctx, "%d servers of %d ranks leave no worker, or no server", m->servers,
                            collrun_size(m->world));
    rc = collrun_rank(m->world) < m->servers ? serve(m) : work(m);
    if (rc == COLLRUN_OK)
        rc = evaluate(m, &accuracy);
    if (rc != COLLRUN_OK)
        return rc;
    if (accuracy < ACCURACY)
        return collrun_fail(ctx, "not converged: accuracy %.3f", accuracy);
    if (collrun_rank(m->world) == 0)
        printf("converged: %d servers, %d workers, accuracy at least %.2f\n", m->servers,
               collrun_size(m->world) - m->servers, ACCURACY);
    return COLLRUN_OK;
}

int main(void)
{
    static struct model m;
    struct collrun_ctx *ctx;
    mlp_init(m.params);
    int rc = collrun_init(&ctx);
    if (rc == COLLRUN_OK)
        rc = train(ctx, &m);
    if (rc == COLLRUN_OK)
        rc = collrun_finalize(ctx);
    if (rc < 0) /* a status of collrun; the report has the text of collrun_fail */
        fprintf(stderr, "%s\n", collrun_error());
    return rc == COLLRUN_OK ? 0 : 1;
}
