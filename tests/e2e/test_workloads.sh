#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several workloads per rank, background ones, who runs where, and groups that two workloads want.
. "$(dirname "$0")/lib.sh"
need_scripted

# Each waits for the other by a group that only it and its peer drive: both threads must run at once.
job two <<END
version: 1
processes: {count: 4}
groups:
  a: {ranks: all, backend: shm}
  b: {ranks: all, backend: gloo}
workloads:
  - {name: first, plugin: ./scripted.so, groups: [a], params: {do: "allreduce 200 a; print first done"}}
  - {name: second, plugin: ./scripted.so, groups: [b], params: {do: "allreduce 200 b; print second done"}}
  - {name: third, plugin: hello, ranks: 1-2, groups: []}
END
run run two.yaml
ends "three workloads" 0
is "each ran on its ranks" "$(grep -c 'first done' out), $(grep -c 'second done' out)" "4, 4"
job parallel <<END
version: 1
processes: {count: 1}
workloads:
  - {name: waits, plugin: ./scripted.so, groups: [], params: {dir: "$tmp", do: "until-stopped; print waited"}, background: true}
  - {name: works, plugin: ./scripted.so, groups: [], params: {dir: "$tmp", do: "await 1 waiting; print worked"}}
END
run run parallel.yaml
ends "workloads of one rank run at the same time" 0
like "a background workload is stopped when the others are done" "$(out)" 'waited'

job background <<END
version: 1
processes: {count: 3}
workloads:
  - {name: beat, plugin: ./scripted.so, ranks: 2, groups: [], params: {dir: "$tmp", do: "until-stopped"}, background: true}
  - {name: work, plugin: ./scripted.so, ranks: 0-1, groups: [], params: {dir: "$tmp", do: "await 1 waiting; note worked"}}
END
run run background.yaml
ends "also when they run on other ranks" 0
check "it stopped after them" noted 2 stopped
job stubborn <<END
version: 1
processes: {count: 1}
workloads:
  - {name: beat, plugin: ./scripted.so, groups: [], params: {do: "hang"}, background: true}
  - {name: work, plugin: ./scripted.so, groups: [], params: {do: "print worked"}}
timeouts: {grace: 300ms}
END
run run stubborn.yaml
check "one that does not listen is ended after the grace time" [ "$elapsed" -lt $((30000 * slow)) ]
like "the work of the others is not lost" "$(out)" 'worked'
job badbeat <<END
version: 1
processes: {count: 2}
workloads:
  - {name: beat, plugin: ./scripted.so, ranks: 1, groups: [], params: {do: "exit 3"}, background: true}
  - {name: work, plugin: ./scripted.so, groups: [], params: {do: "hang"}}
timeouts: {grace: 100ms}
END
run run badbeat.yaml
ends "a background workload that fails fails the job" 3

job ranks <<END
version: 1
processes: {count: 6}
workloads:
  - {name: low, plugin: ./scripted.so, ranks: 0-2, params: {do: "print low"}}
  - {name: high, plugin: ./scripted.so, ranks: [5, 4], params: {do: "print high"}}
END
run run ranks.yaml
is "ranks chooses where a workload runs; a rank may have none" "$(sort out)" \
    "$(printf '[0] low\n[1] low\n[2] low\n[4] high\n[5] high')"
ends "that is no failure" 0
job fails <<END
version: 1
processes: {count: 2}
workloads:
  - {name: good, plugin: ./scripted.so, groups: [], params: {do: "hang"}}
  - {name: poor, plugin: ./scripted.so, groups: [], params: {do: "@1 exit 6"}}
timeouts: {grace: 100ms}
END
run run fails.yaml
ends "one of several workloads fails: its exit code" 6
like "the report names the workload" "$(err)" 'poor'

# ---- who may use which group ----
job listed <<END
version: 1
processes: {count: 2}
groups: {a: {ranks: all}, b: {ranks: all}}
workloads:
  - {plugin: ./scripted.so, groups: [a], params: {do: "where a; where b"}}
