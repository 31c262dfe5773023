#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# collrun.torch, which `make torch PYTHON=...` builds for one interpreter: every operation beside torch's gloo, trainings with the
# same losses as on gloo, and failures that are named at once.
. "$(dirname "$0")/lib.sh"
. "$here/python_lib.sh"
needs "the extension is not built: make torch PYTHON=$python" "$home/lib/collrun/python/collrun/_torch.so"
needs_python "$python has no torch" 'import torch'
or_skip "collrun.torch"

# program COUNT FILE ARGUMENTS: a job of COUNT ranks that run it.
program() { python_job "processes: {count: $1}" "${@:2}"; }
# script COUNT: the program is read from stdin, after the imports.
script() {
    {
        printf '%s\n' 'import torch, torch.distributed as dist, collrun.torch' \
            'dist.init_process_group("collrun", init_method="collrun://")' 'rank = dist.get_rank()'
        cat
    } >script.py
    program "$1" script.py
}

# ---- every operation ----
for method in collrun env; do
    program 3 "$programs/torch_oracle.py" $method://
    ends "$method://: every operation beside gloo" 0
    is "$method://: comparisons" "$(grep -cE 'rank [0-2]: [0-9]{3} comparisons' out)" 3
done

# ---- parameters ----
script 2 <<'END'
p = torch.nn.Parameter(torch.full((2, 3, 4, 5), float(rank)).to(memory_format=torch.channels_last))
for later in False, True:
    for call in dist.broadcast, dist.all_reduce:
        work = call(p, 1, async_op=later) if call is dist.broadcast else call(p, async_op=later)
        if later: work.wait()
print(sorted(set(p.flatten().tolist())), p.requires_grad, p.grad_fn, flush=True)
END
is "parameters that are not contiguous, outside of no_grad" "$code $(sed 's/^\[.\] //' out | sort -u)" "0 [4.0] True None"

# ---- trainings ----
version=$("$python" -c 'import torch; print(*torch.__version__.split(".")[:2], sep="")')
if [ "$version" = 26 ]; then
    skip "trainings" "torch 2.6 has no FSDP2 on CPUs"
else
    for backend in collrun gloo; do
        program 4 "$programs/torch_train.py" $backend
        ends "trainings on $backend: run" 0
        grep -E '(DDP|FSDP2|tensor parallel|pipeline) ' out >losses.$backend
    done
    is "trainings: DDP, FSDP2, tensor and pipeline parallelism" "$(wc -l <losses.collrun | tr -d ' ')" 4
    check "trainings: the losses are those of gloo" diff losses.gloo losses.collrun
fi

# ---- the mesh of the job file ----
mesh="mesh: {axes: {pp: 2, dp: rest, tp: 2}, groups: {tp: {backend: tcp}}}"
cat >mesh.py <<'END'
import sys, torch, torch.distributed as dist, collrun.torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
dist.init_process_group("collrun", init_method="collrun://")
mesh = collrun.torch.device_mesh("cpu")
usual = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
assert mesh.mesh_dim_names == usual.mesh_dim_names and torch.equal(mesh.mesh, usual.mesh), mesh
assert mesh.get_coordinate() == usual.get_coordinate()
names = []
for axis in mesh.mesh_dim_names:
    group, other = mesh.get_group(axis), usual.get_group(axis)
    assert dist.get_process_group_ranks(group) == dist.get_process_group_ranks(other)
    mine = torch.tensor([float(dist.get_rank())])
    theirs = mine.clone()
    dist.all_reduce(mine, group=group), dist.all_reduce(theirs, group=other)
    assert mine == theirs, (axis, mine, theirs)
    backend = group._get_backend(torch.device("cpu"))
    names.append(f"{backend.group_name} {backend.group_backend}")
