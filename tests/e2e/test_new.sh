#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun new: what it writes builds and runs as it is. collrun completion: the scripts of bash, zsh and fish.
. "$(dirname "$0")/lib.sh"

# ---- collrun new ----
run new project
is "collrun new: 0" "$code" 0
is "it says what it has written" "$(cat "$tmp/out")" "project/Makefile
project/average.c
project/job.yaml
next: make -C project run"
check "the workload builds without a warning" make -s -C project CFLAGS="-O1 -Wall -Wextra -Werror"
(cd project && "$COLLRUN" job.yaml >"$tmp/out" 2>"$tmp/err")
is "the job runs" "$? $(sort "$tmp/out")" "0 [0] half: the average begins with 0.5
[0] world: the average begins with 1.5
[1] half: the average begins with 0.5
[1] world: the average begins with 1.5
[2] world: the average begins with 1.5
[3] world: the average begins with 1.5"
mkdir here
(cd here && "$COLLRUN" new >"$tmp/out" 2>"$tmp/err")
is "without a folder: the working directory" "$? $(ls here | tr '\n' ' ')" "0 Makefile average.c job.yaml "
echo mine >here/average.c
rm here/Makefile
run new here
is "a file that exists: 2" "$code" 2
is "... it is named" "$(err)" 'collrun: error: "here/average.c" exists
hint: name an empty folder: collrun new DIR'
is "... and nothing is written" "$(ls here | tr '\n' ' ')$(cat here/average.c)" "average.c job.yaml mine"
run new nowhere/project
is "a folder that cannot be created: 125" "$code" 125
like "... says why" "$(err)" 'cannot create the folder "nowhere/project": No such file or directory'
# runs_python DIR COLLRUN: the project of --python
runs_python() {
    (cd "$1" && "$2" job.yaml >"$tmp/out" 2>"$tmp/err")
    is "$1: the program in Python fits the line" "$? $(cat out)" "0 [0] 4 ranks: y = 3.000 x + 1.000, loss 0.000000"
}
run new --python snake
is "--python: it says what it has written" "$code $(cat "$tmp/out")" "0 snake/job.yaml
snake/train.py
next: collrun snake/job.yaml"
python=$(cd "$top" && ls "$home/lib/collrun/python/collrun/"_collrun*.so 2>/dev/null)
python3 -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || python=
no_python="no Python 3.11, or collrun is built without Python.h"
[ -z "$sanitized" ] || python='' no_python="a sanitized extension needs a sanitized interpreter"
if [ -n "$python" ]; then
    runs_python snake "$COLLRUN"
else
    skip "the program in Python fits the line" "$no_python"
fi

