#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Commands: programs that know nothing of collrun run as ranks; their environment, folders, ends, crashes and leftovers.
. "$(dirname "$0")/lib.sh"

# programs NAME COUNT COMMAND [KEYS [FURTHER LINES]]: the command on every rank. KEYS: "workdir: src, ..."
programs() {
    {
        echo "version: 1"
        echo "processes: {count: $2}"
        echo "workloads:"
        echo "  - {command: $3${4:+, $4}}"
        [ $# -lt 5 ] || printf '%s\n' "$5"
    } >"$tmp/$1.yaml"
}
script() { # NAME: a shell script from stdin
    { echo "#!/bin/sh"; cat; } >"$tmp/$1"
    chmod +x "$tmp/$1"
}
# Processes whose environment names this test's folder: what a job has left behind.
left_over() { grep -lzs "^LEFT_BY=$tmp\$" /proc/[0-9]*/environ | cut -d/ -f3; }
nothing_left() { [ -z "$(left_over)" ]; }

# ---- what a rank finds ----
script env.sh <<'EOF'
echo "$COLLRUN_RANK/$COLLRUN_WORLD_SIZE $COLLRUN_LOCAL_RANK/$COLLRUN_LOCAL_SIZE $COLLRUN_ATTEMPT"
echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK"
echo "host $COLLRUN_HOST run $COLLRUN_RUN_ID dir ${COLLRUN_RUN_DIR-none} at $MASTER_ADDR:$MASTER_PORT"
echo "$ROLE_RANK/$ROLE_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_NAME" \
    "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS ${OMP_NUM_THREADS--} ${TORCHELASTIC_USE_AGENT_STORE-none}"
echo "$TORCHELASTIC_RUN_ID"
EOF
programs env 3 "[./env.sh]"
run env.yaml
ends "programs end with 0: 0" 0
quiet "a good job prints nothing on stderr"
is "collrun's names" "$(unlabelled 2 | sed -n 1p)" "2/3 2/3 0"
is "torchrun's names" "$(unlabelled 2 | sed -n 2p)" "2/3 2/3 0"
like "host, run, no run folder, an address" "$(unlabelled 1 | sed -n 3p)" \
    "^host [^ ]+ run [^ ]+ dir none at 127\.0\.0\.1:[0-9]+$"
is "torchrun's other names" "$(unlabelled 1 | sed -n 4p)" "1/3 0 1 default 0 0 1 none"
is "of one run" "$(unlabelled 1 | sed -n 5p)" "$(unlabelled 1 | sed -n 's/.* run \([^ ]*\) .*/\1/p')"
OMP_NUM_THREADS=4 run env.yaml --set on_failure.action=restart --set on_failure.max_restarts=2
is "a number of threads that is set stays" "$(unlabelled 1 | sed -n 4p)" "1/3 0 1 default 0 2 4 none"
run env.yaml -n 1
is "a rank alone uses all cores" "$(unlabelled 0 | sed -n 4p)" "0/1 0 1 default 0 0 - none"
run env.yaml
is "all ranks have one MASTER_PORT" "$(unlabelled | grep -o 'at .*' | sort -u | wc -l)" 1
COLLRUN_RUN_DIR=/of/an/outer/job run env.yaml --set "logging.dir=runs/{run_id}"
like "the run folder" "$(unlabelled 0 | sed -n 3p)" " dir $tmp/runs/[^ ]+ at "

mkdir -p "$tmp/src" "$tmp/elsewhere"
script src/where.sh <<'EOF'
echo "$PWD $0 $*"
EOF
programs where 1 '[./src/where.sh, "a b", "{rank}", "$HOME"]'
cd "$tmp/elsewhere" && run ../where.yaml
cd "$tmp" || exit 1
is "a command runs in the folder of the job file; arguments are passed as written" "$(unlabelled 0)" \
    "$tmp $tmp/src/where.sh a b {rank} \$HOME"
programs where 1 '[./where.sh]' "workdir: src"
run where.yaml
is "workdir, and a program relative to it" "$(unlabelled 0)" "$tmp/src $tmp/src/where.sh "
programs where 1 '[pwd]' "workdir: nowhere"
run where.yaml
ends "a folder that does not exist: 126" 126
like "is an error at its line" "$(err)" 'where.yaml:4:31: error: workloads.0..workdir: there is no folder .*/nowhere'

# The kernel's autogroups share out CPUs by session: ranks in separate ones keep each other waiting.
script group.sh <<'EOF'
set -- $(cat /proc/$$/stat)
echo "$$ $5 $6"
EOF
programs group 2 '[./group.sh]'
run group.yaml
is "each rank leads a process group" "$(unlabelled | awk '$1 != $2' | wc -l)" 0
is "all ranks of a host are in one session" "$(unlabelled | cut -d' ' -f3 | sort | uniq -c | awk '{print $1}')" 2

programs oom 1 '[cat, /proc/self/oom_score_adj]'
run oom.yaml
check "when memory is short, ranks are killed first (oom_score_adj $(unlabelled 0))" test "$(unlabelled 0)" -ge 300

# The folders of collrun's libraries come last in paths of any length.
script paths.sh <<'EOF'
echo "${LD_LIBRARY_PATH##*:} ${PYTHONPATH##*:}"
EOF
long=$(printf '/none%.0s:' {1..2000})/none
programs paths 1 '[./paths.sh]' 'env: {LD_LIBRARY_PATH: /none, PYTHONPATH: /none}'
run paths.yaml
short=$(unlabelled 0)
programs paths 1 '[./paths.sh]' "env: {LD_LIBRARY_PATH: \"$long\", PYTHONPATH: \"$long\"}"
run paths.yaml
is "long LD_LIBRARY_PATH and PYTHONPATH end with collrun's folders, too" "$(unlabelled 0)" "$short"
programs own 2 '[sh, -c, "echo $WHO $SHARED"]' 'env: {WHO: "rank {rank}", SHARED: mine}' 'env: {set: {SHARED: all}}'
run own.yaml
is "env of a workload replaces env.set" "$(unlabelled 1)" "rank 1 mine"
# Python keeps lines for a pipe, unless this variable is set.
script unbuffered.sh <<'EOF'
echo "${PYTHONUNBUFFERED-unset}"
EOF
unbuffered() {
    programs unbuffered 1 '[./unbuffered.sh]' "${1:-name: p}"
    { cat unbuffered.yaml; echo "env: {${2:-}}"; } >unbuffered_env.yaml
    run unbuffered_env.yaml
    unlabelled 0
}
unset PYTHONUNBUFFERED
is "PYTHONUNBUFFERED is set for programs, and the user's value stays: default, unset, set, of the workload, inherited" \
    "$(unbuffered) $(unbuffered '' 'unset: [PYTHONUNBUFFERED]') $(unbuffered '' 'set: {PYTHONUNBUFFERED: "0"}') $(
        unbuffered 'env: {PYTHONUNBUFFERED: none}') $(PYTHONUNBUFFERED=outer unbuffered)" "1 unset 0 none outer"
