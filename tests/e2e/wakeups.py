# SPDX-License-Identifier: Apache-2.0
"""The same as wakeups.c, in Python: wakeups.py WAYS SEED. The even rank of each pair waits for a
handler, a thread or a process; "none" is a true deadlock."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import collrun

world = collrun.group()
peer = world.rank ^ 1
way = sys.argv[1].split(",")[world.rank // 2]
delay = 0.7 + 0.7 * random.Random(1000 * int(sys.argv[2]) + world.rank).random()
go = threading.Event()


class Woken(Exception):
    pass


def wake(*_):
    raise Woken


def post(*_):
    go.set()


def send(*_):
    world.send(bytearray(1), peer)


def kill_later(name):
    return subprocess.Popen(["sh", "-c", f"sleep {delay}; kill -{name} {os.getpid()}"])


def raised():
    """A handler raises out of the receive."""
    signal.signal(signal.SIGALRM, wake)
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        world.recv(bytearray(1), peer)
        raise AssertionError("received before the message was sent")
    except Woken:
        send()
    world.recv(bytearray(1), peer)


def raised_out_of_wait():
    signal.signal(signal.SIGALRM, wake)
    signal.setitimer(signal.ITIMER_REAL, delay)
    request = world.recv(bytearray(1), peer, async_op=True)
    try:
        request.wait()
        raise AssertionError("received before the message was sent")
    except Woken:
        send()
    request.wait()


def sends():
    """A handler sends while the main thread receives."""
    signal.signal(signal.SIGALRM, send)
    signal.setitimer(signal.ITIMER_REAL, delay)
    world.recv(bytearray(1), peer)


def terminated():
    signal.signal(signal.SIGTERM, send)
    child = kill_later("TERM")
    world.recv(bytearray(1), peer)
    child.wait()


def beside(prepare):
    """Another thread receives, and the main thread waits for an event."""
    thread = threading.Thread(target=lambda: world.recv(bytearray(1), peer))
    thread.start()
    child = prepare()
    go.wait()
    send()
    thread.join()
    if child:
        child.wait()


def interrupted():
    signal.signal(signal.SIGINT, post)
    return kill_later("INT")


def child_ends():
    signal.signal(signal.SIGCHLD, post)
    return subprocess.Popen(["sleep", str(delay)])


def timer():
    threading.Timer(delay, post).start()


def sleeper():
    def run():
        time.sleep(delay)
        post()

    threading.Thread(target=run).start()


def keyboard():
    """The default handler of SIGINT counts if the job sends that signal (timeouts.warn)."""
    try:
        world.recv(bytearray(1), peer)
        raise AssertionError("received before the message was sent")
    except (KeyboardInterrupt, collrun.AbortedError):
        print("interrupted", flush=True)
        os._exit(0)


beside_ways = {f.__name__: f for f in (interrupted, child_ends, timer, sleeper)}
if world.rank % 2 and way != "none" and way != "keyboard":
    world.recv(bytearray(1), peer)
    send()
elif way == "none":
    world.recv(bytearray(1), peer)
elif way in beside_ways:
    beside(beside_ways[way])
else:
    globals()[way]()
