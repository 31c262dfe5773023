/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames to the agents of the hosts, and through them to the ranks. A frame for several ranks of
 * one host crosses its stream once (MULTICAST); the agent forwards it to each of them. Hosts whose
 * stream is closed are skipped.
 */
#ifndef RUNNER_RUN_HOSTS_H
#define RUNNER_RUN_HOSTS_H

#include "run/run_state.h"

/* An agent on another machine ends its ranks if the runner is silent for this long. */
uint32_t hosts_runner_silence_ms(const struct run_state *run);

void hosts_send_all(struct run_state *run, uint16_t type, const struct buf *payload);
void hosts_send_ranks(struct run_state *run, const uint32_t *ranks, uint32_t n, uint16_t type,
                      const struct buf *payload);
/* To every process of every rank. */
void hosts_send_signal(struct run_state *run, int sig);
/* To one process of each rank, which is to go on. */
void hosts_send_warning(struct run_state *run, int sig);
/* The agent may send `bytes` more of the ranks' output. */
void hosts_send_credit(struct run_state *run, uint32_t host, uint32_t bytes);
/* The agent expects a frame within `limit_ms` from now on; 0: it does not. */
void hosts_send_keepalive(struct run_state *run, uint32_t host, uint32_t limit_ms);

/* True if every host has sent BYE, is lost for a reason that is known, or is not needed. */
bool hosts_all_gone(const struct run_state *run);
void hosts_stop_loop_if_gone(struct run_state *run);
void hosts_close_all(struct run_state *run);
/* With --verbose: how many messages crossed the streams. */
void hosts_log_traffic(const struct run_state *run);

#endif
