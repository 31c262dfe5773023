/* SPDX-License-Identifier: Apache-2.0
 *
 * The words for the statuses of types.h.
 */
#include <collrun/collrun.h>

const char *collrun_strstatus(int status)
{
    static const char *const words[] = {"ok",
                                        "invalid argument",
                                        "not found",
                                        "not a member",
                                        "already exists",
                                        "not supported",
                                        "not available",
                                        "ranks disagree",
                                        "timed out",
                                        "a peer failed",
                                        "aborted",
                                        "the backend failed",
                                        "out of memory",
                                        "a system call failed"};
    if (status == COLLRUN_AGAIN)
        return "not finished yet";
    if (status > 0 || -status >= (int)(sizeof words / sizeof *words))
        return "unknown status";
    return words[-status];
}
