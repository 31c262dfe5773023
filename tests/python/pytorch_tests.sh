#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# PyTorch's own tests of c10d backends with collrun.torch (pytorch_tests.py), RANKS (3) ranks on BACKEND (shm). TAP. A test ends the job if it
# fails, so the others then run in a new job. pytorch_tests.txt lists those that are known to fail, with the reason: such a case is a skip.
# usage: PYTHON=... pytorch_tests.sh [REGULAR EXPRESSION]      OUT=FILE gets "pass|skip|fail TEST: reason" lines
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../e2e/lib.sh"
python=${PYTHON:-python3}
ranks=${RANKS:-3}
list=$here/pytorch_tests.txt
reason=
[ -f "$home/lib/collrun/python/collrun/_torch.so" ] || reason="the extension is not built: make torch PYTHON=$python"
"$python" -c 'import torch, expecttest' 2>/dev/null || reason="$python has no torch, or no expecttest"
if [ -n "$reason" ]; then
    skip "PyTorch's own tests" "$reason"
    done_testing
fi

# tests_job TEST...: a job of all ranks that runs them, one after the other.
tests_job() {
    rm -rf "$tmp/temp"
    mkdir -p "$tmp/temp/barrier" "$tmp/temp/test_dir" "$tmp/temp/init_dir"
    cat >tests.yaml <<END
version: 1
processes: {count: $ranks}
groups: {world: {ranks: all, backend: ${BACKEND:-shm}}}
env: {set: {OMP_NUM_THREADS: "1", TEMP_DIR: $tmp/temp, WORLD_SIZE: "$ranks", BACKEND: collrun}}
timeouts: {run: 1800s, stall: off}
workloads:
  - command: ['$python', '$here/pytorch_tests.py'$(printf ", '%s'" "$@")]
END
    limit=1900
    run tests.yaml
}
# The job's lines about tests. The first test that a rank says has failed is the one; else the last that began.
results() {
    sed -nE 's/^\[[0-9]+\] ((begin|pass|skip|fail) test_.*)/\1/p' out
}

PYTHONPATH=$home/lib/collrun/python${PYTHONPATH:+:$PYTHONPATH} "$python" "$here/pytorch_tests.py" --list >all.txt 2>err || {
    echo "Bail out! no list of tests: $(tail -n 3 err)"
    exit 1
}
mapfile -t left < <(grep -E -- "${1:-.}" all.txt)
: >results.txt
while [ ${#left[@]} -gt 0 ]; do
    tests_job "${left[@]}"
    results >lines.txt
    [ "$code" -ne 0 ] || { grep -E '^(pass|skip) ' lines.txt >>results.txt; break; }
    last=$(sed -nE 's/^fail (test_[^:]*):.*/\1/p' lines.txt | head -n 1)
    last=${last:-$(sed -n 's/^begin //p' lines.txt | tail -n 1)}
    grep -E '^(pass|skip) ' lines.txt | grep -vE "^(pass|skip) $last(:|\$)" >>results.txt
    why=$(sed -n "s/^fail $last: //p" lines.txt | head -n 1)
    echo "fail ${last:-no test}: ${why:-$(grep -m1 'error: ' err)}" >>results.txt
    [ -n "$last" ] || break
    for i in "${!left[@]}"; do
        [ "${left[i]}" != "$last" ] || break
    done
    left=("${left[@]:i+1}")
done
[ -z "${OUT:-}" ] || cp results.txt "$OUT"
while read -r what name why; do
    name=${name%:}
    known=$(sed -nE "s/^$name  +//p" "$list" 2>/dev/null)
    case $what in
    pass) ok "$name" ;;
    skip) skip "$name" "$why" ;;
    fail) if [ -n "$known" ]; then skip "$name" "known: $known"; else not_ok "$name" "$why"; fi ;;
    esac
done <results.txt
done_testing
