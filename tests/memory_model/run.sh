#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs lock-free parts of collrun under a weak memory model (model.h): what their loads may return on Arm, and no run on an x86 CPU shows.
# TAP.
# usage: tests/memory_model/run.sh [RUNS]    RUNS: of each test (3000). From the environment: SOURCE (another tree; this one), ONLY (a
# program: litmus, record, calls, queue, scope, shm_collectives, shm_messages), RUN (repeats that run alone; the number that a failure prints)
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
source=${SOURCE:-$top}
runs=${1:-3000}
out=$(mktemp -d) || exit 2
trap 'rm -rf "$out"' EXIT

# With clang, memcpy and memset would end in libtsan.
gcc=${GCC:-gcc}
command -v "$gcc" >/dev/null || { echo "ok 1 - memory model # SKIP there is no gcc"; exit 0; }
flags=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wno-tsan -g -pthread -I"$source/engine/include" -I"$source/engine" -I"$top/tests")
watched=(-O1 -fsanitize=thread -fno-builtin-memcpy -fno-builtin-memset)
# So that short runs use the same records again.
few_steps=(-DSTEP_DEPTH=16u -DSTEP_DEPTH_OVERSUBSCRIBED=16u -DSLOT_COUNT=8u -DSLOT_COUNT_OVERSUBSCRIBED=8u
    -DEAGER_BLOCKS=2u)
unwatched=(-O2 -fno-builtin -fno-tree-loop-distribute-patterns)
wrapped=-Wl
for name in memcpy memset snprintf clock_gettime sched_yield sched_getcpu syscall mmap munmap madvise pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock; do wrapped+=,--wrap=$name; done

# compile PREFIX FLAGS... -- FILES...: $out/PREFIX_NAME.o of each
compile() {
    local prefix=$1 options=() file
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    for file in "$@"; do
        "$gcc" "${flags[@]}" "${options[@]}" -c "$file" -o "$out/${prefix}_$(basename "$file" .c).o" || exit 2
    done
}

failed=0
# program NAME OBJECTS...
program() {
    local name=$1
    shift
    [[ $name == "${ONLY:-$name}" ]] || return
    "$gcc" -o "$out/$name" "$out/test_$name.o" "$@" "$out"/model_*.o "$wrapped" || exit 2
    "$out/$name" "$runs" | sed "s/ - / - $name: /"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
}

cd "$here" || exit 2
compile model "${unwatched[@]}" -- schedule.c memory.c tsan_abi.c libc.c
compile test "${watched[@]}" -I"$source/runner" -- litmus.c record.c calls.c queue.c scope.c
compile test "${watched[@]}" "${few_steps[@]}" -I"$source/backends/shm" -- shm_world.c shm_collectives.c shm_messages.c
compile base "${watched[@]}" -I"$top/build/release/obj" -- "$source"/engine/base/*.c
compile shm "${watched[@]}" "${few_steps[@]}" -I"$source/backends/shm" -- "$source"/backends/shm/*.c "$source"/backends/shm/*/*.c
compile progress "${watched[@]}" -ffunction-sections -- "$source"/engine/progress/{p2p,progress,progress_owner,progress_queue}.c
compile diagnose "${watched[@]}" -I"$source/runner" -- "$source"/runner/diagnose/proof.c
compile core "${watched[@]}" -- "$source"/engine/core/host_scope.c
ar rcs "$out/base.a" "$out"/base_*.o
program litmus
program record "$out/base.a"
program calls "$out"/diagnose_*.o "$out/base.a"
program queue "$out"/progress_*.o "$out/base.a" -Wl,--gc-sections
program scope "$out"/core_*.o "$out/base.a"
program shm_collectives "$out/test_shm_world.o" "$out"/shm_*.o
program shm_messages "$out/test_shm_world.o" "$out"/shm_*.o
exit $failed
