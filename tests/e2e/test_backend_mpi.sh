#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A backend from outside, examples/backend-mpi: built out of tree against an installed collrun, named by path in job.yaml,
# run, watched while a rank dies, and put through the conformance suite (CONFORM_JOBS: which of its jobs;
# `make conform` runs more of them).
. "$(dirname "$0")/lib.sh"
if ! command -v mpicc.openmpi >/dev/null; then
    skip "backend-mpi" "Open MPI is not installed"
    done_testing
fi
case $home in
*asan | *tsan)
    skip "backend-mpi" "Open MPI itself leaks and races"
    done_testing
    ;;
esac

# ---- out of tree ----
BUILD=${BUILD:-$top/build/release}
if [ -n "${PREFIX:-}" ]; then
    prefix=$PREFIX
else
    prefix=$tmp/prefix
    env -u MAKEFLAGS -u MAKELEVEL make -s -C "$top" install BUILDROOT="$(dirname "$BUILD")" VARIANT="$(basename "$BUILD")" \
        PREFIX="$prefix" >install.log 2>&1 || { cat install.log && echo "Bail out! make install fails" && exit 1; }
fi
mkdir vendor
cp "$top"/examples/backend-mpi/{Makefile,*.[ch]} vendor/
PKG_CONFIG_PATH=$prefix/lib/pkgconfig env -u MAKEFLAGS -u MAKELEVEL make -s -C vendor CFLAGS="-O2 -Wall -Wextra -Werror" >make.log 2>&1
is "it builds from its own folder, the installed headers and Open MPI" "$?$(cat make.log)" 0
is "it exports its table and PMI, nothing else" \
    "$(nm -D --defined-only vendor/libcollrun_mpi.so | awk '{print $3}' | grep -v '^PMI_')" collrun_backend_v1
COLLRUN=$prefix/bin/collrun
home=$prefix include=$prefix/include
need_scripted

# ---- jobs ----
mpi_job() { # NAME COUNT STEPS; further groups on stdin
    {
        echo "version: 1"
        echo "processes: {count: $2}"
        echo "backends: {mpi: {path: ./vendor/libcollrun_mpi.so}}"
        echo "groups:"
        cat
        echo "workloads: [{plugin: ./scripted.so, params: {dir: \"$tmp\", do: \"$3\"}}]"
    } >"$1.yaml"
}
mpi_job all 4 "allreduce 50 g; where g; print fine" <<<"  g: {ranks: all, backend: mpi}"
run run all.yaml
ends "a job on it" 0
quiet "stderr stays empty"
is "all ranks are fine" "$(grep -c fine out)" 4
like "the group runs on it" "$(out)" '^\[3\] g: exists 1, rank 3, size 4, order 0 1 2 3, mpi$'
cat >native.c <<'END'
#include <collrun/workload.h>
#include <mpi.h>
#include <stdio.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct collrun_group *g;
    int rank = -1, size = -1, rc = collrun_group_get(ctx, "g", &g);
    MPI_Comm *comm = rc ? NULL : collrun_group_native(g, "mpi_comm", 0);
    if (!comm || MPI_Comm_rank(*comm, &rank) || MPI_Comm_size(*comm, &size))
        return collrun_fail(ctx, "no communicator");
    printf("%d of %d\n", rank, size);
    return 0;
}
COLLRUN_WORKLOAD(.name = "native", .run = run);
END
read -ra mpi_flags <<<"$(pkg-config --cflags --libs ompi-c)"
plugin native.c native.so -Wl,--no-as-needed "${mpi_flags[@]}"
sed 's/scripted.so, params.*/native.so}]/' all.yaml >native.yaml
run run native.yaml
is "the native handle of a group is its MPI_Comm" "$code $(sort out | tr '\n' ' ')" "0 [0] 0 of 4 [1] 1 of 4 [2] 2 of 4 [3] 3 of 4 "
mpi_job parts 5 "allreduce 20 a b c d; print fine" <<END
  a: {ranks: [0, 1], backend: mpi}
  b: {ranks: [3, 2], backend: mpi}
  c: {ranks: [4, 1, 2], backend: mpi}
  d: {ranks: all, backend: mpi}
END
run run parts.yaml
ends "overlapping groups, the largest last" 0
is "all ranks are fine with them" "$(grep -c fine out)" 5
mpi_job mixed 3 "allreduce 20 a b c; print fine" <<END
  a: {ranks: all, backend: mpi}
  b: {ranks: all, backend: shm}
  c: {ranks: all, backend: gloo}
END
run run mixed.yaml
ends "beside other backends" 0

# ---- failures ----
mpi_job dies 4 "allreduce 5 g; @2 signal 9; allreduce 5 g" <<<"  g: {ranks: all, backend: mpi}"
run run dies.yaml
ends "a rank that is killed is the cause" 137
like "and named" "$(err)" 'rank 2'
check "no rank waits for it" [ "$elapsed" -lt $((10000 * slow)) ]
mpi_job late 3 "allreduce 5 g; @!2 allreduce 1 g; @2 hang" <<<"  g: {ranks: all, backend: mpi, timeout: 500ms}"
run run late.yaml
ends "an operation that waits for a late rank times out: 124" 124
like "the error says so" "$(err)" 'allreduce.* 0\.5 s|timed out'
check "and not much longer" [ "$elapsed" -lt $((20000 * slow)) ]

# ---- the suite that any backend must pass ----
if [ -x "$top/tests/conform/run.sh" ]; then
    jobs=${CONFORM_JOBS:-'world of [25]|permuted|^messages'}
    COLLRUN=$COLLRUN PREFIX=$prefix JOBS=$jobs "$top/tests/conform/run.sh" "$tmp/vendor/libcollrun_mpi.so" >conform.log 2>&1
    code=$?
    is "the conformance suite passes: $(tail -n 1 conform.log | tr -d '#')" "$code" 0
    SCOPE=full REQUESTS=50 COLLRUN=$COLLRUN PREFIX=$prefix JOBS='^requests|disagree' "$top/tests/conform/run.sh" \
        "$tmp/vendor/libcollrun_mpi.so" >>conform.log 2>&1
    code=$?
    is "so does its asynchronous part: $(tail -n 1 conform.log | tr -d '#')" "$code" 0
    grep -A12 '^not ok' conform.log | sed 's/^/# /'
else
    skip "the conformance suite" "tests/conform is not there"
fi
done_testing
