/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of a group: all kinds but messages, and scans, which the engine builds.
 * - Ranks of one host combine through shared memory (local.h), and one rank of each host, its
 *   leader, exchanges with the leaders of the other hosts (op.h). The leader of the root's host is
 *   the root. Blocks that differ from pair to pair of ranks, as in alltoall, are sent from rank to
 *   rank between hosts.
 * - Long operations are cut into pieces, and several are in flight: one in shared memory, others on
 *   the network.
 * - Reductions have the same bits on all ranks, since one rank combines each element, or all
 *   combine the same partial results in the same order. Half precision is rounded once.
 *
 * Failure modes: those of op.h and local.h, of which the group has then failed.
 */
#ifndef NET_COLL_NET_COLL_H
#define NET_COLL_NET_COLL_H

#include "local.h"
#include "op.h"

struct net_coll;

/* What net_coll_run executes, and the messages of net/p2p: `native` of a backend. */
extern const struct collrun_capability net_coll_native[];
/* Its option `local`: an entry of the table of options. */
#define NET_COLL_OPTION_LOCAL                                                                      \
    {                                                                                              \
        .name = "local", .type = COLLRUN_PARAM_ENUM, .def = "shm", .choices = "shm|tcp",           \
        .help = "how ranks of one host exchange data: by shared memory, or by the network"         \
    }

/* Called by all members inside group_open. On failure the cause is stored. */
int net_coll_open(const struct collrun_group_desc *desc, struct net_coll **coll);
/* No call is inside. NULL-safe. */
void net_coll_close(struct net_coll *coll);
/* Which members share a host; and those of this one, NULL if there is no other. */
const struct net_hosts *net_coll_hosts(const struct net_coll *coll);
struct net_local *net_coll_local(const struct net_coll *coll);

/* The group has failed: a call that waits for ranks of this host returns this status with this
 * text, on all of them. From any thread; does not block. */
void net_coll_fail(struct net_coll *coll, int status, const char *text);

/* The text of the last call that has failed among the ranks of this host; "" if there is none. */
const char *net_coll_failure_text(const struct net_coll *coll);

/* Runs the operation. OK, or a failure of the group, whose cause is stored: the caller makes the
 * other members fail. */
int net_coll_run(struct net_coll *coll, struct net_op *op);

#endif
