# SPDX-License-Identifier: Apache-2.0
"""Records what a rank calls of torch.distributed. The methods of torch's ProcessGroup and Work are wrapped,
so every backend is seen, and no tensor is read: sizes and types are.

- An operation is a request until a wait for its Work returns. If the program drops the Work, nothing is
  known about when it completes.
- DDP issues its operations in C++. Hooks of the process group see them (torch 2.15); older versions leave
  them out.
- A thread of Python beside the first one may call at any time: tap.share() says that there is one.
- Whatever fails here is ignored: the program runs on unrecorded."""

import _thread
import functools
import os
import sys
import sysconfig
import threading
import weakref

HOOK = 0x636F6C6C  # the number of this module's hooks

tap = exceptions = None  # the extension, and what describes exceptions; None: nothing is recorded
groups = {}  # id(ProcessGroup) -> (number, whether it is of gloo, whose sends are synchronous; its time-out in ns)
names = {}  # how often a group of this name was made
last = None  # (Work, request, time-out in ns) of the last operation; most are waited for at once
works = {}  # the same of older ones: id(Work) -> (request, time-out in ns, reference that drops it)
issued_in_cpp = []  # (Work, request)


# ---- where the user calls ----

_libraries = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_files = {}  # file name -> its number; 0: of a library; None: there is no room
_sites = {}  # (id(code), instruction) -> (code, site)


def _file(name):
    skipped = name.startswith("<") or name.startswith(_libraries) or "/dist-packages/" in name or "/site-packages/" in name
    number = 0 if skipped or name == __file__ else tap.file(name) or None
    _files[name] = number
    return number