whole = torch.arange(64.).reshape(8, 8)
assert torch.equal(distribute_tensor(whole, mesh["dp", "tp"], [Shard(0), Shard(1)]).full_tensor(), whole)
again = collrun.torch.device_mesh("cpu").get_group("tp")._get_backend(torch.device("cpu"))
print(*names, again.group_backend, sep="; ", flush=True)
dist.destroy_process_group()
END
python_job "processes: {count: 8}
$mesh" mesh.py
ends "device_mesh: the mesh is that of init_device_mesh" 0
is "device_mesh: its groups are those of the job" "$(sort out | sed -n 6p)" "[5] pp/dp=0,tp=1 shm; dp/pp=1,tp=1 shm; tp/pp=1,dp=0 tcp; tcp"
python_job "processes: {count: 2}" mesh.py
like "device_mesh: without a mesh" "$(err)" 'collrun\.torch\.device_mesh\(\): the job file has no `mesh`'

# ---- process groups that end ----
script 3 <<'END'
import os, time
backend = lambda: dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
world = backend().group_backend
def maps(): return sum(1 for _ in open("/proc/self/maps")), len(os.listdir("/proc/self/fd"))
for again in range(120):
    pair = dist.new_group([0, 1])
    late = torch.full((50000,), float(rank))
    if rank == again % 3: time.sleep(0.002)
    dist.all_reduce(late)
    dist.broadcast(late, src=again % 3)
    assert late[0] == 3 and backend().group_backend == world
    if rank == 0: dist.isend(torch.ones(100000), 1, group=pair)
    got = torch.zeros(100000)
    if rank == 1: time.sleep(0.002 * (again % 2)); dist.recv(got, 0, group=pair); assert got.sum() == 100000
    dist.all_reduce(late, async_op=True)
    old = backend()
    dist.destroy_process_group()
    if again == 40: before = maps()
    dist.init_process_group("collrun", init_method="collrun://")
now = maps()
print("left:", now[0] - before[0] < 20, now[1] - before[1], flush=True)
try: old.barrier()
except dist.DistBackendError as e: print(str(e).split("\n")[0], flush=True)
END
ends "120 process groups, one after the other" 0
is "their memory and descriptors" "$(grep -c 'left: True 0' out)" 3
[ "$version" = 26 ] || # has no shutdown of backends: the group lasts as long as the object
    is "a call on one that was destroyed" "$(grep -c 'collrun: the process group was destroyed' out)" 3

# ---- futures ----
script 2 <<'END'
import datetime, threading, time
store, got = dist.distributed_c10d._get_default_store(), torch.zeros(1)
def wait_in_vain():
    try: work.wait(datetime.timedelta(seconds=1))
    except dist.DistBackendError: pass
if rank == 0:
    work = dist.irecv(got, 1)
    thread = threading.Thread(target=wait_in_vain); thread.start()
    time.sleep(0.3)
    future = work.get_future()
    thread.join()
    store.set("waited", "1")
    future.wait()
    print("received", got.item(), flush=True)
else:
    store.wait(["waited"])
    dist.send(torch.ones(1), 0)
END
is "a future beside a wait that times out" "$code $(out)" "0 [0] received 1.0"

# Rank 1 takes part when the callbacks are known.
script 2 <<'END'
store, x, y = dist.distributed_c10d._get_default_store(), torch.ones(1), torch.ones(1)
def start(tensor): return dist.all_reduce(tensor, async_op=True).get_future()
def receive(): return dist.irecv(torch.zeros(1), 1).get_future()
def ask(key): store.set(key, "") if rank == 0 else store.wait([key])
if rank == 0: last = start(x).then(lambda _: start(y).wait()[0].item())
ask("first")
if rank == 1: start(x).wait(), start(y).wait()
if rank == 0: print("an allreduce in the callback of one:", last.wait(), flush=True)
if rank == 0:
    first, second = start(x), start(y)
    last = first.then(lambda _: second.wait()[0].item())
ask("second")
if rank == 1: start(x).wait(), start(y).wait()
if rank == 0: print("the next one in the callback of one:", last.wait(), flush=True)
if rank == 0: last = receive().then(lambda _: receive().wait()[0].item())
ask("third")
if rank == 1: dist.send(x, 0), dist.send(torch.tensor([7.0]), 0)
if rank == 0: print("a message in the callback of one:", last.wait(), flush=True)
END
is "callbacks that wait for futures" "$code $(out | tr '\n' ' ')" \
    "0 [0] an allreduce in the callback of one: 2.0 [0] the next one in the callback of one: 4.0 [0] a message in the callback of one: 7.0 "

