#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first minutes of a newcomer: first_minutes.sh [SUITE]... (bookworm). In a system that has nothing but what every Debian has, git and
# make: `make` says what it lacks, `make demo`, `make test`, and then all that README shows (first_minutes.sh --walk, which works in any
# tree that is built): its jobs, sources, commands and screens, `collrun new`, and every job of configs/, each with what it prints. A
# command or job that this file does not know is a failure. TAP; the last line counts the cases of `make test`, too. Skipped, with the
# reason: without mmdebstrap, without root or where the system cannot be fetched.
#   USERS    who does it: root (default), user, or both; a plain user gets the packages that `make demo` names
#   ROOTS    where the systems are made (build/debian); each is about 1.5 GB; MIRROR the archive (that of this machine)
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
. "$top/tests/debian/lib.sh"

# ---- the walk ----

# lines PATTERN...: each matches a line of $tmp/out, which begins with the exit code.
lines() {
    local pattern
    for pattern; do
        grep -qE -- "$pattern" "$tmp/out" || { echo "no line matches $pattern:" && tail -n 40 "$tmp/out" && return 1; }
    done
}
# prints CODE PATTERN... -- COMMAND...: the command ends with that code, and what it prints matches.
prints() {
    local patterns=()
    while [ "$1" != -- ]; do patterns+=("$1") && shift; done
    shift
    timeout 120 "$@" >"$tmp/printed" 2>&1 </dev/null
    { echo "exit code $?" && cat "$tmp/printed"; } >"$tmp/out"
    lines "^exit code ${patterns[0]}\$" "${patterns[@]:1}"
}
# same SHOWN COMMAND...: it prints those lines, in any order.
same() {
    timeout 120 "${@:2}" 2>&1 | sort | diff <(sort "$1") -
}
# block LANGUAGE N: the Nth block of README in that language
block() {
    awk -v mark="\`\`\`$1" -v n="$2" '!on && $0 == mark {on = 1; count++; next} !on && /^```/ {on = 2; next} on && /^```$/ {on = 0; next}
        on == 1 && count == n' "$top/README.md"
}
# README's job of four ranks on the file, with group train: job KIND FILE
job() { printf 'version: 1\nprocesses: {count: 4}\ngroups: {train: {ranks: all}}\nworkloads: [{%s}]\n' "$1"; }

# With the commands of the block that builds it.
readme_workload() {
    block c 1 >ranksum.c && block '' "$1" >commands && (cd "$top" && cp "$tmp/walk/ranksum.c" . && . "$tmp/walk/commands" 2>&1) >printed
    mv "$top/ranksum.so" . && rm "$top/ranksum.c" && [ ! -s printed ] || { cat printed && return 1; }
    job 'plugin: ./ranksum.so' >ranksum.yaml
    printf '[%s] the sum of the ranks is 6\n' 0 1 2 3 >shown
    same shown collrun ranksum.yaml
}
readme_python() {
    { block python 1 && echo 'print(x[999])'; } >shown.py
    job 'command: [python3, shown.py]' >python.yaml
    printf '[%s] 6.0\n' 0 1 2 3 >shown
    same shown collrun python.yaml
}
# The screen of an error in a job, whose line it shows; the backends that it names are those of this build.
readme_typo() {
    block '' "$1" >screen && grep -q '^typo.yaml:4:' screen || { cat screen && return 1; }
    { printf 'version: 1\nprocesses: {count: 4}\ngroups:\n' && sed -n 's/^ *4 | //p' screen && echo 'workloads: [{plugin: hello}]'; } >typo.yaml
    sed 's/known here: .*/known here/' screen >shown
    collrun typo.yaml 2>&1 | sed 's/known here: .*/known here/' | diff shown -
}
# README's first screen: four ranks that call the barriers of two groups in different orders.
readme_deadlock() {
    cat >order.py <<'END'
import collrun
names = ["rows", "columns"] if collrun.group().rank == 0 else ["columns", "rows"]
for name in names:
    collrun.group(name).barrier()
END
    printf 'version: 1\nprocesses: {count: 4}\ngroups: {rows: {ranks: all}, columns: {ranks: all}}\nworkloads: [{command: [python3, order.py]}]\n' >order.yaml
    block '' 1 >shown
    collrun order.yaml 2>&1 | grep -E '^(collrun: error|hint):' | diff shown -
}
readme_hello() { # N of the block, which begins with the command
    block '' "$1" | tail -n +2 | sed 's/ on [^;]*;/ on HOST;/' >shown
    (cd "$top" && eval "$(block '' "$1" | sed -n '1s/^\$ //p')") 2>&1 | sed 's/ on [^;]*;/ on HOST;/' | sort | diff <(sort shown) -
}
new_in_c() {
    printf '[%s] %s: the average begins with %s\n' 0 half 0.5 1 half 0.5 0 world 1.5 1 world 1.5 2 world 1.5 3 world 1.5 >shown
    collrun new project && make -s -C project run 2>&1 | sort | diff <(sort shown) - && same shown collrun project/job.yaml
}
new_in_python() {
    echo '[0] 4 ranks: y = 3.000 x + 1.000, loss 0.000000' >shown
    collrun new project-python --python && same shown collrun project-python/job.yaml
}
report_of_a_run() { collrun hello.yaml --run-dir run >/dev/null && collrun report run -o page.html && grep -q '</html>' page.html; }
install_and_run() { make -s -C "$top" install PREFIX="$PWD/prefix" && prints 0 'hello from rank 3 of 4' -- prefix/bin/collrun hello.yaml; }
without_torch() {
    if python3 -c 'import torch' 2>/dev/null; then return 0; fi
    prints 2 'cannot be built: python3 has no torch' -- make -C "$top" torch PYTHON=python3
}

