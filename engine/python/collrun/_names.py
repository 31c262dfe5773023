# SPDX-License-Identifier: Apache-2.0
"""What the error for a name that does not exist suggests: those who come from torch.distributed, MPI
or Ray know the calls by other names."""

import difflib

_GROUP = (
    "abort", "allgather", "allreduce", "alltoall", "backend", "barrier", "broadcast", "destroy", "empty", "exscan",
    "gather", "name", "rank", "ranks", "recv", "recv_any", "reduce", "reduce_scatter", "scan", "scatter", "send",
    "sendrecv", "shrink", "size", "split", "timeout",
)  # fmt: skip
_OPERATIONS = (
    "allgather", "allreduce", "alltoall", "barrier", "broadcast", "exscan", "gather", "recv", "recv_any", "reduce",
    "reduce_scatter", "scan", "scatter", "send", "sendrecv", "split", "shrink",
)  # fmt: skip

_NO_INIT = "no call begins: the first one that needs the job joins it"
_WORLD = "collrun.group() is the group of all ranks"
# Names without case and underscores, on the module and on groups.
_OF_MODULE = {
    "init": _NO_INIT,
    "initprocessgroup": _NO_INIT,
    "commworld": _WORLD,
    "world": _WORLD,
    "size": "did you mean collrun.world_size()?",
    "getrank": "did you mean collrun.rank()?",
    "getsize": "did you mean collrun.world_size()?",
    "getworldsize": "did you mean collrun.world_size()?",
    "localworldsize": "did you mean collrun.local_size()?",
    "getlocalrank": "did you mean collrun.local_rank()?",
    "destroyprocessgroup": "did you mean collrun.finalize()? An exit with code 0 does the same",
    "shutdown": "did you mean collrun.finalize()? An exit with code 0 does the same",
    "exit": "did you mean collrun.finalize()? An exit with code 0 does the same",
    "abort": "a rank ends the job by an exception or sys.exit(code); Group.abort() fails one group",
    "getbackend": "did you mean collrun.group().backend?",
    "reduceop": 'operators are names: op="sum"',
    "sum": 'operators are names: op="sum"',
    "anysource": "Group.recv_any() receives from any rank",
    "newcommunicator": "did you mean collrun.new_group()?",
}
_OF_GROUP = {
    "getrank": "did you mean rank, which is no function?",
    "getsize": "did you mean size, which is no function?",
    "worldsize": "did you mean size?",
    "getgroup": "did you mean ranks?",
    "groupname": "did you mean name?",
    "free": "did you mean destroy()?",
    "create": "did you mean collrun.new_group()?",
    "dup": "did you mean split(0, rank)?",
    "group": "did you mean collrun.group()?",
    "newgroup": "did you mean collrun.new_group()?",
}
_SYNONYMS = {
    "bcast": "broadcast",
    "receive": "recv",
    "batchisendirecv": "sendrecv",
    "sendreceive": "sendrecv",
    "synchronize": "barrier",
    "monitoredbarrier": "barrier",
}


def _operation(plain):
    """The operation that a name without case and underscores means, and whether it starts it only."""
    for started in False, True:
        name = plain[1:] if started and plain.startswith("i") else plain
        for end in "intotensor", "tensor", "single", "coalesced", "object", "objectlist", "multigpu", "v", "block", "":
            stem = name.removesuffix(end)
            for operation in _OPERATIONS:
                if stem == operation.replace("_", "") or _SYNONYMS.get(stem) == operation:
                    return operation, started
    return None, False


def suggest(name, of_group, known=()):
    """"; did you mean ...?", or "" """
    plain = name.replace("_", "").lower()
    fixed = (_OF_GROUP if of_group else _OF_MODULE).get(plain)
    operation, started = _operation(plain)
    if not fixed and operation:
        fixed = f"did you mean {'' if of_group else 'collrun.group().'}{operation}({'..., async_op=True' if started else ''})?"
    if not fixed and not of_group and name in ("torch", "ray"):
        fixed = f"import collrun.{name} loads it"
    if not fixed:
        close = difflib.get_close_matches(name, _GROUP if of_group else known, 1, 0.75)
        fixed = close and f"did you mean {close[0]}?"
    return f"; {fixed}" if fixed else ""


def refuse(name):
    """For the type Group: the error of an attribute that does not exist."""
    raise AttributeError(f"'collrun.Group' object has no attribute '{name}'{suggest(name, True)}")
