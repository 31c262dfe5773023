/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line. The agent starts collrun-engine as a rank. Runner and agent start it to
 * describe plugins, to list devices and to check parameters. Users do not, so its usage text is one
 * line.
 */
#include "rank/entry.h"

#include "rank/check.h"
#include "rank/crash.h"
#include "rank/describe.h"
#include "rank/rank_main.h"

#include "build_id.h"

#include <collrun/types.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int entry_check(char *const *args, int nargs, FILE *out)
{
    return check_workloads(args, nargs, stdin, out);
}

static int entry_devices(char *const *args, int nargs, FILE *out)
{
    return nargs == 1 ? devices_print(args[0], out) : 2;
}

/* What the process prints instead of running a rank. */
static const struct entry_query {
    const char *option;
    int (*print)(char *const *args, int nargs, FILE *out); /* returns the exit code */
} entry_queries[] = {
    {"--describe", describe_plugins},
    {"--devices", entry_devices},
    {"--check", entry_check},
};

/* Plugins may print when they are loaded: their stdout becomes stderr, so that ours stays ours. */
static int entry_print(const struct entry_query *query, char *const *args, int nargs)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        perror("collrun-engine: stdout");
        return 2;
    }
    crash_install_query();
    int rc = query->print(args, nargs, out);
    fclose(out);
    return rc;
}

int collrun_engine_main(int argc, char **argv)
{
    for (size_t i = 0; argc >= 2 && i < sizeof entry_queries / sizeof entry_queries[0]; i++)
        if (strcmp(argv[1], entry_queries[i].option) == 0)
            return entry_print(&entry_queries[i], argv + 2, argc - 2);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("collrun-engine %s (%s)\n", COLLRUN_VERSION, COLLRUN_BUILD_ID);
        return 0;
    }
    if (argc != 1) {
        fprintf(stderr, "usage: collrun-engine [--describe KIND:PATH... | --devices PATH | "
                        "--check INDEX... | --version]\n");
        return 2;
    }
    return rank_main();
}
