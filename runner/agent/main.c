/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"
#include "agent/guard.h"

#include "base/exit_codes.h"
#include "build_id.h"

#include <collrun/types.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("collrun-agent %s (build %s)\n", COLLRUN_VERSION, COLLRUN_BUILD_ID);
        return 0;
    }
    const bool text = argc == 2 && strcmp(argv[1], "--text") == 0;
    if (argc > 1 + text || isatty(STDIN_FILENO)) {
        fprintf(stderr, "collrun-agent is started by collrun, which talks to it on its standard "
                        "input and output\n");
        return EXIT_JOB;
    }
    return guard_run(text ? agent_main_text : agent_main);
}
