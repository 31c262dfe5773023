/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun-guard: the parent of collrun-agent, and the process that a transport starts. It waits for
 * the end of the agent and leaves no process behind, also if the agent was killed.
 *
 *  - The agent ends: the guard kills and reaps the descendants that are left, and ends as the agent
 *    did, with the same exit code or by the same signal.
 *  - A signal asks the guard to end: it is passed on to the agent.
 *  - The guard is killed: SIGTERM ends the agent, which says so, stops its ranks and reaps its
 *    descendants.
 *
 * Only if both are killed at the same moment can children of ranks survive; ranks cannot. When
 * `flux exec` is killed, its broker kills the process group of the guard, which there does not
 * contain the agent.
 */
#ifndef RUNNER_AGENT_GUARD_H
#define RUNNER_AGENT_GUARD_H

/* Runs `agent` in a child process, and returns its exit code there and here. */
int guard_run(int (*agent)(void));

#endif
