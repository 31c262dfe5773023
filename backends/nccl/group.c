/* SPDX-License-Identifier: Apache-2.0
 *
 * Forming a group: rank 0 makes NCCL's unique id and publishes it, every process makes one
 * nonblocking communicator per GPU, and all of them connect to each other at once. Closing one is
 * local: a thread of its own takes leave of the peers, however long they need, up to a limit.
 */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the peers may take to leave. They come at one time, when the job ends, and nothing is
 * unfinished then; one that has failed does not come at all. */
#define LEAVING_NS 3000000000ull
#define ASKING_NS 20000000u

/* ---- parts ---- */

static struct mark *mark_new(const struct home *home)
{
    struct mark *m = calloc(1, sizeof(*m));
    if (m &&
        home->lib.cuda.cudaEventCreateWithFlags(&m->event, cudaEventDisableTiming) != cudaSuccess) {
        free(m);
        m = NULL;
    }
    return m;
}

static void mark_free(const struct home *home, struct mark *m)
{
    while (m) {
        struct mark *next = m->next;
        home->lib.cuda.cudaEventDestroy(m->event);
        free(m);
        m = next;
    }
}

static struct mark *take_mark(const struct home *home, struct port *port)
{
    struct mark *m = port->spare_marks;
    if (!m)
        return mark_new(home);
    port->spare_marks = m->next;
    m->next = NULL;
    return m;
}

struct mark *port_mark(struct nccl_group *g, struct port *port, cudaStream_t stream)
{
    const struct cuda_api *cuda = &g->home->lib.cuda;
    const int before = device_enter(g->home, port->ordinal);
    struct mark *m = take_mark(g->home, port);
    const cudaError_t error =
        m ? cuda->cudaEventRecord(m->event, stream) : cuda->cudaGetLastError();
    device_leave(g->home, before);
    if (m && error == cudaSuccess)
        return m;
    port_take_back(port, m);
    cuda_failed(g, port, error, "mark a stream");
    return NULL;
}

void port_take_back(struct port *port, struct mark *mark)
{
    if (!mark)
        return;
    mark->next = port->spare_marks;
    port->spare_marks = mark;
}

static int port_init(struct nccl_group *g, struct port *p, int ordinal)
{
    const struct cuda_api *cuda = &g->home->lib.cuda;
    int least = 0, greatest = 0;
    p->ordinal = ordinal;
    p->device = &g->home->devices[ordinal];
    cuda->cudaDeviceGetStreamPriorityRange(&least, &greatest);
    cudaError_t error =
        cuda->cudaStreamCreateWithPriority(&p->stream, cudaStreamNonBlocking, greatest);
    if (error != cudaSuccess)
        return cuda_failed(g, p, error, "make a stream");
    void *token = NULL;
    error = cuda->cudaMalloc(&token, TOKEN_LEN);
    p->token = token;
    if (error == cudaSuccess)
        error = cuda->cudaMemsetAsync(token, 0, TOKEN_LEN, p->stream);
    if (error != cudaSuccess)
        return cuda_failed(g, p, error, "take memory");
    p->ready = mark_new(g->home);
    if (!p->ready)
        return cuda_failed(g, p, cuda->cudaGetLastError(), "make an event");
    return COLLRUN_OK;
}

static void port_fini(const struct home *home, struct port *p)
{
    const struct cuda_api *cuda = &home->lib.cuda;
    const int before = device_enter(home, p->ordinal);
    mark_free(home, p->ready);
    mark_free(home, p->spare_marks);
    if (p->stream)
        cuda->cudaStreamDestroy(p->stream);
    if (p->token)
        cuda->cudaFree(p->token);
    if (p->scratch.device)
        cuda->cudaFree(p->scratch.device);
    if (p->scratch.pinned)
        cuda->cudaFreeHost(p->scratch.pinned);
    device_leave(home, before);
}