# readme_command COMMAND: one of those in README's text.
readme_command() {
    case $1 in
    "apt-get install git make") command -v git make ;;
    "collrun job.yaml") prints 0 'hello from rank 3 of 4' -- collrun hello.yaml ;;
    "collrun -n 8 -- python3 train.py")
        echo 'import os; print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])' >train.py
        prints 0 '^\[0\] rank 0 of 8$' '^\[7\] rank 7 of 8$' -- collrun -n 8 -- python3 train.py
        ;;
    "collrun check") prints 0 -- collrun check groups.yaml ;;
    "collrun plan") prints 0 '^train +' '^node/' -- collrun plan groups.yaml ;;
    "collrun doctor") prints 0 -- collrun doctor groups.yaml ;;
    "collrun backends") prints 0 '^shm .*available' '^tcp .*available' '^nccl .*not available' -- collrun backends ;;
    "collrun report RUN_DIR") report_of_a_run ;;
    "collrun new DIR") new_in_c && new_in_python ;;
    "make install") install_and_run ;;
    "make torch PYTHON=python3") without_torch ;;
    "make conform") make -C "$top" -n conform BACKEND=shm >/dev/null ;;
    "man "*) test -e "$top/runner/man/${1#man }".* || test -e "$(echo "$top/runner/man/${1#man }".[1-8])" ;;
    *) echo "tests/debian/first_minutes.sh does not know this command" && false ;;
    esac
}

