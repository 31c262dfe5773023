#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plugins in C++17, and the build without the backend that is written in it. The headers and macros cause no warning under -Wall -Wextra -Wpedantic, and the plugins run.
. "$(dirname "$0")/lib.sh"

# compile FILE.cc OUT.so: prints the warnings.
compile() {
    "$compiler" -std=c++17 -Wall -Wextra -Wpedantic -shared -fPIC -pthread -I"$include" "$here/cxx/$1" -o "$2" -L"$home/lib" -lcollrun 2>&1
}

job cxx <<END
version: 1
processes: {count: 1}
backends: {cxx: {path: ./libcollrun_cxx.so, options: {depth: 3}}}
groups: {world: {ranks: all, backend: cxx}}
workloads:
  - {plugin: ./cxx.so, params: {op: min}}
END
for compiler in g++ clang++; do
    if ! command -v "$compiler" >/dev/null; then
        skip "$compiler" "$compiler is not installed"
        continue
    fi
    rm -f ./*.so
    is "$compiler: a workload without warnings" "$(compile workload.cc cxx.so)" ""
    is "$compiler: a backend without warnings" "$(compile backend.cc libcollrun_cxx.so)" ""
    run run cxx.yaml
    ends "$compiler: the job succeeds" 0
    is "$compiler: the workload and the backend run" "$(out)" "[0] min on cxx: 1, 1, 15"
    run run -n 2 cxx.yaml
    like "$compiler: the backend reports an error" "$(err)" 'the group has 2 members'
done

make -C "$here/../.." -n WITH_GLOO=no BUILDROOT="$PWD/fresh" all >commands 2>&1
is "make WITH_GLOO=no builds the other backends" \
    "$(grep -c -e '-o .*libcollrun_shm.so' commands) $(grep -c 'libcollrun_gloo\|-lgloo' commands)" "1 0"
done_testing
