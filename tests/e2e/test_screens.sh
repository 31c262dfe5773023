#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The screens of collrun-failures(7) are what these jobs print. WRITE=1 puts into the page what they print now.
. "$(dirname "$0")/lib.sh"
need_actor
page=$top/runner/man/collrun-failures.7
here_name=$(hostname)

# shown: stderr with made-up names where it differs from run to run.
shown() {
    sed -E -e 's/pid [0-9]+/pid 4711/g; s/\+0x[0-9a-f]+/+0x1139/g; /^  \|   #([2-9]|1[0-9])/d' \
        -e "s/\\b$here_name\\b/node1/g; s/\\(node1, /(node1, /g; s|$tmp/||g; s/#[0-9]{2,}/#17/g; s/life for [45] s/life for 4 s/" \
        -e 's/it held up to [0-9.]+[KM]iB/it held up to 60MiB/'
}
roff() { sed -e 's/\\/\\e/g; s/-/\\-/g; s/\^/\\(ha/g; s/~/\\(ti/g' -e "s/^\([.']\)/\\\\\&\1/"; }
# screen NAME COMMAND: what the last run said, against the page
screen() {
    {
        echo .EX
        { echo "\$ $2"; shown <err; } | roff
        echo .EE
    } >"$1.screen"
    sed "1,/^.\\\\\" BEGIN $1\$/d; /^.\\\\\" END $1\$/,\$d" "$page" >"$1.page"
    if [ -n "${WRITE:-}" ]; then
        sed -i -e "/^.\\\\\" BEGIN $1\$/,/^.\\\\\" END $1\$/{/BEGIN/{p;r $1.screen" -e '};/END/p;d}' "$page"
    else
        is "$1: the page shows what is printed" "$(diff "$1.page" "$1.screen")" ""
    fi
}

# A rank whose crash has names to show.
cat >train.c <<'END'
#include <collrun/workload.h>
__attribute__((noinline, visibility("default"))) void load_batch(volatile int *batch)
{
    *batch = 1;
}
__attribute__((noinline, visibility("default"))) int train(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *g;
    int one = 1, sum, status = collrun_group_get(ctx, "world", &g);
    (void)state;
    while (status == COLLRUN_OK) {
        status = collrun_allreduce(g, &one, &sum, 1, COLLRUN_INT32, COLLRUN_SUM);
        if (collrun_world_rank(ctx) == 2)
            load_batch(0);
    }
    return status;
}
COLLRUN_WORKLOAD(.name = "train", .run = train);
END
plugin train.c train.so -fno-optimize-sibling-calls
# A job of 4 ranks on the workload "train", which is the actor.
cp actor.so libtrain.so
train() { # NAME STEPS [FURTHER LINES]
    {
        echo "version: 1"
        echo "processes: {count: 4}"
        echo "groups: {world: {timeout: ${timeout:-10m}}}"
        echo "workloads:"
        echo "  - plugin: ./libtrain.so"
        echo "    params: {do: \"$2\"}"
        echo "timeouts: {grace: ${grace:-1s}${limits:-}}"
        [ $# -lt 3 ] || printf '%s\n' "$3"
    } >"$1.yaml"
}

# Those that take their time begin now, side by side.
declare -A pids
launched() { # NAME
    "$COLLRUN" "$1.yaml" >"$1.out" 2>"$1.err" </dev/null &
    pids[$1]=$!
    children+=("${pids[$1]}")
}
landed() { # NAME: as after run
    pid=${pids[$1]}
    finish 30
    cp "$1.err" err
}
timeout=2s train operation "allreduce 16 world; @1 hang; allreduce 1 world"
limits=", run: 2s" train run "allreduce 16 world; @2 hang; endless world"
cat >stuck.c <<'END'
#include <collrun/workload.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void wait_here(void)
{
    while (getenv("RANK") && atoi(getenv("RANK")) == 2)
        pause();
}
static int run(struct collrun_ctx *ctx, void *state) { (void)ctx; (void)state; return 0; }
COLLRUN_WORKLOAD(.name = "train", .run = run);
END
plugin stuck.c libstuck.so
job rendezvous <<'END'
version: 1
processes: {count: 4}
groups:
  dp: {ranks: all}
workloads: [{plugin: ./libstuck.so}]
env: {set: {RANK: "{rank}"}}
timeouts: {rendezvous: 2s, grace: 1s}
END
job lost <<'END'
version: 1
processes: {count: 4}
hosts:
  nodes:
    - {name: gpu01, slots: 2, transport: local}
    - {name: gpu02, slots: 2, transport: {command: [env]}}
workloads:
  - plugin: ./libtrain.so
    params: {do: "note up; endless world"}
timeouts: {grace: 1s}
END
sed -i "s,{do:,{dir: \"$tmp\"\, do:," lost.yaml
launched lost
within 20 noted_all 4 up
agent=$(pgrep -P "${pids[lost]}" -x collrun-agent | tail -n 1)
kill -STOP "$agent"
launched operation
launched run
launched rendezvous

job typo <<'END'
version: 1
processes: {count: 4}
groups:
  dp: {ranks: 0-3, backend: gluu}
workloads:
  - plugin: train.so
    ranks: 0-4
    groups: [pd]
END
run typo.yaml
ends "typo: 2" 2
sed -i '/installed:/s/installed: .*; a file/installed: allreduce, bench, ...; a file/' err
screen typo "collrun typo.yaml"

job crash <<'END'
version: 1
processes: {count: 4}
workloads: [{plugin: ./train.so}]
END
run crash.yaml
ends "crash: 139" 139
sed -i '/^\[2\]/d' err
case $home in
*asan* | *tsan*) skip "crash: the page shows what is printed" "a sanitized build does not print the rank's stack" ;;
*) screen crash "collrun crash.yaml" ;;
esac

