/* SPDX-License-Identifier: Apache-2.0
 *
 * For threads that sleep nearly always and must be quick when they do not: the agent's, which hears
 * of a death, and each rank's service thread, which ends what waits for the dead. On a machine with
 * more ranks than cores they would wait for their turn like everybody else.
 */
#ifndef BASE_PROMPT_H
#define BASE_PROMPT_H

/* Asks the kernel (6.12 and later; others ignore it) to run this thread in short slices, and so
 * earlier: it takes no more than its share, and needs no privilege. */
void prompt_thread(void);

#endif
