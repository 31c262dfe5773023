/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of the link over UCX, and its progress.
 *
 * - UCX's worker is armed after some progress in which nothing has moved: arming costs system
 *   calls. link_wait returns at once until then, so a caller that polls and then waits just polls.
 * - When another thread moves something meanwhile, the thread in link_wait is woken, since the
 *   worker has to be armed again.
 * - Connections need no listener of this process: UCX accepts them in its progress.
 */
#include "library.h"
#include "packet.h"
#include "peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LINK_IDLE_BEFORE_ARMING 16u
#define LINK_STEPS 32u /* of UCX in one link_progress */
#define LINK_OUTPUT_WAIT_NS 1000000u
#define LINK_CLOSE_NS 2000000000u
#define LINK_SHM_BYTES (8u << 20) /* of a worker of UCX 1.13 to 1.20: up to 5 MiB */

/* UCX keeps its queues for other processes of the host in /dev/shm, and does not name it. */
static bool link_lacks_shm(ucs_status_t status)
{
    struct statvfs fs;
    return (status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE) &&
           statvfs("/dev/shm", &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_bsize < LINK_SHM_BYTES;
}

static int link_fail(struct link *link, const char *what, ucs_status_t status)
{
    const struct collrun_services *s = link->services;
    return s->fail(
        s->ctx, COLLRUN_ERR_BACKEND, "UCX: %s: %s%s", what, link->ucx.ucs_status_string(status),
        link_lacks_shm(status) ? "; /dev/shm is full: UCX needs some MiB of it per rank" : "");
}

/* UCX has one worker for all groups, which is opened with the options of the first one. */
void link_add_group(struct link *link, const struct collrun_services *options)
{
    (void)link;
    (void)options;
}

/* An option of UCX's tcp. UCX 1.13 knows an option of a transport by its own name, and ignores what
 * it does not know; 1.20 puts the transport first, and refuses. */
static ucs_status_t link_set_tcp(const struct link *link, ucp_config_t *config, const char *name,
                                 const char *value)
{
    char full[32];
    snprintf(full, sizeof full, "TCP_%s", name);
    link->ucx.ucp_config_modify(config, name, value);
    return link->ucx.ucp_config_modify(config, full, value);
}

/* network.ports, for its sockets; and no connect() blocks, which over a network that is cut takes
 * minutes with the lock of the endpoint, so that no time-out of a group would end an operation. */
static ucs_status_t link_configure_tcp(const struct link *link, ucp_config_t *config,
                                       const struct link_config *ports)
{
    char range[32];
    const ucs_status_t status = link_set_tcp(link, config, "CONN_NB", "y");
    if (status != UCS_OK || !ports->first_port)
        return status;
    snprintf(range, sizeof range, "%u-%u", ports->first_port, ports->last_port);
    return link_set_tcp(link, config, "PORT_RANGE", range);
}

static ucs_status_t link_configure(const struct link *link, ucp_config_t *ucx,
                                   const struct link_config *config)
{
    char devices[1024];
    const struct collrun_services *s = config->options;
    const char *transports = s->option(s->ctx, "transports");
    devices_choose(s->option(s->ctx, "devices"), config->interface, devices, sizeof devices);
    ucs_status_t status = link->ucx.ucp_config_modify(ucx, "NET_DEVICES", devices);
    if (status == UCS_OK)
        status = link->ucx.ucp_config_modify(ucx, "KEEPALIVE_INTERVAL", "5s");
    if (status == UCS_OK && transports)
        status = link->ucx.ucp_config_modify(ucx, "TLS", transports);
    if (status == UCS_OK)
        status = link_configure_tcp(link, ucx, config);
    return status;
}

static int link_open_context(struct link *link, const struct link_config *config)
{
    ucp_config_t *ucx;
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
    };
    ucs_status_t status = link->ucx.ucp_config_read(NULL, NULL, &ucx);
    if (status != UCS_OK)
        return link_fail(link, "read its configuration", status);
    status = link_configure(link, ucx, config);
    if (status != UCS_OK) {
        link->ucx.ucp_config_release(ucx);
        return link_fail(link, "set its configuration", status);
    }
    status = link->ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, ucx, &link->context);
    link->ucx.ucp_config_release(ucx);
    return status == UCS_OK ? COLLRUN_OK : link_fail(link, "open a context", status);
}