# config NAME: what it prints, here or where it needs what this machine may lack.
config() {
    local run=(collrun "configs/$1.yaml")
    case $1 in
    allreduce) prints 0 '^\[0\] allreduce in group world: 4 ranks on shm, .*, 20 calls, all verified$' -- "${run[@]}" ;;
    backend) make -s -C examples/backend-template && prints 0 '^\[0\] .*3 ranks on stream, .* all verified$' -- "${run[@]}" ;;
    background) prints 0 'in group train: 4 ranks .* 200 calls, all verified$' '^\[3\] heartbeat control: [1-9][0-9]* beats' -- "${run[@]}" ;;
    bench) prints 0 '# sendrecv in group world: 4 ranks on shm' '# Out of bounds values : 0 OK' -- "${run[@]}" ;;
    checkpoint) prints 0 'attempt 1 starts at step 30' '100 steps, sum 20400: right' -- "${run[@]}" ;;
    command) prints 127 'nodes: \[blue, green\]' 'host blue: (cannot start ip: |ip exited with code 255: Cannot open network namespace "blue")' -- "${run[@]}" ;;
    ddp | torch_env | torch_fault) prints '(0|1)' "No module named 'torch'|accuracy|loss|rank 0" -- "${run[@]}" ;;
    demo) prints 0 '^\[0\]   dp/pp=1 +4-7 +tcp +allreduce .* 40 of 40 ' '^\[0\]   world +0-7 +shm +allreduce .* 10 of 10 ' -- "${run[@]}" ;;
    devices | gpus) prints 2 'error: processes.gpus_per_process: host ".*" has 0 GPUs, but its 2 ranks need [24]' '^hint: ' -- "${run[@]}" ;;
    environment) prints 0 'welcome to .* from rank 0 of 4' 'greetings from rank 3 of 4 .*SITE=nowhere$' -- "${run[@]}" ;;
    grid) prints 0 '^\[0\]   dp/pp=2 +4-5 +tcp +allreduce .* 40 of 40 ' -- "${run[@]}" ;;
    groups) prints 0 '^\[5\] .*; picked: 0 of 4 \(tcp\); node/right: 2 of 3 \(shm\)' -- "${run[@]}" ;;
    hello) prints 0 '^\[3\] hello from rank 3 of 4 on ' -- "${run[@]}" ;;
    matrix) prints 0 '^\[3/3\] backend=tcp,n=4: ok, ' '^tcp +4 +ok ' -- "${run[@]}" ;;
    parameter_server) prints 0 '^\[0\] converged: 2 servers, 3 workers, accuracy at least 0.95$' -- "${run[@]}" ;;
    pipeline) prints 0 'step 100: loss 0\.[0-9]+, accuracy 0\.9' -- "${run[@]}" ;;
    program) prints 0 '^\[3\] rank 3 of 4: got 2, the sum is 6$' -- "${run[@]}" ;;
    python) prints 0 '^\[0\] 4 ranks on shm: the sum of 4 x 65536 float32 is 10 everywhere$' -- "${run[@]}" ;;
    ray) prints '(0|1)' "No module named 'numpy'|rank 0|error of w" -- "${run[@]}" ;;
    replay) prints 0 '# replay of examples/traces/ring: 4 ranks by 4 processes' '^\[0\]   allreduce +12 ' -- "${run[@]}" ;;
    ring) prints 0 '^\[0\] ring clockwise: .* 50 hops verified' '^\[4\] ring counter: .* 50 hops verified' -- "${run[@]}" ;;
    slurm) prints 2 'collrun does not run inside a Slurm allocation' '^hint: run salloc ' -- "${run[@]}" ;;
    ssh) prints 127 'error: host node1: cannot resolve the host name node1' '^hint: ' -- "${run[@]}" ;;
    survivors) prints 0 '^\[0\] 100 steps, 4 ranks at the end$' -- "${run[@]}" ;;
    train) prints 0 'attempt 1: 4 processes from step 40' 'step 100: loss 0\.[0-9]+, accuracy 0\.9' -- "${run[@]}" ;;
    *) echo "tests/debian/first_minutes.sh does not know this job" && false ;;
    esac
}

