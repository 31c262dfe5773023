#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shared memory where pages have 64 KiB (big_pages.c, a stand-in: it checks what is mapped): collectives, messages, collrun_alloc, groups that
# are closed and formed again, on shm, and on tcp, which uses shm within a host.
. "$(dirname "$0")/lib.sh"
cc -std=c11 -D_GNU_SOURCE -O1 -Wno-pedantic -shared -fPIC "$here/big_pages.c" -o "$tmp/big_pages.so" -ldl || { echo "Bail out! big_pages.c does not compile"; exit 1; }
case $home in
*asan* | *tsan*)
    skip "pages of 64 KiB" "a sanitizer has its own mmap"
    done_testing
    ;;
esac
cat >"$tmp/pages.c" <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <string.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *w, *half;
    float *x, y = 0;
    enum { N = 100000 };
    int rc = collrun_group_get(ctx, "world", &w);
    (void)state;
    for (int i = 0; !rc && i < 3; i++) {
        int rank = collrun_rank(w), n = collrun_size(w);
        if ((rc = collrun_group_split(w, rank % 2, rank, "half", &half)) != 0)
            break;
        if ((rc = collrun_alloc(half, N * sizeof *x, (void **)&x)) != 0)
            break;
        for (int k = 0; k < N; k++)
            x[k] = 1;
        rc = collrun_allreduce(half, x, x, N, COLLRUN_FLOAT32, COLLRUN_SUM);
        if (!rc)
            rc = collrun_sendrecv(w, x, 1, (rank + 1) % n, &y, 1, (rank + n - 1) % n, COLLRUN_FLOAT32);
        if (!rc && i == 0)
            printf("pages: %g %g\n", (double)x[N - 1], (double)y);
        if (!rc)
            rc = collrun_free(half, x);
        if (!rc)
            rc = collrun_group_destroy(half);
    }
    return rc;
}
COLLRUN_WORKLOAD(.name = "pages", .run = run);
END
plugin "$tmp/pages.c" "$tmp/pages.so" || { echo "Bail out! the workload does not compile"; exit 1; }
for backend in shm tcp; do
    cat >pages.yaml <<END
version: 1
processes: {count: 4}
groups: {world: {ranks: all, backend: $backend}}
env: {set: {LD_PRELOAD: $tmp/big_pages.so}}
workloads: [{plugin: ./pages.so}]
END
    LD_PRELOAD=$tmp/big_pages.so run pages.yaml
    ends "$backend: pages of 64 KiB" 0
    is "... the values are right" "$(grep -c 'pages: 2 2$' out)" 4
done
done_testing
