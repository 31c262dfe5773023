#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The screens of collrun-failures(7) are what these jobs print. WRITE=1 puts into the page what they print now.
. "$(dirname "$0")/lib.sh"
need_scripted
page=$top/runner/man/collrun-failures.7
here_name=$(hostname)

# shown: stderr with made-up names where it differs from run to run.
shown() {
    sed -E -e 's/pid [0-9]+/pid 4711/g; s/\+0x[0-9a-f]+/+0x1139/g; /^\[2\]   #([2-9]|1[0-9])/d' \
        -e "s/\\b$here_name\\b/node1/g; s/\\(node1, /(node1, /g; s|$tmp/||g; s/#[0-9]{2,}/#17/g; s/heartbeat for [0-9]+ s/heartbeat for 4 s/" \
        -e 's/it held up to [0-9.]+[KM]iB/it held up to 60MiB/'
}
roff() { sed -e 's/\\/\\e/g; s/-/\\-/g; s/\^/\\(ha/g; s/~/\\(ti/g' -e "s/^\([.']\)/\\\\\&\1/"; }
# screen NAME COMMAND: compares stderr of the last run with the page
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

# class NAME CLASS: the verdict of the job NAME has this class, and the title of its screen begins with it.
shown_classes=" "
class() {
    is "$1: the class" "$(python3 -S -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"]["class"])' "$1.run/result.json")" "$2"
    like "$1: the title has the class" "$(sed "/^.\\\\\" BEGIN $1\$/,\$d" "$page" | grep '^\.SS' | tail -n 1)" "^\.SS $2:"
    shown_classes+="$2 "
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
# A job of 4 ranks on the workload "train", which is the scripted workload.
cp scripted.so libtrain.so
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
    "$COLLRUN" "$1.yaml" --run-dir "$1.run" >"$1.out" 2>"$1.err" </dev/null &
    pids[$1]=$!
    children+=("${pids[$1]}")
}
landed() { # NAME: as after run
    pid=${pids[$1]}
    finish 60
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
timeouts: {grace: 1s, silence: 3750ms}
END
sed -i "s,{do:,{dir: \"$tmp\"\, do:," lost.yaml
launched lost
within 60 noted_all 4 up
agent=$(agent_of "${pids[lost]}" | tail -n 1)
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
sed -i '/installed:/s/installed: .*; a file/installed: allreduce, bench, ...; a file/; /known here:/s/, ucx$//' err
screen typo "collrun typo.yaml"

job crash <<'END'
version: 1
processes: {count: 4}
workloads: [{plugin: ./train.so}]
END
run crash.yaml --run-dir crash.run
ends "crash: 139" 139
case $home in
*asan* | *tsan*) skip "crash: the page shows what is printed" "a sanitized build does not print the rank's stack" ;;
*) screen crash "collrun crash.yaml" ;;
esac
class crash signal

train fail "@3 fail shard 7 of the data set is damaged; endless world"
run fail.yaml --run-dir fail.run
ends "fail: 1" 1
screen fail "collrun fail.yaml"
class fail error

group=/sys/fs/cgroup/memory/collrun-screens.$$
oom_kills() { sed -n 's/^oom_kill //p' "$group/memory.oom_control"; }
if mkdir "$group" 2>/dev/null && echo 64M >"$group/memory.limit_in_bytes" 2>/dev/null; then
    train oom "@1 eat 200; endless world"
    # On a busy machine the kernel may kill further ranks before the memory of the first one is free.
    for _ in {1..20}; do
        rm -rf oom.run
        kills=$(oom_kills)
        (echo "$BASHPID" >"$group/cgroup.procs" && exec "$COLLRUN" oom.yaml --run-dir oom.run) >out 2>err
        code=$?
        [ "$(oom_kills)" -ne $((kills + 1)) ] || break
    done
    ends "oom: 137" 137
    screen oom "collrun oom.yaml"
    class oom oom
    rmdir "$group"
else
    shown_classes+="oom "
    skip "oom" "no memory cgroup (version 1) can be made here"
fi

landed operation
ends "operation: 124" 124
# Which of the three that wait says so first is chance.
sed -i -E 's/error: rank [023] \(/error: rank 0 (/; s/rank [023] waited/rank 0 waited/; s/ranks? [0-9-]+( and [0-9])? failed because/ranks 2-3 failed because/' err
screen operation "collrun operation.yaml"
class operation missing

train all "exit 7"
run all.yaml --run-dir all.run
ends "all: 7" 7
screen all "collrun all.yaml"
class all exit

train early "allreduce 16 world; @1 exit 0; allreduce 1 world"
run early.yaml --run-dir early.run
ends "early: 1" 1
sed -i '/^collrun: rank/d' err
screen early "collrun early.yaml"
class early exit