# ---- installed in a folder with a blank in its name ----
BUILD=${BUILD:-$top/build/release}
prefix="$tmp/the prefix"
installed() { # TARGET [VARIABLE=VALUE...]
    env -u MAKEFLAGS -u MAKELEVEL make -s -C "$top" "$@" BUILDROOT="$(dirname "$BUILD")" VARIANT="$(basename "$BUILD")" PREFIX="$prefix" \
        2>&1
}
is "make install, without the backend ucx" "$(installed install WITH_UCX=no)" ""
installed backend-notes >/dev/null # the build keeps its own notes
printf 'version: 1\nprocesses: {count: 1}\ngroups: {dp: {ranks: all, backend: ucx}}\nworkloads: [{plugin: hello}]\n' >ucx.yaml
"$prefix/bin/collrun" check ucx.yaml >"$tmp/out" 2>"$tmp/err"
is "what is installed knows what its build has left out" "$? $(grep -c '^hint: this build has no ucx: install libucx-dev and build again;' "$tmp/err")" "2 1"
"$prefix/bin/collrun" new other >"$tmp/out" 2>"$tmp/err"
is "collrun new, from there" "$?" 0
make -s -C other run CFLAGS="-O1 -Wall -Wextra -Werror" >"$tmp/out" 2>"$tmp/err"
is "it builds and runs there" "$? $(grep -c average "$tmp/out")" "0 6"
run_installed=$prefix/bin/collrun
"$run_installed" new --python "other's snake" >"$tmp/out" 2>"$tmp/err"
is "collrun new --python, from there" "$? $(ls "other's snake" | tr '\n' ' ')" "0 job.yaml train.py "
[ -z "$python" ] || runs_python "other's snake" "$run_installed"
[ -z "$python" ] || is "its next command is one that a shell reads" "$(eval "printf '%s\n' $("$run_installed" new --python "it's" | sed -n 's/^next: collrun //p')")" "it's/job.yaml"
rm -r "$prefix/lib/collrun/python"
python_absent='this build has no Python package, since Python.h was missing: install python3-dev, and build again with make'
"$run_installed" new --python poor >"$tmp/out" 2>"$tmp/err"
is "without the Python package: collrun new --python says so" "$? $(sed -n 3p "$tmp/out")" "0 \`import collrun\` fails: $python_absent"
"$run_installed" poor/job.yaml --set processes.count=1 >"$tmp/out" 2>"$tmp/err"
is "... and so does the job" "$? $(sed -n '/^collrun: error: rank 0 .*exited with code 1/,$s/^hint: //p' "$tmp/err")" "1 $python_absent"
printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{command: [python3, -I, -c, "import collrun"]}]\n' >isolated.yaml
run isolated.yaml
is "a program that ignores PYTHONPATH: the hint" "$code $(sed -n 's/^hint: //p' "$tmp/err")" "1 the package is in PYTHONPATH of each rank, which python3 -E and -I ignore"
printf 'version: 1\nprocesses: {count: 1}\nworkloads: [{command: [sh, -c, "false"]}]\n' >other.yaml
run other.yaml
is "another failure has no hint" "$code $(sed -n 's/^hint: //p' "$tmp/err")" "1 "
like "completion is installed" "$(cat "$prefix/share/bash-completion/completions/collrun")" _collrun
is "make uninstall" "$(installed uninstall)" ""
is "... leaves no file" "$(find "$prefix" ! -type d)" ""

