# SPDX-License-Identifier: Apache-2.0
"""Rank 0 waits for a message that is not sent, and gets a SIGINT; the argument says how it waits."""

import array
import os
import signal
import sys
import threading
import time

import collrun

how = sys.argv[1]
g = collrun.group()
x = array.array("i", [0])


def interrupt():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)


if g.rank == 0:
    threading.Thread(target=interrupt).start()
    try:
        if how == "call":
            g.recv(x, 1)
        elif how == "wait":
            g.recv(x, 1, async_op=True).wait()
        elif how == "poll":
            r = g.recv(x, 1, async_op=True)
            r.wait(timeout=20)
        elif how == "handler":
            # A handler of the program's does not end the call, which a message of rank 1 does.
            signal.signal(signal.SIGINT, lambda *_: print("handled", flush=True))
            g.recv(x, 1)
            print("received", x[0], flush=True)
    except KeyboardInterrupt as e:
        print("KeyboardInterrupt", flush=True)
    if how == "poll":
        g.barrier()
        print("received", r.wait() is x and x[0], flush=True)
elif how == "handler":
    time.sleep(1)
    g.send(array.array("i", [5]), 0)
elif how == "poll":
    g.barrier()
    g.send(array.array("i", [7]), 0)