programs own 1 '[hello-from-path]' 'env: {PATH: "'"$tmp"'/src:/usr/bin:/bin"}'
script src/hello-from-path <<<'echo found'
run own.yaml
is "a program is found in the rank's PATH" "$(unlabelled 0)" found
{ echo "version: 1"; echo "processes: {count: 2}"; echo "workloads:"
    echo '  - {command: [sh, -c, "echo program $RANK"], ranks: 1}'
    echo '  - {plugin: hello, ranks: 0, groups: [alone]}'
    echo 'groups: {world: {ranks: 0}, alone: {ranks: 0}}'
} >mixed.yaml
run mixed.yaml
ends "a plugin and a program in one job" 0

# ---- how it ends ----
programs killed 1 '[sh, -c, "kill -9 $$$$"]'
run killed.yaml
ends "a program that is killed" 137
like "the line ends with what is known" "$(err)" 'SIGKILL\), sender unknown$'
programs seven 3 '[sh, -c, "[ $RANK != 1 ] || exit 7; exec sleep 300"]'
run seven.yaml
ends "a program exits with 7: 7" 7
like "the report names rank, program and code" "$(err)" 'rank 1 .*"sh", exited with code 7$'
check "others are ended without waiting for the grace time" [ "$elapsed" -lt $((4000 * slow)) ]
programs term 2 '[sh, -c, "trap \"exit 5\" TERM; [ $RANK = 1 ] || until [ -e trapped ]; do sleep 0.05; done; [ $RANK = 1 ] || exit 5; : >trapped; sleep 300 & wait"]'
run term.yaml
ends "the first failure decides" 5
like "it is that of one rank" "$(err)" 'error: rank 0 .*"sh", exited with code 5$'
like "one that ends on SIGTERM, with any code, stops on request" "$(err)" '^collrun: rank 1 stopped on request$'
rm -f trapped
programs ints 2 '[sh, -c, "trap \"trap - INT; kill -INT $$$$\" TERM; [ $RANK = 1 ] || until [ -e trapped ]; do sleep 0.05; done; [ $RANK = 1 ] || exit 5; : >trapped; sleep 300 & wait"]'
run ints.yaml
ends "one that ends itself by another signal then is not the cause either" 5
like "nor named as such" "$(err)" 'error: rank 0 .*"sh", exited with code 5$'
# Programs take a second SIGTERM for the order to end at once.
cat >terms.c <<'EOF'
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static volatile sig_atomic_t came;
static void on_term(int sig)
{
    (void)sig;
    came = 1;
    if (write(1, "SIGTERM\n", 8) != 8)
        _exit(1);
}
static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) < 0)
        continue;
}
int main(int argc, char **argv)
{
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_term}, NULL);
    if (argc == 3 && strcmp(getenv("RANK"), "1") == 0) {
        while (access(argv[1], F_OK) < 0)
            pause_ms(10);
        return atoi(argv[2]);
    }
    close(creat(argv[1], 0666));
    while (!came)
        pause_ms(10);
    pause_ms(500);
    return 0;
}
EOF
cc -o terms terms.c
programs terms 2 '[./terms, waits, "6"]'
run terms.yaml
ends "a rank fails beside a program that ends in order" 6
is "which gets SIGTERM once" "$(unlabelled 0)" SIGTERM
programs terms 1 '[./terms, waits]' "timeout: 500ms"
run terms.yaml
ends "a program ends in order after its timeout" 124
is "it gets SIGTERM once, too" "$(unlabelled 0)" SIGTERM
cat >crash.c <<'EOF'
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void)
{
    if (strcmp(getenv("RANK"), "1") == 0)
        *(volatile int *)8 = 1;
    pause();
    return 0;
}
EOF
cc -o crash crash.c
programs crash 3 '[./crash]'
run crash.yaml
ends "a program crashes: 139" 139
like "the report names the rank and the signal" "$(err)" 'rank 1 .*"crash", was killed by signal 11 \(SIGSEGV\)'
programs early 3 '[sh, -c, "[ $RANK = 2 ] || sleep 0.3"]'
run early.yaml
ends "programs may end at different times" 0
programs hang 2 '[sleep, "300"]' "" "timeouts: {run: 500ms, grace: 200ms}"
run hang.yaml
ends "programs that hang: timeouts.run, 124" 124
like "the report says so" "$(err)" 'timeouts.run expired after 0.5 s; not finished: ranks 0-1 \(running\)'
script stubborn <<'EOF'
trap '' TERM INT HUP
: >"$1"
[ "$RANK" != 0 ] || exit 4
while :; do sleep 1; done
EOF
programs stubborn 2 '[./stubborn, /dev/null]' "" "timeouts: {grace: 200ms}"
run stubborn.yaml
ends "a program that ignores SIGTERM is killed" 4
programs late 2 '[sh, -c, "sleep 2.5"]' "" "timeouts: {start: 2s}"
run late.yaml
ends "timeouts.start ends when the programs run" 0