END
run run listed.yaml
like "a group that the workload lists is there" "$(out)" '^\[0\] a: exists 1, rank 0, size 2, order 0 1'
unlike "one that it does not list cannot be had" "$(out)" 'b: .*order'
job clash <<END
version: 1
processes: {count: 2}
groups: {a: {ranks: all, timeout: 20s}}
workloads:
  - {name: first, plugin: ./scripted.so, groups: [a], params: {do: "endless a"}}
  - {name: second, plugin: ./scripted.so, groups: [a], params: {do: "endless a"}}
timeouts: {run: 20s, grace: 1s}
END
run run clash.yaml
ends "two workloads that drive one group at once are refused: 1" 1
like "the error names the group" "$(err)" '(group )?"?a"?.*(first|second|workload|same time|at once)'

# ---- check knows from the plugins whether two workloads may clash ----
warned() { # WHAT "WORKLOADS" REGEX, or without: no warning
    printf 'version: 1\nprocesses: {count: 2}\ngroups: {a: {ranks: all}}\nworkloads: [%s]\n' "$2" >warned.yaml
    run check warned.yaml
    if [ "$#" = 3 ]; then like "$1" "$(err)" "$3"; else is "$1" "$code $(err)" "0 "; fi
}
warned "two that share world by default" '{plugin: allreduce}, {plugin: bench, params: {max: 1KiB}}' \
    '^warned.yaml:4:[0-9]+: warning: workloads\[1\]: "allreduce" and "bench" run at the same time on rank 0.*"world"'
like "with both places" "$(err)" '^warned.yaml:4:[0-9]+: note: the other workload'
like "and a remedy" "$(err)" 'hint: .*groups: \[NAME\]'
is "it is no error" "$code $(out)" "0 warned.yaml: no errors, 1 warning"
warned "a background workload is another one" \
    '{plugin: ./scripted.so, background: true}, {plugin: ./scripted.so, groups: [a]}' 'warning: .*"scripted" and "scripted#2".*"a"'
warned "different groups" '{plugin: allreduce, groups: [world]}, {plugin: bench, groups: [a]}'
warned "different ranks" '{plugin: allreduce, ranks: 0}, {plugin: bench, ranks: 1}'
warned "different groups by a parameter" '{plugin: allreduce, params: {group: a}}, {plugin: allreduce, params: {group: world}}'
warned "one that calls no collectives" '{plugin: allreduce}, {plugin: hello}'
run check -q warned.yaml --set 'workloads[1].plugin=allreduce'
is "-q shows no warnings" "$code $(out)$(err)" "0 "

job names <<END
version: 1
processes: {count: 1}
workloads:
  - {name: same, plugin: ./scripted.so}
  - {name: same, plugin: ./scripted.so}
END
run run names.yaml
ends "two workloads of one name: 2" 2
like "at its place" "$(err)" 'names\.yaml:5:[0-9]+: error: .*same'

job order <<END
version: 1
processes: {count: 4}
workloads:
  - {plugin: ./scripted.so, params: {init: "@!0 note init; @0 await 3 init; @0 note init", do: "note run", fini: "note fini", dir: "$tmp"}}
END
run run order.yaml
is "init, run, fini in order" "$(notes 3 | tr '\n' ' ')" "init run fini "
job barrier <<END
version: 1
processes: {count: 3}
workloads:
  - {plugin: ./scripted.so, params: {init: "@0 sleep 300; @0 hex 69 0a", do: "@1 hex 72 0a", dir: "$tmp"}}
END
run run barrier.yaml
is "all ranks pass init before any runs" "$(cut -d' ' -f2 out | tr '\n' ' ')" "i r "
job ingroup <<END
version: 1
processes: {count: 3}
workloads:
  - {plugin: ./scripted.so, params: {init: "allreduce 3 world", do: "allreduce 3 world", fini: "allreduce 3 world"}}
END
run run ingroup.yaml
ends "groups can be used in init, run and fini" 0
done_testing
