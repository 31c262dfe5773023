#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz target with clang and runs it, starting from the corpus here and the golden cases.
# Without clang or its libFuzzer it says so and does nothing.
#
# usage: [CLANG=clang-14] [OUT=dir] run.sh [SECONDS]      60 seconds by default; OUT keeps what was found
clang=${CLANG:-$(command -v clang-14 || command -v clang)}
seconds=${1:-60}
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
out=${OUT:-$(mktemp -d)} || exit 2
[ -n "$OUT" ] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out/corpus"
cd "$root" || exit 2

if [ -z "$clang" ] || ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }' |
    "$clang" -x c -fsanitize=fuzzer -o "$out/probe" - 2>/dev/null; then
    echo 1..1
    echo "ok 1 - fuzz_job # SKIP no clang with libFuzzer (clang, libclang-rt-dev)"
    exit 0
fi

# shellcheck disable=SC2046
"$clang" -std=c11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE -pthread \
    -Iengine/include -Iengine -Irunner -o "$out/fuzz_job" tests/fuzz/fuzz_job.c runner/spec/*.c \
    runner/plan/*.c runner/tell/report.c engine/base/*.c \
    $(pkg-config --libs yaml-0.1 jansson) || exit 1

echo 1..1
if "$out/fuzz_job" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 -verbosity=0 -print_final_stats=1 \
    -dict=tests/fuzz/job.dict -artifact_prefix="$out/" "$out/corpus" tests/fuzz/corpus tests/golden >"$out/log" 2>&1; then
    echo "ok 1 - fuzz_job $(grep -o 'number_of_executed_units: [0-9]*' "$out/log")"
else
    echo "not ok 1 - fuzz_job"
    sed 's/^/# /' "$out/log" | tail -n 60
    exit 1
fi
