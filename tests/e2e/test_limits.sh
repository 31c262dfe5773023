#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# processes.limits of core and memory (of the stack: test_stack.sh), timeouts.warn, and processes.map as a list. Then small limits of
# collrun itself, and a system in which lo is down or /dev/null is missing.
. "$(dirname "$0")/lib.sh"
top=$(cd "$here/../.." && pwd)

memory=524288
if [ -n "$sanitized" ]; then
    skip "a limit of memory" "the memory of a sanitizer is larger"
    memory=unlimited
fi
job limits <<'END'
version: 1
processes: {count: 1, limits: {core: 4KiB, memory: 512MiB}}
workloads: [{command: [sh, -c, "echo core $(ulimit -c) memory $(ulimit -d)"]}]
END
[ "$memory" != unlimited ] || sed -i 's/, memory: 512MiB//' limits.yaml
run limits.yaml
ends "limits" 0
like "of core and memory" "$(cat out)" "^\\[0\\] core 8 memory $memory\$"
run limits.yaml --set processes.limits.core=unlimited
like "an unlimited core, or the reason" "$(cat out err)" 'core unlimited|processes.limits.core: cannot set the size of a core file'
printf 'version: 1\nworkloads: [{command: [nice]}]\nprocesses: {count: 1}\n' | job nice
for nice in 0 7 -7; do # 0: as these tests run themselves
    if [ "$nice" -lt 0 ] && ! nice -n -7 true 2>&1 | cmp -s /dev/null; then
        skip "ranks have the nice value of collrun: a negative one" "needs root"
        continue
    fi
    nice -n "$nice" "$COLLRUN" nice.yaml >out 2>err
    is "ranks have the nice value of collrun" "$(cat out)" "[0] $(($(nice) + nice))"
done
printf '%s\n' 'version: 1' 'processes: {count: 1}' "workloads: [{command: [sh, -c, 'kill -ABRT \$\$\$\$']}]" | job core
if [ "$(ulimit -Hc)" = unlimited ]; then
    run core.yaml --set processes.limits.core=unlimited
    like "the core of a rank is named" "$(cat out err)" 'rank 0: (core file: [^ ]|its core was given to /)'
else
    skip "the core of a rank is named" "a hard limit of core files"
fi
need_scripted
simple titled 2 "note up; await 1 go"
start run titled.yaml
within 60 noted_all 2 up
like "ps shows rank and job" "$(ps -eo args)" '^collrun-engine: rank 1 of 2, titled$'
note_test go
finish 60
ends "a job that ps has shown" 0
cat >grow.c <<'END'
#include <collrun/workload.h>
#include <stdlib.h>
#include <string.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    char *volatile p = malloc(256 << 20); /* no compiler may leave it out */
    (void)state;
    if (!p)
        return collrun_fail(ctx, "no memory for the model");
    memset(p, 1, 256 << 20);
    free(p);
    return 0;
}
COLLRUN_WORKLOAD(.name = "grow", .run = run);
END
if [ "$slow" = 1 ]; then # the memory of a sanitizer is no rank's
    plugin grow.c grow.so || exit 1
    printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{plugin: ./grow.so}]\n' | job grow
    run grow.yaml
    ends "without a limit" 0
    run grow.yaml --set processes.limits.memory=200MiB
    check "with less than it needs" [ "$code" -ne 0 ]
    like "malloc fails" "$(err)" 'no memory for the model'
fi

job warn <<'END'
version: 1
processes: {count: 2}
workloads: [{command: [sh, -c, "trap 'echo warned; exit 0' USR1; echo up; while :; do sleep 0.1; done"]}]
timeouts: {run: 61s, warn: {signal: USR1, before: 60s}}
END
run warn.yaml --run-dir warned
ends "a signal before timeouts.run has passed" 0
is "reaches all ranks" "$(grep -c warned out)" 2
check "and the events" grep -q '"event": *"warn"' warned/events.jsonl

