#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bind: auto, the default: a job shares the cores among its ranks, and leaves them alone where another job uses them.
. "$(dirname "$0")/lib.sh"
own_namespaces -n # jobs of other tests claim cores, too

cat >look.c <<'END_C'
#include <collrun/workload.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static void show_policies(void)
{
    char line[1024], policy[64];
    FILE *f = fopen("/proc/self/numa_maps", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%*s %63s", policy) == 1)
            printf("%s %s\n", strstr(line, "memfd:collrun") ? "shared" : "policy", policy);
}
static int run(struct collrun_ctx *ctx, void *state)
{
    const char *until = collrun_param_string(ctx, "until");
    char line[256], cpus[256] = "";
    FILE *f = fopen("/proc/self/status", "r");
    (void)state;
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "Cpus_allowed_list: %255s", cpus);
    printf("on %s\n", cpus);
    if (collrun_param_bool(ctx, "show"))
        show_policies();
    fflush(stdout);
    for (int i = 0; *until && access(until, F_OK) != 0 && i < 3000; i++)
        usleep(10000);
    return 0;
}
static const struct collrun_param params[] = {{.name = "until", .type = COLLRUN_PARAM_STRING, .def = ""},
    {.name = "show", .type = COLLRUN_PARAM_BOOL, .def = "false"}, {0}};
COLLRUN_WORKLOAD(.name = "look", .run = run, .params = params);
END_C
plugin look.c look.so || exit 1
all=$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status)
look() { # NAME COUNT [UNTIL [KEYS OF PROCESSES]]
    printf '%s\n' "version: 1" "processes: {count: $2${4:+, $4}}" "workloads: [{plugin: ./look.so, params: {until: '${3:-}'}}]" >"$1.yaml"
}
bound() { sed -n 's/^\[[0-9]*\] on //p' "$tmp/out" | sort -u; }

look first 2 "$PWD/go"
"$COLLRUN" first.yaml >first.out 2>&1 &
first=$!
within 60 eval '[ "$(grep -c " on " first.out)" = 2 ]'
look second 2
run run second.yaml
ends "a job beside another one" 0
is "is not bound" "$(bound)" "$all"
run plan --hosts second.yaml
ends "plan --hosts beside it" 0
like "no CPUs for a rank" "$(out)" '^0 +[^ ]+ +any +any +world'
like "and why" "$(err)" '^collrun: host [^ ]+: its ranks are not bound: other ranks of collrun use its cores$'
touch go
wait "$first"
is "the first one ends" $? 0

look none 2 "" "bind: none"
run run none.yaml
is "bind: none" "$(bound)" "$all"
look one 1
run run one.yaml
is "a rank alone has all cores" "$(bound)" "$all"
look many $(($(nproc) + 1))
run run many.yaml
is "more ranks than cores are not bound" "$(bound)" "$all"

# The agent of another host binds its ranks by its own topology: here a command that starts it on this machine.
there() { sed -i '1a hosts: {nodes: [{name: far, transport: {command: [env]}}]}' "$1.yaml"; }
first=${all%%[-,]*}
look far 1 "" "bind: core" && there far
run run far.yaml
ends "bind: core on another host" 0
planned() { sed -n "s/^[0-9]\+ \+[^ ]\+ \+\([^ ]*\) .*/\1/p" "$tmp/out" | sort -u; }
there_cpus=$(bound)
run plan far.yaml
is "plan does not know the CPUs of another host" "$(planned)" core
run plan --hosts far.yaml
ends "plan --hosts" 0
is "knows them" "$(planned)" "$there_cpus"
quiet "and has nothing else to say"
run plan --hosts --json far.yaml
is "as JSON, too" "$(python3 -S -c 'import json, sys; print(json.load(sys.stdin)["ranks"][0]["cpus"])' <out)" "$there_cpus"
run plan --hosts --set 'hosts.nodes[0].transport.command=[sh, -c, "echo no such pod >&2; exit 1"]' far.yaml
ends "plan --hosts: a host that cannot be reached" 127
like "is named" "$(err)" "^far.yaml:2:[0-9]+: error: host far: .*no such pod"
run far.yaml
check "the rank is bound there" taskset -c "$(bound)" true
if [ "$(lscpu -p=CORE | grep -vc '#')" = "$(nproc)" ]; then
    is "to one core" "$(bound)" "$first"
else
    skip "to one core" "the cores have several hardware threads"
fi
look wide $(($(nproc) + 1)) "" "bind: core" && there wide
run run wide.yaml
check "too few cores there" [ "$code" -ne 0 ]
run plan --hosts wide.yaml
ends "plan --hosts finds that, too" 2
like "named at the key" "$(err)" "^wide.yaml:3:[0-9]+: error: .*processes.bind: host far has [0-9]+ cores?, too few for $(($(nproc) + 1)) ranks of 1 core each"
for part in l3 numa socket; do
    look $part 2 "" "bind: $part"
    run run $part.yaml
    ends "bind: $part" 0
    cp out here.out
    there $part
    run run $part.yaml
    is "is the same on another host" "$(bound)" "$(sed -n 's/^\[[0-9]*\] on //p' here.out | sort -u)"
