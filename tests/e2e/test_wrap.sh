#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --wrap RANKS COMMAND...: the processes of some ranks run under a debugger or another command; sanitizers; what collrun-debug(7) says.
. "$(dirname "$0")/lib.sh"
top=$(cd "$here/../.." && pwd)
printf '#!/bin/sh\necho "wrapped $COLLRUN_RANK: $*"\nexec "$@"\n' >wrapper && chmod +x wrapper
printf 'version: 1\nprocesses: {count: 3}\nworkloads: [{plugin: hello}]\n' | job hello
printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{command: [echo, "a b", c]}]\n' | job echo

run hello.yaml --wrap 0,2 "$tmp/wrapper"
ends "two ranks under a script" 0
is "those two" "$(grep -o 'wrapped [0-9]: /' out | sort | tr '\n' ' ')" "wrapped 0: / wrapped 2: / "
is "all ranks run" "$(grep -c 'hello from rank' out)" 3
run echo.yaml --wrap all -- ./wrapper -x
ends "programs, with an argument and --" 127
run echo.yaml --wrap all -- env MARK=1 "$tmp/wrapper"
ends "programs under two commands" 0
is "their words stay apart" "$(grep -c '^\[[01]\] a b c$' out)" 2
is "each is wrapped" "$(grep -c 'wrapped [01]: echo a b c' out)" 2
run hello.yaml --wrap 1 sh -c 'exit 7'
ends "a command that fails" 7
like "is the root cause" "$(err)" 'error: rank 1 .*exited with code 7'
run hello.yaml --wrap 1 no-such-debugger -x
ends "a command that is not there" 125
like "is named, with PATH" "$(err)" 'rank 1 .*: --wrap: cannot start no-such-debugger: No such file'
for words in '--wrap' '--wrap 1' '--wrap 1 --'; do
    # shellcheck disable=SC2086
    run hello.yaml $words
    ends "refused: $words" 2
done
run hello.yaml --wrap 0-3 true
ends "a rank that does not exist" 2
like "is named" "$(err)" 'error: --wrap: there is no rank 3'
run hello.yaml --wrap x true
ends "no set of ranks" 2

cat >crash.c <<'END'
#include <collrun/workload.h>
#include <stdlib.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    char *volatile p = malloc(8);
    if (collrun_world_rank(ctx) == 1)
        BUG;
    free(p);
    return 0;
}
COLLRUN_WORKLOAD(.name = "crash", .run = run);
END
printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{plugin: ./crash.so}]\n' | job crash
if command -v gdb >/dev/null; then
    plugin crash.c crash.so -g '-DBUG=__builtin_trap()'
    run crash.yaml --wrap 1 gdb -batch -ex run -ex bt --args
    like "gdb shows the place of the crash" "$(cat out)" '^\[1\] #0 .* run \(ctx=.*crash.c:8'
    unlike "the job does not end well" "$code" '^0$'
else
    skip "a crash under gdb" "gdb is missing"
fi
# ---- valgrind, perf and strace, as collrun-debug(7) shows them ----
cat >memory.c <<'END'
#include <collrun/workload.h>
#include <stdlib.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *world;
    void *shared;
    float *x = malloc(2 * sizeof *x), sum;
    (void)state;
    int rc = collrun_group_get(ctx, "world", &world);
    rc = rc ? rc : collrun_alloc(world, 1 << 20, &shared);
    if (rc)
        return rc;
    x[0] = 1;
    if (BUG && collrun_world_rank(ctx) == 1)
        x[2] = 1;
    rc = collrun_allreduce(world, x, &sum, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
    rc = rc ? rc : collrun_allreduce(world, shared, shared, 1 << 18, COLLRUN_FLOAT32, COLLRUN_SUM);
    collrun_free(world, shared);
    free(x);
    return rc ? rc : sum == 3 ? 0 : 5;
}
COLLRUN_WORKLOAD(.name = "memory", .run = run);
END
printf 'version: 1\nprocesses: {count: 3}\nworkloads: [{plugin: ./memory.so}]\n' | job memory
if command -v valgrind >/dev/null && [ -z "$sanitized" ]; then
    plugin memory.c memory.so -g -DBUG=1
    run memory.yaml --wrap all valgrind -q --error-exitcode=9
    ends "valgrind finds a fault of one rank" 9
    is "in one place" "$(grep -cE '^\[1\] ==[0-9]+== Invalid write of size 4' err) $(grep -cE '^\[[02]\] ==' err)" "1 0"
    like "with the line" "$(err)" '^\[1\] ==[0-9]+== +at 0x[0-9A-F]+: run \(memory\.c:15\)$'
    like "and the rank is the root cause" "$(err)" 'error: rank 1 .*exited with code 9'
    plugin memory.c memory.so -g -DBUG=0
    for backend in shm tcp; do
        run memory.yaml --set groups.world.backend=$backend --wrap all valgrind -q --error-exitcode=9
        is "without a fault it has nothing to say ($backend)" "$code $(cat out err)" "0 "
    done
