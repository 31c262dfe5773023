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
 */
#ifndef NET_LOCAL_H
#define NET_LOCAL_H

#include "hosts.h"

struct net_local;

/* Called by all members on this host, of which there are at least two. `hosts` is borrowed. On
 * failure the cause is stored. */
int net_local_open(const struct collrun_group_desc *desc, const struct net_hosts *hosts,
                   struct net_local **local);
void net_local_close(struct net_local *local);

/* The group has failed: calls on the local group, of all its ranks, now and later, return this
 * status with this text. From any thread; does not block. Only the first one counts. */
void net_local_fail(struct net_local *local, int status, const char *text);

/* Of the last call that has failed; "" if there is none. Only the thread of the group may ask. */
const char *net_local_failure_text(const struct net_local *local);

/* Begins an operation of the group: `call` is the workload's, valid until the next begin. */
void net_local_begin(struct net_local *local, const struct collrun_call *call);

/* Runs one collective on the local group; fills in its size and time-out. Its ranks are those of
 * the local group. `waits_for_leader`: the time-out is a bit later, so that the leader, which
 * knows for whom it waits, is the first to report it. */
int net_local_run(struct net_local *local, struct collrun_call *call, bool waits_for_leader);

#endif
