#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where things lie and who runs it: other folders, plugins and backends by path, permissions, other users.
. "$(dirname "$0")/lib.sh"
need_scripted

mkdir -p jobs/sub elsewhere "with space"
cp scripted.so jobs/sub/
job plain <<END
version: 1
processes: {count: 2}
workloads: [{plugin: ./sub/scripted.so, params: {do: "allreduce 3 world; print here"}}]
END
mv plain.yaml jobs/
both() { is "$1" "$code: $(sort out | tr '\n' ' ')" "0: [0] here [1] here "; }
run run jobs/plain.yaml
both "a job file by relative path; its plugin lies relative to it"
run run "$tmp/jobs/plain.yaml"
both "a job file by absolute path"
cd elsewhere || exit 1
run run ../jobs/plain.yaml
cd "$tmp" || exit 1
both "from another folder"
cd / || exit 1
run run "$tmp/jobs/plain.yaml"
cd "$tmp" || exit 1
both "from /"
cp -r jobs/. "with space/"
run run "with space/plain.yaml"
both "in a folder with a space"
ln -s "$tmp/jobs/plain.yaml" elsewhere/link.yaml
cp -r jobs/sub elsewhere/
run run elsewhere/link.yaml
both "by a symbolic link"
sed "s,\./sub,$tmp/jobs/sub," jobs/plain.yaml >absolute.yaml
run run absolute.yaml
both "a plugin by absolute path"
ln -s "$COLLRUN" elsewhere/collrun
timeout "$limit" elsewhere/collrun run jobs/plain.yaml >out 2>err </dev/null
code=$?
both "the command by a symbolic link"
(cd "$(dirname "$COLLRUN")" && PATH=.:$PATH timeout "$limit" collrun run "$tmp/jobs/plain.yaml") >out 2>err </dev/null
code=$?
both "the command by a relative PATH"
env -i "$COLLRUN" run jobs/plain.yaml >out 2>err </dev/null
code=$?
both "with an empty environment"
job bare <<END
version: 1
processes: {count: 2}
workloads: [{plugin: hello}]
END
run run bare.yaml
ends "a bare name is an installed workload" 0
cat jobs/plain.yaml | (cd jobs && timeout "$limit" "$COLLRUN" -) >out 2>err
code=$?
both "a job file on stdin: its paths are relative to the working directory"
sed 's/count: 2/count: 2, stdin: all/' jobs/plain.yaml | timeout "$limit" "$COLLRUN" check - >out 2>err
code=$?
ends "the ranks cannot read stdin as well" 2
like "at the place" "$(err)" '^/dev/stdin:2:30: error: processes.stdin'

# ---- one rule for all paths ----
printf '#!/bin/sh\nshift; exec "$@"\n' >jobs/reach.sh
chmod +x jobs/reach.sh
job jobs/reach <<END
version: 1
hosts: {defaults: {transport: {command: [./reach.sh, "{host}"]}}, nodes: [a]}
processes: {count: 1}
workloads: [{command: [echo, here]}]
END
cd / || exit 1
run run "$tmp/jobs/reach.yaml"
cd "$tmp" || exit 1
is "the program of a transport is relative to the job file" "$code $(out)" "0 [0] here"
sed 's,\./reach,./raech,' jobs/reach.yaml >jobs/raech.yaml
cd / || exit 1
run check "$tmp/jobs/raech.yaml"
cd "$tmp" || exit 1
like "check finds that it is missing" "$(err)" "raech.yaml:2:[0-9]+: error: transport.command: there is no file $tmp/jobs/raech.sh"
like "and suggests another" "$(err)" 'hint: did you mean "reach.sh"'

mkdir -p 'jobs/{odd}' "$tmp/home"
job 'jobs/{odd}/logs' <<END
version: 1
processes: {count: 1}
workloads: [{command: [~/say.sh], workdir: ~/}]
logging: {dir: "~/runs-{run_id}"}
END
printf '#!/bin/sh\necho in "$PWD"\n' >home/say.sh
chmod +x home/say.sh
HOME=$tmp/home run run 'jobs/{odd}/logs.yaml'
is "~/ is the home folder: of a program and a workdir" "$code $(out)" "0 [0] in $tmp/home"
is "of logging.dir" "$(ls -d home/runs-*/result.json | wc -l)" 1
HOME=$tmp/home run run 'jobs/{odd}/logs.yaml' --set 'logging.dir=r' -q
HOME=/nowhere run run 'jobs/{odd}/r/resolved.yaml' --run-dir again
is "resolved.yaml has it in full, below a folder with braces too" "$code $(out)" "0 [0] in $tmp/home"
HOME=$tmp/home run run 'jobs/{odd}/logs.yaml' --run-dir=~/by-option
check "of --run-dir=~/" [ -f home/by-option/result.json ]
rm -rf home again 'jobs/{odd}'