static void group_free(struct nccl_group *g)
{
    for (uint32_t i = 0; g->ports && i < g->nports; i++)
        if (g->ports[i].device)
            port_fini(g->home, &g->ports[i]);
    memory_fini(g);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->why_lock);
    free(g->ports);
    free(g->name);
    free(g);
}

static struct nccl_group *group_new(struct home *home, const struct collrun_group_desc *desc)
{
    struct nccl_group *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->home = home;
    g->services = desc->services;
    g->rank = desc->rank;
    g->nranks = desc->nranks;
    g->nports = desc->ndevices;
    g->size = desc->nranks * desc->ndevices;
    g->tally.fd = -1;
    g->name = strdup(desc->name);
    g->ports = calloc(desc->ndevices, sizeof(*g->ports));
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->why_lock, NULL);
    if (g->name && g->ports)
        return g;
    group_free(g);
    return NULL;
}

/* ---- options ---- */

static const char *option(const struct nccl_group *g, const char *key)
{
    return g->services->option(g->services->ctx, key);
}

static void take_int(const struct nccl_group *g, const char *key, int *out)
{
    const char *text = option(g, key);
    if (text && *text)
        *out = (int)strtol(text, NULL, 0);
}

/* What NCCL lets one communicator choose for itself. */
static struct nccl_config configure(const struct nccl_group *g)
{
    struct nccl_config c = {.size = sizeof(c),
                            .magic = NCCL_CONFIG_MAGIC,
                            .version = NCCL_CONFIG_VERSION,
                            .blocking = 0,
                            .cgaClusterSize = NCCL_UNDEFINED,
                            .minCTAs = NCCL_UNDEFINED,
                            .maxCTAs = NCCL_UNDEFINED,
                            .netName = option(g, "NCCL_NET"),
                            .splitShare = NCCL_UNDEFINED,
                            .trafficClass = NCCL_UNDEFINED,
                            .commName = g->name,
                            .collnetEnable = NCCL_UNDEFINED,
                            .CTAPolicy = NCCL_UNDEFINED,
                            .shrinkShare = NCCL_UNDEFINED,
                            .nvlsCTAs = NCCL_UNDEFINED,
                            .nChannelsPerNetPeer = NCCL_UNDEFINED,
                            .nvlinkCentricSched = NCCL_UNDEFINED};
    take_int(g, "NCCL_COMM_BLOCKING", &c.blocking);
    take_int(g, "NCCL_CGA_CLUSTER_SIZE", &c.cgaClusterSize);
    take_int(g, "NCCL_MIN_CTAS", &c.minCTAs);
    take_int(g, "NCCL_MAX_CTAS", &c.maxCTAs);
    take_int(g, "NCCL_TRAFFIC_CLASS", &c.trafficClass);
    take_int(g, "NCCL_COLLNET_ENABLE", &c.collnetEnable);
    take_int(g, "NCCL_CTA_POLICY", &c.CTAPolicy);
    take_int(g, "NCCL_NVLS_NCHANNELS", &c.nvlsCTAs);
    take_int(g, "NCCL_NCHANNELS_PER_NET_PEER", &c.nChannelsPerNetPeer);
    return c;
}

/* What NCCL reads from the environment alone, each time that it makes a communicator. */
static const char *const by_environment[] = {"NCCL_ALGO", "NCCL_PROTO"};
enum { BY_ENVIRONMENT = sizeof(by_environment) / sizeof(*by_environment) };

struct environment {
    char *before[BY_ENVIRONMENT]; /* NULL = it was not there, or is not changed */
    bool changed[BY_ENVIRONMENT];
};

static void environment_enter(struct nccl_group *g, struct environment *e)
{
    pthread_mutex_lock(&g->home->environment);
    *e = (struct environment){0};
    for (int i = 0; i < BY_ENVIRONMENT; i++) {
        const char *value = option(g, by_environment[i]), *old = getenv(by_environment[i]);
        e->changed[i] = value != NULL;
        e->before[i] = value && old ? strdup(old) : NULL;
        if (value)
            setenv(by_environment[i], value, 1);
    }
}

