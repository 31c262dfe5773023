/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages on the UCX backend.
 */
#include "p2p_suite.h"

/* "ucp_request.c:684 Assertion ... got REP message"; or no word at all. In a job the agent reports
 * the death. */
#define WHY "UCX 1.13 may neither report nor survive the death of a peer that was connected by half"

int main(int argc, char **argv)
{
    static const struct p2p_suite suites[] = {
        {.backend = "ucx", .placement = P2P_ALONE, .no_ends = WHY},
    };
    return p2p_suites_run(suites, sizeof suites / sizeof *suites, argc > 1 ? argv[1] : NULL);
}