# ---- files of another machine ----
for name in plugin.so backend.so program; do # the machine in the header is changed: each is the other one of the two
    [ $name = program ] && cp "$(command -v true)" $name || cp scripted.so $name
    other=$(od -An -tu1 -j18 -N1 $name | tr -d ' ')
    if [ "$other" = 183 ]; then mark='\076'; else mark='\267'; fi
    printf "$mark" | dd of=$name bs=1 seek=18 conv=notrunc status=none
done
job machine <<END
version: 1
hosts: {nodes: [{name: here, transport: local}, {name: there, transport: {command: [./jobs/reach.sh, "{host}"]}}]}
processes: {count: 2, map: cyclic}
backends: {other: {path: ./backend.so}}
workloads:
  - {plugin: ./plugin.so, ranks: 0}
  - {command: [./program], ranks: 1, workdir: .}
END
is_for='is built for [A-Za-z0-9-]+, this machine is [A-Za-z0-9-]+'
run check machine.yaml
like "a plugin of another machine" "$(err)" "machine.yaml:6:[0-9]+: error: workloads.0..plugin: workload $tmp/plugin.so $is_for"
like "a backend" "$(err)" "machine.yaml:4:[0-9]+: error: .*backend $tmp/backend.so $is_for"
run run machine.yaml --set backends={} --set 'workloads[0].plugin=hello' --set stage=never
like "a program on another host" "$(err)" "machine.yaml:7:[0-9]+: error: .*/program $is_for"
run check machine.yaml --set backends={} --set processes.map=block --set 'workloads[0].ranks=1' --set 'workloads[1].ranks=0'
like "a program on this one, which may have an emulator" "$(err)" "machine.yaml:7:[0-9]+: warning: workloads.1..command: $tmp/program $is_for"
printf 'int main(void) { return 0; }\n' >main.c
cc main.c -o main && cc -c main.c -o main.o
run check machine.yaml --set 'workloads[0].plugin=./main' --set backends.other.path=./main.o
like "a program as a plugin" "$(err)" "workload $tmp/main is a program, not a shared object"
like "with both remedies" "$(err)" 'hint: build it with cc -shared -fPIC, or run it by command'
like "an object file as a backend" "$(err)" "backend $tmp/main.o is an object file, not a shared object"
printf '__attribute__((constructor)) static void early(void) { __builtin_trap(); }\n' >early.c
cc -shared -fPIC early.c -o early.so
run check machine.yaml --set backends={} --set 'workloads[0].plugin=./early.so'
like "a crash in a constructor: the hint names file and command" "$(err)" "hint: a constructor of $tmp/early.so .*--describe workload:$tmp/early.so"

# ---- backends by path ----
plugin "$here/minimal_backend.c" libcollrun_minimal.so
job minimal <<END
version: 1
processes: {count: 3}
backends:
  minimal: {path: ./libcollrun_minimal.so}
groups:
  g: {ranks: all, backend: minimal}
workloads: [{plugin: ./scripted.so, params: {do: "allreduce 50 g; where g"}}]
END
run run minimal.yaml
ends "a backend of one's own by path" 0
like "the group runs on it" "$(out)" '^\[2\] g: exists 1, rank 2, size 3, order 0 1 2, minimal$'
sed 's,\./lib,./no/such/lib,' minimal.yaml >absent.yaml
run run absent.yaml
ends "a backend whose file does not exist: 126" 126
like "explained at its line" "$(err)" 'absent\.yaml:4:[0-9]+: error: .*no/such'
plugin "$here/minimal_backend.c" libcollrun_ill.so '-DMINIMAL_WHY="the device is broken"'
sed 's,libcollrun_minimal,libcollrun_ill,' minimal.yaml >ill.yaml
run run ill.yaml
ends "a backend that is not available: 126" 126
like "its reason is given, at the group's line" "$(err)" 'ill\.yaml:[46]:[0-9]+: error: .*the device is broken'
plugin "$here/minimal_backend.c" libcollrun_old.so -DMINIMAL_ABI=99u
sed 's,libcollrun_minimal,libcollrun_old,' minimal.yaml >old.yaml
run run old.yaml
ends "a backend of another ABI: 126" 126
like "both ABIs are named" "$(err)" '(99.*1|1.*99)'
cp scripted.so libcollrun_wrong.so
sed 's,libcollrun_minimal,libcollrun_wrong,' minimal.yaml >wrong.yaml
run run wrong.yaml
ends "a shared object that is no backend: 126" 126
like "at its line" "$(err)" 'wrong\.yaml:4:[0-9]+: error: .*libcollrun_wrong\.so'
plugin "$here/minimal_backend.c" libcollrun_clash.so '-DMINIMAL_NAME="shm"'
sed 's,minimal: {path: ./libcollrun_minimal,shm: {path: ./libcollrun_clash,; s,backend: minimal,backend: shm,' minimal.yaml >clash.yaml
run run clash.yaml
ends "a backend of a name that is taken is an error of the job file: 2" 2
like "it prints the one path" "$(err)" "$tmp/libcollrun_clash\.so|[. ]/libcollrun_clash\.so"
like "and the other" "$(err)" 'lib/collrun/backends/libcollrun_shm\.so'
sed 's,minimal: {path,minimax: {path,; s,backend: minimal,backend: minimax,' minimal.yaml >name.yaml
run run name.yaml
ends "so is a name that is not the one in its shared object: 2" 2
like "with both names" "$(err)" '(minimax.*minimal|minimal.*minimax)'

