#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a machine does to a run: no room in /dev/shm, no descriptors, a clock that jumps, all processes frozen, a transport that is slow; and much of a good
# thing: output at full rate, a line of 100 MB, 250 ranks on this host. (A full disk: test_rundir.sh, test_die.sh; no memory: test_memory.sh.)
. "$(dirname "$0")/lib.sh"
need_scripted
agent=$home/libexec/collrun/collrun-agent
peak() { awk '/VmHWM/ {print $2}' "/proc/$1/status"; }

# ---- /dev/shm ----
job backends <<'END_OF_JOB'
version: 1
processes: {count: 4}
groups: {s: {ranks: all, backend: shm}, t: {ranks: all, backend: tcp}, g: {ranks: all, backend: gloo}}
workloads: [{plugin: ./scripted.so, params: {dir: ".", do: "allreduce 20 s t g; print done"}}]
END_OF_JOB
if unshare -m true 2>/dev/null; then
    unshare -m sh -c 'mount -t tmpfs -o size=4k none /dev/shm && { cat /dev/zero >/dev/shm/full; exec "$@"; }' sh \
        timeout "$limit" "$COLLRUN" run backends.yaml >out 2>err </dev/null
    code=$?
    is "a full /dev/shm: nothing of it is needed" "$code $(grep -c done out) $(grep -v 'cat: ' err)" "0 4 "
else
    skip "a full /dev/shm" "mounts are not allowed"
fi

# ---- descriptors ----
# few_outcomes WHAT FIRST LAST COMMAND...: with each number in place of =N, the job is good, or the error is about descriptors
step=3 # ALL=1: every number
[ -z "${ALL:-}" ] || step=1
few_outcomes() {
    local what=$1 first=$2 last=$3 n bad="" good=0 refused=0
    shift 3
    for ((n = first; n <= last; n += step)); do
        timeout -k 5 "$limit" "${@//=N/=$n}" >out 2>err </dev/null
        code=$?
        if [ "$code" = 0 ] && [ "$(grep -c done out)" = 2 ] && [ ! -s err ]; then
            good=$((good + 1))
        elif [ "$code" -gt 0 ] && [ "$code" -lt 128 ] && [ "$code" != 124 ] &&
            grep -qiE 'too many open files|cannot open shared object|error while loading shared libraries' err; then
            refused=$((refused + 1))
        else
            bad+="with $n: exit code $code; $(head -c 300 err)"$'\n'
        fi
    done
    if [ -z "$bad" ]; then ok "$what: $good times good, $refused times refused with the reason"; else not_ok "$what" "$bad"; fi
}
job few <<END_OF_JOB
version: 1
processes: {count: 2}
groups: {s: {ranks: all, backend: shm}, t: {ranks: all, backend: tcp}}
workloads: [{plugin: ./scripted.so, params: {dir: "$tmp", do: "allreduce 2 s t; print done"}}]
timeouts: {start: 10s, rendezvous: 5s}
END_OF_JOB
few_outcomes "few descriptors of the runner" 6 34 sh -c "n=N; ulimit -n \$n; exec $COLLRUN run few.yaml"
few_outcomes "few descriptors of a rank" 4 26 "$COLLRUN" run few.yaml --wrap 1 sh -c 'n=N; ulimit -n $n; exec "$@"' sh
printf 'ulimit -n "$1" && exec "$2"\n' >limited
sed -i "2i hosts: {nodes: [{name: far, transport: {command: [sh, limited, '\${env:LIMIT}', $agent]}}]}" few.yaml
few_outcomes "few descriptors of an agent" 6 40 env LIMIT=N "$COLLRUN" run few.yaml

# ---- descriptors that the kernel does not watch, for want of memory or beyond fs.epoll.max_user_watches ----
if [ "$slow" = 1 ]; then
    cat >few_watches.c <<'CODE'
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    static int added;
    int (*real)(int, int, int, struct epoll_event *) = dlsym(RTLD_NEXT, "epoll_ctl");
    const char *last = getenv("WATCHES");
    if (last && op == EPOLL_CTL_ADD && strcmp(program_invocation_short_name, "collrun-agent") == 0 && ++added == atoi(last)) {
        errno = ENOSPC;
        return -1;
    }
    return real(epoll, op, fd, event);
}
CODE
    cc -D_GNU_SOURCE -O1 -shared -fPIC few_watches.c -o few_watches.so -ldl
    job watches <<END_OF_JOB
