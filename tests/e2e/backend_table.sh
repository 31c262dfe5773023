#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the README's table, operation x backend, as `collrun backends` tells it. usage: tests/e2e/backend_table.sh [JOB.yaml]
set -eu
"${COLLRUN:-build/release/bin/collrun}" backends "$@" | awk '
    /^[a-z]/ { backend = $1; names[++n] = backend }
    $1 ~ /^(native|emulated|unsupported)$/ { for (i = 2; i <= NF; i++) how[$i, backend] = $1 }
    END {
        printf "| operation |"; for (b = 1; b <= n; b++) printf " %s |", names[b]; print ""
        printf "|---|"; for (b = 1; b <= n; b++) printf "---|"; print ""
        count = split("barrier allreduce reduce broadcast allgather gather scatter reduce_scatter alltoall allgatherv " \
                      "gatherv scatterv reduce_scatterv alltoallv send recv recv_any", operations, " ")
        for (o = 1; o <= count; o++) {
            printf "| %s |", operations[o]
            for (b = 1; b <= n; b++) printf " %s |", how[operations[o], names[b]]
            print ""
        }
    }'