walk() {
    local line n
    export PATH=$top/build/release/bin:$PATH
    mkdir "$tmp/walk" && cd "$tmp/walk" || exit 1
    block yaml 1 >hello.yaml
    block yaml 2 >groups.yaml
    check "README: the deadlock of its first screen" readme_deadlock
    check "README: the smallest job prints what is shown" readme_hello 3
    check "README: the job with groups" prints 0 'allreduce in group train: 7 ranks on gloo, .*, 20 calls, all verified' -- collrun groups.yaml
    check "README: the workload is built by the commands that are shown, without a word, and runs" readme_workload 4
    check "README: the program in Python" readme_python
    check "README: an error in the job file is shown as it is printed" readme_typo 5
    while read -r line; do
        check "README: $line" readme_command "$line"
    done < <(awk '/^```/ {on = !on; next} !on' "$top/README.md" | tr '\n' ' ' | grep -oE '`(apt-get|cc|collrun|git|make|man|python3?|pip) [^`]*`' | tr -d '\`' | sort -u)
    cd "$top" || exit 1
    for line in configs/*.yaml; do
        n=$(basename "$line" .yaml)
        check "configs/$n.yaml" config "$n"
    done
}

# ---- a bare system ----

# Each is called with inside or as_user, and the root. Without compilers, `make` ends with one line:
names_deps() {
    "$1" "$2" "cd $folder && make" >"$tmp/out" 2>&1 && echo "make succeeded" && return 1
    [ "$(grep -vc '\*\*\*' "$tmp/out")" = 1 ] && lines '^make: this machine lacks what a build needs: cc c\+\+ pkg-config; run `make deps`' || { cat "$tmp/out" && return 1; }
}
demo() {
    "$1" "$2" "cd $folder && make demo" >"$tmp/demo" 2>&1 && cp "$tmp/demo" "$tmp/out" || { tail -n 30 "$tmp/demo" && return 1; }
    lines '^\[0\]   world +0-7 +shm +allreduce .* 10 of 10 '
}
# demo_output: first what it does and how long that takes, and no line that alarms.
demo_output() {
    head -n 1 "$tmp/demo" | grep -q '^make demo: .* minutes ' || { head -n 3 "$tmp/demo" && return 1; }
    ! grep -vE '^  [A-Z]+ +[^ ]+$' "$tmp/demo" | grep -iE 'not found|error|warning|debconf'
}
names_left_out() {
    "$1" "$2" "cd $folder && make" >"$tmp/out" 2>&1
    tail -n 3 "$tmp/out" | tr '\n' ' ' | grep -q '^not built:.*collrun.torch.*make torch.*backend ucx.*apt-get install libucx-dev' || { cat "$tmp/out" && return 1; }
}
# all_tests: the counts of `make test` are added to those of this file.
all_tests() {
    "$1" "$2" "cd $folder && make test" >"$tmp/tests" 2>&1
    local code=$? ok bad skip
    read -r ok bad skip < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$tmp/tests" | tail -n 1)
    tests_passed=$((tests_passed + ${ok:-0})) tests_failed=$((tests_failed + ${bad:-0})) tests_skipped=$((tests_skipped + ${skip:-0}))
    [ $code -eq 0 ] || grep -aE '^FAIL|^      (not ok|killed|\| # +(got|expected|in|no line))|^[0-9]+ passed' "$tmp/tests" | cut -c 1-400 | tail -n 30 # check() shows as many
    return $code
}
named_packages() { # of a user without sudo: left in $tmp/packages
    "$1" "$2" "cd $folder && make demo" >"$tmp/out" 2>&1 && echo "make succeeded" && return 1
    grep -oE '^as root: apt-get install .*libyaml-dev.*' "$tmp/out" >"$tmp/packages" || { cat "$tmp/out" && return 1; }
}
newcomer() { # SUITE ROOT USER
    local on="$1, $3" as=inside home=/root folder
    [ "$3" = root ] || { as=as_user && home=/home/user; }
    folder=$home/collrun
    system_make "$1" "$2" make,git >"$tmp/log" 2>&1 || { skip "$on" "the system cannot be made: $(tail -n 1 "$tmp/log")"; return; }
    tree_copy "$2$home/collrun" && chown -R "$(stat -c %u:%g "$2$home")" "$2$home/collrun"
    "$as" "$2" "cd $home && git -c init.defaultBranch=main init -q collrun && cd collrun && git add -A" >"$tmp/log" 2>&1
    check "$on: make names make deps" names_deps "$as" "$2"
    if [ "$3" != root ]; then
        check "$on: make demo names the packages" named_packages "$as" "$2" || return
        check "$on: root installs those" inside "$2" "apt-get update -qq && apt-get install -y -qq --no-install-recommends $(sed 's/^as root: apt-get install//' "$tmp/packages")" || return
    fi
    check "$on: make demo" demo "$as" "$2" || return
    check "$on: it says how long it takes, and does not alarm" demo_output
    check "$on: make says which parts are left out" names_left_out "$as" "$2"
    local seconds=$SECONDS
    check "$on: make test" all_tests "$as" "$2"
    echo "# $on: make test: $((SECONDS - seconds)) s, $(tail -n 1 "$tmp/tests")"
    grep -E '^      skipped: ' "$tmp/tests" | sed 's/^ */# /'
    relay < <("$as" "$2" "cd $folder && tests/debian/first_minutes.sh --walk")
}
suite_run() {
    local user
    for user in ${USERS:-root}; do
        newcomer "$1" "$2" "$user"
        rm -rf "$2"
    done
}

tests_passed=0 tests_failed=0 tests_skipped=0
if [ "${1:-}" = --walk ]; then
    walk
else
    [ $# -gt 0 ] || set -- bookworm
    suites_run "the first minutes on" newcomer- "$@"
fi
echo "1..$number"
echo "$((number - failed - skipped + tests_passed)) passed, $((failed + tests_failed)) failed, $((skipped + tests_skipped)) skipped"
[ $failed -eq 0 ]
