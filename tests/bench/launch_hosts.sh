#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Launch on many hosts. First: 8 hosts x 8 ranks by SSH (the testbed of tests/e2e/hosts: real sshds in network namespaces),
# start, form a group (over tcp, the default between hosts), allreduce once, exit, beside mpirun (Open MPI, TCP) on the same hosts,
# in turn. Then whether agents that start further agents (a tree) would start earlier: collrun's flat start of N SSH hosts, of which
# sshds of the testbed play N/8 each, beside a tree of two levels of bare ssh that starts `true`; logins as they are here, and such that take half a second.
# Then what the runner itself spends on 32 to 1,000 hosts whose agents are local processes: CPU time, memory, messages. Last: 1,000 such hosts with a
# rank each, one group, one allreduce.
# usage: tests/bench/launch_hosts.sh [ROUNDS]        COLLRUN=path/to/collrun; needs root, ip and sshd
. "$(dirname "$0")/../e2e/hosts/testbed.sh"
rounds=${1:-5}
testbed_up
for ((n = 1; n <= hosts; n++)); do on $n mount -t tmpfs none /tmp || exit 1; done # Open MPI's daemons meet there
plugin "$top/tests/bench/once.c" "$tmp/once.so" || exit 1
median() { sort -n "$1" | awk '{v[NR] = $1} END {printf "%.3f", v[int((NR + 1) / 2)] / 1e6}'; }
timed() {
    local name=$1 begin
    shift
    begin=$(date +%s%N)
    timeout 120 "$@" >"$tmp/out" 2>"$tmp/err" || { cat "$tmp/err"; echo "$name failed"; return 1; }
    echo $((($(date +%s%N) - begin) / 1000)) >>"$tmp/$name.us"
}

{ ssh_head; printf 'processes: {count: 64}\nworkloads: [{plugin: ./once.so}]\n'; } | job once
"$COLLRUN" once.yaml >/dev/null || exit 1 # stages
mpi=()
if command -v mpirun.openmpi mpicc.openmpi >/dev/null; then
    mpicc.openmpi -O2 "$top/tests/bench/hello_mpi.c" -o "$tmp/hello"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    list=$(for n in 1 2 3 4 5 6 7 8; do printf '10.91.0.%d:8,' $n; done)
    mpi=(mpirun.openmpi --host "${list%,}" -np 64 --mca mpi_yield_when_idle 1
        --mca plm_rsh_agent "ssh -F $tmp/ssh_config -i $tmp/id" --mca oob_tcp_if_include 10.91.0.0/24
        --mca btl_tcp_if_include 10.91.0.0/24 --mca btl self,tcp --oversubscribe "$tmp/hello")