static void environment_leave(struct nccl_group *g, struct environment *e)
{
    for (int i = 0; i < BY_ENVIRONMENT; i++) {
        if (e->before[i])
            setenv(by_environment[i], e->before[i], 1);
        else if (e->changed[i])
            unsetenv(by_environment[i]);
        free(e->before[i]);
    }
    pthread_mutex_unlock(&g->home->environment);
}

/* ---- forming ---- */

static int check_desc(const struct home *home, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    if (desc->ndevices == 0 || desc->ndevices > MOST_PORTS)
        return s->fail(s->ctx, COLLRUN_ERR_INVALID,
                       "%u GPUs per process; gpus_per_process of the group has to be 1 to %d",
                       desc->ndevices, MOST_PORTS);
    for (uint32_t i = 0; i < desc->ndevices; i++)
        if (desc->devices[i] < 0 || desc->devices[i] >= home->lib.device_count)
            return s->fail(s->ctx, COLLRUN_ERR_UNAVAILABLE,
                           "GPU %d is asked for, and this process sees %d", desc->devices[i],
                           home->lib.device_count);
    return COLLRUN_OK;
}

static int open_ports(struct nccl_group *g, const struct collrun_group_desc *desc)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nports; i++) {
        const int before = device_enter(g->home, desc->devices[i]);
        status = port_init(g, &g->ports[i], desc->devices[i]);
        device_leave(g->home, before);
    }
    return status;
}

static int share_id(struct nccl_group *g, const struct collrun_rendezvous *r, ncclUniqueId *id)
{
    size_t len = 0;
    int status = COLLRUN_OK;
    if (g->rank == 0) {
        const ncclResult_t result = g->home->lib.nccl.ncclGetUniqueId(id);
        if (result != ncclSuccess)
            return nccl_failed(g, NULL, result, "ncclGetUniqueId");
        status = r->put(r->ctx, "id", id, sizeof(*id));
    }
    if (status == COLLRUN_OK)
        status = r->fence(r->ctx); /* nobody waits in NCCL for a rank that has not come */
    return status == COLLRUN_OK ? r->get(r->ctx, "id", id, sizeof(*id), &len) : status;
}

static int init_communicators(struct nccl_group *g, ncclUniqueId id, uint64_t deadline_ns)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    struct nccl_config config = configure(g);
    ncclResult_t result = nccl->ncclGroupStart();
    for (uint32_t i = 0; result == ncclSuccess && i < g->nports; i++) {
        struct port *p = &g->ports[i];
        const int before = device_enter(g->home, p->ordinal);
        result = nccl->ncclCommInitRankConfig(&p->comm, (int)g->size, id,
                                              (int)(g->rank * g->nports + i), &config);
        if (result == ncclInProgress)
            result = ncclSuccess;
        device_leave(g->home, before);
    }
    const ncclResult_t end = nccl->ncclGroupEnd();
    if (result == ncclSuccess && end != ncclInProgress)
        result = end;
    if (result != ncclSuccess)
        return nccl_failed(g, g->ports[0].comm, result, "ncclCommInitRankConfig");
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nports; i++)
        status = await_ready(g, &g->ports[i], deadline_ns);
    return status;
}

static int make_communicators(struct nccl_group *g, ncclUniqueId id, uint64_t deadline_ns)
{
    struct environment e;
    bool any = false;
    for (int i = 0; i < BY_ENVIRONMENT; i++)
        any = any || option(g, by_environment[i]);
    if (!any)
        return init_communicators(g, id, deadline_ns); /* without a lock: peers may form groups in
                                                          another order */
    environment_enter(g, &e);
    const int status = init_communicators(g, id, deadline_ns);
    environment_leave(g, &e);
    return status;
}

