#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The bench workload: all operations, v-forms too, on all types; its files; groups apart and together; the comparison with a saved run. No figure is judged.
. "$(dirname "$0")/lib.sh"

# sweep PARAMS [ARGUMENTS...]
sweep() {
    job sweep <<END
version: 1
processes: {count: 3}
workloads:
  - {plugin: ${plugin_file:-bench}, params: {$1}}
END
    run sweep.yaml "${@:2}"
}
# answer PYTHON: of d, the results in $json
answer() { python3 -S -c 'import json, sys; d = json.load(open(sys.argv[1])); r = d["results"]; print(eval(sys.argv[2]))' "$json" "$1"; }

# ---- operations and types ----
sweep "ops: all, dtype: all, sizes: [200], iters: 9, warmup: 0, root: 2, csv: all.csv" --run-dir all
is "every operation on every type: nothing is wrong" "$code $(grep -c 'Out of bounds values : 0 OK' out)" "0 1"
json=all/bench-world.json
is "the file: what all rows have in common" "$(answer 'd["format"], d["version"], d["group"], d["ranks"], d["processes"], d["backend"], d["config"]["iters"]')" \
    "('collrun-bench', 1, 'world', 3, 3, 'shm', 9)"
is "a row for each operation and type" "$(answer 'len(r), len({(x["operation"], x["type"]) for x in r}), len({x["operation"] for x in r}), len({x["type"] for x in r} - {"none"})')" \
    "(209, 209, 17, 13)"
is "v-forms are uneven, and size is what is moved" "$(answer '[(x["size"], x["count"]) for x in r if x["operation"].endswith("v") and x["operation"] != "sendrecv" and x["type"] == "int32"]')" \
    "[(192, 16), (192, 16), (192, 16), (192, 16), (192, 16)]"
is "percentiles are in order, and the interval is among them" "$(answer 'all(f["min"] <= f["p50"] <= f["p90"] <= f["p99"] <= f["max"] and f["min"] <= f["interval"][0] <= f["interval"][1] <= f["max"] for x in r for f in (x["out_of_place"], x["in_place"]) if f)')" True
is "bandwidth has the factor of its operation" "$(answer '{x["operation"]: round(f["bus_bw"] / f["alg_bw"], 3) for x in r if x["type"] == "float64" for f in [x["in_place"]] if f}' |
    tr -d "{}',")" "allreduce: 1.333 reduce: 1.0 broadcast: 1.0 allgather: 0.667 reduce_scatter: 0.667 alltoall: 0.667 gather: 0.667 scatter: 0.667 scan: 1.0 exscan: 1.0 allgatherv: 0.667 gatherv: 0.667 scatterv: 0.667 reduce_scatterv: 0.667 alltoallv: 0.667"
is "roots, and operators of reductions" "$(answer '{(x["redop"], x["root"]) for x in r if x["operation"] in ("reduce", "gatherv", "alltoall", "scan")} == {("sum", 2), ("none", 2), ("none", -1), ("sum", -1)}')" True
is "the CSV has a line for each form" "$(python3 -S -c 'import csv
rows = list(csv.DictReader(open("all.csv")))
print(len(rows), {row["nwrong"] for row in rows}, sorted({row["in_place"] for row in rows}), {len(row) for row in rows})')" \
    "$(answer 'sum((x["out_of_place"] is not None) + (x["in_place"] is not None) for x in r)') {'0'} ['0', '1'] {22}"
for op in prod max bxor land; do
    sweep "ops: [allreduce, scan, exscan, reduce_scatterv], dtype: [int8, uint16, int64, bool], op: $op, sizes: [200], iters: 1"
    is "$op: nothing is wrong" "$code $(grep -c 'Out of bounds values : 0 OK' out)" "0 1"
done
sweep "ops: allreduce, dtype: [int8, float16], op: bor"
ends "a bitwise operator on a float: refused" 2
like "at its place" "$(err)" 'params\.op: bor is for integers and bool, and dtype has float16'

# ---- where files lie ----
job hosts <<'END'
version: 1
processes: {count: 2}
hosts: {nodes: [{name: left, transport: local}]}
groups: {node: {ranks: all, split: host}}
workloads: [{plugin: bench, groups: [node], params: {max: 8, iters: 1, csv: none/}}]
END
run hosts.yaml --run-dir hosts
ends "a folder that does not exist" 1
like "says so" "$(err)" 'csv: none/bench-node_left\.csv: No such file or directory'
mkdir out.d
run hosts.yaml --set 'workloads[0].params.csv=out.d/'
is "a name with a slash, in a folder" "$code $(wc -l <out.d/bench-node_left.csv)" "0 3"