def _site():
    """The innermost line outside of libraries: the number of its file plus the line; 0: not known."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        number = _files.get(code.co_filename, -1)
        if number == 0:
            frame = frame.f_back
            continue
        if number == -1:
            number = _file(code.co_filename)
        if number:
            key = (id(code), frame.f_lasti)
            found = _sites.get(key)
            if found is None:
                if len(_sites) > 10000:
                    _sites.clear()
                found = _sites[key] = (code, number + frame.f_lineno)
            return found[1]
        if number is None:
            return 0
        frame = frame.f_back
    return 0


# ---- process groups ----


def _scope(name, members):
    """Equal on all members, and unique in the job: they make groups of one name equally often."""
    key = (name, members)
    names[key] = names.get(key, 0) + 1
    return f"c10d:{name}#{names[key]}"


def _timeout(group):
    try:
        return int(group._get_backend(group._device_types[0]).options._timeout.total_seconds() * 1e9)
    except Exception:  # not every backend has options
        return 0


def _add_group(group, rank, members, c10d):
    if tap is None or id(group) in groups:
        return
    name = group.group_name
    description = getattr(group, "group_desc", "")
    shown = description if description not in ("", "undefined") else f"group {name}"
    number = tap.group(shown, _scope(name, members), members, rank)
    backend = c10d.get_backend(group) if number else ""
    groups[id(group)] = (number, backend == "gloo", _timeout(group))


def _remove_group(group):
    global last
    if last is not None:
        older, last = last, None
        _keep(*older)
    known = groups.pop(id(group), None)
    if known:
        tap.close(known[0])


# ---- works ----


def _keep(work, request, timeout_ns):
    """`request` ends when `work` is waited for, or is gone."""
    key = id(work)

    def drop(_):
        works.pop(key, None)
        tap.drop(request)

    works[key] = (request, timeout_ns, weakref.ref(work, drop))


def _future_is_done(work):
    """A moment before the Work says so: DDP waits for the future."""
    try:
        return work.get_future().done()
    except Exception:  # this backend has no futures
        return False


def _sweep():
    """Ends operations that C++ has issued, and that are complete."""
    left = []
    for work, request in issued_in_cpp:
        if not (work.is_completed() or _future_is_done(work)):
            left.append((work, request))
        elif tap.wait_begin(request, 0):
            tap.wait_end(request, 0, "", -1)
    issued_in_cpp[:] = left


def _closed_by_peer(text):
    """What a backend says when the process of another rank has ended."""
    for words in "Connection closed by peer", "Connection reset by peer", "Broken pipe":
        if words in text:
            return words
    return ""


def _wrap_wait(Work):
    wait, threads = Work.wait, _thread._count
    begin, end = tap.wait_begin, tap.wait_end

    @functools.wraps(wait)
    def wrapped(self, *args, **kwargs):
        global last
        newest = last
        if newest is not None and newest[0] is self:
            last, known = None, newest[1:]
        else:
            known = works.pop(id(self), None)
        if known is None:
            return wait(self, *args, **kwargs)
        request, timeout_ns = known[:2]
        given = args[0] if args else kwargs.get("timeout")
        if given is not None and given.total_seconds() > 0:
            timeout_ns = int(given.total_seconds() * 1e9)
        if threads():
            tap.share()
        if not begin(request, timeout_ns):
            _keep(self, request, timeout_ns)
            return wait(self, *args, **kwargs)
        failed, why, source = 1, "", -1
        try:
            result = wait(self, *args, **kwargs)
            failed = 0
            if any_source and request in any_source:
                any_source.discard(request)
                source = self._source_rank()
            return result
        except Exception as error:
            why = _closed_by_peer(str(error))
            raise
        finally:
            end(request, failed, why, source)

    Work.wait = wrapped


any_source = set()


# ---- operations ----


def _numbers(what, values):
    return {value: tap.number(what, name) for name, value in values.items()}


class Describer:
    """What the arguments of each method of ProcessGroup say: (type, op, peer, tag, count to compare, count)."""

    def __init__(self, torch, c10d):
        names = "uint8 int8 bool int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 bfloat16".split()
        names += "float8_e4m3fn float8_e5m2 complex64 complex128".split()
        self.types = _numbers("type", {name: getattr(torch, name) for name in names if hasattr(torch, name)})
        ops = "SUM AVG PRODUCT MIN MAX BAND BOR BXOR".split()
        kinds = c10d.ReduceOp.RedOpType
        # A ReduceOp has the hash of its kind, which takes a tenth of the time of any other look at it.
        self.ops = _numbers("op", {name: hash(getattr(c10d.ReduceOp, name)) for name in ops if hasattr(kinds, name)})
        self.Tensor = torch.Tensor

    def of(self, t, op=0, peer=-1, compared=True, tag=0):
        """`t`: a tensor, or lists of which the first one counts."""
        while isinstance(t, (list, tuple)):
            t = t[0] if t else None
        if not isinstance(t, self.Tensor):
            return 0, op, peer, tag, 0, 0
        n = t.numel()
        return self.types.get(t.dtype, 0), op, peer, tag, n if compared else 0, n

    def op(self, options):
        try:
            return self.ops.get(hash(options.reduceOp), 0)
        except Exception:  # the short form has no options
            return 0

    def reduced(self, group, tensors, options=None, *rest, opts=None, **named):
        return self.of(tensors, self.op(options or opts))

    def coalesced(self, group, tensors, options=None, *rest, **named):
        kind, op, peer, tag, _, _ = self.reduced(group, tensors, options, **named)
        n = sum(t.numel() for t in tensors)
        return kind, op, peer, tag, n, n

    def root(self, group, tensors, options=None, *rest, **named):
        options = named.get("opts", options)
        root = getattr(options, "rootRank", None)
        if root is None:  # the short form: broadcast(tensor, root)
            root = options if isinstance(options, int) else named.get("root", -1)
        return root

    def broadcast(self, group, tensors, *rest, **named):
        return self.of(tensors, 0, self.root(group, tensors, *rest, **named))

    def reduce(self, group, tensors, options=None, *rest, **named):
        kind, op, _, tag, n, shown = self.reduced(group, tensors, options, **named)
        return kind, op, self.root(group, tensors, options, **named), tag, n, shown

    def list_is_even(self, tensors):
        tensors = tensors[0] if tensors and isinstance(tensors[0], (list, tuple)) else tensors
        return not isinstance(tensors, (list, tuple)) or len({t.numel() for t in tensors}) <= 1

    def all_gather(self, group, outputs, inputs, *rest, **named):
        return self.of(inputs, compared=self.list_is_even(outputs))

    def all_gather_single(self, group, output, inputs, *rest, **named):
        return self.of(inputs)

    def gather(self, group, outputs, inputs, options=None, *rest, **named):
        return self.of(inputs, 0, self.root(group, inputs, options, **named), self.is_gloo(group))

    def scatter(self, group, outputs, inputs, options=None, *rest, **named):
        return self.of(outputs, 0, self.root(group, outputs, options, **named), self.is_gloo(group))

    def reduce_scatter(self, group, outputs, inputs, options=None, *rest, **named):
        return self.of(outputs, self.op(named.get("opts", options)), compared=self.list_is_even(inputs))

    def all_to_all(self, group, outputs, inputs, *rest, **named):
        return self.of(inputs, compared=False)

    def barrier(self, group, *rest, **named):
        return 0, 0, -1, 0, 0, 0

    def message(self, group, tensors, peer, tag=0, *rest, **named):
        return self.of(tensors, 0, named.get("peer", peer), False, tag)

    def any_message(self, group, tensors, tag=0, *rest, **named):
        return self.of(tensors, 0, -1, False, tag)

    @staticmethod
    def is_gloo(group):
        known = groups.get(id(group))
        return known is not None and known[1]


METHODS = {
    "allreduce": ("all_reduce", "reduced"),
    "allreduce_coalesced": ("all_reduce_coalesced", "coalesced"),
    "broadcast": ("broadcast", "broadcast"),
    "reduce": ("reduce", "reduce"),
    "allgather": ("all_gather", "all_gather"),
    "_allgather_base": ("all_gather_into_tensor", "all_gather_single"),
    "all_gather_single": ("all_gather_into_tensor", "all_gather_single"),
    "gather": ("gather", "gather"),
    "scatter": ("scatter", "scatter"),
    "reduce_scatter": ("reduce_scatter", "reduce_scatter"),
    "_reduce_scatter_base": ("reduce_scatter_tensor", "reduce_scatter"),
    "reduce_scatter_single": ("reduce_scatter_tensor", "reduce_scatter"),
    "alltoall": ("all_to_all", "all_to_all"),
    "alltoall_base": ("all_to_all_single", "all_to_all"),
    "all_to_all_single": ("all_to_all_single", "all_to_all"),
    "barrier": ("barrier", "barrier"),
    "send": ("send", "message"),
    "recv": ("recv", "message"),
    "recv_anysource": ("recv", "any_message"),
}


def _wrap_method(ProcessGroup, name, describer):
    call = getattr(ProcessGroup, name, None)
    if call is None:
        return
    operation, how = METHODS[name]
    function = tap.number("function", operation)
    describe = getattr(describer, how)
    is_send, is_any = name == "send", name == "recv_anysource"
    begin, issued = tap.begin, tap.issued  # a look in a module takes time, too

    @functools.wraps(call)
    def wrapped(self, *args, **kwargs):
        global last
        known = groups.get(id(self))
        if known is None:
            return call(self, *args, **kwargs)
        number, gloo, timeout = known
        if last is not None:
            older, last = last, None
            _keep(*older)
        try:
            request = begin(number, function, *describe(self, *args, **kwargs), _site(), is_send and gloo)
        except Exception:
            request = 0
        if not request:
            return call(self, *args, **kwargs)
        try:
            work = call(self, *args, **kwargs)
        except BaseException:
            issued(request, 1)
            raise
        issued(request, 0)
        if work is None:
            tap.drop(request)
            return None
        if is_any:
            any_source.add(request)
        last = work, request, timeout
        return work

    setattr(ProcessGroup, name, wrapped)


def _wrap_monitored_barrier(ProcessGroup):
    """It blocks, and returns no Work."""
    call = getattr(ProcessGroup, "monitored_barrier", None)
    if call is None:
        return
    function = tap.number("function", "monitored_barrier")

    @functools.wraps(call)
    def wrapped(self, *args, **kwargs):
        known = groups.get(id(self))
        request = known and tap.begin(known[0], function, 0, 0, -1, 0, 0, 0, _site(), 0)
        if not request:
            return call(self, *args, **kwargs)
        failed = 1
        try:
            result = call(self, *args, **kwargs)
            failed = 0
            return result
        finally:
            tap.issued(request, failed)
            if not failed:
                tap.drop(request)

    ProcessGroup.monitored_barrier = wrapped


# ---- what C++ issues ----

HOOKED = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "BROADCAST": "broadcast",
    "ALLGATHER": "all_gather",
    "ALLGATHER_BASE": "all_gather_into_tensor",
    "REDUCE_SCATTER_BASE": "reduce_scatter_tensor",
    "BARRIER": "barrier",
}
_current = {}  # thread -> request of the operation that C++ issues


def _hook_group(group, describer, c10d):
    known = groups.get(id(group))
    if known is None or not hasattr(group, "register_pre_hook"):
        return
    functions = {getattr(c10d_hook_names(), k): tap.number("function", v) for k, v in HOOKED.items()}

    def before(args):
        function = functions.get(args.name)
        if not function or tap.inside():
            return
        described = describer.of(args.input_tensors or args.output_tensors, 0, args.root)
        request = tap.begin(known[0], function, *described, _site(), 0)
        if request:
            _current[_thread.get_ident()] = request

    def after(args):
        request = _current.pop(_thread.get_ident(), 0)
        if request:
            tap.issued(request, 0)
            issued_in_cpp.append((args.work, request))

    group.register_pre_hook(HOOK, lambda args: _guarded(before, args))
    group.register_post_hook(HOOK, lambda args: _guarded(after, args))


def _guarded(function, *args):
    try:
        function(*args)
    except Exception:
        pass


def c10d_hook_names():
    from torch._C._distributed_c10d import HookOpName

    return HookOpName


def _wrap_ddp(DDP, describer, c10d):
    """The groups of DDP are hooked, and its operations end with its calls."""
    init, forward = DDP.__init__, DDP.forward

    @functools.wraps(init)
    def new_init(self, module, *args, **kwargs):
        group = kwargs.get("process_group") or (c10d._get_default_group() if c10d.is_initialized() else None)
        if group is not None and id(group) in groups:
            _hook_group(group, describer, c10d)
        try:
            return init(self, module, *args, **kwargs)
        finally:
            _sweep()

    @functools.wraps(forward)
    def new_forward(self, *args, **kwargs):
        try:
            return forward(self, *args, **kwargs)
        finally:
            if issued_in_cpp:
                _sweep()

    DDP.__init__, DDP.forward = new_init, new_forward


def _wrap_backward(torch):
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def wrapped(*args, **kwargs):
        try:
            return backward(*args, **kwargs)
        finally:
            if issued_in_cpp:
                _sweep()

    torch.autograd.backward = wrapped


# ---- the start ----


def _wrap_threads(torch):
    """A future runs its callbacks in a thread of the backend, and they may call."""
    if _thread._count():
        tap.share()
    for name in ("then", "add_done_callback"):
        _share_before(torch.futures.Future, name)
    _share_before(threading.Thread, "start")
    hook = threading.excepthook

    @functools.wraps(hook)
    def wrapped(args):
        if args.exc_value is not None:
            name = args.thread.name if args.thread else "of another library"
            _guarded(exceptions.record, tap, args.exc_value, name)
        hook(args)

    threading.excepthook = wrapped


def _share_before(owner, name):
    call = getattr(owner, name, None)
    if call is None:
        return

    @functools.wraps(call)
    def wrapped(*args, **kwargs):
        tap.share()
        return call(*args, **kwargs)

    setattr(owner, name, wrapped)


def _serve_stacks():
    """Python's frames in reports of a stall; the package collrun does the same for its ranks."""
    if "collrun" in sys.modules:
        return
    import faulthandler
    import fcntl
    import signal

    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            break
    else:
        return
    fd = os.memfd_create(f"collrun-python-stack.{number}")
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    tap.serve_stacks(number, fd)
    faulthandler.register(number, file=fd, all_threads=True, chain=False)
    tap.harmless(number)  # after the handler is installed: until it is known, a handler counts


