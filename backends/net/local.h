/* SPDX-License-Identifier: Apache-2.0
 *
 * struct net_local: the members of a group on this host, as a group of the shm backend, whose
 * sources this backend contains. Ranks of a local group are those of net_hosts_local_rank.
 *
 * - A collective of the group runs as several calls on the local group and some on the network.
 *   Before the first, each rank writes the group's call into memory that the ranks of the host
 *   share, and after each it compares those of the others with it. So a MISMATCH shows the calls
 *   of the workload and ranks of the group, never those of the local group.
 * - A failure of the local group is returned like any other of net_coll_run. net_local_fail is the
 *   opposite direction: a failure of the network ends the calls of the other ranks of this host.
 * - A second handle of the group is a second one of the local group. p2p_local.h sends messages
 *   through its transport.
 */
#ifndef NET_LOCAL_H
#define NET_LOCAL_H

#include "hosts.h"
#include "shm/embed.h"

struct net_local;

/* Called by all members on this host, of which there are at least two. `hosts` is borrowed;
 * desc->p2p is for messages of the local group. `first`: NULL, or that of the group's first handle,
 * which is closed later. On failure the cause is stored. */
int net_local_open(const struct collrun_group_desc *desc, const struct net_hosts *hosts,
                   const struct net_local *first, struct net_local **local);
/* The other ranks of the host learn that this one has left the handle. */
void net_local_close(struct net_local *local);

/* The handle of the shm backend, and its transport. */
void *net_local_group(const struct net_local *local);
const struct collrun_transport *net_local_transport(void);

/* For a wait for messages of this host and of others at the same time; see shm/embed.h. The
 * embedder is valid until the handle is closed; its ranks are those of the local group. */
void net_local_set_embedder(struct net_local *local, const struct embedder *embedder);
uint64_t net_local_sleep_begin(struct net_local *local);
void net_local_sleep_end(struct net_local *local);

/* How many ranks of the host have left the handle, and whether one has. From any thread. */
uint32_t net_local_nleft(const struct net_local *local);
bool net_local_has_left(const struct net_local *local, uint32_t local_rank);

/* The group has failed: calls on the local group, of all its ranks, now and later, return this
 * status with this text. From any thread; does not block. Only the first one counts. */
void net_local_fail(struct net_local *local, int status, const char *text);

/* The text of the last call that has failed; "" if there is none. Only the thread of the group may
 * ask. */
const char *net_local_failure_text(const struct net_local *local);

/* Begins an operation of the group: `call` is the workload's, valid until the next begin. */
void net_local_begin(struct net_local *local, const struct collrun_call *call);

/* Runs one collective on the local group; fills in its size and time-out. Its ranks are those of
 * the local group. `waits_for_leader`: the time-out is a bit later, so that the leader, which
 * knows for whom it waits, is the first to report it. */
int net_local_run(struct net_local *local, struct collrun_call *call, bool waits_for_leader);

#endif
