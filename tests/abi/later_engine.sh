#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds this tree with two more members at the end of every public struct that may grow, as a later version would have them,
# and runs plugins of version 1 on it: tests/abi/workload.c on the frozen backend, then conformance with that backend and a
# workload built against today's headers. Speaks TAP. TREE: where to build; it is kept, so that a second run is short.
set -u
. "$(dirname "$0")/lib.sh"
top=$(cd "$abi/../.." && pwd)
tree=${TREE:-$top/build/later}
cases=0 failed=0
# result WHAT CODE OUTPUT
result() {
    cases=$((cases + 1))
    [ "$2" -eq 0 ] && echo "ok $cases - $1" && return
    failed=$((failed + 1))
    echo "not ok $cases - $1"
    tail -n 20 <<<"$3" | sed 's/^/#   /'
}

mkdir -p "$tree"
git -C "$top" ls-files -z | (cd "$top" && xargs -0 tar -cf - 2>/dev/null) | tar -xf - -C "$tree"
abi_later "$top/engine/include" "$tree/later"
for header in "$tree"/later/collrun/*.h; do
    cmp -s "$header" "$tree/engine/include/collrun/$(basename "$header")" || cp "$header" "$tree/engine/include/collrun/"
done
# Initializers of today lack the members of later. Without what the plugins do not need: other backends, Python, optimization.
out=$(env -u MAKEFLAGS -u MAKELEVEL make WERROR= WITH_GLOO=no WITH_UCX=no PYTHON_CFLAGS= CFLAGS='-O0 -U_FORTIFY_SOURCE' -s -C "$tree" -j2 ${CC:+CC="$CC"} ${CXX:+CXX="$CXX"} all 2>&1)
result "the later engine builds" $? "$out"
export COLLRUN=$tree/build/release/bin/collrun
folder=$tree/plugins
out=$(abi_plugins "$abi/v1" "$abi/v1" "$folder" 2>&1)
result "plugins of version 1 compile" $? "$out"
abi_job "$folder" >"$folder/job.yaml"
out=$("$COLLRUN" "$folder/job.yaml" 2>&1)
result "plugins of version 1 run on the later engine" $? "$out"
[ "$(grep -c 'op 1, 2 sizes, the last 4096$' <<<"$out")" -eq 3 ]
result "all ranks check their results" $? "$out"
# The workload of the suite is built against the headers of this tree, which are older than the engine's.
out=$(TEAMS='w-1-0 w-2-0-1' JOBS='every small|batch|messages|random' \
    "$top/tests/conform/run.sh" "$folder/libcollrun_stream.so" 2>&1)
result "conformance of plugins of version 1 on the later engine" $? "$out"
echo "1..$cases"
[ "$failed" -eq 0 ]