fi
for ((r = 0; r < rounds; r++)); do
    timed collrun "$COLLRUN" once.yaml || exit 1
    [ ${#mpi[@]} -eq 0 ] || timed mpirun "${mpi[@]}" || mpi=()
done
echo "# 8 hosts x 8 ranks by SSH, one group, one allreduce; $(nproc) cores; medians of $rounds rounds, s"
printf 'collrun  %s\n' "$(median "$tmp/collrun.us")"
if [ -s "$tmp/mpirun.us" ]; then
    printf 'mpirun   %s\n' "$(median "$tmp/mpirun.us")"
    printf 'ratio    %s   (load %s)\n' "$(awk -v a="$(median "$tmp/collrun.us")" -v b="$(median "$tmp/mpirun.us")" 'BEGIN {printf "%.2f", a / b}')" \
        "$(cut -d' ' -f1 /proc/loadavg)"
fi

# logins SECONDS: each login takes so long on the host's side, and no CPU.
logins() {
    printf '#!/bin/sh\nsleep %s\ncat %s/id.pub\n' "$1" "$tmp" >/run/keys
    chmod 755 /run/keys
    local n
    for ((n = 1; n <= hosts; n++)); do
        sshd_down $n
        sshd_up $n 'MaxStartups 2000' 'AuthorizedKeysFile none' 'AuthorizedKeysCommand /run/keys' 'AuthorizedKeysCommandUser root'
    done
}
# flat N PARALLEL: until the only rank runs, ms; agents run on all hosts by then
flat() {
    local begin n
    cat <<JOB | job flat
version: 1
ssh: {identity: $tmp/id, config: $tmp/many_config, parallel: $2, connect_timeout: 60s}
hosts: {defaults: {transport: ssh}, nodes: ["s[1-$1]"]}
processes: {count: 1}
workloads: [{plugin: ./scripted.so, params: {dir: $tmp, do: "note up"}}]
timeouts: {start: 120s}
JOB
    cp ssh_config many_config
    for ((n = 1; n <= $1; n++)); do printf 'Host s%d\n  HostName 10.91.0.%d\n' $n $(((n - 1) % hosts + 1)); done >>many_config
    rm -f "$tmp"/notes.*
    begin=$(date +%s%N)
    "$COLLRUN" flat.yaml >"$tmp/out" 2>"$tmp/err" &
    within 120 noted 0 up || { cat "$tmp/err"; exit 1; }
    echo $((($(date +%s%N) - begin) / 1000)) >>"$tmp/flat.$1.$2.us"
    wait $!
}
# tree N WIDTH: WIDTH hosts, each of which starts as many as there are, less one
tree() {
    local begin ssh="ssh -n -F $tmp/ssh_config -i $tmp/id" branch='' n
    for ((n = 1; n < $2; n++)); do branch+="$ssh 10.91.0.$((n % hosts + 1)) true & "; done
    begin=$(date +%s%N)
    for ((n = 0; n < $2; n++)); do $ssh 10.91.0.$((n % hosts + 1)) "$branch wait" & tree_pids[n]=$!; done
    wait "${tree_pids[@]}"
    echo $((($(date +%s%N) - begin) / 1000)) >>"$tmp/tree.$1.us"
}
need_scripted
echo "# N hosts by SSH: until agents run on all, s; beside it, a tree of bare ssh; medians of $rounds rounds"
printf '%6s %10s %14s %14s %14s\n' N 'login (s)' 'parallel: 32' 'parallel: N' 'tree of ssh'
for login in 0 0.5; do
    logins $login
    for row in 64:8 256:16; do
        IFS=: read -r n width <<<"$row"
        rm -f "$tmp"/flat.*.us "$tmp"/tree.*.us
        flat "$n" 32 && rm "$tmp"/flat.*.us # stages
        for ((r = 0; r < rounds; r++)); do flat "$n" 32; flat "$n" "$n"; tree "$n" "$width"; done
        printf '%6d %10s %14s %14s %14s\n' "$n" $login "$(median "$tmp/flat.$n.32.us")" "$(median "$tmp/flat.$n.$n.us")" "$(median "$tmp/tree.$n.us")"
    done
done

echo "# the runner alone: N hosts, agents on this machine, one rank in all; CPU time to the first second of the run"
printf '%6s %12s %12s %14s %16s\n' hosts 'cpu (ms)' 'rss (KiB)' 'start (s)' 'messages/host'
for n in 32 64 128 256 512 1000; do
    cat <<JOB | job many
version: 1
hosts: {defaults: {transport: {command: ["$home/libexec/collrun/collrun-agent"]}}, nodes: ["s[1-$n]"]}
processes: {count: 1}
workloads: [{plugin: ./scripted.so, params: {dir: $tmp, do: "note up;sleep 1000"}}]
JOB
    rm -f "$tmp"/notes.*
    begin=$(date +%s%N)
    "$COLLRUN" -v many.yaml >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    within 60 noted 0 up || { cat "$tmp/err"; exit 1; }
    start=$((($(date +%s%N) - begin) / 1000000))
    cpu=$(awk '{ns += $1} END {printf "%.1f", ns / 1e6}' /proc/$pid/task/*/schedstat)
    rss=$(awk '/VmHWM/ {print $2}' "/proc/$pid/status")
    wait $pid || { cat "$tmp/err"; exit 1; }
    messages=$(sed -n 's/^collrun: \([0-9]*\) messages to and from.*/\1/p' "$tmp/err")
    printf '%6d %12s %12s %14s %16s\n' "$n" "$cpu" "$rss" "$(awk -v s=$start 'BEGIN {printf "%.2f", s / 1000}')" \
        "$(awk -v m="$messages" -v n=$n 'BEGIN {printf "%.1f", m / n}')"
done

# Each agent is its own host: what a host shares in memory is its one rank, and the group is formed over tcp.
echo "# 1,000 hosts with one rank each on this machine: start, form a group over tcp, allreduce once, exit; s"
for n in 100 300 1000; do
    cat <<JOB | job each
version: 1
hosts: {defaults: {slots: 1, transport: {command: ["$home/libexec/collrun/collrun-agent"]}}, nodes: ["s[1-$n]"]}
processes: {count: $n}
workloads: [{plugin: ./scripted.so, params: {dir: $tmp, do: "allreduce 1 world"}}]
timeouts: {start: 120s}
JOB
    begin=$(date +%s%N)
    "$COLLRUN" each.yaml >"$tmp/out" 2>"$tmp/err" || { tail -n 5 "$tmp/err"; exit 1; }
    awk -v n="$n" -v ns=$(($(date +%s%N) - begin)) 'BEGIN {printf "%6d %8.2f\n", n, ns / 1e9}'
done
