#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Chaos: on eight hosts, one rank each, something is killed or stopped (SIGSTOP) at each moment of a job's life: rank 4, its host's agent, its
# sshd, its link, collrun itself. Each cell must have its exit code, an error that names the culprit, and end in time; nothing may be left on any
# host once the stopped process or the link is back. The workload stops at each moment (chaos.c), so that every cell hits it.
# chaos.md is the table that this prints; CHAOS=FILE writes it anew. CELLS="agent:kill:run ..." runs only these. BACKEND (tcp): of the group.
. "$(dirname "$0")/testbed.sh"
testbed_up
plugin "$testbed_dir/chaos.c" "$tmp/chaos.so"
plugin "$testbed_dir/chaos.c" "$tmp/libcollrun_chaos.so" -DBACKEND
{
    ssh_head
    cat <<END
processes: {count: 8}
backends: {chaos: {path: $tmp/libcollrun_chaos.so}}
groups:
  world: {ranks: all, backend: ${BACKEND:-tcp}, timeout: 3s}
  held: {ranks: all, backend: chaos}
workloads: [{plugin: $tmp/chaos.so}]
env: {set: {CHAOS_DIR: $tmp/gates, CHAOS_RANK: "{rank}"}}
timeouts: {start: 8s, rendezvous: 3s, grace: 1s, silence: 3750ms}
END
} | job chaos

# victim WHO: its pids
victim() {
    case $1 in
    rank) processes 5 collrun-engine ;;
    agent) processes 5 collrun-agent ;;
    sshd) processes 5 sshd | grep -vx "$(cat "$tmp/h5/pid")" ;; # those of the session
    runner) echo "$pid" ;;
    esac
}
# wanted WHO WHAT MOMENT: "CODE REGEX" of the verdict
wanted() {
    case $1:$2:$3 in
    rank:kill:*) echo '137 rank 4 \(h5, .*killed by signal 9 \(SIGKILL\)' ;;
    rank:stop:launch) echo '124 group .*world.*rank 4 did not join' ;;
    rank:stop:rendezvous) echo '124 group .*held.*rank 4 did not finish joining' ;;
    rank:stop:run) echo '124 .*allreduce world#N: .*ranks? [0-9, and]*4 ha(s|ve) (not called it|been stopped by a signal)' ;;
    rank:stop:shutdown) echo '124 all workloads are done, .*rank 4 \(closing' ;;
    runner:kill:*) echo '137 ' ;;
    runner:pause:*) echo '0 ' ;;
    runner:stop:shutdown) echo '127 host h5 lost, with rank 4: collrun was stopped for' ;;
    runner:stop:*) echo '127 host h[1-8] lost, with rank [0-7]: collrun was stopped for' ;;
    *) echo '127 host h5 lost, with rank 4: ' ;;
    esac
}
reached() { test -e "$tmp/gates/at.$1"; }
over() { gone_or_zombie "$pid" && nothing_left; }

cell() {
    local who=$1 what=$2 moment=$3 gate pids begin ms left verdict want frozen=
    rm -rf "$tmp/gates"
    mkdir "$tmp/gates"
    for gate in launch rendezvous run shutdown; do [ "$gate" = "$moment" ] || : >"$tmp/gates/$gate.go"; done
    start chaos.yaml
    if ! maybe_within 40 reached "$moment"; then
        not_ok "$who $what at $moment" "the moment did not come"
        kill -KILL "$pid"
        wait "$pid" 2>/dev/null
        return
    fi
    pids=$(victim "$who")
    begin=$(date +%s%N)
    case $what in
    kill) kill -KILL $pids ;;
    cut) link 5 down ;;
    stop) kill -STOP $pids && frozen=$pids ;;
    pause) kill -STOP $pids && sleep 2 && kill -CONT $pids ;;
    esac
    [ "$what" = pause ] && : >"$tmp/gates/$moment.go"
    if [ "$who:$what" = runner:stop ]; then # for longer than its agents wait for a heartbeat
        maybe_within 40 nothing_left # `left` and the verdict below judge it
        kill -CONT $pids
        frozen=
    fi
    if [ "$who:$what" = runner:kill ]; then
        maybe_within 40 over # the limit on $ms and `left` judge it
        ms=$((($(date +%s%N) - begin) / 1000000))
        wait "$pid" 2>/dev/null
        code=$?
    else
        finish 60
        ms=$((($(date +%s%N) - begin) / 1000000))
    fi
    # Up to here the victim's host may be unreachable; now it is reachable again.
    [ -z "$frozen" ] || kill -CONT $frozen 2>/dev/null
    [ "$what" = cut ] && link 5 up
    left=nothing
    maybe_within 20 nothing_left || left="processes on a host"
    verdict=$(grep -m 1 'error: ' err | sed -E 's/^[^ ]* (error: )?(error: )?//; s/pid [0-9]+/pid N/; s/#[0-9]+/#N/; s/[0-9.]+ (ms|s)\b/N s/g')
    read -r want_code want <<<"$(wanted "$who" "$what" "$moment")"
    printf '| %s | %s | %s | %s | %s | %s.%s s | %s |\n' "$who" "$what" "$moment" "$code" "${verdict:-(none)}" $((ms / 1000)) $((ms % 1000 / 100)) "$left" >>"$tmp/table"
    if [ "$code" = "$want_code" ] && grep -qE -- "$want" <<<"$verdict" && [ "$left" = nothing ] && [ "$ms" -lt $((40000 * slow)) ]; then
        ok "$who $what at $moment: $code in $ms ms"
    else
        not_ok "$who $what at $moment: $want_code" "got: $code, $verdict" "left: $left, after $ms ms"
    fi
}

all=
for moment in launch rendezvous run shutdown; do
    for cell in rank:kill rank:stop agent:kill agent:stop sshd:kill sshd:stop link:cut runner:kill runner:pause runner:stop; do
        all="$all $cell:$moment"
    done
done
for c in ${CELLS:-$all}; do
    IFS=: read -r who what moment <<<"$c"
    cell "$who" "$what" "$moment"
done
{
    echo '| victim | what | moment | code | verdict | time | left |'
    echo '|---|---|---|---|---|---|---|'
    cat "$tmp/table"
} | tee "${CHAOS:-/dev/null}" | sed 's/^/# /'
done_testing
