#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun-stack, and the text of a crash: functions with file and line, also static, inlined and C++ ones; an overflow of a stack; what a
# plugin prints that ends the process while it is loaded.
. "$(dirname "$0")/lib.sh"
stack=$home/libexec/collrun/collrun-stack
# ---- a plugin that ends the process ----
for name in fine broken; do
    ending=$([ $name = fine ] || echo 'exit(3);')
    printf '%s\n' '#include <collrun/workload.h>' '#include <stdio.h>' '#include <stdlib.h>' \
        "__attribute__((constructor)) static void loaded(void) { fputs(\"$name: no license\\nserver\\n\", stderr); $ending }" \
        'static int run(struct collrun_ctx *ctx, void *state) { (void)ctx; (void)state; return 0; }' \
        "COLLRUN_WORKLOAD(.name = \"$name\", .run = run);" >$name.c
    plugin $name.c $name.so
done
printf '%s\n' "version: 1" "processes: {count: 1}" "workloads: [{plugin: ./fine.so}, {plugin: ./broken.so}]" >ends.yaml
run ends.yaml
ends "a plugin that ends the process while it is loaded" 126
like "its last words are shown, and no others" "$(err)" \
    '^ends\.yaml:3:[0-9]+: error: workloads\[1\]\.plugin: the plugin ends the process while it is loaded \(exit code 3\): broken: no license server$'

case $home in *asan* | *tsan*)
    skip "stacks and crashes" "the sanitizers handle crashes"
    done_testing
    ;;
esac

# ---- a plugin that crashes while it is loaded ----
cat >early.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
static __attribute__((noinline)) void read_table(volatile int *table)
{
    *table = 1; /* early */
}
__attribute__((constructor)) static void loaded(void)
{
    fputs("reading\n", stderr);
    read_table((volatile int *)8);
    fputs("done\n", stderr);
}
static int run(struct collrun_ctx *ctx, void *state) { (void)ctx; (void)state; return 0; }
COLLRUN_WORKLOAD(.name = "early", .run = run);
END
early=$(grep -n 'early \*/' early.c | cut -d: -f1)
plugin early.c early.so -g
printf '%s\n' "version: 1" "processes: {count: 1}" "workloads: [{plugin: ./early.so}]" >early.yaml
run early.yaml
ends "a plugin that crashes while it is loaded" 126
like "its place is named" "$(err)" "the plugin crashes while it is loaded \(SIGSEGV\) in read_table \(early.c:$early\), called by loaded \(early.c:$((early + 5))\): reading\$"
like "and its file" "$(err)" 'hint: a constructor of .*/early.so or of one of its libraries crashes$'

# ---- the text of a crash ----
cat >crash.c <<'END'
#include <collrun/workload.h>
#include <stdlib.h>
#include <string.h>
static __attribute__((noinline)) void load_batch(volatile int *batch)
{
    *batch = 1; /* here */
}
static inline __attribute__((always_inline)) void step(volatile int *batch)
{
    load_batch(batch); /* inlined */
}
static int deeper(volatile char *above)
{
    volatile char here[4096];
    here[0] = above[0];
    return deeper(here) + here[0]; /* too deep */
}
static void meet(struct collrun_ctx *ctx)
{
    struct collrun_group *world;
    if (collrun_group_get(ctx, "world", &world) == COLLRUN_OK)
        collrun_barrier(world);
}
static int train(struct collrun_ctx *ctx, void *state)
{
    char start[2] = "x";
    (void)state;
    if (collrun_world_rank(ctx) == 1 && strcmp(collrun_param_string(ctx, "how"), "overflow") == 0)
        return deeper(start);
    if (strcmp(collrun_param_string(ctx, "how"), "all") == 0)
        meet(ctx);
    if (collrun_world_rank(ctx) == 1 || strcmp(collrun_param_string(ctx, "how"), "all") == 0)
        step(NULL); /* the call */
    return 0;
}
static const struct collrun_param params[] = {{.name = "how", .type = COLLRUN_PARAM_STRING, .def = "crash", .help = "how"}, {0}};
COLLRUN_WORKLOAD(.name = "train", .params = params, .run = train);
END
line() { grep -n "/\* $1 \*/" crash.c | cut -d: -f1; }
plugin crash.c crash.so -g -fno-optimize-sibling-calls
plugin crash.c plain.so -fno-optimize-sibling-calls -s
crash() { # PLUGIN HOW
    printf '%s\n' "version: 1" "processes: {count: 2}" "workloads: [{plugin: ./$1, params: {how: $2}}]" >crash.yaml
    run crash.yaml "${@:3}"
}
crash crash.so crash
ends "a crash" 139
like "the headline" "$(err)" '^\[1\] rank 1 crashed: SIGSEGV at address 0x0$'
if [ -x "$stack" ]; then
    like "a static function, its file and line" "$(err)" "^\[1\]   #0 load_batch \(crash\.c:$(line here)\)$"
    like "a function that was inlined" "$(err)" "^\[1\]   #1 step \(crash\.c:$(line inlined)\)$"
    like "its caller" "$(err)" "^\[1\]   #2 train \(crash\.c:$(line 'the call')\)$"