def _start(c10d, size, rank):
    """The first process group is that of all ranks of the job: torch is loaded as a whole by now."""
    global tap, exceptions
    import torch
    import torch.nn.parallel.distributed
    from torch._C._distributed_c10d import ProcessGroup, Work

    extension = load("_collrun_tap")
    if not extension.open(f"torch {torch.__version__}", rank, os.environ.get("COLLRUN_WORLD_SIZE") == str(size)):
        return
    tap, exceptions = extension, load("_collrun_exceptions")
    describer = Describer(torch, c10d)
    for name in METHODS:
        _wrap_method(ProcessGroup, name, describer)
    _wrap_monitored_barrier(ProcessGroup)
    _wrap_wait(Work)
    _wrap_threads(torch)
    _guarded(_serve_stacks)
    _wrap_backward(torch)
    _wrap_ddp(torch.nn.parallel.distributed.DistributedDataParallel, describer, c10d)


def install(c10d):
    """Called when torch.distributed.distributed_c10d has been loaded."""
    make, destroy = c10d._new_process_group_helper, c10d.destroy_process_group
    started = []

    def made_group(group, size, rank, members):
        if not isinstance(group, c10d.ProcessGroup):
            return
        if not started and not members:
            started.append(True)
            _start(c10d, size, rank)
        _add_group(group, rank, tuple(members) or tuple(range(size)), c10d)

    @functools.wraps(make)
    def new_make(group_size, group_rank, global_ranks_in_group, *args, **kwargs):
        made = make(group_size, group_rank, global_ranks_in_group, *args, **kwargs)
        _guarded(made_group, made[0] if isinstance(made, tuple) else made, group_size, group_rank, global_ranks_in_group)
        return made

    @functools.wraps(destroy)
    def new_destroy(group=None):
        known = list(c10d._world.pg_map) if group is None else [group]
        try:
            return destroy(group)
        finally:
            for each in known:
                _guarded(_remove_group, each)

    c10d._new_process_group_helper, c10d.destroy_process_group = new_make, new_destroy
