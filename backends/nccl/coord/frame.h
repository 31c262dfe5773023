/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank and the group's coordinator send each other: frames of one length, over one TCP
 * connection per rank, in the byte order of the hosts.
 *
 *   rank                             coordinator (in the process of the group's rank 0)
 *    | HELLO secret, rank             |   first; without the secret it closes the connection
 *    | MATCH_REQ id, peer, tag, ...   |   a send or a receive that the rank would launch
 *    |             MATCH_REP id, peer |   both ends are known; in one order on all ranks
 *    | PROBE peer, tag                |   which message a receive would get
 *    | WITHDRAW id, more              |   receives are to be withdrawn, all of them or none
 *    |                         ANSWER |   to PROBE, and to the WITHDRAW without `more`
 *    | COMMIT count                   |   the number of collectives that it will launch
 *    |                    READY count |   the number that all ranks committed to
 *    | CUTS cuts                      |   of a batch: which calls begin another NCCL group
 *    |                      CUTS cuts |   those of any rank, when all have sent theirs
 *    | WANT handle                    |   the rank needs its communicators
 *
 * All MATCH_REP frames of one round form an epoch: every process launches its part of an epoch as
 * one NCCL group. The last frame that a process gets of it has `ends_epoch`.
 *
 * A direct message (direct.h) is on the GPU already when its MATCH_REQ is sent. Its `id` is that of
 * the direction at this rank, and it is in no epoch; the reply says that the other end is on its
 * GPU, too, and what it is.
 *
 * The communicators of a handle are formed when the first rank needs them: it sends WANT, or a
 * message with elements. Each rank has a thread for this, with a second connection, whose HELLO has
 * `forms` (on_demand.c). All frames on it are FORM frames:
 *
 *   rank                             coordinator
 *    |                        MAKE_ID |   to rank 0
 *    | ID, four parts                 |   of rank 0
 *    |                 ID, four parts |   to all
 *    | MADE                           |   NCCL has made the rank's communicators
 *    |                           LOCK |   when all have: to one rank after the other, by world rank
 *    | LOCKED                         |   the rank issues nothing else on the group's GPUs
 *    |                        CONNECT |   when all have: to all
 *    | CONNECTED                      |   each GPU has exchanged a message with each other one
 *    |                            END |   when all have: to all
 *    | FAILED                  FAILED |   instead of any of these
 *
 * The same steps form the communicator of the direct messages from one GPU to another. Then "all"
 * are the two ranks of these GPUs, or the one that has both, and the first of them, which makes the
 * id, is the sender's.
 *
 * NCCL frees memory when communicators are closed, which waits until the GPU is idle, and nothing
 * can be launched on it meanwhile. So all ranks close theirs at one time, at which none of their
 * GPUs has anything to do:
 *
 *   rank                             coordinator
 *    | READY                          |   it has closed the group, and its GPUs are idle
 *    |                           LOCK |   when all are ready: to all
 *    | LOCKED, or BUSY                |   BUSY: they are not idle any more; READY comes again
 *    |                CLOSE or UNLOCK |   when all have replied: to all; UNLOCK if one was busy
 *    |                            END |   all have closed the group: no rank wants anything any
 * more |                         FAILED |   a rank has gone: the others close without it
 */
#ifndef NCCL_COORD_FRAME_H
#define NCCL_COORD_FRAME_H

#include <stdint.h>

enum coord_frame_type {
    COORD_HELLO = 1,
    COORD_MATCH_REQ,
    COORD_MATCH_REP,
    COORD_PROBE,
    COORD_WITHDRAW,
    COORD_ANSWER,
    COORD_COMMIT,
    COORD_READY,
    COORD_CUTS,
    COORD_WANT,
    COORD_FORM
};

/* What has communicators: the two handles of a group in each process, and each direction of direct
 * messages. */
enum coord_handle {
    COORD_COLLECTIVES,
    COORD_MESSAGES,
    COORD_HANDLES,
    COORD_DIRECT = COORD_HANDLES,
    COORD_CLOSING /* of FORM frames: all of these are closed */
};

struct coord_want {
    uint32_t handle;   /* enum coord_handle */
    uint32_t from, to; /* DIRECT: communicator ranks of the group; else 0 */
};

enum coord_form_step {
    FORM_MAKE_ID = 1,
    FORM_ID,
    FORM_MADE,
    FORM_LOCK,
    FORM_LOCKED,
    FORM_CONNECT,
    FORM_CONNECTED,
    FORM_END,
    FORM_FAILED,
    FORM_READY,
    FORM_BUSY,
    FORM_CLOSE,
    FORM_UNLOCK
};

struct coord_hello {
    uint64_t secret;
    uint32_t rank;       /* in the group */
    uint32_t world_rank; /* with `forms` */
    uint32_t forms;      /* 1: the connection is for FORM frames */
};

enum { COORD_ID_PARTS = 4, COORD_ID_PART_LEN = 32 };
struct coord_form {
    uint16_t handle, step; /* enum coord_handle, enum coord_form_step */
    uint32_t from, to;     /* as in struct coord_want */
    uint32_t number;       /* ID: of the part; FAILED, to a rank: the rank that failed */
    char id[COORD_ID_PART_LEN];
};

struct coord_match_req {
    uint64_t count;
    uint32_t id;        /* the rank's own number for it; the reply has the same */
    uint32_t comm_rank; /* the GPU that sends or receives */
    uint32_t peer;      /* a communicator rank, or COLLRUN_ANY_SOURCE */
    uint32_t tag;       /* of a receive also COLLRUN_ANY_TAG */
    uint32_t kind;      /* enum collrun_kind: SEND, RECV or RECV_ANY */
    uint32_t dtype;     /* enum collrun_dtype */
    uint32_t at_most;   /* of a receive: a shorter message is welcome, too */
    uint32_t direct;    /* 1: it is a direct message */
};

struct coord_match_rep { /* count, dtype, peer, tag and at_most: the other end's */
    uint64_t count;
    uint32_t id, peer, dtype;
    uint32_t ends_epoch;
    uint32_t tag, at_most;
    uint32_t direct, reserved; /* as in the request */
};

struct coord_question { /* PROBE, WITHDRAW: of the communicator rank that receives */
    uint32_t comm_rank;
    uint32_t peer, tag; /* PROBE: as in a request */
    uint32_t id;        /* WITHDRAW: of the request */
    uint32_t more;      /* WITHDRAW: another one follows */
    uint32_t number;    /* the answer has the same */
};

struct coord_answer { /* PROBE: of the message */
    uint64_t count;
    uint32_t peer, tag, dtype;
    uint32_t yes;              /* there is a message; all receives were withdrawn */
    uint32_t number, reserved; /* of the question */
};

struct coord_frame {
    uint32_t type; /* enum coord_frame_type */
    uint32_t reserved;
    union {
        struct coord_hello hello;
        struct coord_match_req match_req;
        struct coord_match_rep match_rep;
        struct coord_question question;
        struct coord_answer answer;
        uint64_t count; /* COMMIT, READY: of collectives, from the first one of the group */
        uint64_t cuts;  /* a bit for each call */
        struct coord_want want;
        struct coord_form form;
    };
};

#endif
