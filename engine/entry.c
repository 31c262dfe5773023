/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command line asks for. collrun-engine is started by the agent (as a rank) and by the
 * runner (to describe plugins), never by a person, so its usage text is one line.
 */
#include "entry.h"

#include "attach.h"
#include "describe.h"

#include "build_id.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Plugins may print when they are loaded: their stdout becomes stderr, so that ours stays JSON. */
static int describe(char *const *args, int nargs)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        perror("collrun-engine: stdout");
        return 2;
    }
    int rc = describe_plugins(args, nargs, out);
    fclose(out);
    return rc;
}

int collrun_engine_main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "--describe") == 0)
        return describe(argv + 2, argc - 2);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("collrun-engine %s (%s)\n", COLLRUN_VERSION, COLLRUN_BUILD_ID);
        return 0;
    }
    if (argc != 1) {
        fprintf(stderr, "usage: collrun-engine [--describe KIND:PATH... | --version]\n");
        return 2;
    }
    return attach_run();
}
