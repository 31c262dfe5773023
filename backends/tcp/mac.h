/* SPDX-License-Identifier: Apache-2.0
 *
 * The message authentication code of the handshake: SipHash-2-4 (Aumasson and Bernstein, 2012), a
 * keyed hash for short inputs. The key never crosses the wire.
 */
#ifndef TCP_MAC_H
#define TCP_MAC_H

#include <stddef.h>
#include <stdint.h>

enum { MAC_KEY_LEN = 16 };

uint64_t mac_of(const uint8_t key[MAC_KEY_LEN], const void *data, size_t len);

#endif