/* One step of it, and until that has ended: nothing is put behind it, in whose way it might be. */
static int handshake(struct nccl_group *g, int (*step)(struct nccl_group *, struct flight *),
                     uint64_t deadline_ns)
{
    const uint64_t now = clock_ns();
    struct flight *f = flight_new(g, deadline_ns > now ? deadline_ns - now : 0);
    if (!f)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&g->lock);
    const int status = step(g, f);
    pthread_mutex_unlock(&g->lock);
    if (status != COLLRUN_OK)
        group_doom(g, status, "the communicator could not be connected");
    const int waited = flight_wait(f);
    return status != COLLRUN_OK ? status : waited;
}

/* What is fenced already is known here, so this waits for nobody. */
int forming_goes_on(struct nccl_group *g)
{
    const struct collrun_rendezvous *r = g->forming;
    ncclUniqueId id;
    size_t len = 0;
    if (!r || clock_ns() < g->asked_ns + ASKING_NS)
        return COLLRUN_OK;
    g->asked_ns = clock_ns();
    return r->get(r->ctx, "id", &id, sizeof(id), &len);
}

/* NCCL does not know whom it waits for. Who is not inside the fence either is named by it. */
static int call_the_roll(struct nccl_group *g, const struct collrun_rendezvous *r, double seconds)
{
    const int status = r->fence(r->ctx);
    if (status != COLLRUN_OK)
        return status;
    return g->services->fail(
        g->services->ctx, COLLRUN_ERR_TIMEOUT,
        "all ranks are there, and NCCL did not connect them within %.1f s; NCCL_DEBUG=INFO in "
        "env.set tells more, NCCL_SOCKET_IFNAME names the network that it is to use",
        seconds);
}

/* The handle for collectives has the desk; the one for messages, which comes later, uses it. */
static int open_desk(struct nccl_group *g, const struct collrun_group_desc *desc)
{
    if (desc->sibling)
        return mail_new(g);
    return g->rank == 0 && g->size > 1 ? invite_all(g, desc) : COLLRUN_OK;
}

static int go_to_desk(struct nccl_group *g, const struct collrun_group_desc *desc,
                      uint64_t deadline_ns)
{
    const struct nccl_group *first = desc->sibling;
    if (first) {
        g->desk_at = first->desk_at;
        return mail_dial(g, deadline_ns);
    }
    if (g->nranks == 1)
        g->tally.ready = UINT64_MAX; /* nobody else has to promise anything */
    if (g->size == 1)
        return COLLRUN_OK;
    const int status = invite_take(g, desc->rendezvous);
    return status == COLLRUN_OK ? tally_dial(g, deadline_ns) : status;
}

/* Of the time that is left, some is kept for the roll call. */
static int form(struct nccl_group *g, const struct collrun_group_desc *desc)
{
    const struct collrun_rendezvous *r = desc->rendezvous;
    const uint64_t begun = clock_ns();
    const uint64_t left = desc->deadline_ns > begun ? desc->deadline_ns - begun : 0;
    const uint64_t deadline = begun + left / 4 * 3;
    ncclUniqueId id;
    int status = open_desk(g, desc);
    if (status == COLLRUN_OK)
        status = share_id(g, r, &id);
    g->forming = r;
    if (status == COLLRUN_OK)
        status = go_to_desk(g, desc, deadline);
    if (status == COLLRUN_OK)
        status = make_communicators(g, id, deadline);
    if (status == COLLRUN_OK)
        status = handshake(g, issue_greetings, deadline);
    if (status == COLLRUN_OK)
        status = handshake(g, issue_roll, deadline);
    g->forming = NULL;
    atomic_store(&g->formed, status == COLLRUN_OK);
    return status == COLLRUN_ERR_TIMEOUT && clock_ns() >= deadline
               ? call_the_roll(g, r, (double)(clock_ns() - begun) / 1e9)
               : status;
}