done

# ---- memory ----
# policies KEYS...: how the kernel chooses the node of each mapping of two ranks, also of the memory that they share
policies() {
    cat >memory.yaml <<END
version: 1
processes: {count: 2, $1}
workloads: [{plugin: ./look.so, params: {until: '', show: true}}]
END
    run run "${@:2}" memory.yaml
    sed -n 's/^\[[0-9]*\] policy //p' out | sort -u | tr '\n' ' '
}
cat >interleave.c <<'END_C'
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    unsigned long node = 1;
    return argc < 2 || syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &node, 64UL) != 0 || execv(argv[1], argv + 1);
}
END_C
cc interleave.c -o interleave || exit 1
if [ ! -r /proc/self/numa_maps ] || [ "$(nproc)" -lt 2 ] || ! ./interleave "$(type -P true)"; then
    skip "memory follows the CPUs" "the kernel has no NUMA or does not allow set_mempolicy, or there is one CPU only"
else
    node=$(for n in /sys/devices/system/node/node*; do [ -e "$n/cpu$first" ] && echo "${n##*node}"; done)
    like "bind: core: memory of the CPU's node, and shared memory, too" "$(policies 'bind: core')" "^(prefer:[0-9]+ )+\$"
    like "it is that node" "$(sed -n 's/^\[0\] policy //p' out)" "^prefer:$node\$"
    like "memory that the ranks share is among it" "$(out)" '^\[0\] shared prefer:'
    is "bind: none leaves the policy alone" "$(policies 'bind: none')" "default "
    collrun=$COLLRUN
    printf '#!/bin/sh\nexec %s/interleave %s "$@"\n' "$tmp" "$collrun" >chosen && chmod +x chosen
    COLLRUN=$tmp/chosen
    is "so does a policy that collrun was started with" "$(policies 'bind: core')" "interleave:0 "
    COLLRUN=$collrun
    look two 2 "" "bind: core"
    run plan --hosts two.yaml
    like "plan --hosts shows the node" "$(out)" "^0 +[^ ]+ +[0-9,-]+ +node $node +world"
    run plan --hosts --json two.yaml
    is "as JSON, too" "$(python3 -S -c 'import json, sys; print(json.load(sys.stdin)["ranks"][0]["memory"])' <out)" "node $node"
fi

# ---- cpusets ----
cpuset=/sys/fs/cgroup/cpuset/collrun-test-$$
if [ "$(id -u)" != 0 ] || [ "$(nproc)" -lt 2 ] || ! mkdir "$cpuset" 2>/dev/null; then
    skip "a cpuset is respected" "it needs root, two CPUs, and /sys/fs/cgroup/cpuset of cgroup v1"
else
    cat "${cpuset%/*}/cpuset.mems" >"$cpuset/cpuset.mems"
    echo "$first" >"$cpuset/cpuset.cpus"
    # in_cpuset ARGUMENTS...: as run
    in_cpuset() { bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$cpuset" timeout -k 5 "$limit" "$COLLRUN" "$@" >out 2>err </dev/null; }
    look two 2 "" "bind: core"
    in_cpuset plan two.yaml
    is "plan in a cpuset of one CPU: two cores are not there" $? 2
    like "with the reason" "$(err)" "has 1 core, too few for 2 ranks$"
    for part in l3 numa socket; do
        look $part 2 "" "bind: $part"
        in_cpuset run $part.yaml
        is "bind: $part in the cpuset: the CPU that it has" "$? $(bound)" "0 $first"
    done
    look auto 2
    in_cpuset run auto.yaml
    is "bind: auto there" "$? $(bound)" "0 $first"
    look core 1 "" "bind: core"
    in_cpuset plan core.yaml
    is "plan shows that CPU" "$(planned)" "$first"
    other=$(python3 -S -c 'import os; print(sorted(os.sched_getaffinity(0))[1])')
    look map 1 "" "map: [{ranks: 0, host: $(hostname), cpus: $other}]"
    in_cpuset run map.yaml
    check "a CPU outside of it is refused" [ $? -ne 0 ]
    like "by name" "$(err)" "cpus? $other"
    within 60 rmdir "$cpuset" # the last process of the run may still be on its way out
fi

# Other tests may run beside this one, and then no rank is bound.
look two 2
free() { run run two.yaml && [ "$(bound | wc -l)" = 2 ]; }
if [ "$(nproc)" -gt 1 ] && maybe_within 5 free; then
    like "one share for each rank" "$(bound | tr '\n' ' ')" '^[0-9,-]+ [0-9,-]+ $'
    unlike "which is not all cores" "$(bound)" "^$all\$"
else
    skip "one share for each rank" "another job uses the cores"
fi
done_testing
