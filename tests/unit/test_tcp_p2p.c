/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages on the TCP backend, with each placement of the ranks.
 */
#include "p2p_suite.h"

int main(int argc, char **argv)
{
    static const struct p2p_suite suites[] = {
        {.backend = "tcp", .placement = P2P_ALONE},
        {.backend = "tcp", .placement = P2P_ONE_HOST},
        {.backend = "tcp", .placement = P2P_TWO_HOSTS},
    };
    return p2p_suites_run(suites, sizeof suites / sizeof *suites, argc > 1 ? argv[1] : NULL);
}
