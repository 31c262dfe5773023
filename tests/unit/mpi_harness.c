/* SPDX-License-Identifier: Apache-2.0
 *
 * Open MPI itself leaks and races, so under a sanitizer it is not tested.
 */
#include "mpi_harness.h"

#include "coll_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[512], backend_path[1024];

static bool untested(const char *why)
{
    printf("1..1\nok 1 - backend-mpi # SKIP %s\n", why);
    return false;
}

static bool build(void)
{
    char command[1024];
    const char *tmp = getenv("TMPDIR");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return untested("Open MPI itself leaks and races");
#endif
    if (system("command -v mpicc.openmpi >/dev/null") != 0)
        return untested("Open MPI is not installed");
    snprintf(folder, sizeof folder, "%s/test_backend_mpi.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(1);
    }
    snprintf(command, sizeof command,
             "make -s -C '%s' -f \"$PWD/examples/backend-mpi/Makefile\" "
             "CPPFLAGS=-I\"$PWD/engine/include\" PKG_CONFIG=: MPICC=mpicc.openmpi",
             folder);
    snprintf(backend_path, sizeof backend_path, "%s/libcollrun_mpi.so", folder);
    if (system(command) != 0) {
        printf("Bail out! the backend does not compile\n");
        exit(1);
    }
    return true;
}

int mpi_harness_run(int argc, char **argv, const struct CMUnitTest *tests, size_t ntests)
{
    if (!build())
        return 0;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const int failed = _cmocka_run_group_tests("backend-mpi", tests, ntests, NULL, NULL);
    unlink(backend_path);
    rmdir(folder);
    return failed;
}

struct harness_options mpi_harness_options(uint32_t nranks)
{
    return (struct harness_options){.path = backend_path, .nranks = nranks, .limit_s = 120};
}

struct collrun_call mpi_harness_message(enum collrun_kind kind, void *buf, size_t count, int peer,
                                        uint32_t tag)
{
    struct collrun_call call = harness_message(kind, buf, count, (uint32_t)peer, tag);
    call.dtype = COLLRUN_INT32;
    return call;
}

int mpi_harness_sum(struct harness_rank *r, struct harness_group *g, uint32_t salt)
{
    const struct coll_case c = {
        .kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT64, .count = 1 + salt % 2000, .salt = salt};
    return coll_case_run(r, g, &c);
}
