/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for the link (backends/net/link.h) of rank 0, which delivers what a test says, one
 * upcall in each progress, and keeps what it was asked for. Other ranks of this process may have
 * one, too: theirs delivers nothing, and keeps nothing.
 */
#ifndef TESTS_UNIT_SCRIPTED_LINK_H
#define TESTS_UNIT_SCRIPTED_LINK_H

#include "packet.h"

enum { SCRIPTED_RANKS = 3, SCRIPTED_SENT = 16 };

struct link_peer {
    void *cookie;
};

struct link {
    struct link_upcalls upcalls;
    int rouse_fd;
    struct link_peer peers[SCRIPTED_RANKS]; /* by rank in the job */
};

/* Zero when the link is opened. */
extern struct scripted {
    struct link link;
    void (*const *next)(void);    /* what it delivers; ends with NULL */
    struct link_landing *landing; /* the last one */
    struct link_put *put;
    struct packet sent[SCRIPTED_SENT];
    uint32_t to[SCRIPTED_SENT];
    unsigned nsent, nwaits, ntaken; /* how often link_send, link_wait and link_take were called */
} scripted;

#endif
