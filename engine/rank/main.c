/* SPDX-License-Identifier: Apache-2.0
 *
 * The program collrun-engine: the process of one rank. All of it is in libcollrun, which workloads
 * share.
 */
#include "rank/rank_main.h"

int main(int argc, char **argv)
{
    return collrun_engine_main(argc, argv);
}