version: 1
processes: {count: 2}
workloads: [{command: [cat, /dev/null]}]
timeouts: {start: 20s, run: 20s}
END_OF_JOB
    bad=""
    for n in 1 2 4 5 6 7; do # the third is that of PMI, which this program does not use
        LD_PRELOAD=$tmp/few_watches.so WATCHES=$n timeout -k 5 "$limit" "$COLLRUN" run watches.yaml >out 2>err </dev/null
        code=$?
        [ "$code" = 124 ] || grep -q 'No space left on device' err || bad+="$n: exit code $code; $(head -c 300 err)"$'\n'
        [ "$code" != 124 ] || bad+="$n: a time-out"$'\n'
    done
    if [ -z "$bad" ]; then ok "an agent that cannot watch a descriptor says so"; else not_ok "an agent that cannot watch a descriptor says so" "$bad"; fi
else
    skip "an agent that cannot watch a descriptor" "sanitizers have to be loaded first"
fi

# ---- the clock ----
if [ "$slow" = 1 ]; then
    cc -O1 -shared -fPIC "$here/jumping_clock.c" -o jumping_clock.so
    # The shell and timeout keep their clock.
    printf '#!/bin/sh\nLD_PRELOAD=%s exec "%s" "$@"\n' "$tmp/jumping_clock.so" "$COLLRUN" >jumping
    chmod +x jumping
    simple jumps 3 "sleep 500; allreduce 50 world; print done; sleep 1500; allreduce 50 world; print done" \
        "hosts: {nodes: [{name: near, transport: local}, {name: far, transport: {command: [env]}}], defaults: {slots: 2}}
timeouts: {start: 10s, rendezvous: 10s, run: 60s, stall: 5s, silence: 3s}
env: {pass: [LD_PRELOAD]}
logging: {dir: jumps}"
    COLLRUN=$tmp/jumping run run jumps.yaml
    is "a clock that jumps by hours in each process ends no job" "$code $(grep -c done out)" "0 6"
    quiet_or_late "and no stall is reported"
    check "its job takes its time" [ "$elapsed" -lt $((60000 * slow)) ]
    is "the events are in order, from 0 on" "$(python3 -S -c 'import json
t = [json.loads(line)["t"] for line in open("jumps/events.jsonl")]
print(t == sorted(t) and 0 <= t[0] and t[-1] < 20)')" True
    is "so are the times in result.json" "$(python3 -S -c 'import json
d = json.load(open("jumps/result.json"))
print(1.9 < d["seconds"] < 20 and all(0 <= r["started_s"] < r["ended_s"] < 20 for r in d["ranks"]))')" True
    simple late 1 "hang" "timeouts: {run: 1s, grace: 100ms}"
    COLLRUN=$tmp/jumping run run late.yaml
    is "timeouts.run is 1 s on it" "$code $((elapsed < 8000))" "124 1"
fi

# ---- much output ----
bytes=${BYTES:-100000000}
line=$(printf 'a line of output, %064d' 7)
job fast <<END_OF_JOB
version: 1
processes: {count: 2}
workloads: [{command: [sh, -c, "yes '$line' | head -c $bytes; touch done.\$COLLRUN_RANK; while [ ! -e go ]; do sleep 0.05; done"]}]
logging: {dir: fast, max_file: 4GiB}
END_OF_JOB
begin=$(date +%s%N)
"$COLLRUN" run fast.yaml >/dev/null 2>err </dev/null &
pid=$!
children+=("$pid")
within 120 test -e done.0 -a -e done.1
took=$((($(date +%s%N) - begin) / 1000000))
runner_kib=$(peak "$pid") agent_kib=$(peak "$(agent_of "$pid")")
touch go
finish 60
is "two ranks print $bytes bytes each at full rate: a good job" "$code $(cat err)" "0 "
echo "# $((2 * bytes / 1000 / took)) MB/s in $took ms; peak memory: runner $runner_kib KiB, agent $agent_kib KiB"
for r in 0 1; do
    check "nothing of rank $r is lost" cmp -s fast/attempt-0/rank-$r.stdout <(yes "$line" | head -c "$bytes")
done
[ "$slow" != 1 ] || check "the memory of runner and agent is bounded" test "$runner_kib" -lt 131072 -a "$agent_kib" -lt 32768
rm -rf fast

simple line 1 "long 100000000" "logging: {dir: line}"
run run line.yaml
is "a line of 100 MB: a good job" "$code $(head -c 300 err)" "0 "
is "nothing of it is lost in the file" "$(tr -cd a <line/attempt-0/rank-0.stdout | wc -c)" 100000000
is "nor on stdout" "$(tr -cd a <out | wc -c)" 100000000
rm -rf line out

# ---- a frozen machine: all processes of a job, for longer than an agent waits for the runner (10 s) ----
simple frozen 2 "note up; await 1 go; allreduce 5 world; print done" \
    "hosts: {defaults: {slots: 1, transport: {command: [$agent]}}, nodes: [n1, n2]}
