#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets with clang and runs each, starting from the corpus here and its seeds.
# Without clang or its libFuzzer it says so and does nothing.
#
#   fuzz_job       job files, from their bytes to a plan, and --set; starts from the golden cases, too
#   fuzz_layers    jobs of several files that include each other, with variables, profiles, --var and --set
#   fuzz_hosts     host files, and the lists of nodes of Slurm, PBS, LSF, Grid Engine and Flux
#   fuzz_ssh_config the SSH configuration
#   fuzz_describe  what plugins make the engine say about them
#   fuzz_frames    what agents and ranks may send to the runner
#   fuzz_agent     what the runner, ranks and programs (PMI) may send to an agent
#   fuzz_control   what an agent may send to a rank, and the description of a job
#   fuzz_record    the record of a rank, as the agent and collrun diag read it, and the audit of it
#   fuzz_diag      a folder of evidence, as collrun diag reads it
#   fuzz_trace     the files that the replay workload reads; starts from small ones of each format
#   fuzz_report    a run directory, as collrun report reads it; its markup must not reach the page
#   fuzz_conn      what a peer may send on a connection of the tcp backend
#   fuzz_net       what peers may send above the framing of tcp and ucx, while this rank exchanges messages and is in collectives
#   fuzz_shm       what a peer whose memory is damaged may write into the segment of the shm backend
#   fuzz_coord     what members may send to the coordinator of the nccl backend
#   fuzz_staging   what a host may answer to the staging script
#   fuzz_stacks    what a host or a rank may say about the threads of a rank
#   fuzz_top       what the socket of a run may send to collrun top
#   fuzz_match     posted receives and messages, against a model of the rules of matching
#   fuzz_wire      every frame kind that has a codec: read, printed, written again
#   fuzz_base64    what flux exec carries
#   fuzz_link      how peers, and other programs, may connect to the tcp backend
#
# A target starts from corpus/TARGET, and from what `TARGET --seeds FOLDER` writes, if it has that.
#
# usage: [CLANG=clang-14] [OUT=dir] [SEED=N] [TARGETS="fuzz_job ..."] run.sh [SECONDS]
#        360 seconds by default, which the targets share; OUT keeps what was found; SEED: of the inputs, another one each time by default
clang=${CLANG:-$(command -v clang-14 || command -v clang)}
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
targets=${TARGETS:-$(basename -s .c "$root"/tests/fuzz/fuzz_*.c)}
seconds=$((${1:-360} / $(echo "$targets" | wc -w)))
[ "$seconds" -gt 0 ] || seconds=1
out=${OUT:-$(mktemp -d)} || exit 2
mkdir -p "$out"
[ -n "$OUT" ] || trap 'rm -rf "$out"' EXIT
cd "$root" || exit 2

if [ -z "$clang" ] || ! echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }' |
    "$clang" -x c -fsanitize=fuzzer -o "$out/probe" - 2>/dev/null; then
    echo 1..1
    echo "ok 1 - fuzz # SKIP no clang with libFuzzer (clang, libclang-rt-dev)"
    exit 0
fi

# The Makefile's variant `fuzz`, which stays, so that the next build is short.
folder=${BUILDROOT:-build}/fuzz/tests/fuzz
build_targets() {
    printf "$folder/%s\n" "$@" | xargs make -s -j "$(nproc)" VARIANT=fuzz CC="$clang"
}
# starts TARGET: options, and folders to start from beside those of all targets
starts() {
    case $1 in
    fuzz_job) echo "-max_len=16384 -dict=tests/fuzz/job.dict" tests/golden/*/ ;;
    fuzz_layers) echo "-max_len=8192 -dict=tests/fuzz/job.dict" ;;
    fuzz_hosts) echo "-max_len=4096" ;;
    fuzz_ssh_config) echo "-max_len=4096 -dict=tests/fuzz/ssh_config.dict" ;;
    fuzz_describe | fuzz_agent | fuzz_control) echo "-max_len=8192" ;;
    fuzz_frames) echo "-max_len=32768 -close_fd_mask=3" ;;
    fuzz_conn) echo "-max_len=16384" ;;
    fuzz_coord | fuzz_base64 | fuzz_match | fuzz_wire) echo "-max_len=2048" ;;
    fuzz_staging | fuzz_stacks | fuzz_top) echo "-max_len=8192" ;;
    fuzz_link) echo "-max_len=1024" ;;
    fuzz_shm | fuzz_net) echo "-max_len=2048" ;;
    fuzz_report) echo "-max_len=65536 -dict=tests/fuzz/report.dict" ;;
    fuzz_trace) echo "-max_len=65536 -dict=tests/fuzz/trace.dict" ;;
    fuzz_diag) echo "-max_len=65536 -dict=tests/fuzz/diag.dict" ;;
    fuzz_record) echo "-max_len=65536" ;;
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
    fuzz_frames | fuzz_agent | fuzz_control | fuzz_record | fuzz_diag | fuzz_wire) "$folder/$1" --seeds "$out/$1.seeds" || return 1 ;;
    fuzz_trace) trace_seeds "$out/$1.seeds" || return 1 ;;
    esac
    [ ! -d "tests/fuzz/corpus/$1" ] || set -- "$1" "tests/fuzz/corpus/$1"
    set -- "$@" "$out/$1.seeds" $(starts "$1")
    target=$1
    shift
    "$folder/$target" -seed="${SEED:-0}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$out/$target-" $(printf '%s\n' "$@" | grep '^-') "$out/$target.corpus" $(printf '%s\n' "$@" | grep -v '^-')
}

# shellcheck disable=SC2086
build_targets $targets >"$out/log" 2>&1 # those that fail are built once more, to be reported
number=0 failed=0
echo "1..$(echo "$targets" | wc -w)"
for target in $targets; do
    number=$((number + 1))
    if build_targets "$target" >"$out/log" 2>&1 && fuzz "$target" >"$out/log" 2>&1; then
        echo "ok $number - $target $(grep -o 'number_of_executed_units: [0-9]*' "$out/log")"
    else
        echo "not ok $number - $target"
        sed 's/^/# /' "$out/log" | tail -n 60
        failed=1
    fi
done
exit $failed
