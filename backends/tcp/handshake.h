/* SPDX-License-Identifier: Apache-2.0
 *
 * The handshake of a connection. The process that connects sends HELLO, the other one ANSWER. The
 * address that a process publishes has two keys; each message has a code that only a holder of its
 * key can compute: HELLO proves that the sender has read the address, ANSWER that its sender is the
 * process that published it. The listener accepts a HELLO once, so a recorded one is of no use.
 *
 * Two processes may connect to each other at the same time. Then the connection of the lower rank
 * is used: it answers WAIT, and the higher rank gives up its connection for the one that arrives.
 *
 * Both ends have the same byte order; a HELLO in another one has a wrong magic number.
 */
#ifndef TCP_HANDSHAKE_H
#define TCP_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* ---- codes of messages ----
 *
 * The message authentication code of the handshake: SipHash-2-4 (Aumasson and Bernstein, 2012), a
 * keyed hash for short inputs. The key never crosses the wire.
 */

enum { MAC_KEY_LEN = 16 };

/* ---- the handshake ---- */

/* What a process publishes. */
struct handshake_address {
    struct sockaddr_storage socket;
    uint32_t len; /* of `socket` */
    uint32_t reserved;
    uint8_t hello_key[MAC_KEY_LEN], answer_key[MAC_KEY_LEN];
};

struct handshake_hello {
    uint64_t magic;
    uint32_t from, to; /* ranks in the job */
    uint32_t channel;  /* 0: packets and data; else a further socket for the data of `from` */
    uint32_t reserved;
    uint64_t nonce; /* new for each; the listener accepts each once */
    uint64_t code;
};

enum handshake_verdict {
    HANDSHAKE_YES = 1,  /* the connection is open */
    HANDSHAKE_WAIT = 2, /* another one is open, or will be */
    HANDSHAKE_NO = 3    /* `error` is why; the code is not set */
};

struct handshake_answer {
    uint64_t magic;
    uint32_t verdict; /* enum handshake_verdict */
    int32_t error;    /* an errno */
    uint64_t code;
};

/* New keys. False: errno. */
bool handshake_make_keys(struct handshake_address *self);

/* False: errno. */
bool handshake_hello_seal(struct handshake_hello *hello, const struct handshake_address *to);
bool handshake_hello_is_valid(const struct handshake_hello *hello,
                              const struct handshake_address *self);
void handshake_answer_seal(struct handshake_answer *answer, const struct handshake_hello *hello,
                           const struct handshake_address *self);
bool handshake_answer_is_valid(const struct handshake_answer *answer,
                               const struct handshake_hello *hello,
                               const struct handshake_address *from);

#endif
