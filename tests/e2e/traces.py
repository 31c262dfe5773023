#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small traces of made-up programs, in the formats that the replay workload reads.

usage: traces.py mpi FOLDER RANKS      a ring of messages and some collectives, a file for each rank
       traces.py pytorch FOLDER RANKS  schema 1.0.1: uneven all_to_all and allreduce, two threads
       traces.py kineto FOLDER RANKS   the timeline of `pytorch`: calls every 100 us, kernels of 30 us
       traces.py chakra FOLDER RANKS [CHANGE]  schema 0.0.4: a ring of messages that depend on each other, collectives;
                                       CHANGE: what is wrong in the file of rank 1
       traces.py spmd FILE             schema 1.1.0-chakra: four ranks with one file, two groups
"""
import json
import os
import sys


class Mpi:
    """The calls of one rank; each takes 10 us after 40 us of computation."""

    def __init__(self, rank, size):
        self.comm = f"0,{rank},{size}"
        self.now = 1000000000
        self.lines = ["# collprof 0.9 output file", "", "MPI_Init:-:1:2:999999999.000000"]

    def call(self, name, *fields):
        self.now += 40
        fields = ":".join(str(f) for f in fields)
        self.lines.append(f"{name}:{self.now}.000000:{fields}:{self.now + 10}.000000")
        self.now += 10


def mpi(folder, size):
    for rank in range(size):
        t = Mpi(rank, size)
        after, before = (rank + 1) % size, (rank - 1) % size
        double, integer = "11,8,8", "2,4,4"
        t.call("MPI_Comm_size", t.comm, 4711)
        t.call("MPI_Bcast", 4711, 16, integer, 1, t.comm)
        t.call("MPI_Barrier", t.comm)
        for step in range(3):
            t.call("MPI_Irecv", 1, 1000, double, before, 7, t.comm, 99)
            t.call("MPI_Send", 1, 500 + step, double, after, 7, t.comm)
            t.call("MPI_Wait", 99, 4712)
            t.call("MPI_Allreduce", 1, 2, 3, double, 3, t.comm)
        t.call("MPI_Reduce", 1, 2, 5, integer, 3, 2, t.comm)
        t.call("MPI_Allgather", 1, 6, integer, 2, 6, integer, t.comm)
        t.call("MPI_Alltoall", 1, 4, double, 2, 4, double, t.comm)
        t.call("MPI_Gather", 1, 2, double, 2, 2, double, 3, t.comm)
        t.call("MPI_Scatter", 1, 9, "30,3,3", 2, 9, "30,3,3", 0, t.comm)
        t.lines += ["# Finalize clockdiff: 0.000000", f"MPI_Finalize:{t.now}.000000:-"]
        with open(f"{folder}/rank-{rank}.txt", "w", encoding="ascii") as f:
            f.write("\n".join(t.lines) + "\n")


def pytorch(folder, size):
    for rank in range(size):
        nodes = []

        def add(inputs, types, outputs, tid=1):
            nodes.append({"name": "record_param_comms", "id": 10 * len(nodes) + 5, "rf_id": len(nodes), "parent": 1,
                          "tid": tid, "inputs": inputs, "input_types": types, "outputs": outputs})

        def tensor(n, width=4):
            return [7, 8, 0, n, width, "cuda:0"]

        ints = ["Int", "Int", "Int", "String", "GenericList[]", "GenericList[]"]
        add([3, 0, 0, "wait", [], []], ints, [])
        nodes.append({"name": "aten::add", "id": 1, "inputs": [[1, 2, 0, 4, 4, "cpu"], "text \\\"", None, 1.5e-3, True]})
        sends = [96 * (k + 1 + rank) for k in range(size)]
        receives = [96 * (rank + 1 + k) for k in range(size)]
        add([tensor(sum(sends)), 4, 4711, 0, "all_to_allv", sends, receives], ["Tensor(int)", *ints],
            [tensor(sum(receives))])
        add([[tensor(1000)], 5, 4711, 0, "allreduce", [], []], ["GenericList[Tensor(float)]", *ints],
            [[tensor(1000)]], tid=2)
        add([4, 0, 0, "wait", [], []], ints, [])
        add([tensor(12 * size, 8), 6, 4711, 0, "all_to_all", [], []], ["Tensor(long int)", *ints],
            [tensor(12 * size, 8)])
        add([tensor(8, 2), 7, 4711, 0, "_allgather_base", [], []], ["Tensor(c10::Half)", *ints],
            [tensor(8 * size, 2)])
        add([tensor(8 * size, 2), 8, 4711, 0, "_reduce_scatter_base", [], []], ["Tensor(c10::BFloat16)", *ints],
            [tensor(8, 2)])
        add([9, 4711, 0, "barrier", [], []], ints, [])
        nodes.reverse()  # their order is that of the ids
        with open(f"{folder}/worker_{rank}.json", "w", encoding="ascii") as f:
            json.dump({"schema": "1.0.1", "pid": 1, "nodes": nodes}, f)


def kineto(folder, size):
    for rank in range(size):
        def event(cat, name, ts, us):
            return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": us, "args": {"External id": 7}}

        events = [event("cpu_op", "record_param_comms", 1000 + 100 * i, 10) for i in range(8)]
        events += [event("kernel", "ncclKernel_Any", 1005 + 100 * i, 30) for i in (1, 2, 4, 5, 6)]
        events += [event("kernel", "gemm", 1, 2), {"ph": "M", "name": "process_name", "pid": 0}]
        with open(f"{folder}/times.{rank}.json", "w", encoding="ascii") as f:
            json.dump({"schemaVersion": 1, "traceEvents": events[::-1]}, f)


def spmd(path):
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4},
              {"pg_name": "1", "pg_desc": "all", "ranks": [3, 2, 1, 0], "group_size": 4}]
    nodes = [{"id": 4, "name": "## process_group:init ##",
              "inputs": {"values": [json.dumps(groups)], "shapes": [[]], "types": ["String"]},
              "outputs": {"values": [], "types": []}}]
    kinds = ["GenericList[Tensor(float)]", "Int", "Tuple[String,String]", "Int", "String"]
    for number, (name, group, root) in enumerate([("broadcast", "0", 0), ("allreduce", "0", 1), ("broadcast", "1", 0),
                                                  ("allreduce", "1", 3)]):
        tensor = [[[1, 2, 0, 999 + number, 4, "cuda:1"]]]
        nodes.append({"id": 10 + 2 * number, "name": "record_param_comms",
                      "inputs": {"values": [*tensor, 33 + number, [group, "x"], root, name, [], [], 0, 1, 4],
                                 "types": kinds},
                      "outputs": {"values": tensor, "types": kinds[:1]}, "attrs": []})
        nodes.append({"id": 11 + 2 * number, "name": "record_param_comms",
                      "inputs": {"values": [33 + number, ["", ""], 1, "wait", [], [], -1, -1, 1], "types": kinds[1:]},
                      "outputs": {"values": [], "types": []}, "attrs": []})
    with open(path, "w", encoding="ascii") as f:
        json.dump({"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": nodes}, f, indent=1)


def varint(n):
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n)


def data(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


COMPUTE, SEND, RECV, COLLECTIVE = 4, 5, 6, 7


def node(number_, kind, depends=(), us=0, packed=True, **attributes):
    out = number(1, number_) + data(2, f"node {number_}") + number(3, kind)
    out += data(5, b"".join(map(varint, depends))) if packed else b"".join(number(4, d) for d in depends)
    out += number(7, us) if us else b""
    for name, value in attributes.items():
        field = {"comm_type": 9, "comm_size": 9, "pg_name": 29, "involved_dim": 28, "comm_tag": 15}.get(name, 7)
        value = 2 * value if field == 15 else value
        value = number(field, value) if field in (7, 9, 15) else data(field, value)
        out += data(10, data(1, name) + value)
    return out + data(10, data(1, "is_cpu_op") + number(27, 0))


def chakra(folder, size, change=""):
    for rank in range(size):
        wrong = change if rank == 1 else ""
        after, before = (rank + 1) % size, (rank - 1) % size
        nodes = [node(0, COMPUTE, us=100)]
        for step in range(3):
            nodes.append(node(10 + step, SEND, [20 + step - 1 if step else 0], packed=step != 1, comm_src=rank,
                              comm_dst=after, comm_size=4000 + step, comm_tag=step))
            nodes.append(node(20 + step, RECV, [10 + step], comm_src=before, comm_dst=rank, comm_size=4000 + step,
                              comm_tag=step))
        for kind in range(10):
            nodes.append(node(30 + kind, COLLECTIVE, [22], us=7, comm_type=kind, comm_size=120 * size,
                              involved_dim=data(1, b"\x01"), pg_name="0"))
        extra = {"type": dict(comm_type=12), "size": dict(comm_type=0, comm_size=-4), "odd": dict(comm_type=6, comm_size=7),
                 "group": dict(comm_type=0, comm_size=4, pg_name="tp"), "no size": dict(comm_type=0),
                 "dimensions": dict(comm_type=0, comm_size=4, involved_dim=data(1, b"\x01\x00"))}
        if wrong in extra:
            nodes.append(node(50, COLLECTIVE, **extra[wrong]))
        nodes += {"kind": [node(50, 9)], "depends": [node(50, COMPUTE, [51])], "twice": [node(22, COMPUTE)],
                  "source": [node(50, SEND, comm_src=2, comm_dst=0, comm_size=4)],
                  "peer": [node(50, SEND, comm_src=1, comm_dst=size, comm_size=4)],
                  "damaged": [number(1, 50) + b"\x0a\x7f"]}.get(wrong, [])
        content = b"".join(varint(len(n)) + n for n in [data(1, "0.0.9" if wrong == "schema" else "0.0.4"), *nodes])
        with open(f"{folder}/t.{rank}.et", "wb") as f:
            f.write(content[:-5] if wrong == "short" else content)


def main():
    kind, path = sys.argv[1:3]
    if kind == "spmd":
        spmd(path)
        return
    os.makedirs(path, exist_ok=True)
    {"mpi": mpi, "pytorch": pytorch, "chakra": chakra, "kineto": kineto}[kind](path, int(sys.argv[3]), *sys.argv[4:])


main()
