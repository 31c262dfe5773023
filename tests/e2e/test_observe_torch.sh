#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs of torch.distributed that know nothing of collrun: their calls are recorded (observe), correct ones are left alone, and a
# mistake is named with its calls and lines.
. "$(dirname "$0")/lib.sh"
. "$here/python_lib.sh"
needs "this build has nothing that records calls of torch (Python.h is missing, or it has a sanitizer)" \
    "$home/lib/collrun/taps/python/_collrun_tap.abi3.so"
needs_python "$python has no torch" 'import torch.distributed'
or_skip "calls of torch.distributed"

# torch COUNT PROGRAM ARGUMENTS...: writes the job torch.yaml, with result.json in out.run. OBSERVE, STALL
torch() {
    local count=$1 list="'$python'" word
    shift
    for word; do list+=", '$word'"; done
    rm -rf out.run
    job torch <<END
version: 1
processes: {count: $count}
env: {set: {OMP_NUM_THREADS: "1"}}
timeouts: {run: ${limit}s, stall: ${STALL:-off}}
logging: {dir: out.run}
workloads:
  - {name: torch, command: [$list], observe: ${OBSERVE:-auto}}
END
}
field() { python3 -c 'import functools, json, sys
value = functools.reduce(lambda o, k: o[int(k)] if k.isdigit() else o[k], sys.argv[1].split("."), json.load(open("out.run/result.json")))
print(value if isinstance(value, str) else json.dumps(value))' "$1"; }

# mistake NAME CLASS CULPRITS TEXT: of three ranks
mistake() {
    torch 3 "$here/torch/wrong.py" "$1"
    run torch.yaml
    is "$1: class, culprits" "$(field verdict.class) $(field verdict.culprits)" "$2 $3"
    like "$1: text" "$(err)" "$4"
}

torch 4 "$here/torch/right.py"
run torch.yaml
is "a correct program" "$code $(field verdict.class) $(field ranks.3.observed.by) $(grep -c 'fine$' out)" "0 ok torch 4"
quiet_or_late "a correct program: nothing on stderr"
like "its library" "$(field ranks.0.observed.library)" '^torch [2-9]'
OBSERVE='[mpi]' torch 2 "$here/torch/right.py"
run torch.yaml
like "without torch in the list" "$code $(field ranks.0.observed.why)" '^0 the program has not called MPI_Init'

mistake kind mismatch "[2]" \
    'default_pg#4: ranks 0-1 call broadcast\(numel=4, float32, src=0\) at wrong.py:15, rank 2 calls all_reduce\(numel=4, float32, SUM\) at wrong.py:13'
mistake dtype mismatch "[2]" 'ranks 0-1 call all_reduce\(numel=4, float32, SUM\) at wrong.py:[0-9]+, rank 2 calls all_reduce\(numel=4, int32, SUM\)'
mistake sends deadlock "[]" \
    'deadlock: rank 0 waits in send\(numel=4, float32, dst=1\) in default_pg at wrong.py:[0-9]+ for rank 1; rank 1 waits in send\('
mistake order deadlock "[0]" 'operation 1 of process group dp at wrong.py:[0-9]+ for rank 0'
mistake early exit "[1]" 'rank 1 \(.*left the job early: it exited with code 0'
like "early: hint" "$(err)" '^hint: other ranks waited for it in an operation that it has not called$'
mistake raises exit "[1]" 'rank 1 .* exited with code 1: ValueError: the loss is not finite \(wrong.py:[0-9]+\)$'
is "raises: in result.json" "$(field verdict.exception.type) $(field verdict.exception.text)" "ValueError the loss is not finite"

run check "$top/configs/torch_fault.yaml"
ends "configs/torch_fault.yaml: the file is good" 0
PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH run "$top/configs/torch_fault.yaml"
like "configs/torch_fault.yaml: the mistake" "$(err)" 'rank 0 .*default_pg#11: rank 0 calls reduce\(numel=1, float32, SUM, dst=0\) at torch_fault.py:21, ranks 1-2 call all_reduce\(numel=2, float32, SUM\) at torch_fault.py:17'

STALL=2s torch 3 "$here/torch/wrong.py" ddp
start torch.yaml
within 60 grep -q '^WAIT .*rank 1' err
like "ddp: who is missing" "$(err)" 'CAUSE  rank 1 .* has not called all_reduce\(numel=20, float32\), operation [0-9]+ of process group default_pg'
like "ddp: the line" "$(err)" 'rank [02] calls it in wrong.py:[0-9]+'
like "ddp: where that rank is, in Python" "$(err)" '^ +ddp \(wrong.py:74\)$'
kill -INT "$pid"
finish 60
done_testing