train minority "allreduce 16 world; @2 barrier world; allreduce 1 world"
run minority.yaml --run-dir minority.run
ends "minority: 1" 1
sed -i '/^collrun: rank/d' err
screen minority "collrun minority.yaml"
class minority mismatch
python3 -S -c '
import json
print(json.dumps(json.load(open("minority.run/result.json"))["verdict"], indent=2))' >err
screen object "jq .verdict RUN_DIR/result.json"
like "object: the title has the class" "$(sed '/BEGIN object$/,$d' "$page" | grep '^\.SS' | tail -n 1)" '^\.SS mismatch:'

echo '#include <collrun/workload.h>' >broken.c
plugin broken.c libbroken.so
train plugin "exit 0"
sed -i 's/libtrain/libbroken/' plugin.yaml
run plugin.yaml
ends "plugin: 126" 126
screen plugin "collrun plugin.yaml"
shown_classes+="plugin job "

train limit "@1 sleep 60000; exit 0"
sed -i 's/- plugin: .*/&\n    timeout: 1s/' limit.yaml
run limit.yaml --run-dir limit.run
ends "limit: 124" 124
sed -i '/^collrun: rank/d' err
screen limit "collrun limit.yaml"
class limit timeout

# A rank that is late, whose stack has places. Names and offsets of the C library differ from machine to machine.
cat >late.c <<'END'
#include <collrun/workload.h>
#include <unistd.h>
static __attribute__((noinline)) void load_batch(void)
{
    sleep(LATE);
}
static int train(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *g;
    int status = collrun_group_get(ctx, "world", &g);
    (void)state;
    if (collrun_world_rank(ctx) == 2)
        load_batch();
    return status ? status : collrun_barrier(g);
}
COLLRUN_WORKLOAD(.name = "train", .run = train);
END
plugin late.c libload.so -g -DLATE=$((3 * slow)) -fno-optimize-sibling-calls
train stall "unused"
sed -i "s/libtrain/libload/; /params:/d; s/timeouts: {/timeouts: {stall: ${slow}s, /" stall.yaml
run stall.yaml
ends "stall: 0" 0
if [ -x "$home/libexec/collrun/collrun-stack" ]; then
    sed -i -E '/^ {9}.* in lib(c|pthread|collrun)\.so/d; s/[0-9.]+ s\b/10.0 s/; s/thread [0-9]+/thread 4713/; s/[0-9]+ % CPU/0 % CPU/; /STALLED/{x;s/^/x/;/xx/Q;x}' err
    screen stall "collrun stall.yaml"
else
    skip "stall" "built without libdw"
fi

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
run deadlock.yaml --run-dir deadlock.run
ends "deadlock: 124" 124
sed -i '/^collrun: rank/d' err
screen deadlock "collrun deadlock.yaml"
class deadlock deadlock

landed run
ends "run: 124" 124
sed -i '/^collrun: rank.*\(killed\|because\)/d' err # who is how quick at the end is chance
screen run "collrun run.yaml"
class run missing

landed rendezvous
ends "rendezvous: 124" 124
sed -i -E 's/error: rank [013] \(/error: rank 0 (/; /^collrun: rank.*(because|on request|killed)/d; s/group "(dp|world)"/group "world"/' err
screen rendezvous "collrun rendezvous.yaml"
class rendezvous missing

train mismatch "allreduce 16 world; @1 barrier world; allreduce 1 world"
run --set processes.count=2 mismatch.yaml --run-dir mismatch.run
ends "mismatch: 1" 1
sed -i -E '/^collrun: rank.*(because|on request|killed)/d' err
sed -i -E 's/error: rank [0-3] \(/error: rank 0 (/; s/(barrier|allreduce) world#/allreduce world#/' err
screen mismatch "collrun --set processes.count=2 mismatch.yaml"
class mismatch mismatch

landed lost
kill -CONT "$agent" 2>/dev/null
ends "lost: 127" 127
sed -i '/^collrun: rank/d' err
screen lost "collrun lost.yaml"
class lost host_lost

train interrupt "note up; until-stopped"
sed -i "s,{do:,{dir: \"$tmp\"\, do:," interrupt.yaml
start interrupt.yaml --run-dir interrupt.run
within 60 noted_all 4 waiting
kill -INT "$pid"
finish 60
ends "interrupt: 130" 130
screen interrupt "collrun interrupt.yaml       # Ctrl-C"
class interrupt interrupted

train restart "@1 exit 75; hang" "on_failure: {action: restart, max_restarts: 1, backoff: 100ms}"
sed -i 's/grace: 1s/grace: 100ms/' restart.yaml
run restart.yaml --run-dir restart.run
ends "restart: 75" 75
sed -i -E '/^collrun: rank.*(because|on request|killed)/d' err
screen restart "collrun restart.yaml"
class restart exit

# ---- no class without a screen ----
for word in $(sed -n '/^\.SH CLASSES/,/^\.PP/p' "$page" | sed -n 's/^\.BR\{0,1\} //p' | sed 's/", "/ /' | tr -d '"' | grep -v '^collrun'); do
    [ "$word" = collrun_fail ] || [ "$word" = "()" ] || like "class $word has a screen" "$shown_classes" " $word "
done
done_testing
