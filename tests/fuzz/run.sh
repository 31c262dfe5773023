#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets with clang and runs each, starting from the corpus here and its seeds.
# Without clang or its libFuzzer it says so and does nothing.
#
#   fuzz_job     job files, from their bytes to a plan; starts from the golden cases, too
#   fuzz_record  the record of a rank, as the agent and collrun diag read it, and the audit of it
#   fuzz_diag    a folder of evidence, as collrun diag reads it
#   fuzz_trace   the files that the replay workload reads; starts from small ones of each format
#   fuzz_report  a run directory, as collrun report reads it; its markup must not reach the page
#   fuzz_conn    what a peer may send on a connection of the tcp backend
#
# usage: [CLANG=clang-14] [OUT=dir] [TARGETS="fuzz_job ..."] run.sh [SECONDS]
#        60 seconds for each by default; OUT keeps what was found
clang=${CLANG:-$(command -v clang-14 || command -v clang)}
seconds=${1:-60}
targets=${TARGETS:-fuzz_job fuzz_record fuzz_diag fuzz_conn fuzz_trace fuzz_report}
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
out=${OUT:-$(mktemp -d)} || exit 2
[ -n "$OUT" ] || trap 'rm -rf "$out"' EXIT
cd "$root" || exit 2

if [ -z "$clang" ] || ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }' |
    "$clang" -x c -fsanitize=fuzzer -o "$out/probe" - 2>/dev/null; then
    echo 1..1
    echo "ok 1 - fuzz # SKIP no clang with libFuzzer (clang, libclang-rt-dev)"
    exit 0
fi

# build TARGET SOURCES AND LIBRARIES. Functions that are not used need not link.
build() {
    target=$1
    shift
    "$clang" -std=c11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -ffunction-sections -Wl,--gc-sections \
        -D_GNU_SOURCE -pthread -Iengine/include -Iengine -Irunner -Itests -o "$out/$target" "tests/fuzz/$target.c" "$@" -ldl
}
# shellcheck disable=SC2046
build_target() {
    case $1 in
    fuzz_job)
        build "$1" runner/spec/*.c runner/plan/*.c runner/report/report.c engine/base/*.c $(pkg-config --libs yaml-0.1 jansson)
        ;;
    fuzz_record)
        build "$1" tests/fuzz/seed_record.c runner/agent/audit_sender.c runner/diagnose/*.c engine/base/*.c $(pkg-config --libs jansson)
        ;;
    fuzz_diag)
        build "$1" tests/fuzz/seed_record.c runner/report/diag_command.c runner/report/evidence_json.c runner/report/ranks_json.c \
            runner/report/verdict_json.c runner/report/json_value.c runner/report/report.c runner/diagnose/*.c runner/spec/*.c engine/base/*.c \
            $(pkg-config --libs yaml-0.1 jansson)
        ;;
    fuzz_report)
        build "$1" -I"${BUILD:-build/release}/obj" runner/html/*.c runner/report/evidence_json.c runner/report/ranks_json.c runner/report/verdict_json.c \
            runner/report/json_value.c runner/diagnose/*.c runner/spec/*.c engine/base/*.c $(pkg-config --libs yaml-0.1 jansson libcrypto)
        ;;
    fuzz_trace)
        build "$1" examples/replay/format.c examples/replay/trace.c examples/replay/json.c examples/replay/mpi.c examples/replay/pytorch.c \
            examples/replay/chakra.c examples/replay/kineto.c
        ;;
    fuzz_conn)
        build "$1" -Ibackends/net -Ibackends/tcp backends/tcp/conn.c backends/tcp/outbox.c backends/tcp/landing.c
        ;;
    esac
}
# starts TARGET: options, and the folders to start from
starts() {
    case $1 in
    fuzz_job) echo "-max_len=16384 -dict=tests/fuzz/job.dict tests/fuzz/corpus" tests/golden/*/ ;;
    fuzz_record) echo "-max_len=65536 $out/$1.seeds" ;;
    fuzz_conn) echo "-max_len=16384 tests/fuzz/corpus_conn" ;;
    fuzz_report) echo "-max_len=65536 -dict=tests/fuzz/report.dict tests/fuzz/corpus_report" ;;
    fuzz_trace) echo "-max_len=65536 -dict=tests/fuzz/trace.dict $out/$1.seeds" ;;
    fuzz_diag) echo "-max_len=65536 -dict=tests/fuzz/diag.dict $out/$1.seeds" ;;
    esac
}
# Traces of each format, after the byte that chooses it.
trace_seeds() {
    traces=tests/e2e/traces.py
    mkdir -p "$out/traces" && python3 "$traces" mpi "$out/traces/mpi" 4 && python3 "$traces" pytorch "$out/traces/pytorch" 4 &&
        python3 "$traces" spmd "$out/traces/spmd.json" && python3 "$traces" chakra "$out/traces/chakra" 4 || return 1
    { printf '\005' && cat "$out/traces/mpi/rank-1.txt"; } >"$1/mpi"
    { printf '\006' && cat "$out/traces/pytorch/worker_1.json"; } >"$1/pytorch"
    { printf '\002' && cat "$out/traces/spmd.json"; } >"$1/spmd"
    mkdir -p "$out/traces/times" && python3 "$traces" kineto "$out/traces/times" 2 || return 1
    { printf '\010' && cat "$out/traces/times/times.1.json"; } >"$1/kineto"
    { printf '\007' && cat "$out/traces/chakra/t.1.et"; } >"$1/chakra"
}
# shellcheck disable=SC2046,SC2086
fuzz() {
    mkdir -p "$out/$1.corpus" "$out/$1.seeds"
    case $1 in
    fuzz_job | fuzz_conn | fuzz_report) ;;
    fuzz_trace) trace_seeds "$out/$1.seeds" || return 1 ;;
    *) "$out/$1" --seeds "$out/$1.seeds" || return 1 ;;
    esac
    set -- "$1" $(starts "$1")
    target=$1
    shift
    "$out/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$out/$target-" $(printf '%s\n' "$@" | grep '^-') "$out/$target.corpus" $(printf '%s\n' "$@" | grep -v '^-')
}

number=0 failed=0
echo "1..$(echo "$targets" | wc -w)"
for target in $targets; do
    number=$((number + 1))
    if build_target "$target" >"$out/log" 2>&1 && fuzz "$target" >"$out/log" 2>&1; then
        echo "ok $number - $target $(grep -o 'number_of_executed_units: [0-9]*' "$out/log")"
    else
        echo "not ok $number - $target"
        sed 's/^/# /' "$out/log" | tail -n 60
        failed=1
    fi
done
exit $failed