# ---- completion ----
# complete WORDS...: what bash offers for the last word
complete_words() {
    bash --norc -c '. ./collrun.bash
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _collrun
        printf "%s " "${COMPREPLY[@]}"' bash "$@" 2>&1
}
mkdir work
cd work || exit
run completion bash
cp "$tmp/out" collrun.bash
: >a.yaml
: >notes.txt
mkdir runs
is "bash: commands, job files and folders" "$(complete_words collrun r)" "run report runs "
is "bash: job files" "$(complete_words collrun check '')" "runs a.yaml "
is "bash: options of a command" "$(complete_words collrun plan --j)" "--json "
is "bash: options that it does not have" "$(complete_words collrun check --j)" " "
is "bash: a folder after --run-dir" "$(complete_words collrun run --run-dir '')" "runs "
is "bash: run directories" "$(complete_words collrun diag '')" "runs "
is "bash: shells" "$(complete_words collrun completion z)" "zsh "
is "bash: names of plugins after describe" "$(complete_words "$COLLRUN" describe sh)$(complete_words "$COLLRUN" describe al)" "shm allreduce "
is "bash: keys after --set" "$(complete_words "$COLLRUN" x.yaml --set network.)" "network.interface= network.ports= "
touch prog
is "bash: a program after --" "$(complete_words collrun -n 4 -- mktem) $(complete_words collrun plan -n 4 -- cat pro)" "mktemp  prog "
is "bash: --hosts of plan is offered once" "$(complete_words collrun plan --ho)" "--hosts "
is "the keys are those of the schema" "$("$COLLRUN" completion keys | grep -xE 'groups.world.backend=|workloads\[0\].plugin=|timeouts.warn.signal=' | wc -l)" 3
every=$("$COLLRUN" --help | sed -n 's/^  \[*\([a-z][a-z]*\)\]* .*/\1/p' | tr '\n' ' ')
is "bash: the commands of --help" "$(complete_words collrun '' | sed 's/runs .*//')" "$every"
# What the other shells offer for the last word of a line, in their own order of the alphabet.
PATH=$(dirname "$COLLRUN"):$PATH
mkdir "$tmp/zsh"
run completion fish
cp "$tmp/out" "$tmp/collrun.fish"
run completion zsh
cp "$tmp/out" "$tmp/zsh/_collrun"
in_fish() { HOME=$tmp fish --no-config -c "source $tmp/collrun.fish; complete -C '$1'" 2>&1 | cut -f 1 | LC_ALL=C sort -u | tr '\n' ' '; }
# A terminal of zsh, in which Tab follows the line. compadd gets all that is offered.
cat >"$tmp/zsh/inside" <<'END'
fpath=($here $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {
    local -a offered
    builtin compadd "$@"
    local rc=$?
    [[ " ${(j: :)@[1,(i)(-|--)]}" == *\ -[OAD]* ]] && return $rc
    builtin compadd -A offered "$@"
    print -rl -- $offered >>$here/offered
    return $rc
}
ended() { : >$here/ended }
comppostfuncs=(ended)
: >$here/ready
END
cat >"$tmp/zsh/type" <<'END'
here=$1
zmodload zsh/zpty
until_there() {
    for ((i = 0; i < 6000; i++)); do
        zpty -r -t z ignored
        [[ -e $1 ]] && return
        sleep 0.01
    done
}
zpty z zsh -f -i
zpty -w z "here=$here; . $here/inside"
until_there $here/ready
zpty -w -n z "$2"$'\t'
until_there $here/ended
zpty -d z
END
in_zsh() {
    rm -f "$tmp/zsh"/offered "$tmp/zsh/ready" "$tmp/zsh/ended"
    TERM=xterm zsh -f "$tmp/zsh/type" "$tmp/zsh" "$1" >"$tmp/zsh.out" 2>&1
    [ -e "$tmp/zsh/ended" ] || echo "Tab has ended nothing: $(cat "$tmp/zsh.out") "
    LC_ALL=C sort -u "$tmp/zsh/offered" 2>/dev/null | sed 's|/$||; /^$/d' | tr '\n' ' '
}
: >b.yml
mkdir runs/deep
: >runs/c.yml
for shell in zsh fish; do
    if ! command -v $shell >/dev/null; then
        skip "$shell: completion" "there is no $shell"
        continue
    fi
    is "$shell: commands, and folders" "$(in_$shell 'collrun r' | sed 's|/||')" "report run runs "
    is "$shell: job files, and folders on the way" "$(in_$shell 'collrun check ' | sed 's|/||')" "a.yaml b.yml runs "
    is "$shell: ... below a folder" "$(in_$shell 'collrun check runs/' | sed 's|runs/||g; s|/||')" "c.yml deep "
    is "$shell: options of a command" "$(in_$shell 'collrun plan --j')" "--json "
    is "$shell: options that it does not have" "$(in_$shell 'collrun check --j')" ""
    is "$shell: an option after the job file" "$(in_$shell 'collrun a.yaml --q')" "--quiet "
    is "$shell: a folder after --run-dir" "$(in_$shell 'collrun run --run-dir ' | sed 's|/||')" "runs "
    for command in diag top report; do is "$shell: run directories after $command" "$(in_$shell "collrun $command " | sed 's|/||')" "runs "; done
    is "$shell: shells" "$(in_$shell 'collrun completion z')" "zsh "
    is "$shell: names of plugins after describe" "$(in_$shell 'collrun describe sh')$(in_$shell 'collrun describe al')" "shm allreduce "
    is "$shell: a program after --" "$(in_$shell 'collrun -n 4 -- mktem')" "mktemp "
    is "$shell: a file after the program" "$(in_$shell 'collrun -n 4 -- cat pro')" "prog "
    is "$shell: keys after --set" "$(in_$shell 'collrun x.yaml --set network.')" "network.interface= network.ports= "
done
rm prog
run completion tcsh
is "another shell: 2" "$code" 2
like "... which ones are known" "$(err)" 'known: bash, zsh, fish'
done_testing