static int link_set_handler(struct link *link, unsigned id, ucp_am_recv_callback_t cb)
{
    const ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = id,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = cb,
        .arg = link,
    };
    const ucs_status_t status = link->ucx.ucp_worker_set_am_recv_handler(link->worker, &param);
    return status == UCS_OK ? COLLRUN_OK : link_fail(link, "set a handler", status);
}

static int link_open_worker(struct link *link)
{
    const struct collrun_services *s = link->services;
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
    };
    ucp_worker_attr_t attr = {
        .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER,
    };
    ucs_status_t status = link->ucx.ucp_worker_create(link->context, &params, &link->worker);
    if (status != UCS_OK)
        return link_fail(link, "open a worker", status);
    status = link->ucx.ucp_worker_query(link->worker, &attr);
    if (status != UCS_OK)
        return link_fail(link, "query the worker", status);
    link->address = attr.address;
    link->address_len = attr.address_length;
    COLLRUN_DEBUG(s, LINK, "a worker of UCX on %s has an address of %zu bytes, and headers of %zu",
                  link->host, attr.address_length, attr.max_am_header);
    if (link->address_len + UCX_CARD_LEN > LINK_ADDRESS_MAX)
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND,
                       "the address of UCX has %zu bytes, at most %u are possible; name fewer "
                       "devices in the option \"devices\"",
                       link->address_len, LINK_ADDRESS_MAX - UCX_CARD_LEN);
    if (attr.max_am_header < sizeof(struct ucx_head))
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND,
                       "UCX sends headers of %zu bytes over these devices; %zu are needed",
                       attr.max_am_header, sizeof(struct ucx_head));
    status = link->ucx.ucp_worker_get_efd(link->worker, &link->worker_fd);
    if (status != UCS_OK)
        return link_fail(link, "get the descriptor of its events", status);
    const int set = link_set_handler(link, UCX_AM_PACKET, packet_arrived);
    return set == COLLRUN_OK ? link_set_handler(link, UCX_AM_PUT, put_arrived) : set;
}

static int link_open_rest(struct link *link, const struct link_config *config)
{
    char why[256];
    const struct collrun_services *s = link->services;
    link->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    link->rouse_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->wake_fd < 0 || link->rouse_fd < 0)
        return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "make a descriptor for events: %s",
                       strerror(errno));
    if (getrandom(link->secret, sizeof link->secret, 0) != (ssize_t)sizeof link->secret ||
        getrandom(&link->landings, 4, 0) != 4)
        return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "get random bytes: %s", strerror(errno));
    if (library_load(&link->ucx, why, sizeof why) != 0)
        return s->fail(s->ctx, COLLRUN_ERR_UNAVAILABLE, "%s", why);
    const int status = link_open_context(link, config);
    return status == COLLRUN_OK ? link_open_worker(link) : status;
}

int link_open(const struct link_config *config, struct link **out)
{
    const struct collrun_services *s = config->services;
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for the link");
    link->services = s;
    link->upcalls = config->upcalls;
    link->world_rank = config->world_rank;
    snprintf(link->host, sizeof link->host, "%s", config->address ? config->address : "");
    link->worker_fd = link->wake_fd = link->rouse_fd = -1;
    const int status = link_open_rest(link, config);
    if (status != COLLRUN_OK)
        link_close(link);
    else
        *out = link;
    return status;
}

/* Closes the endpoints, for a bounded time. */
static void link_close_peers(struct link *link, uint64_t until_ns)
{
    uint32_t n = 0;
    for (struct link_peer *p = link->peers; p; p = p->next)
        if (p->ep && !p->lost) {
            packet_send_leave(p);
            n++;
        }
    while (link->in_flight > 0 && peer_now_ns(link) < until_ns)
        link->ucx.ucp_worker_progress(link->worker);
    void **requests = calloc(n ? n : 1, sizeof *requests);
    n = 0;
    for (struct link_peer *p = link->peers; p; p = p->next) {
        if (p->ep && !p->lost && requests)
            requests[n++] = peer_close_ep(p, 0);
        else
            peer_cut(p);
    }
    for (uint32_t i = 0; i < n; i++)
        peer_end(link, requests[i], until_ns);
    free(requests);
}

/* What UCX sends without a call, such as the reply to a peer that connects now, has left. UCX 1.13
 * aborts the process if its worker is destroyed before. False: not in time. */