first=$(sed -n 's/^Cpus_allowed_list:\t\([0-9]*\).*/\1/p' /proc/self/status)
printf '%s\n' "version: 1" "hosts: {nodes: [{name: a, transport: local}, {name: b, transport: local}]}" "network: {interface: lo}" \
    "processes: {count: 3, map: [{ranks: '0,2', host: b, cpus: '$first'}, {ranks: 1, host: a}]}" \
    "workloads: [{command: [sh, -c, 'echo \$COLLRUN_HOST \$(grep Cpus_allowed_list /proc/self/status)']}]" | job map
run map.yaml
ends "a map of ranks" 0
is "each is on its host" "$(sed -E 's/^\[([0-9])\] ([ab]) .*/\1\2/' out | sort | tr '\n' ' ')" "0b 1a 2b "
is "and on its CPUs" "$(grep -c "^\[[02]\] b Cpus_allowed_list: $first\$" out)" 2

# ---- limits of collrun itself, and what a system may lack ----
job hello <<'END'
version: 1
processes: {count: 4}
workloads: [{plugin: hello}]
END
# limited LIMIT COMMAND...: the command under a limit of bash's ulimit; $tmp/out is its output and stderr, which come through a pipe,
# since a file would be limited, too
limited() {
    # shellcheck disable=SC2016
    timeout "$limit" bash -c 'ulimit $0 && exec "$@"' "$@" 2>&1 </dev/null | cat >out
    code=${PIPESTATUS[0]}
}
if [ -z "$sanitized" ]; then
    limited "-s 56" "$COLLRUN" hello.yaml
    ends "a stack of 56 KiB is enough" 0
    limited "-s 40" "$COLLRUN" hello.yaml
    ends "less is an error" 125
    like "which names the limit" "$(out)" '^collrun: error: the limit of the stack is below 56 KiB$'
    limited "-Sf 0" "$COLLRUN" hello.yaml
    ends "a soft limit of file sizes" 0
    limited "-f 0" "$COLLRUN" hello.yaml
    ends "a hard one" 125
    is "is one error" "$(grep -c error out)" 1
    like "with its remedy" "$(out)" '^hint: raise the hard limit of file sizes .ulimit -Hf.$'
fi
user=$((61000 + $$ % 4000)) # who has no other processes
as_user=(setpriv --reuid "$user" --regid "$user" --clear-groups)
if [ -z "$sanitized" ] && chmod 755 . && "${as_user[@]}" test -x "$COLLRUN" -a -r "$tmp/hello.yaml" 2>/dev/null; then
    hints=0 failures=0
    for processes in 1 2 3 5 8; do # where the plugins are looked at, at the agent, at its guard, at the ranks
        limited "-u $processes" "${as_user[@]}" "$COLLRUN" hello.yaml
        [ "$code" -eq 0 ] || failures=$((failures + 1))
        ! grep -q 'a limit of processes and threads is reached (ulimit -u, pids.max of a cgroup), or memory is short' out || hints=$((hints + 1))
    done
    is "a limit of processes that is too small: errors, and hints" "$failures $hints" "5 5"
else
    skip "a limit of processes" "needs root, and a build that others can read"
fi
if unshare -n true 2>/dev/null; then
    timeout "$limit" unshare -n "$COLLRUN" hello.yaml --set groups.world.backend=shm >out 2>err </dev/null
    code=$?
    ends "a job on shared memory while lo is down" 0
    timeout "$limit" unshare -n "$COLLRUN" hello.yaml --set network.interface=lo >out 2>err </dev/null
    like "a job that names lo" "$(err)" ' network.interface: lo is down$'
    like "and its remedy" "$(err)" '^hint: ip link set lo up$'
else
    skip "lo is down" "needs root"
fi
if unshare -m mount -t tmpfs none /dev/shm 2>/dev/null; then
    # shellcheck disable=SC2016
    without_null=(timeout "$limit" unshare -m sh -c 'mount -t tmpfs none /dev && mkdir /dev/shm && exec "$@"' sh "$COLLRUN" hello.yaml)
    "${without_null[@]}" >out 2>err </dev/null
    code=$?
    ends "without /dev/null" 125
    like "which is named" "$(err)" '/dev/null: No such file or directory$'
    "${without_null[@]}" >out 2>err <&-
    like "also where stdin is closed" "$(err)" '^collrun: error: cannot open /dev/null'
else
    skip "without /dev/null" "needs root"
fi
done_testing