timeouts: {silence: 2s}"
"$COLLRUN" run frozen.yaml >frozen.out 2>frozen.err </dev/null &
frozen=$!
children+=("$frozen")
within 60 noted_all 2 up
# Those below a process come before it.
family() { local child; for child in $(pgrep -P "$1"); do family "$child"; done; echo "$1"; }
frozen_family=$(family "$frozen")
kill -STOP $frozen_family
frozen_at=$SECONDS # it goes on after the next job

# ---- many ranks ----
many=$((slow == 1 ? 250 : 50))
simple many $many "allreduce 1 world; print done" "timeouts: {start: 5m, rendezvous: 5m}"
limit=300 run run many.yaml
is "$many ranks on this host start, reduce and exit" "$code $(grep -c done out) $(head -c 300 err)" "0 $many "
echo "# in $elapsed ms"

while ((SECONDS < frozen_at + 12)); do sleep 0.5; done
kill -CONT $frozen_family
note_test go
wait "$frozen"
is "the processes of a job are frozen for 12 s: it goes on" "$? $(grep -c done frozen.out) $(cat frozen.err)" "0 2 "

# ---- a slow transport ----
cat >slowly <<'END_OF_SCRIPT'
#!/usr/bin/env python3
# Runs a command; what goes to it and what comes from it arrives 0.7 s later, in pieces.
import os, queue, subprocess, sys, threading, time
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def carry(source, to):
    late = queue.Queue()
    def read():
        while data := os.read(source, 1024):
            late.put((time.monotonic() + 0.7, data))
        late.put((time.monotonic() + 0.7, b""))
    threading.Thread(target=read, daemon=True).start()
    while True:
        at, data = late.get()
        time.sleep(max(0, at - time.monotonic()))
        if not data:
            return os.close(to)
        while data:
            data = data[os.write(to, data):]
threading.Thread(target=carry, args=(0, child.stdin.fileno()), daemon=True).start()
carry(child.stdout.fileno(), 1)
sys.exit(child.wait())
END_OF_SCRIPT
chmod +x slowly
simple slow 4 "allreduce 5 world; print done; sleep 3000; allreduce 5 world" \
    "hosts: {defaults: {slots: 2}, nodes: [{name: near, transport: local}, {name: far, transport: {command: [$tmp/slowly, $agent]}}]}
timeouts: {silence: 2s, stall: 5s}
logging: {dir: slow}"
run run slow.yaml
is "a host whose every answer is 1.4 s late is not lost" "$code $(grep -c done out) $(err)" "0 4 "
unlike "and no event reports it" "$(cat slow/events.jsonl)" 'lost|stall|unreachable'

# It needs no byte of an empty file, and may ask for the next one at once.
cat >batched <<'END_OF_SCRIPT'
#!/bin/sh
"$@" | perl -e 'while (1) { select undef, undef, undef, 0.1; my $n = sysread STDIN, my $bytes, 1 << 16; last unless $n; syswrite STDOUT, $bytes }'
END_OF_SCRIPT
chmod +x batched
: >empty
: >empty_too
echo payload >filled
printf '%s\n' 'version: 1' "hosts: {nodes: [{name: far, transport: {command: [$tmp/batched, env, XDG_CACHE_HOME=$tmp/cache]}}]}" \
    'processes: {count: 1}' "workloads: [{command: [sh, -c, 'cat filled; ls'], stage_files: [empty, empty_too, filled]}]" | job empty_files
run run empty_files.yaml
is "a host that is sent empty files, and whose answers come several at a time" "$code $(out | tr '\n' ' ')" '0 [0] payload [0] empty [0] empty_too [0] filled '

# The cache of staged files is too small for two jobs: the second one leaves the files of the first one alone.
# staged NAME KIB COMMAND: one rank on a host with that cache
staged() {
    echo "$1" >"$1.txt"
    printf '%s\n' 'version: 1' "hosts: {nodes: [{name: far, transport: {command: [env, XDG_CACHE_HOME=$tmp/shared, COLLRUN_CACHE_KIB=$2]}}]}" \
        'processes: {count: 1}' "workloads: [{command: [sh, -c, '$3'], stage_files: [$1.txt]}]" | job "$1"
}
staged first 1000000 ": >$tmp/first.up; until [ -e $tmp/first.go ]; do sleep 0.02; done; cat first.txt"
staged second 1 "cat second.txt"
start run first.yaml
within 60 test -e first.up
"$COLLRUN" run second.yaml >second.out 2>&1 </dev/null
is "a job in a cache that is too small" "$(cat second.out)" "[0] second"
: >first.go
finish 60
is "the files of a job that runs stay in the cache" "$code $(cat out)" "0 [0] first"
staged third 1 "cat third.txt"
run run third.yaml
is "when it has ended, they are removed" "$code $(find shared -name first.txt -o -name second.txt | wc -l)" "0 0"

