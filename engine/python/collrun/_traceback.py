# SPDX-License-Identifier: Apache-2.0
"""The Python frames of this rank in collrun's stall reports. collrun-stack, which runs beside the rank,
finds the memfd by its name, which has the number of the signal, sends the signal to the thread
"collrun/pystack", and reads what faulthandler has written. Where this is not possible, reports have
the frames of the interpreter instead."""

import fcntl
import os
import signal

from . import _collrun


def _free_signal():
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            return number
    raise OSError("no real-time signal is free")


def install():
    """Does nothing in a process that is no rank."""
    if "COLLRUN_RANK" not in os.environ:
        return
    try:
        import faulthandler

        number = _free_signal()
        fd = os.memfd_create(f"collrun-python-stack.{number}")
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
        _collrun._serve_tracebacks(number, fd)
        faulthandler.register(number, file=fd, all_threads=True, chain=False)
        _collrun._signal_harmless(number, True)
    except (ImportError, OSError, RuntimeError):
        pass
