#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The output of a rank that prints as fast as it can: MB and million lines a second, and the CPU time that the runner and the agent need for
# 1 GB, with lines of 0, 1, 85 and 20,000 bytes, to /dev/null, to a file, and with logging.dir; lines of 0 and 1 byte also with the time of
# each. MB (200) of each, without its label. It fails if a file has not all of it. The seconds depend on what else the machine does; the CPU
# time much less.
set -u
. "$(dirname "$0")/lib.sh"
cd "$work" || exit 1

# cpu PID: clock ticks
cpu() { awk '{sub(/.*\) /, ""); print $12 + $13}' "/proc/$1/stat"; }
peak() { awk '/VmHWM/ {print $2}' "/proc/$1/status"; }
# whole FILE BYTES: it has as many.
whole() { [ "$(stat -c %s "$1")" = "$2" ] || { echo "$1 has $(stat -c %s "$1") bytes, not $2"; return 1; }; }
# prints LINE STDOUT DIR [TIMESTAMPS]
prints() {
    local begin took pid agent per_gb lines=$((${MB:-200} * 1000000 / ($1 + 1)))
    local bytes=$((lines * ($1 + 1)))
    rm -rf done go fast out
    printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{command: [sh, -c, %s]}]\n' \
        "\"yes \\\"\$(cat '$work/line')\\\" | head -c $bytes; touch '$work/done'; until [ -e '$work/go' ]; do sleep 0.05; done\"" >job.yaml
    echo "logging: {console: {timestamps: ${4:-false}}${3:+, dir: $3, max_file: 100GiB}}" >>job.yaml
    head -c "$1" /dev/zero | tr '\0' a >line
    begin=$(date +%s%N)
    "$collrun" run job.yaml >"$2" &
    pid=$!
    until [ -e "$work/done" ]; do
        kill -0 $pid 2>/dev/null || { echo "the job failed"; return 1; }
        sleep 0.01
    done
    took=$((($(date +%s%N) - begin) / 1000000))
    agent=$(pgrep -P "$(pgrep -P $pid -x collrun-guard)" -x collrun-agent)
    per_gb="1000000000 / $bytes / $(getconf CLK_TCK)"
    awk "BEGIN {printf \"%6d  %-9s  %-3s  %-4s  %6.0f  %7.2f  %6.2f  %6.2f  %6d  %6d\\n\", $1, \"$(basename "$2")\", \"${3:+yes}\", \"${4:+yes}\", $bytes / 1000 / $took, $lines / 1000 / $took,
        $(cpu $pid) * $per_gb, $(cpu "$agent") * $per_gb, $(peak $pid), $(peak "$agent")}"
    touch go
    wait $pid || { echo "the job failed"; return 1; }
    [ "$2" != out ] || whole out $((bytes + lines * (${4:+13 +} 4))) || return 1 # with labels: "[0] ", and "12:00:00.000 "
    [ -z "$3" ] || whole "$3/attempt-0/rank-0.stdout" $bytes
}
echo "# $(machine)"
echo "  line  stdout     dir  time    MB/s   Mlines  runner   agent  CPU s/GB; peak memory of runner and agent, KiB"
for len in 0 1; do prints $len out "" true || exit 1; done
for len in 0 1 85 20000; do
    prints $len /dev/null "" || exit 1
    prints $len out "" || exit 1
    prints $len /dev/null fast || exit 1
done