static bool link_flush(struct link *link, uint64_t until_ns)
{
    const ucp_request_param_t none = {.op_attr_mask = 0};
    void *request = NULL;
    do {
        peer_end(link, request, until_ns);
        request = link->ucx.ucp_worker_flush_nbx(link->worker, &none);
    } while (UCS_PTR_IS_PTR(request) && peer_now_ns(link) < until_ns);
    if (!UCS_PTR_IS_PTR(request))
        return true;
    link->ucx.ucp_request_free(request);
    return false;
}

static void link_free_peers(struct link *link)
{
    while (link->peers) {
        struct link_peer *p = link->peers;
        link->peers = p->next;
        packet_drop_all(p);
        free(p->address);
        free(p);
    }
}

void link_close(struct link *link)
{
    const uint64_t until_ns = peer_now_ns(link) + LINK_CLOSE_NS;
    link_close_peers(link, until_ns);
    if (link->worker && !link_flush(link, until_ns))
        return; /* until the process ends */
    if (link->address)
        link->ucx.ucp_worker_release_address(link->worker, link->address);
    if (link->worker)
        link->ucx.ucp_worker_destroy(link->worker); /* it may call back for what is in flight */
    link_free_peers(link);
    if (link->context)
        link->ucx.ucp_cleanup(link->context);
    if (link->wake_fd >= 0)
        close(link->wake_fd);
    if (link->rouse_fd >= 0)
        close(link->rouse_fd);
    free(link->slots);
    free(link);
}

/* ---- progress ---- */

/* Nothing has moved for a while. True if something may have moved meanwhile. */
static bool link_arm(struct link *link)
{
    if (link->armed)
        return false;
    const ucs_status_t status = link->ucx.ucp_worker_arm(link->worker);
    link->armed = status == UCS_OK;
    return status == UCS_ERR_BUSY;
}

static void link_disarm(struct link *link)
{
    link->idle = 0;
    if (!link->armed)
        return;
    link->armed = false;
    if (link->waits)
        link_wake(link);
}

bool link_progress(struct link *link)
{
    bool moved = false;
    /* A packet is delivered before UCX looks for the next one, which costs a system call. */
    link->has_packets = false;
    for (uint32_t n = 0;
         n < LINK_STEPS && !link->has_packets && link->ucx.ucp_worker_progress(link->worker) > 0;
         n++)
        moved = true;
    const bool packets = packet_deliver_all(link), puts = put_deliver_all(link);
    if (peer_report_losses(link) || packets || puts || moved) {
        link_disarm(link);
        return true;
    }
    return ++link->idle > LINK_IDLE_BEFORE_ARMING && link_arm(link);
}

bool link_pending(const struct link *link)
{
    return link->in_flight > 0;
}

static void link_drain(int fd)
{
    eventfd_t ignored;
    eventfd_read(fd, &ignored);
}

static void link_poll(struct pollfd *fds, nfds_t n, uint64_t timeout_ns)
{
    const struct timespec timeout = {(time_t)(timeout_ns / 1000000000u),
                                     (long)(timeout_ns % 1000000000u)};
    ppoll(fds, n, &timeout, NULL);
}

void link_prepare_wait(struct link *link)
{
    (void)link; /* link_progress arms the worker */
}

void link_wait(struct link *link, uint64_t timeout_ns)
{
    struct pollfd fds[] = {{.fd = link->worker_fd, .events = POLLIN},
                           {.fd = link->wake_fd, .events = POLLIN}};
    link->waits = true;
    if (link->armed)
        link_poll(fds, 2, timeout_ns);
    link->waits = false;
    if (fds[1].revents)
        link_drain(link->wake_fd);
}

void link_wake(struct link *link)
{
    eventfd_write(link->wake_fd, 1);
}

bool link_accept(struct link *link)
{
    return silence_check(link);
}

void link_serve(struct link *link, bool output)
{
    struct pollfd fds[] = {{.fd = link->rouse_fd, .events = POLLIN}};
    if (output)
        link_poll(fds, 1, LINK_OUTPUT_WAIT_NS); /* UCX has no event for room in its queues */
    else
        poll(fds, 1, SILENCE_TICK_MS);
    if (fds[0].revents)
        link_drain(link->rouse_fd);
}

void link_rouse(struct link *link)
{
    eventfd_write(link->rouse_fd, 1);
}
