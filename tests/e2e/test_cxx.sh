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

# ---- what a build says about a machine that lacks something ----
builds() { env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory -C "$here/../.." BUILDROOT="$PWD/fresh" "$@" 2>&1; }
is "without a compiler: one line, which names make deps" "$(builds CC=no-cc "$PWD/fresh/release/obj/complete" | grep -v '\*\*\*')" \
    'make: this machine lacks what a build needs: no-cc; run `make deps`, which installs it'
is "without headers: one line" "$(builds HEADERS_HERE='yaml.h openssl/evp.h' "$PWD/fresh/release/obj/complete" | grep -v '\*\*\*')" \
    'make: this machine lacks what a build needs: jansson.h libssh/libssh.h; run `make deps`, which installs it'
builds -n HEADERS_HERE='yaml.h jansson.h libssh/libssh.h openssl/evp.h' PYTHON_HEADER= all | tail -n 1 | grep -oE 'apt-get install [a-z0-9-]+' >left_out
is "its last lines say how to get each part that is left out" "$(sort left_out | tr '\n' ' ')" \
    "apt-get install libdw-dev apt-get install libgloo-dev apt-get install libucx-dev apt-get install python3-dev "
is "what is left out on purpose is no line" "$(builds -n WITH_GLOO=no WITH_UCX=no PYTHON_CFLAGS= all | tail -n 1 | grep -c 'gloo\|ucx\|Python')" 0
make -C "$here/../.." -n WITH_GLOO=no BUILDROOT="$PWD/fresh" all >commands 2>&1
is "make WITH_GLOO=no builds the other backends" \
    "$(grep -c -e '-o .*libcollrun_shm.so' commands) $(grep -c 'libcollrun_gloo\|-lgloo' commands)" "1 0"
done_testing
