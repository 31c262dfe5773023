#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Groups: the implicit world, order of ranks, members and others, auto, split: host, several at once, mixed backends.
. "$(dirname "$0")/lib.sh"
own_namespaces -n # some ports are given by number
need_scripted
shows() { like "$1" "$(out)" "$2"; }

# ---- world and auto ----
simple world 3 "where world; allreduce 10 world; print fine"
run run world.yaml
shows "without groups there is world, of all ranks" '^\[2\] world: exists 1, rank 2, size 3, order 0 1 2, '
shows "auto is shm on one host" 'order 0 1 2, shm$'
is "and it works" "$(grep -c fine out)" 3
simple unknown 2 "where wrld"
run run unknown.yaml
shows "an unknown name: those that the workload has" 'no group named "wrld"; workload "scripted" has world$'
simple one 1 "where world; allreduce 5 world; print fine"
run run one.yaml
shows "a world of one rank works" '^\[0\] fine$'
run run world.yaml --set groups.world.backend=gloo
shows "--set chooses the backend of world" 'order 0 1 2, gloo$'
is "and it works too" "$(grep -c fine out)" 3
run run world.yaml --set groups.world.backend=GLOO
shows "backend names know no case" 'order 0 1 2, gloo$'
simple many 16 "allreduce 20 world; print fine"
run run many.yaml
is "16 ranks on shm" "$(grep -c fine out)" 16
simple ports 3 "note up; endless world" "groups: {world: {backend: tcp, options: {local: tcp}}}"
# listening: the ports that the ranks of the job listen on
listening() {
    local pid sockets=
    for pid in $(executing "$home/libexec/collrun/*"); do sockets+=" $(ls -l "/proc/$pid/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\]/\1/p' | tr '\n' ' ')"; done
    awk -v sockets=" $sockets " '$4 == "0A" && index(sockets, " " $10 " ") { sub(/.*:/, "", $2); print $2 }' /proc/net/tcp |
        while read -r port; do echo $((16#$port)); done | sort -nu
}
for attempt in first second; do # closed connections hold no port for the next job
    start ports.yaml --set network.ports=23310-23313
    within 60 noted_all 3 up
    is "$attempt job: tcp listens on network.ports, all but MASTER_PORT" "$(listening | paste -sd' ')" "23310 23311 23312"
    kill -INT "$pid" && finish 60
done
simple gloo_ports 3 "note up; endless world" "groups: {world: {backend: gloo}}"
start gloo_ports.yaml --set network.ports=23350-23353
within 60 noted_all 3 up
is "gloo listens on network.ports" "$(listening | paste -sd' ')" "23350 23351 23352"
kill -INT "$pid" && finish 60
if "$COLLRUN" backends 2>/dev/null | grep -q '^ucx .*: available'; then
    start ports.yaml --set groups.world.backend=ucx --set network.ports=23330-23349
    within 60 noted_all 3 up
    is "ucx: each rank listens on a port of network.ports, and on no other" \
        "$(listening | awk '{ if ($1 < 23330 || $1 > 23349) others = others " " $1; else n++ } END { print (n >= 3), others }')" "1 "
    kill -INT "$pid" && finish 60
else
    skip "ucx: each rank listens on a port of network.ports" "ucx is not available here"
fi
run ports.yaml --set network.ports=23320-23322
is "a range with fewer ports than ranks and MASTER_PORT need" "$code" 126
like "the error names the range" "$(err)" 'world.*tcp.*no port of network.ports \(23320-23322\) is free; each rank needs one$'
run run many.yaml --set groups.world.backend=gloo
is "16 ranks on gloo" "$(grep -c fine out)" 16

# ---- members, order ----
job order <<END
version: 1
processes: {count: 5}
groups:
  world: {ranks: all}
  mixed: {ranks: [4, 0, 3], backend: gloo}
  stride: {ranks: "0-4:2"}
  single: {ranks: 1, backend: shm}
  sized: {ranks: 1-3, world_size: 3}
workloads:
  - {plugin: ./scripted.so, params: {do: "where mixed; where stride; where single; where sized; where nothing; allreduce 3 mixed stride single sized; print fine"}}
END
run run order.yaml
ends "several groups" 0
shows "the order of ranks is the order of group ranks" '^\[4\] mixed: exists 1, rank 0, size 3, order 4 0 3, gloo$'
shows "on each member" '^\[3\] mixed: exists 1, rank 2, size 3, order 4 0 3, gloo$'
shows "a stride" '^\[2\] stride: exists 1, rank 1, size 3, order 0 2 4, shm$'
shows "a group of one rank" '^\[1\] single: exists 1, rank 0, size 1, order 1, shm$'
shows "no member: rank and size are -1, get says NOT_MEMBER (-3)" '^\[1\] mixed: exists 0, rank -1, size -1: status -3: .*mixed'
shows "unknown: rank and size are -1, get says NOT_FOUND (-2)" '^\[0\] nothing: exists 0, rank -1, size -1: status -2: .*nothing'
is "and all of them work" "$(grep -c fine out)" 5

# ---- at once ----
# grid WHAT STEPS: rows and columns of a 2 x 3 grid and two groups of all, on both backends.
grid() {
    job grid <<END
version: 1
processes: {count: 6}
groups:
  row0: {ranks: 0-2, backend: shm}
  row1: {ranks: 3-5, backend: gloo}
  col0: {ranks: [0, 3], backend: gloo}
  col1: {ranks: [1, 4], backend: shm}
  col2: {ranks: [5, 2], backend: gloo}
  all: {ranks: all, backend: shm}
  back: {ranks: "[5, 4, 3, 2, 1, 0]", backend: gloo}
workloads:
  - {plugin: ./scripted.so, params: {do: "$2; print fine"}}
END
    sed -i 's/"\[5, 4, 3, 2, 1, 0\]"/[5, 4, 3, 2, 1, 0]/' grid.yaml
    run run grid.yaml
    is "$1" "$code, $(grep -c fine out) fine" "0, 6 fine"
}
grid "overlapping groups from one thread" "allreduce 100 row0 row1 col0 col1 col2 all back"
grid "two groups of the same ranks from two threads" "threads 200 all back"
grid "disjoint groups in parallel" "allreduce 500 row0 row1"
grid "rows, columns and all, a thread for each" \
    "@0 threads 100 row0 col0 all back; @1 threads 100 row0 col1 all back; @2 threads 100 row0 col2 all back; @3 threads 100 row1 col0 all back; @4 threads 100 row1 col1 all back; @5 threads 100 row1 col2 all back"
grid "at different paces" "@1 note on; @2 note on; @0 await 2 on; @3 threads 50 row1 col0; @0 threads 50 row0 col0; @1 allreduce 50 row0; @2 allreduce 50 row0; @4 allreduce 50 row1; @5 allreduce 50 row1"

# ---- hosts ----
job hosts <<END
version: 1
hosts: {nodes: [{name: left, transport: local, slots: 2}, {name: right, transport: local, slots: 2}]}
processes: {count: 4}
groups:
  world: {ranks: all}
  node: {ranks: all, split: host}
  apart: {ranks: 0-1, backend: shm}
workloads:
  - {plugin: ./scripted.so, params: {do: "job; where node/left; where node/right; where apart; allreduce 20 world node/left node/right; print fine"}}
END
run run hosts.yaml
ends "two local hosts" 0
shows "ranks fill the hosts by their slots" '^\[2\] rank 2 of 4, local 0 of 2, attempt 0, host right,'
shows "split: host makes one group per host" '^\[1\] node/left: exists 1, rank 1, size 2, order 0 1, '
shows "and the other" '^\[3\] node/right: exists 1, rank 1, size 2, order 2 3, '
shows "a rank of the other host is no member" '^\[0\] node/right: exists 0, rank -1, size -1: status -3'
is "all of them work" "$(grep -c fine out)" 4
run run hosts.yaml --set processes.map=cyclic --set 'groups.apart.ranks=[0, 2]'
shows "map: cyclic deals the ranks out" '^\[2\] node/left: exists 1, rank 1, size 2, order 0 2, '
job across <<END
version: 1
hosts: {nodes: [{name: left, transport: local}, {name: right, transport: local}]}
processes: {count: 4}
groups:
  wide: {ranks: all, backend: shm}
workloads: [{plugin: ./scripted.so}]
END
run run across.yaml
ends "shm across hosts is refused: 2" 2
like "at its line" "$(err)" 'across\.yaml:5:[0-9]+: error: .*shm'

# ---- what does not fit ----
# wrong WHAT GROUP REGEX
wrong() {
    job wrong <<END
version: 1
processes: {count: 4}
groups:
  g: $2
workloads: [{plugin: ./scripted.so}]
END
    run run wrong.yaml
    like "$1: 2" "exit $code: $(err)" "^exit 2: wrong\.yaml:4:[0-9]+: error: groups\.g.*$3"
}
wrong "a rank that does not exist" '{ranks: [0, 4]}' '4'
wrong "a rank twice" '{ranks: [0, 1, 0]}' '0'
wrong "world_size that disagrees" '{ranks: 0-2, world_size: 4}' '(3.*4|4.*3)'
wrong "an unknown key" '{ranks: 0-2, bakend: shm}' 'bakend'
wrong "an empty range" '{ranks: 3-1}' '3-1'
wrong "an operator's time-out that is none" '{ranks: all, timeout: soon}' 'soon'
job nogroup <<END
version: 1
processes: {count: 2}
groups: {train: {ranks: all}}
workloads:
  - {plugin: ./scripted.so, groups: [trian]}
END
run run nogroup.yaml
like "a workload's unknown group, with a hint" "$(err)" 'did you mean "train"'
ends "with 2" 2
# ---- what groups cost ----
simple gloo_hold 4 "hold 20 world; allreduce 3 world; print fine" "groups: {world: {backend: gloo}}"
run run gloo_hold.yaml
is "4 ranks have 20 groups of gloo open" "$(grep -c fine out)" 4
most=$(sed -n 's/^.* \([0-9]*\) descriptors each$/\1/p' out | sort -n | tail -1)
check "a group of 4 on gloo holds at most 5 descriptors of each rank (${most:-unknown})" [ "${most:-6}" -le 5 ]
simple hold 8 "hold 1000 world; allreduce 3 world; print fine"
run run hold.yaml
is "8 ranks have 1,000 groups open at the same time" "$(grep -c fine out)" 8
case $home in
*asan* | *tsan*) skip "the memory of a sanitized build" "it is the sanitizer's" ;;
*)
    most=$(sed -n 's/^.*1000 groups: \([0-9]*\) KiB.*/\1/p' out | sort -n | tail -1)
    check "and each takes at most 2 MiB of address space (${most:-?})" test "${most:-4000}" -le 2048
    ;;
esac
is "and no descriptor" "$(grep -c ', 0 descriptors each' out)" 8
done_testing