else
    skip "functions, files and lines" "built without libdw"
fi
printf '%s\n' "version: 1" "processes: {count: 6}" "workloads: [{plugin: ./crash.so, params: {how: all}}]" >all.yaml
run all.yaml
is "six ranks crash at once: each trace is printed once" "$(grep -oE 'rank [0-9] crashed: SIGSEGV' err | sort | uniq -c | awk '{print $1}' | sort | uniq -c | tr -s ' ') $(grep -c '^  |' err)" " 6 1 0"
need_scripted
simple sent 2 "@0 pid;hang" "timeouts: {grace: 1s}"
start sent.yaml
within 60 noted 0 pid
kill -SEGV "$(notes 0 | cut -d' ' -f2)"
finish 60
ends "a signal of a crash, from another process" 139
like "is no fault at an address" "$(err)" "^\[0\] rank 0 crashed: SIGSEGV, sent by process $$\$"
crash plain.so crash
like "without symbols: object and offset" "$(err)" '^\[1\]   #0 \? in plain\.so\+0x[0-9a-f]+$'
crash crash.so overflow
ends "an overflow of the stack" 139
like "is called that, with the size of the stack" "$(err)" '^\[1\] rank 1 crashed: SIGSEGV at address 0x[0-9a-f]+: stack overflow; the stack of this thread has [0-9]+ KiB \(processes\.limits\.stack\)$'
crash crash.so overflow --set processes.limits.stack=1MiB
like "whose size is that of processes.limits.stack" "$(err)" 'the stack of this thread has 10[0-9][0-9] KiB'

# ---- collrun-stack ----
if [ ! -x "$stack" ]; then
    skip "collrun-stack" "built without libdw"
    done_testing
fi
offset() { printf '%s %s\n' "$(nm "$2" | awk -v name="$1" '$3 == name { print $1; exit }')" "$PWD/$2"; }
is "--resolve: a function of C" "$({ offset load_batch crash.so; } | "$stack" --resolve | sed 's/:[0-9]*)/:N)/')" "  #0 load_batch (crash.c:N)"
cat >shape.cc <<'END'
#include <string>
namespace shapes {
struct Square {
    explicit Square(std::string name) : name_(name) {}
    __attribute__((noinline)) int area(int side) const { return side * side + static_cast<int>(name_.size()); }
    std::string name_;
};
}
extern "C" int shape(int side) { return shapes::Square("s").area(side); }
END
if c++ -std=c++17 -g -O1 -shared -fPIC shape.cc -o shape.so; then
    like "--resolve: a name of C++" "$(offset _ZNK6shapes6Square4areaEi shape.so | "$stack" --resolve)" \
        '^  #0 shapes::Square::area\(int\) const \(shape\.cc:5\)$'
fi
is "--resolve: no such file" "$(echo "1f /no/such/file.so" | "$stack" --resolve)" "  #0 ? in file.so+0x1f"
is "--resolve: an address that is in no object" "$(echo "0x1234" | "$stack" --resolve)" "  #0 0x1234"
cat >threads.cc <<'END'
#include <thread>
#include <unistd.h>
namespace work {
void __attribute__((noinline)) wait(int seconds) { sleep(seconds); }
}
int main()
{
    std::thread other([] { work::wait(60); });
    other.join();
}
END
if c++ -std=c++17 -g -O0 -pthread threads.cc -o threads; then
    ./threads &
    child=$!
    children+=("$child")
    two_threads() { [ "$(ls "/proc/$child/task" | wc -l)" = 2 ] && grep -q nanosleep "/proc/$child/task/"*/wchan; }
    within 60 two_threads
    "$stack" --pid "$child" >stacks 2>stacks.err
    is "--pid: exit code 0, no message" "$? $(cat stacks.err)" "0 "
    like "--pid: a thread and its name" "$(cat stacks)" '^thread [0-9]+ threads$'
    is "--pid: both threads" "$(grep -c '^thread ' stacks)" 2
    like "--pid: a function of C++" "$(cat stacks)" '^  work::wait\(int\) \(threads\.cc:4\)$'
    unlike "--pid: the process continues" "$(state "$child")" '[tT]'
    kill -STOP "$child"
    within 60 stopped "$child"
    like "--pid: of a process that is stopped" "$("$stack" --pid "$child")" '^  work::wait\(int\) \(threads\.cc:4\)$'
    check "which stays stopped" stopped "$child"
    kill -KILL "$child"
    wait "$child" 2>/dev/null
    "$stack" --pid "$child" >stacks 2>stacks.err
    is "--pid: a process that has ended: exit code 1" "$? $(cat stacks)" "1 "
    like "with a message" "$(cat stacks.err)" "^cannot (read|stop) .*process $child"
fi
done_testing