train fail "@3 fail shard 7 of the data set is damaged; endless world"
run fail.yaml
ends "fail: 1" 1
screen fail "collrun fail.yaml"

group=/sys/fs/cgroup/memory/collrun-screens.$$
if mkdir "$group" 2>/dev/null && echo 64M >"$group/memory.limit_in_bytes" 2>/dev/null; then
    train oom "@1 eat 200; endless world"
    (echo "$BASHPID" >"$group/cgroup.procs" && exec "$COLLRUN" oom.yaml) >out 2>err
    code=$?
    ends "oom: 137" 137
    screen oom "collrun oom.yaml"
    rmdir "$group"
else
    skip "oom" "no memory cgroup (version 1) can be made here"
fi

landed operation
ends "operation: 1" 1
# Which of the three that wait says so first is chance.
sed -i -E 's/error: rank [023] \(/error: rank 0 (/; s/rank [023] waited/rank 0 waited/; s/ranks? [0-9-]+( and [0-9])? failed because/ranks 2-3 failed because/' err
screen operation "collrun operation.yaml"

job deadlock <<'END'
version: 1
processes: {count: 4}
groups:
  rows: {ranks: all}
  columns: {ranks: all}
workloads:
  - plugin: ./libtrain.so
    params: {do: "@0 barrier rows; barrier columns; barrier rows"}
END
run deadlock.yaml
ends "deadlock: 124" 124
sed -i '/^collrun: rank/d' err
screen deadlock "collrun deadlock.yaml"

landed run
ends "run: 124" 124
sed -i '/^collrun: rank.*\(killed\|because\)/d' err # who is how quick at the end is chance
screen run "collrun run.yaml"

landed rendezvous
ends "rendezvous: 124" 124
sed -i -E 's/error: rank [013] \(/error: rank 0 (/; /^collrun: rank.*(because|told to|killed)/d; s/group "(dp|world)"/group "world"/' err
screen rendezvous "collrun rendezvous.yaml"

train mismatch "allreduce 16 world; @1 barrier world; allreduce 1 world"
run --set processes.count=2 mismatch.yaml
check "mismatch: it fails" [ "$code" -ne 0 ]
sed -i -E '/^collrun: rank.*(because|told to|killed)/d' err
sed -i -E 's/error: rank [0-3] \(/error: rank 0 (/; s/(barrier|allreduce) world#/allreduce world#/' err
screen mismatch "collrun --set processes.count=2 mismatch.yaml"

landed lost
kill -CONT "$agent" 2>/dev/null
ends "lost: 127" 127
sed -i '/^collrun: rank/d' err
screen lost "collrun lost.yaml"

train interrupt "note up; until-stopped"
sed -i "s,{do:,{dir: \"$tmp\"\, do:," interrupt.yaml
start interrupt.yaml
within 20 noted_all 4 waiting
kill -INT "$pid"
finish 20
ends "interrupt: 130" 130
screen interrupt "collrun interrupt.yaml       # Ctrl-C"

train restart "@1 exit 75; hang" "on_failure: {action: restart, max_restarts: 1, backoff: 100ms}"
sed -i 's/grace: 1s/grace: 100ms/' restart.yaml
run restart.yaml
ends "restart: 75" 75
sed -i -E '/^collrun: rank.*(because|told to|killed)/d' err
screen restart "collrun restart.yaml"
done_testing
