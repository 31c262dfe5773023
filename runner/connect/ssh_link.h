/* SPDX-License-Identifier: Apache-2.0
 *
 * One SSH connection, and the pool of all of them. Only three files see libssh and these structs:
 *
 *   ssh_connect.c    from the SSH configuration to a shell (in the link's thread)
 *   ssh_relay.c      bytes in both directions (in the link's thread); and what that thread and the
 *                    runner share, under the lock of the pool
 *   transport_ssh.c  the pool and its threads
 */
#ifndef RUNNER_CONNECT_SSH_LINK_H
#define RUNNER_CONNECT_SSH_LINK_H

#include "connect/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

enum { SSH_ERR_TAIL = 400 };

struct ssh_pool {
    pthread_mutex_t lock;
    pthread_cond_t slot_given, thread_ended;
    unsigned slots; /* how many more links may connect at the same time */
    unsigned threads;
    bool ending;
    int cancel_fd; /* an eventfd; readable once the pool ends */
    enum job_known_hosts known_hosts;
    char *identity, *config; /* absolute; NULL: not given */
    char *local_user;        /* the user who runs collrun */
    uint64_t timeout_ns;
    unsigned retries;
    pthread_mutex_t known_hosts_lock; /* around additions to the file */
    struct ssh_link *links;
};

struct ssh_link {
    struct ssh_pool *pool;
    struct ssh_link *next;
    const struct job_host *host;
    const char *state; /* "connecting"; NULL: connected */
    pthread_t thread;
    bool ended;            /* its thread is about to return */
    int fd;                /* the thread's end of the stream */
    _Atomic bool relaying; /* what was read from fd may not be sent yet */
    int socket;            /* of the connection while the link connects; -1 */
    bool failed;
    struct diag why;
    /* used by the thread only */
    ssh_session session;
    ssh_channel channel;
    struct ssh_callbacks_struct session_callbacks;
    struct ssh_channel_callbacks_struct callbacks;
    char *name, *user, *port, *proxy; /* of the host, by the SSH configuration and job.yaml */
    int exit_status;                  /* of the remote shell or agent; -1: not known */
    char signal[16];
    char err[SSH_ERR_TAIL];
    size_t err_len;
};

/* ---- ssh_connect.c ---- */

/* Connects to a running shell; retries if the error may be transient. */
int ssh_connect_shell(struct ssh_link *l, struct diag *d);
void ssh_connect_close(struct ssh_link *l);

/* ---- ssh_relay.c ---- */

void ssh_link_set_state(struct ssh_link *l, const char *state);
/* Records the socket, so that ssh_pool_free can shut it down; -1: none. False: the pool is ending.
 */
bool ssh_link_set_socket(struct ssh_link *l, int fd);
bool ssh_link_is_ending(struct ssh_link *l);

/* Relays bytes until the runner closes its end, or the remote side ends: then *d is the reason. */
void ssh_relay_run(struct ssh_link *l, struct diag *d);
/* All that the runner has written is sent. For the runner, while the thread runs. */
bool ssh_relay_is_idle(struct ssh_link *l);

#endif