# ---- memory ----
script 2 <<'END'
ones, n = torch.ones(4), dist.get_world_size()
m = torch.zeros(4, n)
def refused(call, why="overlap"):
    try: call()
    except (ValueError, RuntimeError) as e: return why in str(e)
    return False
for outputs in [torch.zeros(4)] * n, [m.view(-1)[i : i + 4] for i in range(n)], [m[:, 0]] * n:
    assert refused(lambda: dist.all_gather(outputs, ones)) and refused(lambda: dist.all_to_all(outputs, [ones] * n))
    if rank == 0: assert refused(lambda: dist.gather(ones, outputs))
dist.all_gather([m[:, i] for i in range(n)], ones)
assert m.tolist() == [[1.0] * n] * 4
# A negated view has other values than its memory.
y = torch.tensor([1.0, -2.0])
negated = torch._neg_view(y)
got = [torch.zeros(2) for _ in range(n)]
dist.all_gather(got, negated)
assert [each.tolist() for each in got] == [[-1.0, 2.0]] * n, got
# Results are written through one: torch hands operations a copy without the negation.
def through(operation, size=2):
    y = torch.arange(float(size)) + rank
    operation(torch._neg_view(y))
    return y.tolist()
assert through(dist.all_reduce) == [2 * i + 1 for i in range(2)]
assert through(lambda x: dist.all_reduce(x, dist.ReduceOp.MAX)) == [0.0, 1.0]
assert through(lambda x: dist.broadcast(x, 1)) == [1.0, 2.0]
assert through(lambda x: dist.reduce(x, 0))[1] == (3.0 if rank == 0 else 2.0)
assert through(lambda x: dist.all_gather_into_tensor(x, torch.tensor([-1.0 - rank])), n) == [1.0, 2.0]
assert through(lambda x: dist.reduce_scatter_tensor(x, torch.tensor([5.0, 6.0])), 1) == [[-10.0, -12.0][rank]]
assert through(lambda x: dist.all_to_all_single(x, torch.tensor([5.0, 6.0]) + 10 * rank)) == [-5.0 - rank, -15.0 - rank]
assert through(lambda x: dist.scatter(x, [torch.ones(2), -torch.ones(2)] if rank == 0 else None)) == [[-1.0, 1.0][rank]] * 2
assert through(lambda x: dist.send(x, 1) if rank == 0 else dist.recv(x, 0)) == [0.0, 1.0]
z = torch.complex(torch.ones(2), torch.tensor([1.0, 2.0]))
dist.all_reduce(z.conj().imag)
assert z.imag.tolist() == [2.0, 4.0]
assert refused(lambda: dist.all_reduce(z.conj()), "resolve_conj")
# Groups of another backend get what torch gives them: a copy.
other = dist.new_group(backend="gloo")
y = torch.tensor([1.0, -2.0])
dist.all_reduce(torch._neg_view(y), group=other)
assert y.tolist() == [1.0, -2.0]
print("done", flush=True)
END
is "outputs that overlap are refused; a negated view" "$code $(out | sort | tr '\n' ' ')" "0 [0] done [1] done "

