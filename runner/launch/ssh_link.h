/* SPDX-License-Identifier: Apache-2.0
 *
 * One SSH connection, shared by the three files that make it up: transport_ssh.c (the pool and the
 * threads), ssh_connect.c (from the configuration to a shell), ssh_relay.c (bytes). They alone see
 * libssh. The connect and relay functions run in the link's own thread, in which its libssh session
 * stays.
 */
#ifndef LAUNCH_SSH_LINK_H
#define LAUNCH_SSH_LINK_H

#include "launch/transport.h"

#include <pthread.h>

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

enum { SSH_ERR_TAIL = 400 };

struct ssh_pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned slots; /* how many may still begin to connect */
    unsigned threads;
    bool ending;
    int cancel_fd; /* an eventfd; readable once the pool ends */
    enum job_known_hosts known_hosts;
    char *identity, *config; /* absolute; NULL: not given */
    char *me;                /* the user that runs collrun */
    uint64_t timeout_ns;
    unsigned retries;
    pthread_mutex_t known_hosts_lock; /* around additions to the file */
    struct ssh_link *links;
};

struct ssh_link {
    struct ssh_pool *pool;
    struct ssh_link *next;
    const struct job_host *host;
    const char *phase;
    pthread_t thread;
    bool ended; /* it has nothing left to do */
    int fd;     /* the thread's end of the stream */
    int socket; /* of the connection while it is made; -1 */
    bool failed;
    struct diag why;
    /* of the thread alone */
    ssh_session session;
    ssh_channel channel;
    struct ssh_channel_callbacks_struct callbacks;
    char *name, *user, *port, *proxy; /* what the configuration makes of the host */
    int exit_status;                  /* of the remote shell or agent; -1: not known */
    char signal[16];
    char err[SSH_ERR_TAIL];
    size_t err_len;
};

/* ---- transport_ssh.c ---- */

void ssh_link_set_phase(struct ssh_link *l, const char *phase);
/* Puts down the socket, for ssh_pool_free to shut; -1: none. False: the pool is ending. */
bool ssh_link_publish(struct ssh_link *l, int fd);
bool ssh_link_is_ending(struct ssh_link *l);

/* ---- ssh_connect.c ---- */

/* To a running shell, trying again where that may help. */
int ssh_link_connect(struct ssh_link *l, struct diag *d);
void ssh_link_disconnect(struct ssh_link *l);

/* ---- ssh_relay.c ---- */

/* Carries bytes until the runner closes its end, or the far side ends: then *d says how. */
void ssh_link_relay(struct ssh_link *l, struct diag *d);

#endif
