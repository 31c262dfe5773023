/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of SSH links. Each link has its own thread, in which its libssh session stays.
 *
 *  - The thread connects (at most ssh.parallel at once), then relays bytes; the runner has the
 *    stream from the beginning.
 *  - The runner closes its end: the thread gives the remote side a moment to finish.
 *  - The connection fails: the thread records why, then closes its end of the stream.
 *  - ssh_pool_free shuts down the sockets of links that still connect. A thread that is blocked in
 *    the resolver is left behind, and so is the pool.
 */
#include "connect/ssh_link.h"

#include "base/loop.h"
#include "base/thread.h"
#include "xalloc.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { THREAD_STACK = 512 << 10 };

const char *transport_ssh_state(struct ssh_link *l)
{
    pthread_mutex_lock(&l->pool->lock);
    const char *state = l->state;
    pthread_mutex_unlock(&l->pool->lock);
    return state;
}

bool transport_ssh_why(struct ssh_link *l, struct diag *d)
{
    pthread_mutex_lock(&l->pool->lock);
    bool failed = l->failed;
    if (failed)
        *d = l->why;
    pthread_mutex_unlock(&l->pool->lock);
    return failed;
}

/* ---- threads ---- */

static bool ssh_pool_acquire_slot(struct ssh_pool *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->slots && !p->ending)
        pthread_cond_wait(&p->slot_given, &p->lock);
    bool good = !p->ending;
    p->slots -= good;
    pthread_mutex_unlock(&p->lock);
    return good;
}

static void ssh_pool_give_slot(struct ssh_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->slots++;
    pthread_cond_signal(&p->slot_given);
    pthread_mutex_unlock(&p->lock);
}

static void *ssh_pool_thread(void *arg)
{
    struct ssh_link *l = arg;
    struct ssh_pool *p = l->pool;
    struct diag d;
    diag_init(&d);
    if (ssh_pool_acquire_slot(p)) {
        int rc = ssh_connect_shell(l, &d);
        ssh_pool_give_slot(p);
        if (rc == COLLRUN_OK)
            ssh_relay_run(l, &d);
        ssh_link_set_socket(l, -1);
        ssh_connect_close(l);
    }
    pthread_mutex_lock(&p->lock);
    l->failed = d.code != COLLRUN_OK;
    l->why = d;
    close(l->fd);
    l->ended = true;
    p->threads--;
    pthread_cond_signal(&p->thread_ended); /* for ssh_pool_free */
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int transport_ssh_open(struct ssh_pool *p, const struct job_host *host,
                       struct transport_stream *out, struct diag *d)
{
    int pair[2];
    struct ssh_link *l = xcalloc(1, sizeof *l);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        free(l);
        return diag_sys(d, errno, "cannot create the socket pair of an SSH connection");
    }
    *l = (struct ssh_link){.pool = p,
                           .host = host,
                           .state = "waiting for a connection slot (ssh.parallel)",
                           .fd = pair[1],
                           .socket = -1,
                           .exit_status = -1};
    pthread_mutex_lock(&p->lock);
    int err = thread_start(&l->thread, THREAD_STACK, ssh_pool_thread, l);
    if (!err) {
        l->next = p->links;
        p->links = l;
        p->threads++;
    }
    pthread_mutex_unlock(&p->lock);
    if (err) {
        close(pair[0]);
        close(pair[1]);
        free(l);
        return diag_sys(d, err, "cannot start a thread for an SSH connection");
    }
    *out =
        (struct transport_stream){.read_fd = pair[0], .write_fd = pair[0], .err_fd = -1, .ssh = l};
    return COLLRUN_OK;
}

void transport_ssh_drain(struct ssh_link *l, uint64_t deadline_ns)
{
    bool sent = false;
    while (!sent && now_ns() < deadline_ns) {
        pthread_mutex_lock(&l->pool->lock);
        sent = l->ended || l->state || ssh_relay_is_idle(l);
        pthread_mutex_unlock(&l->pool->lock);
        if (!sent)
            usleep(1000);
    }
}

/* ---- the pool ---- */

/* Paths are relative to the job file. The file must exist. */
static int ssh_pool_resolve_path(const struct job *job, const struct job_str *path, const char *key,
                                 char **out, struct diag *d)
{
    if (!path->v)
        return COLLRUN_OK;
    *out = path->v[0] == '/' ? xstrdup(path->v) : xasprintf("%s/%s", job->dir, path->v);
    if (access(*out, R_OK) == 0)
        return COLLRUN_OK;
    diag_sys(d, errno, "%s: %s", key, *out);
    d->loc = path->loc;
    return d->code;
}

static void ssh_pool_release(struct ssh_pool *p)
{
    for (struct ssh_link *l = p->links, *next; l; l = next) {
        next = l->next;
        free(l->name);
        free(l->user);
        free(l->port);
        free(l->proxy);
        free(l);
    }
    close(p->cancel_fd);
    free(p->identity);
    free(p->config);
    free(p->local_user);
    pthread_cond_destroy(&p->slot_given);
    pthread_cond_destroy(&p->thread_ended);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->known_hosts_lock);
    free(p);
}

struct ssh_pool *ssh_pool_new(const struct job *job, struct diag *d)
{
    struct ssh_pool *p = xcalloc(1, sizeof *p);
    pthread_condattr_t monotonic;
    const struct job_ssh *ssh = &job->ssh;
    p->cancel_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->known_hosts_lock, NULL);
    pthread_cond_init(&p->slot_given, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->thread_ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    p->slots = (unsigned)ssh->parallel.v;
    p->known_hosts = (enum job_known_hosts)ssh->known_hosts.v;
    p->timeout_ns = (uint64_t)ssh->connect_timeout.v;
    p->retries = (unsigned)ssh->retries.v;
    struct passwd *me = getpwuid(geteuid());
    p->local_user = xstrdup(me ? me->pw_name : "root");
    int rc = p->cancel_fd < 0 ? diag_sys(d, errno, "cannot create an eventfd") : COLLRUN_OK;
    if (rc == COLLRUN_OK)
        rc = ssh_pool_resolve_path(job, &ssh->identity, "ssh.identity", &p->identity, d);
    if (rc == COLLRUN_OK)
        rc = ssh_pool_resolve_path(job, &ssh->config, "ssh.config", &p->config, d);
    if (rc == COLLRUN_OK)
        return p;
    ssh_pool_release(p);
    return NULL;
}

void ssh_pool_free(struct ssh_pool *p)
{
    struct timespec until;
    if (!p)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 1;
    /* Links whose stream is closed are given a second to finish; then the others are shut down. */
    pthread_mutex_lock(&p->lock);
    while (p->threads && pthread_cond_timedwait(&p->thread_ended, &p->lock, &until) == 0)
        ;
    p->ending = true;
    for (struct ssh_link *l = p->links; l; l = l->next) {
        if (l->socket >= 0)
            shutdown(l->socket, SHUT_RDWR);
    }
    pthread_cond_broadcast(&p->slot_given);
    if (eventfd_write(p->cancel_fd, 1) < 0)
        p->ending = true;
    until.tv_sec += 1;
    while (p->threads && pthread_cond_timedwait(&p->thread_ended, &p->lock, &until) == 0)
        ;
    bool all = !p->threads;
    /* libcrypto frees its data of a thread as the thread ends, which must not run beside exit(). */
    for (struct ssh_link *l = p->links; l; l = l->next) {
        if (l->ended)
            pthread_join(l->thread, NULL);
    }
    pthread_mutex_unlock(&p->lock);
    if (all)
        ssh_pool_release(p);
}
