/* SPDX-License-Identifier: Apache-2.0
 *
 * struct coord_client: a rank's connection to the coordinator of its group. The group's handle for
 * collectives owns it; the handle for messages, which is opened later and closed earlier, uses it
 * as well. Its lock makes that safe.
 */
#ifndef NCCL_COORD_CLIENT_H
#define NCCL_COORD_CLIENT_H

#include "frame.h"

#include <collrun/backend.h>
#include <stdbool.h>
#include <sys/socket.h>

struct coord_client;

struct coord_addr { /* what rank 0 publishes among the members */
    struct sockaddr_storage address;
    uint32_t len, reserved;
    uint64_t secret;
};

/* Listens on an address of this host. Fills in *out; *fd is the caller's to close. */
int coord_listen(const struct collrun_services *s, const char *address, struct coord_addr *out,
                 int *fd);
/* Connects to the coordinator by the deadline and sends HELLO. */
int coord_connect(const struct collrun_services *s, const struct coord_addr *to, uint32_t rank,
                  uint64_t deadline_ns, struct coord_client **out);
void coord_client_close(struct coord_client *c); /* disconnects; NULL is OK */
void coord_client_free(struct coord_client *c);

/* None of the following blocks. A lost connection is reported by coord_poll alone; without it the
 * count that all ranks have committed to no longer rises, and nothing is matched. */

/* Reports how many collectives this rank has committed to. Returns how many all ranks have. */
uint64_t coord_commit(struct coord_client *c, uint64_t committed);
/* Queues WANT. False: the coordinator is slow to read, try again later. */
bool coord_want(struct coord_client *c, const struct coord_want *want);
/* Sends the cuts of this rank's next batch. False: the coordinator is slow to read, try again
 * later. */
bool coord_send_cuts(struct coord_client *c, uint64_t cuts);
/* The joined cuts, if coord_poll has received them. */
bool coord_next_cuts(struct coord_client *c, uint64_t *out);
/* Queues a request. False: the coordinator is slow to read, try again later. */
bool coord_request_match(struct coord_client *c, const struct coord_match_req *req);
/* Sends what is queued, receives what has arrived. Returns 0, an errno, or ECONNRESET if the
 * coordinator has hung up: the connection is lost. */
int coord_poll(struct coord_client *c);
/* The next reply that has been received; false: none. */
bool coord_next_match(struct coord_client *c, struct coord_match_rep *out);
/* Asks a question, and waits for its answer until `deadline_ns` on CLOCK_MONOTONIC. The coordinator
 * answers at once. False: the connection is lost, or there was no answer in time. One thread at a
 * time. */
bool coord_ask(struct coord_client *c, enum coord_frame_type type,
               const struct coord_question *questions, uint32_t n, uint64_t deadline_ns,
               struct coord_answer *out);
/* Waits until something arrives, at most `ns` nanoseconds. */
void coord_wait(struct coord_client *c, uint64_t ns);

#endif
