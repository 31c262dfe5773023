/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes at which the collectives change their algorithm. All ranks must decide alike, so that
 * they depend on counts and on the placement alone. Measured on loopback and on limited links; see
 * tests/bench.
 */
#ifndef NET_COLL_TUNING_H
#define NET_COLL_TUNING_H

/* Bytes up to which latency counts: trees and recursive doubling. Above it the number of bytes per
 * link counts. One eager message. */
#define TUNING_SHORT_BYTES (64u << 10)

/* A block of one owner in a piece of a reduction. Long enough that a grant's round trip is hidden
 * by the pieces in flight; short enough that all sources of a block stay in the cache. */
#define TUNING_BLOCK_MIN (64u << 10)
#define TUNING_BLOCK_MAX (256u << 10)
/* Between two ranks nothing is passed on, and each piece costs a grant, so that they are longer.
 * The sum of one overlaps with the next ones on the network. */
#define TUNING_BLOCK_MAX_OF_TWO_RANKS (512u << 10)
/* Pieces that an operation is cut into, at least, if they are not too short. Two hosts have one
 * connection, which is busy with fewer; two ranks have no local part to overlap with it either. */
#define TUNING_PIECES 32u
#define TUNING_PIECES_OF_TWO 16u
#define TUNING_PIECES_OF_TWO_RANKS 2u

/* A piece that travels along a chain of hosts. The chain is filled after (hosts - 2) pieces. No
 * eager message, so that a rank does not run ahead of those that receive. */
#define TUNING_CHAIN_MIN (128u << 10)
#define TUNING_CHAIN_MAX (256u << 10)

/* Pieces in flight on a chain. */
#define TUNING_CHAIN_DEPTH 16u

/* Messages of one rank that are in flight in an exchange of blocks. */
#define TUNING_MESSAGES 64u
/* Bytes of a rank's block for itself that it copies before it looks at the network. */
#define TUNING_OWN_BYTES (128u << 10)
/* Bytes that an alltoall in place copies before it sends them. */
#define TUNING_COPY_BYTES (1u << 20)

#endif
