#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun doctor on this machine: what cannot be loaded here stands in the table, and the rest is examined all the same. Many
# hosts: hosts/test_doctor.sh.
. "$(dirname "$0")/lib.sh"
top=$(cd "$here/../.." && pwd)
row() { sed -n 2p "$tmp/out" | tr -s ' '; }

printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{plugin: hello}]\n' | job good
run doctor good.yaml
ends "a good job" 0
like "its table" "$(head -n 1 "$tmp/out" | tr -s ' ')" '^host reached version clock interface reachable devices backends workloads$'
like "its row" "$(row)" '^[^ ]+ [0-9.]+ s [0-9.]+ [0-9a-f]+ [+-]0[.]0 ms lo 127.0.0.1 - (none|[0-9]+ .*) shm [0-9.]+ hello$'
quiet "stderr stays empty"

plugin "$top/tests/unit/plugins/backend_msg.c" "$tmp/libcollrun_msg.so" -DBROKEN_PROBE || exit 1
cat <<'JOB' | job unavailable
version: 1
processes: {count: 2}
backends: {msg: {path: ./libcollrun_msg.so}}
groups:
  pair: {backend: msg}
  world: {backend: shm}
workloads: [{plugin: hello}]
JOB
run doctor unavailable.yaml
ends "a backend that is not available" 126
like "its row" "$(row)" ' msg \(no\), shm [0-9.]+ hello$'
like "the reason, with its place" "$(err)" \
    '^unavailable.yaml:5:[0-9]+: error: host [^ ]+: backend msg: the moon is in the wrong phase'
run unavailable.yaml
ends "which a run would be refused for" 126

echo 'not a library' >"$tmp/libcollrun_msg.so"
cp "$tmp/libcollrun_msg.so" "$tmp/broken.so"
sed -i 's|{plugin: hello}|{plugin: ./broken.so}, {plugin: hello}|' "$tmp/unavailable.yaml"
run doctor unavailable.yaml
ends "a backend and a workload that cannot be loaded" 126
like "their row" "$(row)" ' msg \(no\), shm [0-9.]+ broken \(no\), hello$'
like "the backend's reason" "$(err)" 'unavailable.yaml:5:.*: backend msg: .*libcollrun_msg.so'
like "the workload's reason" "$(err)" 'unavailable.yaml:7:.*: workload broken: .*broken.so'

# ---- spare hosts ----
cat <<'JOB' | job spare
version: 1
hosts: {spare: 1, defaults: {transport: {command: [env]}}, nodes: [one, two]}
stage: never
processes: {count: 2}
workloads: [{plugin: hello}]
JOB
run doctor spare.yaml
ends "a spare host" 0
is "has its row" "$(cut -d ' ' -f 1 "$tmp/out" | tr '\n' ' ')" "host one two "
sed -i 's/nodes: .*two/nodes: [one, {name: two, transport: {command: [false]}}/' spare.yaml
run doctor spare.yaml
ends "one that cannot be reached" 127
like "is reported with its place" "$(err)" '^spare.yaml:2:[0-9]+: error: host two: '

# ---- commands ----
printf '#!/no/such/interpreter\n' >broken.sh && chmod +x broken.sh
printf '#!/usr/bin/env -S no-such-program -u\n' >absent.sh && chmod +x absent.sh
printf '#!/bin/sh\n' >good.sh && chmod +x good.sh
printf '#!/bin/sh\r\n' >returns.sh && chmod +x returns.sh
cat <<'JOB' | job programs
version: 1
processes: {count: 6}
workloads:
  - {command: [./broken.sh], ranks: 0}
  - {command: [./absent.sh], ranks: 1}
  - {command: [./good.sh], ranks: 2}
  - {plugin: hello, ranks: 3, groups: []}
  - {command: [sh], ranks: 4, workdir: nowhere}
  - {command: [./returns.sh], ranks: 5}
JOB
run doctor programs.yaml
ends "programs that cannot start" 126
like "their row" "$(row)" ' hello, broken.sh \(no\), absent.sh \(no\), good.sh, sh \(no\), returns.sh \(no\)$'
like "a script without its interpreter" "$(err)" 'programs.yaml:4:.*error: host [^ ]+: command of broken.sh: .*broken.sh needs the interpreter /no/such/interpreter: No such file'
like "a script whose interpreter env does not find" "$(err)" 'programs.yaml:5:.*absent.sh needs no-such-program, which is not in PATH'
like "a script with the lines of another system" "$(err)" 'programs.yaml:9:.*returns.sh has lines that end with CR LF, so its first line names "/bin/sh.r"'
like "a working directory that does not exist" "$(err)" 'programs.yaml:8:.*command of sh: working directory .*/nowhere: No such file'
done_testing