# ---- process groups that are made again, and the store ----
cat >script.py <<'END'
import torch, torch.distributed as dist, collrun.torch
for i in range(8):
    dist.init_process_group("collrun" if i < 6 else "gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == dist.get_world_size()
    dist.destroy_process_group()
END
program 3 script.py
ends "env://: process groups that are destroyed and made again" 0
script 2 <<'END'
import datetime, threading
store = dist.distributed_c10d._get_default_store()
if not hasattr(store, "queue_push"): raise SystemExit(0)
if rank == 0:
    for text in "a", "b": store.queue_push("q", text)
    dist.barrier()
    print(store.queue_len("q"), store.queue_pop("later"), flush=True)
    store.set_timeout(datetime.timedelta(milliseconds=50))
    try: store.queue_pop("never")
    except dist.DistStoreError as e: print("wait timeout" in str(e), flush=True)
else:
    dist.barrier()
    print(store.queue_pop("q"), store.queue_pop("q", False), store.queue_len("q"), flush=True)
    try: store.queue_pop("q", False)
    except dist.QueueEmptyError as e: print("empty", flush=True)
    store.queue_push("later", "c")
dist.barrier()
END
is "the queues of the store" "$code $(sort out | sed 's/^\[0\] [02] /[0] /' | tr '\n' ' ')" "0 [0] b'c' [0] True [1] b'a' b'b' 0 [1] empty "

# What was registered to run at exit before the import of collrun.torch runs after it has ended its part.
cat >script.py <<'END'
import atexit, torch, torch.distributed as dist
def last():
    dist.all_reduce(x)
    print("at exit:", x.item(), flush=True)
    dist.destroy_process_group()
atexit.register(last)
import collrun.torch
dist.init_process_group("collrun", init_method="collrun://")
x = torch.ones(1)
END
program 2 script.py
is "an exit handler that was registered before collrun.torch" "$code $(sort out | tr '\n' ' ')" "0 [0] at exit: 2.0 [1] at exit: 2.0 "

# ---- failures ----
script 2 <<'END'
dist.all_reduce(torch.ones(3 + rank))
END
like "a mismatch: both calls" "$(err)" 'rank 0 calls allreduce\(3 x float32, sum\), rank 1 calls allreduce\(4 x float32, sum\)'

script 2 <<'END'
dist.recv(torch.ones(1), 1 - rank)
END
like "a deadlock: both ranks are named" "$(err)" 'error: .*deadlock'

script 2 <<'END'
if rank == 1: raise LookupError("no such batch")
dist.all_reduce(torch.ones(3))
END
ends "an exception: the exit code" 1
like "an exception: the rank is the cause" "$(err)" 'error: rank 1 .*LookupError: no such batch'

script 3 <<'END'
import sys
if rank == 0: sys.exit(3)
dist.all_reduce(torch.ones(3))
END
ends "sys.exit(3) of rank 0, which has the store: its code" 3
like "it is the cause" "$(err)" 'error: rank 0 .*exited with code 3'

# The limit of the operation is 30 minutes.
script 2 <<'END'
import sys
dist.irecv(torch.ones(1), 1 - rank)
if rank == 1: sys.exit(3)
dist.barrier()
END
ends "sys.exit(3) of a rank that has dropped a receive: its code" 3
like "it is the cause, too" "$(err)" 'error: rank 1 .*exited with code 3'

script 3 <<'END'
if rank > 0: dist.all_reduce(torch.ones(3))
END
ends "rank 0 ends early: the others fail, and do not wait" 1
like "and the wait for it is named" "$(err)" 'error: .*for rank 0, whose program has ended with exit code 0'

script 3 <<'END'
import time
store = dist.distributed_c10d._get_default_store()
if rank == 2:
    time.sleep(1)
    store.set("late", "answered")
elif rank == 1:
    print(store.get("late").decode(), flush=True)
END
ends "the store of a rank 0 that has ended: answers" 0
is "until all others have ended" "$(grep -c answered out)" 1

script 2 <<'END'
import datetime
try: dist.distributed_c10d._get_default_store().wait(["never"], datetime.timedelta(milliseconds=100))
except dist.DistStoreError as e: print(str(e).split("\n")[0], flush=True)
END
is "the store: a time-out" "$(sort -u out | grep -c 'never"): wait timeout after 100ms')" 2
quiet "the store: a wait for a key is no deadlock"

PYTHONPATH=$home/lib/collrun/python "$python" - >out 2>err <<'END'
import torch.distributed as dist, collrun.torch
try: dist.init_process_group("collrun", init_method="collrun://")
except collrun.UnavailableError as e: print(e)
END
like "outside of collrun: how to start it" "$(cat out err)" 'start this program with `collrun job.yaml`'
done_testing