# ---- limits of one workload ----
programs limit 2 '[sh, -c, "echo up; exec sleep 300"]' "timeout: 500ms"
run limit.yaml
ends "timeout of a command: 124" 124
like "the report names workload and limit, at its line" "$(err)" 'limit.yaml:4:.*ranks?[: ].*workload "sh" exceeded its time-out of 500ms'
is "its program had run" "$(unlabelled 0)" up
programs limit 2 '[sh, -c, "exit 0"]' "timeout: 300s"
run limit.yaml
ends "a timeout that does not expire" 0
# two NAME BACKGROUND FOREGROUND [LINES]: rank 0 runs a command in the background, rank 1 another one, or a plugin
two() {
    { echo "version: 1"; echo "processes: {count: 2}"; echo "groups: {world: {ranks: 0}, other: {ranks: 1}}"; echo "workloads:"
        echo "  - {name: server, command: $2, ranks: 0, background: true}"
        echo "  - {$3, ranks: 1}"
        [ $# -lt 4 ] || echo "$4"; } >"$1.yaml"
}
two limit '[sh, -c, "trap \"\" TERM; while :; do sleep 0.1; done"]' 'command: [sleep, "2"]' 'on_failure: {action: continue}'
sed -i 's/background: true/timeout: 300ms/; $a timeouts: {grace: 200ms}' limit.yaml
run limit.yaml
ends "on_failure: continue, and a program that ignores SIGTERM at its timeout: 124" 124
like "it is the cause" "$(err)" 'rank 0 .*exceeded its time-out of 300ms'

until_served='[sh, -c, "until [ -e served ]; do sleep 0.02; done"]'
two server '[sh, -c, "echo serves; : >served; exec sleep 300"]' "command: $until_served"
run server.yaml
ends "a command in the background is ended with the others" 0
quiet "without a message"
is "it had run" "$(unlabelled 0)" serves
two server '[sh, -c, "trap \"exit 3\" TERM; echo serves; while :; do sleep 0.1; done"]' 'plugin: hello'
run server.yaml
ends "its exit code does not count then, beside a plugin" 0
two server '[sh, -c, "exit 3"]' 'command: [sleep, "300"]'
run server.yaml
ends "a failure before that does: its code" 3
two server '[sh, -c, "exit 0"]' 'command: [sleep, "0.3"]'
run server.yaml
ends "it may end before the others" 0
sed -i 's/ != 0/ != 7/' stubborn
rm served
two server '[./stubborn, served]' "command: $until_served" 'timeouts: {grace: 300ms}'
run server.yaml --run-dir server
is "result.json has program and end of each rank" "$(tr -d ' \n' <server/result.json | grep -o '"command":"[^"]*","\(signal\|exit_code\)":[0-9]*' | tr '\n' ';')" \
    "\"command\":\"$tmp/stubborn\",\"signal\":9;\"command\":\"sh\",\"exit_code\":0;"
ends "a command that does not stop: 124" 124
like "is named" "$(err)" 'server.yaml:5:.*background workload "server" did not stop within 300ms'
run diag server
is "and again by collrun diag" "$code $(err | grep -c 'did not stop within')$(out | grep -c 'did not stop within')" "0 01"

# ---- what a program may do ----
programs closes 2 '[sh, -c, "exec 0<&- 3>&- 4>&- 5>&-; sleep 0.2; exit 0"]'
run closes.yaml
ends "a program closes its descriptors" 0
quiet "and there is no message"
programs junk 2 '[sh, -c, "echo this is no frame at all, only text >&3; sleep 0.2"]'
run junk.yaml
ends "a program writes to the control socket" 0
programs silent 2 '[sh, -c, "exec >&- 2>&-; sleep 0.2; exit 6"]'
run silent.yaml
ends "a program closes its output" 6
export LEFT_BY=$tmp
programs forks 2 '[sh, -c, "setsid sleep 300 & setsid sleep 300 >/dev/null 2>&1 & echo started"]'
run forks.yaml
ends "a program leaves processes behind" 0
is "its output arrives" "$(unlabelled 1)" started
script held <<'EOF'
echo $$ >pid
until [ -e go ]; do sleep 0.02; done
echo done
EOF
programs held 1 '[./held]'
start held.yaml
within 60 test -s pid
exec 8>"/proc/$(cat pid)/fd/1"
: >go
finish 60
exec 8>&-
ends "a process outside of the job holds the output of a rank" 0
is "all of which arrives" "$(unlabelled 0)" done
programs beside 2 '[sh, -c, "setsid sleep 300 & echo started"]'
sh -c 'sleep 300 & echo $! >helper; exec "$0" beside.yaml' "$COLLRUN" >out 2>err
helper=$(cat helper)
is "a shell starts a helper and becomes collrun: the job" "$(grep -c started out)" 2
check "a child of the shell that collrun has replaced goes on" kill -0 "$helper"
kill "$helper" 2>/dev/null
programs interrupted 2 '[sh, -c, "setsid sleep 300 & sleep 300"]'
start interrupted.yaml
within 60 eval '[ "$(left_over | wc -l)" -ge 6 ]'
kill -INT "$pid"
finish 60
ends "Ctrl-C ends programs: 130" 130
unset LEFT_BY
check_within "no process is left" 60 nothing_left
sleeping() { [ "$(grep -lx sleep $(left_over | sed 's|.*|/proc/&/comm|') 2>/dev/null | wc -l)" = 4 ]; }
for what in "collrun and agent" guard "collrun and guard"; do
    LEFT_BY=$tmp start interrupted.yaml
    within 60 sleeping
    agent=$(agent_of "$pid")
    case $what in
    *agent) kill -KILL "$pid" "$agent" ;;
    guard) kill -KILL "$(pgrep -P "$pid" -x collrun-guard)" ;;
    *) kill -KILL "$pid" "$(pgrep -P "$pid" -x collrun-guard)" ;;
    esac
    finish 60
    check_within "no child of a rank survives a SIGKILL of $what" 60 nothing_left
