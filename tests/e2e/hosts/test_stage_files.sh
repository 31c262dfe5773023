#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# stage_files: hosts that have nothing of a project get copies of it, in which the command starts.
hosts=2
. "$(dirname "$0")/testbed.sh"
testbed_up

project=$tmp/project
mkdir -p "$project/src" "$project/data/deep" "$project/.git" "$tmp/shared"
for n in 1 2; do on $n mount -t tmpfs none "$project"; done # only the head has it
cd "$project" || exit 1
printf '#!/bin/sh\nexec ./src/show.sh "$@"\n' >start.sh
cat >src/show.sh <<'END'
#!/bin/sh
echo "here $PWD"
cat data/numbers "data/deep/it's a name" data/link
ls -l src/show.sh data/numbers | cut -c1-10
[ -e data/empty ] && [ ! -s data/empty ] && echo "the empty file is there"
[ ! -e unnamed ] && [ ! -e data/.git ] && echo "and nothing else"
END
chmod 755 start.sh src/show.sh
echo 1 2 3 >data/numbers
echo quoted >"data/deep/it's a name"
echo linked >"$tmp/target" && ln -s ../../target data/link
: >data/empty
mkdir data/.git && : >data/.git/config
: >unnamed

# project NAME COUNT COMMAND KEYS [FURTHER LINES]
project() {
    { ssh_head '"h[1-2]"' '' "${HOST_KEYS:-}"
        echo "processes: {count: $2}"
        echo "workloads: [{command: $3, $4}]"
        [ $# -lt 5 ] || echo "$5"; } >"$project/$1.yaml"
}
copies() { find "$tmp"/h$1/cache/collrun/trees -path "*/files$project/$2" | wc -l; }

# ---- a good project ----
files='stage_files: [start.sh, ./src, data/]'
project good 2 '[./start.sh]' "$files"
run good.yaml -v
ends "a project that the hosts lack: 0" 0
like "the command starts in the copy of its folder" "$(unlabelled 1)" "here $tmp/cache/collrun/trees/[0-9a-f]*/files$project\$"
is "files, folders, links, odd names, and permission to execute" "$(unlabelled 1 | tail -n +2)" "1 2 3
quoted
linked
-r--------
-r-x------
the empty file is there
and nothing else"
is "both hosts have them" "$(unlabelled 0 | tail -n +2)" "$(unlabelled 1 | tail -n +2)"
run good.yaml -v
is "the second time nothing is sent" "$code $(err | grep -c 'nothing to send')" "0 2"
chmod 644 data/numbers && echo 4 >data/numbers
run good.yaml -v
is "a changed file alone is sent" "$code $(err | grep -c 'sent 1 file') $(unlabelled 0 | sed -n 2p)" "0 2 4"
tree=$(ls -d "$tmp"/h1/cache/collrun/trees/* | head -n 1)
chmod 600 "$tree/files$project/data/numbers" && echo 5 >"$tree/files$project/data/numbers"
run good.yaml
is "a copy that was changed is replaced" "$code $(unlabelled 0 | sed -n 2p)" "0 4"
project writes 2 '[sh, -c, "echo $RANK >result; cat result"]' "$files"
run writes.yaml && run writes.yaml -v
is "a rank may write into its folder" "$code $(err | grep -c 'nothing to send') $(unlabelled 1)" "0 2 1"
project resolved 2 '[./start.sh]' "$files" 'logging: {dir: run}'
run resolved.yaml && (cd "$tmp/shared" && run "$project/run/resolved.yaml" --run-dir "$tmp/shared/again")
is "resolved.yaml gives the same run" "$code $(unlabelled 1 | sed -n 2p)" "0 4"
project workdir 2 '[./show.sh]' 'workdir: src, stage_files: [src]'
run workdir.yaml
like "workdir: its copy" "$(unlabelled 1)" "here .*/files$project/src\$"
HOST_KEYS=", workdir: $tmp/shared" project hosts 2 '[./start.sh]' "$files"
run hosts.yaml
is "a host's workdir is that of other commands" "$code $(unlabelled 1 | sed -n 2p)" "0 4"
if command -v python3 >/dev/null; then
    printf 'import part\nprint(part.name, open("data/numbers").read().strip())\n' >src/train.py
    echo 'name = "imported"' >src/part.py
    project python 2 '[python3, src/train.py]' "$files"
    run python.yaml
    is "a script of Python with its modules" "$code $(unlabelled 1)" "0 imported 4"
    if [ -d "$home/lib/collrun/python" ] && [ -z "$sanitized" ]; then
        printf 'import collrun\nprint("rank", collrun.group().rank)\n' >src/train.py
        run python.yaml
        is "the package collrun is there" "$code $(unlabelled 1)" "0 rank 1"
    else
        skip "the package collrun is there" "it is not built, or needs a sanitized interpreter"
    fi
else
    skip "a script of Python with its modules" "no python3"
fi

# A library that only RPATH finds is sent, though the hosts have another one of its name.
mkdir "$tmp/own" && for n in 1 2; do on $n mount -t tmpfs none "$tmp/own"; done
echo 'int own(void) { return 0; }' | cc -shared -fPIC -x c - -Wl,-soname,libssl.so.3 -o "$tmp/own/libssl.so.3"
echo 'int own(void); int main(void) { return own(); }' | cc -x c - -x none "$tmp/own/libssl.so.3" -Wl,-rpath,"$tmp/own" -o linked
project library 2 '[./linked]' 'stage_files: [linked]'
run library.yaml
ends "a program with a private library" 0
rm linked

# ---- the cache ----
project good 2 '[./start.sh]' "$files" 'env: {set: {A: b}}'
for n in 1 2; do sshd_down $n && sshd_up $n "SetEnv XDG_CACHE_HOME=$tmp/cache HOME=$HOME COLLRUN_CACHE_KIB=1"; done
echo 6 >data/numbers
run good.yaml
is "old copies are removed as other files are" "$code $(copies 1 data/numbers)" "0 1"

# ---- what is refused ----
refuses() { # NAME PATTERN
    ends "$1: $3" "$3"
    like "$1: the error" "$(err)" "$2"
}
project missing 2 '[./start.sh]' 'stage_files: [start.sh, nowhere]'
run check missing.yaml
refuses "a file that does not exist" "missing.yaml:5:[0-9]*: error: workloads\[0\].stage_files: .*/nowhere: No such file" 2
ln -s nothing data/dangling
run good.yaml
refuses "a link that names nothing" 'good.yaml:5:[0-9]*: error: stage_files of start.sh: cannot read .*/data/dangling: No such file' 2
rm data/dangling && ln -s .. data/loop
run good.yaml
refuses "a loop of links" 'good.yaml:5:[0-9]*: error: .*data/loop/data is a link to a folder that contains it' 2
rm data/loop && mkfifo data/fifo
run good.yaml
refuses "a FIFO" 'data/fifo is neither a file nor a folder' 2
rm data/fifo && : >'data/back\slash'
run good.yaml
refuses "a backslash" 'has a control character, a backslash' 2
rm 'data/back\slash' && mkdir data/many && (cd data/many && seq 1100 | xargs touch)
run good.yaml
refuses "too many files" 'more than 1024 files' 2
rm -r data/many && truncate -s 600M data/large
run good.yaml
refuses "too many bytes" 'more than 512 MiB' 2
check_within "nothing is left" 60 nothing_left
done_testing
