#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks by name: roles and the mesh, in the plan, in C, in Python and in the environment. tests/golden/mesh has the messages.
. "$(dirname "$0")/lib.sh"

# ---- the plan, against itertools ----
cat >oracle.py <<'END'
# usage: oracle.py PLAN AXES FIRST GROUP=AXIS,AXIS...: compares the groups of a plan with those that the product of the axes has.
import itertools, json, sys
plan = json.load(open(sys.argv[1]))
axes = [(name, int(size)) for name, size in (axis.split("=") for axis in sys.argv[2].split(","))]
first = int(sys.argv[3])
groups = {name: [name] for name, _ in axes}
groups.update((name, names.split(",")) for name, names in (group.split("=") for group in sys.argv[4:]))
want = {}
for rank, place in enumerate(itertools.product(*(range(size) for _, size in axes))):
    for group, names in groups.items():
        rest = [f"{axis}={at}" for (axis, _), at in zip(axes, place) if axis not in names]
        want.setdefault(group + ("/" + ",".join(rest) if rest else ""), []).append(first + rank)
got = {group["name"]: group["ranks"] for group in plan["groups"] if group["name"] != "world"}
assert got == want, (got, want)
assert [(axis["name"], axis["size"]) for axis in plan["mesh"]["axes"]] == axes
print(len(want), "groups")
END
mesh() { # COUNT RANKS AXES GROUPS
    printf '%s\n' "version: 1" "processes: {count: $1}" "mesh: {ranks: $2, axes: {$3}, groups: {$4}}" "workloads: [{plugin: hello}]" >mesh.yaml
    run plan --json mesh.yaml
    mv out plan.json
}
mesh 24 all "pp: 2, dp: rest, tp: 4" "dp_tp: [tp, dp], pp_tp: [pp, tp]"
is "three axes and two combinations" "$(python3 oracle.py plan.json pp=2,dp=3,tp=4 0 dp_tp=dp,tp pp_tp=pp,tp 2>&1)" "31 groups"
mesh 13 1-last "a: 1, b: 3, c: 2, d: rest" "all_of_it: [a, b, c, d]"
is "a mesh of some ranks, with axes of one" "$(python3 oracle.py plan.json a=1,b=3,c=2,d=2 1 all_of_it=a,b,c,d 2>&1)" "29 groups"
mesh 4096 all "x: rest, y: 64" ""
is "a large one" "$(python3 oracle.py plan.json x=64,y=64 0 2>&1)" "128 groups"

# ---- in C: a rank gets its own group by the name of the axis, and by the full one ----
cat >own.c <<'END_C'
#include <collrun/workload.h>
#include <stdio.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *tp, *same, *node;
    int sum = 0, rank = collrun_world_rank(ctx);
    (void)state;
    if (collrun_group_get(ctx, "tp", &tp) || collrun_group_get(ctx, collrun_group_name(tp), &same) || tp != same ||
        collrun_group_get(ctx, "node", &node) || collrun_allreduce(tp, &rank, &sum, 1, COLLRUN_INT32, COLLRUN_SUM))
        return collrun_fail(ctx, "%s", collrun_error());
    printf("%s on %s: %d of %d, %d; %s; %d %d\n", collrun_group_name(tp), collrun_group_backend(tp), collrun_group_rank(ctx, "tp"),
           collrun_group_size(ctx, "tp"), sum, collrun_group_name(node), collrun_group_exists(ctx, "dp"), collrun_group_exists(ctx, "t"));
    return collrun_group_get(ctx, "t", &tp) == COLLRUN_ERR_NOT_FOUND ? 0 : 1;
}
COLLRUN_WORKLOAD(.name = "own", .run = run);
END_C
plugin own.c own.so || exit 1
job own <<'END'
version: 1
hosts: {nodes: [{name: left, transport: local, slots: 4}, {name: right, transport: local, slots: 4}]}
processes: {count: 8}
roles: {ps: 2, worker: rest}
groups: {node: {split: host}}
mesh: {axes: {dp: rest, tp: 2}, inside_host: [tp], groups: {tp: {backend: tcp}}}
workloads: [{plugin: ./own.so}]
END
run run own.yaml
ends "a workload in C" 0
is "each rank has its own group" "$(sort out | sed -n '1p;4p;8p')" "[0] tp/dp=0 on tcp: 0 of 2, 1; node/left; 1 0
[3] tp/dp=1 on tcp: 1 of 2, 5; node/left; 1 0
[7] tp/dp=3 on tcp: 1 of 2, 13; node/right; 1 0"
run run own.yaml -n 4 --set mesh.groups.tp.backend=shm
is "with -n 4, and another backend" "$(grep -c 'on shm: [01] of 2' out)" 4
run check own.yaml --set mesh.inside_host='[dp]'
like "a group that crosses hosts is refused" "$(err)" 'mesh\.inside_host: dp/tp=0 has rank 0 on left and rank 4 on right$'

# ---- in the environment ----
job environment <<'END'
version: 1
processes: {count: 5}
roles: {ps: 2, worker: rest}
mesh: {ranks: worker, axes: {dp: rest}}
workloads: [{command: [sh, -c, 'echo "$ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE, $COLLRUN_MESH over $COLLRUN_MESH_RANKS"']}]
END
COLLRUN_MESH=x=1 run run environment.yaml
is "roles and mesh in the environment" "$(sort out | sed -n '2p;5p')" "[1] ps 1 of 2, dp=3 over 2-4
[4] worker 2 of 3, dp=3 over 2-4"
sed -i 's/^mesh.*//; s/^roles.*//' environment.yaml
COLLRUN_MESH=x=1 run run environment.yaml
is "without them, nothing of a job around this one is left" "$(sort out | sed -n 5p)" "[4] default 4 of 5,  over "

# ---- in Python ----
if [ -d "$home/lib/collrun/python" ]; then
    cat >own.py <<'END'
import collrun
tp = collrun.group("tp")
print(tp.name, tp.rank, tp.size)
END
    sed -i "s|{plugin: ./own.so}|{command: [python3, own.py]}|" own.yaml
    run run own.yaml
    is "a program in Python" "$code $(sort out | sed -n 6p)" "0 [5] tp/dp=2 1 2"
else
    skip "a program in Python" "the package collrun is not built"
fi
done_testing
