/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts over UCX: one active message each, whose number is the token of the landing. UCX moves a
 * large one by its rendezvous, into the memory of the landing.
 */
#ifndef UCX_PUT_H
#define UCX_PUT_H

#include "state.h"

/* The active message handler. */
ucs_status_t put_arrived(void *link, const void *header, size_t header_len, void *data, size_t len,
                         const ucp_am_recv_param_t *param);

/* Upcalls for landings and puts that are complete. True if there was one. */
bool put_deliver_all(struct link *link);

#endif
