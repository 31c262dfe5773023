#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One job for long: two hosts (agents of this machine) of two ranks, 20 groups on shm, tcp and gloo, random operations at full rate,
# all checked, groups made and destroyed, lines printed. Runner, agents and ranks must hold at its end what they held early:
# memory, descriptors, threads, maps; and the job's files are as many.
#
# usage: [COLLRUN=path] [KEEP=1] run.sh [SECONDS]        60; the table on the way is of the runner, an agent and rank 0
set -u
. "$(dirname "$0")/../e2e/lib.sh"
seconds=${1:-60}
every=$((seconds / 60 > 0 ? seconds / 60 : 1))
plugin "$top/tests/soak/soak.c" "$tmp/soak.so" -O2 || exit 1
mkdir "$tmp/samples" "$tmp/runs" "$tmp/tmp"
export TMPDIR=$tmp/tmp XDG_RUNTIME_DIR=$tmp/tmp

groups() {
    local n=0 ranks
    for ranks in 0-1 2-3; do
        for _ in 1 2 3 4; do echo "  g$((n++)): {ranks: $ranks, backend: shm}"; done
    done
    for ranks in 0-3 0-3 0-2 1-3 "0,2" "1,3" "3,0"; do echo "  g$((n++)): {ranks: [$ranks], backend: tcp}"; done
    for ranks in 0-3 "0,3" "2,1" 0-1 0-2; do echo "  g$((n++)): {ranks: [$ranks], backend: gloo}"; done
}
job soak <<END
version: 1
hosts: {defaults: {slots: 2, transport: {command: ["$home/libexec/collrun/collrun-agent"]}}, nodes: [n1, n2]}
processes: {count: 4}
groups:
$(groups)
workloads: [{plugin: ./soak.so, params: {time: ${seconds}s, sample: ${every}s, samples: "$tmp/samples/rank{rank}"}}]
logging: {dir: $tmp/runs}
END

# hold PID: memory in KiB, descriptors, threads, maps of a process
hold() {
    local kib
    kib=$(awk '/RssAnon|RssShmem/ {n += $2} END {print n}' "/proc/$1/status") || return
    echo "$kib $(ls "/proc/$1/fd" | wc -l) $(ls "/proc/$1/task" | wc -l) $(wc -l <"/proc/$1/maps")"
}
files() { find "$tmp/tmp" "$tmp/runs" | wc -l; }
watch_processes() {
    local now agents n
    while kill -0 "$pid" 2>/dev/null; do
        now=$((SECONDS - begin))
        mapfile -t agents < <(pgrep -P "$(pgrep -d, -P "$pid" collrun-guard)" collrun-agent)
        for n in "${!agents[@]}"; do echo "$now 0 $(hold "${agents[n]}")" >>"$tmp/samples/agent$n"; done
        echo "$now 0 $(hold "$pid")" >>"$tmp/samples/runner"
        echo "$now 0 $(files) 0 0 0" >>"$tmp/samples/files"
        sleep "$every"
    done 2>/dev/null
}
# The engine keeps what it knows of the last groups and operations, and malloc the memory once used: for about a minute a process grows.
allowed=$((seconds < 1200 ? 16384 : 1024))
# Later what is allocated stays, and the pages that malloc has touched for it become a few more for hours, since sizes are random.
allowed_allocated=$((allowed / 2))
# flat NAME KIB: the second half held no more memory than the first one after a tenth of the time, but for KIB or 3 %, had no more allocated (ranks), and of the rest, what is
# always held in the last tenth is no more than the most of the first half: an agent that reads stacks, for a report of a stall, has two
# descriptors more for a moment.
flat() {
    local verdict
    verdict=$(awk -v kib="$2" -v allocated="$allowed_allocated" -v seconds="$seconds" '
        NF < 6 || $1 < seconds / 10 || $1 > seconds {next}
        {half = $1 < seconds / 2 ? 1 : 2; seen[half]++}
        {for (i = 3; i <= 7; i++) {sum[half, i] += $i; if ($i > top[half, i]) top[half, i] = $i}}
        $1 > seconds * 0.9 {for (i = 4; i <= 6; i++) if (!last[i] || $i < last[i]) last[i] = $i}
        END {
            if (!seen[1] || !seen[2]) {print "samples are missing"; exit}
            for (i = 3; i <= 7; i += 4) {first[i] = sum[1, i] / seen[1]; grown[i] = sum[2, i] / seen[2] - first[i]}
            if (kib && kib < first[3] * 0.03) kib = first[3] * 0.03
            printf "%d -> %d KiB, ", first[3], first[3] + grown[3]
            if (first[7]) printf "%d -> %d allocated, ", first[7], first[7] + grown[7]
            printf "%d descriptors, %d threads, %d maps", last[4], last[5], last[6]
            if (grown[3] > kib || grown[7] > allocated || last[4] > top[1, 4] || last[5] > top[1, 5] || last[6] > top[1, 6] + 1)
                printf "; before: %d descriptors, %d threads, %d maps: GROWN", top[1, 4], top[1, 5], top[1, 6]
        }' "$tmp/samples/$1")
    case $verdict in
    *GROWN* | *missing*) not_ok "$1 stays the same" "$verdict" ;;
    *) ok "$1 stays the same: $verdict" ;;
    esac
}

begin=$SECONDS
"$COLLRUN" soak.yaml >"$tmp/out" 2>"$tmp/err" &
pid=$!
children+=("$pid")
watch_processes
wait "$pid"
code=$?
is "the job ends well, every result is right" "$code" 0
steps=$(tail -n 1 "$tmp/samples/rank0" | cut -d' ' -f2)
echo "# $steps steps in $seconds s, $(nproc) cores; $(wc -l <"$tmp/out") lines"
[ "$code" -eq 0 ] || done_testing
for name in rank0 rank1 rank2 rank3 agent0 agent1 runner; do flat "$name" "$allowed"; done
flat files 0
is "nothing is left" "$(find "$tmp/tmp" -mindepth 1; pgrep -f "$tmp" -a | grep -v run.sh)" ""
done_testing