# ---- what others could have changed ----
mkdir open
cp scripted.so open/
chmod 777 open/scripted.so
sed 's,\./sub,./open,' jobs/plain.yaml >open.yaml
run run open.yaml
ends "a plugin that all users may write is refused: 126" 126
like "with the reason" "$(err)" 'writ'
chmod 755 open/scripted.so
chmod 777 open
run run open.yaml
ends "so is one in a folder that all users may write" 126
like "the hint is the command that mends it" "$(err)" "^hint: chmod o-w $tmp/open\$"
sh -c "$(sed -n 's/^hint: //p' err)"
run run open.yaml
both "with the permissions mended it runs"
chmod 666 libcollrun_minimal.so
run run minimal.yaml
ends "a backend that all users may write is refused" 126

# ---- other users, read-only folders ----
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    readable=1
    path=$(dirname "$COLLRUN")
    while [ "$path" != / ]; do
        [ $((0$(stat -c %a "$path") & 1)) -eq 1 ] || readable=0
        path=$(dirname "$path")
    done
    chmod 755 "$tmp"
    if [ $readable = 1 ]; then
        cd elsewhere || exit 1
        setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent \
            timeout "$limit" "$COLLRUN" run "$tmp/jobs/plain.yaml" >"$tmp/out" 2>"$tmp/err" </dev/null
        code=$?
        cd "$tmp" || exit 1
        both "as another user, without a home, in a folder one may not write to"
    else
        skip "as another user" "the build lies in a folder that others may not enter"
    fi
else
    skip "as another user" "needs root and setpriv"
fi
if unshare -m true 2>/dev/null; then
    cat >readonly.sh <<'END'
mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1/jobs" && ! touch probe 2>/dev/null &&
    TMPDIR=$1 exec timeout "$2" "$3" run plain.yaml </dev/null
END
    mkdir ro
    cp -r jobs ro/
    unshare -m sh readonly.sh "$tmp/ro" "$limit" "$COLLRUN" >out 2>err
    code=$?
    both "in a read-only file system"
else
    skip "in a read-only file system" "needs to mount"
fi
(ulimit -n 256 && exec timeout "$limit" "$COLLRUN" run jobs/plain.yaml) >out 2>err </dev/null
code=$?
both "with few file descriptors"
cat >jobs/many.yaml <<'END'
version: 1
processes: {count: 40}
workloads: [{plugin: hello}]
END
(ulimit -Sn 96 && exec timeout "$limit" "$COLLRUN" run jobs/many.yaml) >out 2>err </dev/null
code=$?
is "more ranks than the soft limit of descriptors has room for" "$code $(grep -c 'hello from' out)" "0 40"
(ulimit -n 40 && exec timeout "$limit" "$COLLRUN" run jobs/many.yaml) >out 2>err </dev/null
code=$?
ends "more ranks than the hard limit has room for" 125
like "the first that was not started, which has no pid" "$(err)" 'error: rank [0-9]+ \([^ ,]+\): cannot create .*Too many open files'

# ---- logging.dir ----
run run jobs/plain.yaml
is "nothing is written without logging.dir" "$(find . -newer jobs/plain.yaml -name '*run*' -type d | wc -l)" 0
sed '$a logging: {dir: "logs/{run_id}"}' jobs/plain.yaml >jobs/logged.yaml
run run jobs/logged.yaml
is "logging.dir: one folder per run" "$(find . -path '*/logs/*' -name result.json | wc -l)" 1
done_testing
