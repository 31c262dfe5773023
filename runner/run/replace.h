/* SPDX-License-Identifier: Apache-2.0
 *
 * Before a restart: other hosts in the place of those that were lost.
 *
 *  - A spare host (hosts.spare) takes the place of a lost one, with its ranks; the lost host
 * becomes the last spare for later restarts, for it may be back when it is needed. A host that
 * could not be reached when the attempt began does not.
 *  - Without a spare the ranks of the lost host move to the host with the fewest ranks that has
 *    slots for all, else to several, unless they have devices. If there is no room the lost host is
 *    tried again.
 *  - This machine is never replaced: only its agent can have ended.
 *  - Ranks keep their numbers, and groups their members.
 */
#ifndef RUNNER_RUN_REPLACE_H
#define RUNNER_RUN_REPLACE_H

#include "base/desc.h"
#include "spec/job.h"

#include <stdio.h>

enum replace_loss { REPLACE_KEPT, REPLACE_LOST, REPLACE_UNREACHED };

/* `losses`: by host. The hosts of `job` and `desc` change in place; both are copies of their
 * owner's. Prints a line about each change. */
void replace_lost_hosts(struct job *job, struct desc *desc, const enum replace_loss *losses,
                        struct arena *arena, FILE *out);

#endif