else
    skip "a fault under valgrind" "valgrind is missing, or collrun has a sanitizer"
    plugin memory.c memory.so -g -DBUG=0
fi
if command -v perf >/dev/null && perf record -g -o probe.data true >probe 2>&1; then
    run memory.yaml --wrap 0 perf record -g -o "$tmp/rank0.data"
    ends "perf around one rank" 0
    check "it has samples of that rank" sh -c 'perf script -i rank0.data 2>/dev/null | grep -q "^collrun-engine "'
else
    skip "perf around one rank" "perf is missing, or may not record: $(head -n 1 probe 2>/dev/null)"
fi
if command -v strace >/dev/null && strace -o probe true 2>/dev/null && [ -z "$sanitized" ]; then
    run memory.yaml --wrap 2 strace -f -o "$tmp/rank2.strace"
    ends "strace around one rank" 0
    like "it has the calls of that rank and its threads" "$(cat rank2.strace)" 'openat\(.*memory\.so'
    like "to the end" "$(tail -n 1 rank2.strace)" '\+\+\+ exited with 0 \+\+\+'
else
    skip "strace around one rank" "strace is missing, or may not trace, or collrun has a sanitizer"
fi

# ---- sanitizers ----
asan=$(cc -print-file-name=libasan.so)
if [ "${asan#/}" != "$asan" ] && [ -z "$sanitized" ]; then
    plugin crash.c crash.so '-DBUG=*(volatile char *)(p + 8) = 1' -fsanitize=address
    run check crash.yaml
    ends "a plugin with AddressSanitizer alone" 2
    like "the hint" "$(err)" '^hint: preload it: env: \{set: \{LD_PRELOAD: FILE\}\}'
    echo "env: {set: {LD_PRELOAD: $asan}}" >>crash.yaml
    run check crash.yaml
    ends "and with its runtime" 0
    run crash.yaml
    is "it finds the fault" "$(grep -c 'ERROR: AddressSanitizer: heap-buffer-overflow' err)" 1
    ends "which ends the job" 1
else
    skip "a plugin with AddressSanitizer" "libasan.so is missing, or collrun itself has a sanitizer"
fi
cat >race.c <<'END'
#include <collrun/workload.h>
#include <pthread.h>
static long count;
static void *add(void *unused)
{
    for (int i = 0; i < 1000; i++)
        count++;
    return unused;
}
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *world;
    pthread_t other;
    float one = 1, sum;
    (void)state;
    int rc = collrun_group_get(ctx, "world", &world);
    rc = rc ? rc : collrun_allreduce(world, &one, &sum, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
    if (rc)
        return rc;
    pthread_create(&other, NULL, add, NULL);
    if (RACE && collrun_world_rank(ctx) == 1)
        add(NULL);
    pthread_join(other, NULL);
    return collrun_allreduce(world, &one, &sum, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
}
COLLRUN_WORKLOAD(.name = "race", .run = run);
END
tsan=$(cc -print-file-name=libtsan.so)
if [ "${tsan#/}" != "$tsan" ] && [ -z "$sanitized" ]; then
    printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{plugin: ./race.so}]\n' | job race
    plugin race.c race.so -g -DRACE=1 -fsanitize=thread
    run check race.yaml
    ends "a plugin with ThreadSanitizer alone" 2
    like "the hint" "$(err)" '^hint: preload it: env: \{set: \{LD_PRELOAD: .*libtsan\.so\.[0-9]+\}\}$'
    echo "env: {set: {LD_PRELOAD: $tsan}}" >>race.yaml
    run check race.yaml
    ends "and with its runtime" 0
    run race.yaml
    is "it finds the race, on one rank, and shows it once" "$(grep -oE '^(\[1\]|  \|) WARNING: ThreadSanitizer: data race' err)" "[1] WARNING: ThreadSanitizer: data race"
    ends "which ends the job" 66
    plugin race.c race.so -g -DRACE=0 -fsanitize=thread
    run race.yaml
    is "without the race there is no report" "$code $(cat out err)" "0 "
else
    skip "a plugin with ThreadSanitizer" "libtsan.so is missing, or collrun itself has a sanitizer"
fi
done_testing