int nccl_group_open(void *backend, const struct collrun_group_desc *desc, void **group)
{
    struct home *home = backend;
    const struct collrun_services *s = desc->services;
    int status = check_desc(home, desc);
    if (status != COLLRUN_OK)
        return status;
    struct nccl_group *g = group_new(home, desc);
    if (!g)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for the group");
    status = open_ports(g, desc);
    if (status == COLLRUN_OK)
        status = form(g, desc);
    if (status == COLLRUN_OK) {
        *group = g;
        return COLLRUN_OK;
    }
    group_doom(g, status, "the group could not be formed");
    nccl_group_close(g);
    return status;
}

/* ---- closing ---- */

/* Of the group's communicators, until each is idle or the time is up. True: all are. */
static bool settle(struct nccl_group *g, uint64_t deadline_ns)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    for (uint32_t i = 0; i < g->nports; i++) {
        ncclResult_t state = ncclInProgress;
        while (g->ports[i].comm &&
               nccl->ncclCommGetAsyncError(g->ports[i].comm, &state) == ncclSuccess &&
               state == ncclInProgress) {
            if (clock_ns() >= deadline_ns)
                return false;
            pause_ns(100000);
        }
    }
    return true;
}

/* Frees memory of the GPU, which waits until the GPU is idle: better when it is. */
static void await_landing(const struct nccl_group *g, uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < g->nports; i++)
        while (atomic_load(&g->ports[i].device->flying) && clock_ns() < deadline_ns)
            pause_ns(1000000);
}

static void end_communicators(struct nccl_group *g, ncclResult_t (*end)(ncclComm_t comm),
                              bool forget)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    nccl->ncclGroupStart();
    for (uint32_t i = 0; i < g->nports; i++) {
        if (g->ports[i].comm)
            end(g->ports[i].comm);
        if (forget)
            g->ports[i].comm = NULL;
    }
    nccl->ncclGroupEnd();
}

static void leave(struct nccl_group *g)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    const uint64_t deadline = clock_ns() + LEAVING_NS;
    if (!atomic_load(&g->fate)) {
        end_communicators(g, nccl->ncclCommFinalize, false);
        if (!settle(g, deadline))
            group_doom(g, COLLRUN_ERR_TIMEOUT, "the peers did not leave the group");
    }
    /* The aborter has it now, if it is doomed, and lets go of it. */
    pthread_mutex_lock(&g->home->lock);
    while (g->queued && !g->stopped)
        pthread_cond_wait(&g->home->changed, &g->home->lock);
    pthread_mutex_unlock(&g->home->lock);
    settle(g, deadline);
    await_landing(g, deadline);
    end_communicators(g, atomic_load(&g->fate) ? nccl->ncclCommAbort : nccl->ncclCommDestroy, true);
}

/* Of those that are being closed, the ones whose desk still serves others. */
static void count_serving(struct home *home, bool more)
{
    pthread_mutex_lock(&home->lock);
    home->serving += more ? 1 : 0;
    home->serving -= more ? 0 : 1;
    pthread_mutex_unlock(&home->lock);
}

static void *bury(void *group)
{
    struct nccl_group *g = group;
    struct home *home = g->home;
    const bool failed = atomic_load(&g->fate) != 0;
    leave(g);
    if (g->desk) {
        count_serving(home, true);
        desk_free(g->desk, failed);
        count_serving(home, false);
    }
    mail_free(g);
    group_free(g);
    pthread_mutex_lock(&home->lock);
    home->burials--;
    pthread_cond_broadcast(&home->changed);
    pthread_mutex_unlock(&home->lock);
    return NULL;
}

void nccl_group_close(void *group)
{
    struct nccl_group *g = group;
    pthread_t thread;
    pthread_mutex_lock(&g->home->lock);
    g->home->burials++;
    pthread_mutex_unlock(&g->home->lock);
    g->services = g->home->services; /* the group's own end with this call */
    tally_close(g);
    mail_close(g);
    if (pthread_create(&thread, NULL, bury, g) == 0)
        pthread_detach(thread);
    else
        bury(g);
}
