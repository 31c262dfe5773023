#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same hosts reached by a command (nsenter here; kubectl exec -i, docker exec -i are of the same kind).
. "$(dirname "$0")/testbed.sh"
. "$testbed_dir/suite.sh"
testbed_up
need_scripted
head_of() { command_head "\"h[1-$1]\""; }
killed='nsenter was killed by signal 9 \(SIGKILL\)$'
suite command

# A command that names the agent itself is run as it is, whatever it prints first.
printf '#!/bin/sh\necho "connecting to $1 ..."\nprintf "a line without an end"\nshift\nexec "$@"\n' >"$tmp/noisy"
chmod +x "$tmp/noisy"
cat <<JOB | job bare
version: 1
hosts: {defaults: {transport: {command: [$tmp/noisy, "{host}", $home/libexec/collrun/collrun-agent]}}, nodes: [a]}
processes: {count: 2}
workloads: [{plugin: hello}]
JOB
run bare.yaml
ends "an agent that is called by name, after noise" 0
is "its ranks speak" "$(grep -c hello "$tmp/out")" 2
ip netns attach blue "$(processes 1 sshd)" && ip netns attach green "$(processes 2 sshd)"
run "$top/configs/command.yaml"
ends "configs/command.yaml" 0
like "between the namespaces" "$(out)" '4 ranks on tcp.*verified'

# Commands that live on after their agents: the loss of each host waits for its command to exit, all of them at the same time. When
# collrun has seen the end of a stream, it closes the other direction.
cat >"$tmp/lives" <<'LIVES'
#!/bin/bash
exec 3<&0
"${@:2}" <&3 3<&- &
exec >/dev/null 2>&1
echo $! >"$0.guard.$1"
wait
until cat <&3; do sleep 0.05; done # the agent has made it nonblocking
date +%s >"$0.seen.$1"
exec sleep 300
LIVES
chmod +x "$tmp/lives"
cat <<JOB | job lives
version: 1
hosts: {defaults: {transport: {command: [$tmp/lives, "{host}", $home/libexec/collrun/collrun-agent]}}, nodes: ["a[1-20]"]}
processes: {count: 20}
workloads: [{plugin: $tmp/scripted.so, params: {dir: $tmp, do: "note up;hang"}}]
timeouts: {grace: 1s}
JOB
start lives.yaml
within 60 noted_all 20 up
kill -KILL $(for n in {1..20}; do pgrep -P "$(cat "$tmp/lives.guard.a$n")" -x collrun-agent; done)
finish 60
ends "20 hosts are lost whose commands live on" 127
like "what is known of the first" "$(err)" 'error: host a[0-9]+ lost, with rank [0-9]+: .*/lives closed the connection$'
check "all of them at the same time" [ $(($(sort -n "$tmp"/lives.seen.* | tail -n 1) - $(sort -n "$tmp"/lives.seen.* | head -n 1))) -lt 8 ]

# Ctrl-C reaches collrun only: the command runs in another session.
{ head_of 2; printf 'processes: {count: 2}\nworkloads:\n  - {plugin: %s/scripted.so, params: {dir: %s, do: "note up;until-stopped;note stopped"}}\n' \
    "$tmp" "$tmp"; } | job interrupt
start interrupt.yaml
within 60 noted_all 2 up
kill -INT -- "-$pid"
finish 60
is "Ctrl-C: the code" "$code" 130
check_within "Ctrl-C: nothing is left on any host" 60 nothing_left
done_testing