done

# Output without a reader does not keep a rank from ending in order.
script saves <<'EOF'
trap 'echo stopping; : >saved; exit 0' TERM
while :; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; done
EOF
programs saves 1 '[./saves]'
mkfifo unread
exec 7<>unread
"$COLLRUN" saves.yaml >unread 2>err </dev/null &
pid=$!
children+=("$pid")
written() { awk '/^wchar/ {print $2}' "/proc/$(pgrep -P "$(agent_of "$pid")" -x saves)/io"; }
blocked() { local n; n=$(written) && [ "${n:-0}" -gt 1000000 ] && sleep 0.2 && [ "$(written)" = "$n" ]; }
within 60 blocked
kill -KILL "$pid"
check_within "collrun is killed while a rank waits for a reader of its output: the rank ends in order" 60 test -e saved
exec 7>&-

# ---- ps ----
cat >name.c <<'EOF'
#include <collrun/workload.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    char command[64];
    (void)ctx, (void)state;
    snprintf(command, sizeof command, "ps -o args= -p %d", (int)getpid());
    return system(command) == 0 ? 0 : 1;
}
COLLRUN_WORKLOAD(.name = "name", .run = run);
EOF
plugin name.c name.so || exit 1
printf 'version: 1\nprocesses: {count: 2}\nworkloads: [{plugin: ./name.so}]\n' >ps.yaml
run ps.yaml
is "ps shows the rank of a plugin" "$code $(sed 's/.*\(collrun-engine\)/\1/' out | sort | tr '\n' ' ')" "0 collrun-engine: rank 0 of 2, ps collrun-engine: rank 1 of 2, ps "
script own_ps <<'EOF'
ps e -o args= -p $$ | tr ' ' '\n' | grep ^COLLRUN_RANK=
EOF
programs ps 2 '[./own_ps]'
run ps.yaml
is "ps e shows that of a program" "$code $(sed 's/^\[[0-9]*\] //' out | sort | tr '\n' ' ')" "0 COLLRUN_RANK=0 COLLRUN_RANK=1 "