# ---- compare ----
# saved FACTOR [PYTHON]: the results of a run that was slower by this factor
saved() {
    python3 -S -c 'import json, sys
d = json.load(open("now/bench-world.json"))
for x in d["results"]:
    for f in (x["out_of_place"], x["in_place"]):
        f["p50"] *= float(sys.argv[1])
        f["interval"] = [v * float(sys.argv[1]) for v in f["interval"]]
exec(sys.argv[2])
json.dump(d, open("then.json", "w"), indent=1)' "$1" "${2:-}"
}
params="ops: allreduce, sizes: [64, 4096], iters: 20"
sweep "$params" --run-dir now
is "the heading lists the sizes" "$(grep -c 'sizes 64, 4096; 20 calls' out)" 1
summary() { grep -o '[0-9]* slower, .* in the file' out; }
saved 1e6
sweep "$params, compare: then.json"
is "the saved run was slower: faster" "$code $(summary)" "0 0 slower, 4 faster, 0 same, 0 unclear, 0 not in the file"
saved 1e-6
sweep "$params, compare: then.json"
is "the saved run was faster: slower, which is reported" "$code $(summary)" "0 4 slower, 0 faster, 0 same, 0 unclear, 0 not in the file"
sweep "$params, compare: then.json, on_slower: fail"
ends "on_slower: fail" 1
like "says how many" "$(err)" '4 results are slower than those of then\.json'
saved 1 'for i, spread in ((0, 1), (1, 1e9)):
    f = d["results"][i]["in_place"]
    f["interval"] = [f["p50"] / spread, f["p50"] * spread]
d["results"][0]["type"] = "int8"; d["results"][1]["out_of_place"]["p50"] = "a text"'
sweep "$params, compare: then.json, tolerance: 100, on_slower: fail"
is "noisy: unclear; another type is another row" "$code $(summary)" "0 0 slower, 0 faster, 0 same, 1 unclear, 3 not in the file"
mkdir earlier && saved 1e6 && mv then.json earlier/bench-world.json
sweep "$params, compare: earlier/, tolerance: 100"
is "a folder" "$code $(summary)" "0 0 slower, 4 faster, 0 same, 0 unclear, 0 not in the file"
head -c 700 now/bench-world.json >cut.json
echo '{"format": "other", "results": []}' >other.json
for file in cut other missing; do
    sweep "$params, compare: $file.json"
    like "compare: $file.json" "$code $(err)" 'compare: '$file'\.json: (it is no JSON of the bench workload|No such file or directory)'
done

# ---- interference ----
job turns <<'END'
version: 1
processes: {count: 4}
groups: {left: {ranks: 0-1}, right: {ranks: 2-3}, pair: {ranks: 1-2, backend: tcp}}
workloads: [{plugin: bench, groups: [world, left, right], params: {ops: [alltoallv, sendrecv], sizes: [64, 1KiB], iters: 2, warmup: 0, interference: world}}]
END
run turns.yaml --run-dir turns
is "groups apart and together: nothing is wrong" "$code $(grep -c 'Out of bounds values : 0 OK' out)" "0 2"
for group in left right; do
    json=turns/bench-$group.json
    is "$group: each point twice" "$(answer '[(x["operation"], x["phase"], x["size"]) for x in r][:4] + [len(r)]')" \
        "[('sendrecv', 'apart', 64), ('sendrecv', 'together', 64), ('sendrecv', 'apart', 1024), ('sendrecv', 'together', 1024), 8]"
done
check "the group of the turns is not measured" test ! -e turns/bench-world.json
# The tables of the two groups come from two ranks.
is "a verdict on each form" "$(grep -c '  [0-9.]*- *[0-9.]*  \(slower\|faster\|same\|unclear\)$' out)" 12
run turns.yaml --set 'workloads[0].groups=[left, right, pair, world]' --set 'workloads[0].params={ops: barrier, iters: 1, warmup: 0, interference: world}'
is "groups that share ranks, in threads" "$code $(grep -c 'Out of bounds values : 0 OK' out)" "0 3"
run turns.yaml --set 'workloads[0].params.interference=none'
like "a group that does not exist" "$code $(err)" 'no group .*none'

# ---- a wrong result is found ----
mkdir wrong
for source in bench.c bench_point.h bench_report.h bench_rows.h bench_saved.h bench_table.h bench_values.h; do
    sed 's/v, block->sender, block->offset + i);$/v, block->sender, block->offset + i + 1);/' "$top/examples/$source" >"wrong/$source"
done
check "a wrong expectation was planted" sh -c "! cmp -s wrong/bench_values.h '$top/examples/bench_values.h'"
plugin wrong/bench.c libwrong.so
plugin_file=./libwrong.so sweep "ops: [broadcast, alltoallv], sizes: [64], iters: 1"
ends "wrong elements: 1" 1
like "they are counted" "$(err)" 'group world: [1-9][0-9]* wrong elements'
done_testing