# Hosts that share a home share the cache: `elsewhere` has another name, and sees no process of this host.
mkdir elsewhere
printf '#!/bin/sh\n[ "$1" != -n ] || exec echo elsewhere\nexec %s "$@"\n' "$(command -v uname)" >elsewhere/uname
printf '#!/bin/sh\n[ "$1" != -l ] || exit 0\nexec %s "$@"\n' "$(command -v ls)" >elsewhere/ls
chmod +x elsewhere/*
rm -f first.up first.go
staged first 1000000 ": >$tmp/first.up; until [ -e $tmp/first.go ]; do sleep 0.02; done; cat first.txt"
staged fourth 1 "cat fourth.txt"
sed -i "s|XDG_CACHE_HOME|PATH=$tmp/elsewhere:$PATH, &|" fourth.yaml
start run first.yaml
within 60 test -e first.up
# What other processes are just fetching and making: half a file, and a tree without programs.
mkdir -p "shared/collrun/trees/begun/.users" && touch "shared/collrun/trees/begun/.users/elsewhere.$$"
echo half >shared/collrun/objects/tmp.ABCDEFGH
"$COLLRUN" run fourth.yaml >fourth.out 2>&1 </dev/null
is "a job on another host, in the same cache" "$(cat fourth.out)" "[0] fourth"
: >first.go
finish 60
is "the files of a job that runs on this host stay" "$code $(cat out)" "0 [0] first"
is "and what is not complete" "$(cd shared/collrun && echo trees/begu? objects/tmp.*)" "trees/begun objects/tmp.ABCDEFGH"
rm -r shared/collrun/trees/begun
staged fifth 1 "cat fifth.txt"
sed -i "s|XDG_CACHE_HOME|PATH=$tmp/elsewhere:$PATH, &|" fifth.yaml
run run fifth.yaml
is "when the job has ended, its files are removed" "$code $(find shared -name first.txt -o -name fourth.txt | wc -l)" "0 0"

# ---- what a rank leaves behind takes 5 s to end: it is traced, so that the agent cannot reap it ----
cat >tracer.c <<'CODE'
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    if (argc != 2 || ptrace(PTRACE_SEIZE, atoi(argv[1]), 0, 0) < 0)
        return 1;
    write(1, "traced\n", 7);
    pause();
}
CODE
cat >leaver <<'END_OF_SCRIPT'
#!/bin/sh
setsid sleep 1000 >/dev/null 2>&1 &
echo $! >left.new && mv left.new left
until [ -e ended ]; do sleep 0.02; done
END_OF_SCRIPT
chmod +x leaver
job leaves <<END_OF_JOB
version: 1
hosts: {nodes: [{name: far, transport: {command: [$agent]}}]}
processes: {count: 1}
timeouts: {silence: 2s}
workloads: [{command: [$tmp/leaver], workdir: $tmp}]
END_OF_JOB
if ! cc -o tracer tracer.c 2>/dev/null; then
    skip "a process that does not end" "no C compiler"
else
    rm -f ended
    start leaves.yaml
    within 60 test -s left
    ./tracer "$(cat left)" >traced 2>&1 &
    tracer=$!
    children+=("$tracer")
    if maybe_within 5 test -s traced; then
        touch ended
        finish 60
        is "a process that does not end for longer than timeouts.silence: the host is not lost" "$code $(cat err)" \
            "0 collrun: some processes of the job cannot be killed (they are blocked in the kernel)"
        check "it was waited for ($elapsed ms)" [ "$elapsed" -gt 4000 ]
    else
        skip "a process that does not end" "no process may be traced here"
        kill -KILL -- "-$pid"
    fi
    { kill -KILL "$tracer" && wait "$tracer"; } 2>/dev/null
fi

# A command that ends 0.3 s after its stream, as one that has much memory to give back: how it ended is named.
cat >ending <<'END'
#!/bin/sh
exec 3<&0
"$@" <&3 3<&- &
exec 3<&- </dev/null >/dev/null
wait $!
sleep 0.3
exit 3
END
chmod +x ending
simple ends 2 "@1 exec kill -9 \$\$PPID; hang" "hosts: {nodes: [{name: far, transport: {command: [$tmp/ending]}}]}"
run run ends.yaml
ends "a command that ends later than its stream" 127
like "how it ended is named" "$(err)" "host far lost, with ranks 0-1: $tmp/ending exited with code 3"
done_testing
