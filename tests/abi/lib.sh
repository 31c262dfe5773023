# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2086
# What the tests of the binary interface share. The frozen headers and the backend of their time are in v1.
abi=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# abi_headers INCLUDE: the public headers in that folder, preprocessed, without those of the system.
abi_headers() {
    printf '#include <collrun/backend.h>\n#include <collrun/workload.h>\n' | ${CC:-cc} -std=c11 -E -P -I"$1" -x c -
}

# abi_layout INCLUDE: a line for each member, struct of fixed size, enumerator and function of the headers in that folder.
abi_layout() {
    local build
    build=$(mktemp -d) || return 1
    abi_headers "$1" | awk -f "$abi/layout.awk" >"$build/layout.c"
    ${CC:-cc} -std=c11 -I"$1" "$build/layout.c" -o "$build/layout" -aux-info "$build/functions" && "$build/layout" &&
        sed -nE 's|^/\* [^*]* \*/ (extern .*\<collrun_[a-z_]+ \(.*)|\1|p' "$build/functions" | sort -u
    rm -rf "$build"
}

# abi_later INCLUDE OUT: a copy of those headers in which every struct that may grow has two more members.
abi_later() {
    mkdir -p "$2/collrun"
    abi_headers "$1" | awk -v append=1 -f "$abi/layout.awk" >"$2/append.sed"
    local header
    for header in "$1"/collrun/*.h; do
        sed -f "$2/append.sed" "$header" >"$2/collrun/$(basename "$header")"
    done
}

# abi_plugins INCLUDE SOURCES OUT: the workload, and the backend of that folder, compiled against those headers.
abi_plugins() {
    mkdir -p "$3" &&
        ${CC:-cc} -std=c11 -O2 -Wall -shared -fPIC -I"$1" "$abi/workload.c" -o "$3/abi.so" &&
        ${CC:-cc} -std=c11 -O2 -Wall -shared -fPIC -fvisibility=hidden -I"$1" "$2/stream.c" -o "$3/libcollrun_stream.so"
}

# abi_job FOLDER: a job file for the plugins in that folder.
abi_job() {
    cat <<END
version: 1
processes: {count: 3}
backends: {stream: {path: $1/libcollrun_stream.so}}
groups: {world: {ranks: all, backend: stream}}
workloads:
  - {plugin: $1/abi.so, params: {op: max, sizes: [2KiB, 4KiB]}}
END
}