# ---- members of groups that never come ----
{ echo "version: 1"; echo "processes: {count: 2}"; echo "workloads:"
    echo '  - {command: ["true"], ranks: 0}'
    echo '  - {plugin: hello, ranks: 1}'
} >never.yaml
run never.yaml
ends "a program that others wait for ends without collrun_init: its code or 1" 1
like "it is named" "$(err)" 'rank 0 .*"true", left the job early: it exited with code 0$'
like "with the reason" "$(err)" 'has not called collrun_init'

# ---- programs that cannot run ----
programs missing 2 '[./missing]'
run check missing.yaml
ends "collrun check finds a missing program: 2" 2
echo '#!/no/such/interpreter' >broken && chmod +x broken
programs broken 2 '[./broken]'
run broken.yaml
ends "an interpreter that does not exist: 126" 126
like "is an error at its line, with the reason" "$(err)" 'broken.yaml:4:.*cannot start .*/broken'
like "and a hint that names it" "$(err)" '^hint: its first line names /no/such/interpreter, which does not exist$'
printf '#!/bin/sh\r\necho hello\r\n' >returns && chmod +x returns
programs broken 1 "[./returns]"
run broken.yaml
like "a script with the lines of another system" "$(err)" '^hint: its lines end with CR LF, so its first line names "/bin/sh.r"'
programs restart 2 '[sh, -c, "echo attempt $COLLRUN_ATTEMPT; [ $COLLRUN_ATTEMPT = 1 ] || exit 9"]' "" \
    "on_failure: {action: restart, backoff: 1ms}"
run restart.yaml
ends "a program is restarted" 0
like "in a new attempt" "$(out)" 'attempt 1'
if command -v python3 >/dev/null; then
    cat >serve.py <<'EOF'
import os, socket, sys
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank == 0:
    for option in [socket.SO_REUSEPORT, socket.SO_REUSEADDR, None]: # one after the other; the last one serves
        s = socket.socket()
        if option:
            s.setsockopt(socket.SOL_SOCKET, option, 1)
        s.bind((os.environ["MASTER_ADDR"] if option else "", port))
        s.listen()
        if option:
            s.close()
    s.accept()[0].sendall(b"hello")
else:
    while True:
        try:
            text = socket.create_connection((os.environ["MASTER_ADDR"], port)).recv(5)
            if text: # otherwise one of the first sockets has taken the connection
                print(text.decode())
                break
        except ConnectionError:
            pass
EOF
    programs serve 2 '[python3, serve.py]'
    run serve.yaml
    is "a server of rank 0 listens on MASTER_PORT" "$code $(unlabelled 1)" "0 hello"
else
    skip "a server of rank 0 listens on MASTER_PORT" "no python3"
fi
done_testing
