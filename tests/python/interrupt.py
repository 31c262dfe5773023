# SPDX-License-Identifier: Apache-2.0
"""Rank 0 waits for a message that is not sent, and gets a SIGINT; the argument says how it waits, or that rank 1 does, and gets it just before,
or that a child of rank 0 gets it. "thread": as "call", and another thread has asked for the group."""

import array
import concurrent.futures
import ctypes
import functools
import os
import signal
import sys
import threading
import time

import collrun

how = sys.argv[1]
if how == "thread":
    g = concurrent.futures.ThreadPoolExecutor(1).submit(collrun.group).result()
else:
    g = collrun.group()
x = array.array("i", [0])


def main_sleeps():
    """The state of the main thread; between two looks it gets the interpreter's lock, if that is what it waits for."""
    time.sleep(0.01)
    with open(f"/proc/self/task/{os.getpid()}/stat") as f:
        return f.read().rpartition(") ")[2][0] == "S"


def interrupt():
    """Once the main thread is in the call: it was found asleep ten times in a row."""
    entering.wait()
    asleep = 0
    while asleep < 10:
        asleep = asleep + 1 if main_sleeps() else 0
    os.kill(target, signal.SIGINT)
    time.sleep(0.5)  # what would end the call has time for it
    open("interrupted", "w").close()


class Signalled:
    """The rank 0; on the way into the call, where no code of Python runs, the signal arrives."""

    __index__ = staticmethod(functools.partial(ctypes.CDLL(None)["raise"], signal.SIGINT))


class Late:
    """The tag 0, after the thread that watches for signals had time to look."""

    __index__ = staticmethod(functools.partial(ctypes.CDLL(None).usleep, 300000))


entering = threading.Event()
target = os.getpid()
if g.rank == 0 and how == "child":
    target = os.fork()
    try:
        while target == 0:
            time.sleep(0.1)
    except KeyboardInterrupt:
        os._exit(0)
if g.rank == 1 and how.startswith("before"):
    if how == "before-handler":
        signal.signal(signal.SIGINT, lambda *_: print("handled", flush=True))
    try:
        g.recv(x, Signalled(), tag=Late())
    except KeyboardInterrupt:
        print("KeyboardInterrupt", flush=True)
        g.barrier()  # the group is whole
        g.recv(x, 0)
    print("received", x[0], flush=True)
elif how.startswith("before"):
    if how == "before":
        g.barrier()
    g.send(array.array("i", [9]), 1)
elif g.rank == 0:
    threading.Thread(target=interrupt).start()
    try:
        if how in ("call", "thread"):
            entering.set()
            g.recv(x, 1)
        elif how == "wait":
            r = g.recv(x, 1, async_op=True)
            entering.set()
            r.wait()
        elif how == "poll":
            r = g.recv(x, 1, async_op=True)
            entering.set()
            r.wait(timeout=20)
        elif how == "handler":
            # A handler of the program's does not end the call, which a message of rank 1 does.
            signal.signal(signal.SIGINT, lambda *_: print("handled", flush=True))
            entering.set()
            g.recv(x, 1)
            print("received", x[0], flush=True)
        elif how == "child":
            entering.set()
            g.recv(x, 1)
            print("received", x[0], "child", os.waitpid(target, 0)[1], flush=True)
    except KeyboardInterrupt as e:
        print("KeyboardInterrupt", flush=True)
        open("raised", "w").close()
    if how == "poll":
        g.barrier()
        print("received", r.wait() is x and x[0], flush=True)
elif how in ("handler", "child"):
    while not os.path.exists("interrupted"):
        time.sleep(0.01)
    g.send(array.array("i", [5]), 0)
elif how == "thread":
    while not os.path.exists("raised"):
        time.sleep(0.01)
elif how == "poll":
    g.barrier()
    g.send(array.array("i", [7]), 0)
