# SPDX-License-Identifier: Apache-2.0
"""Which signals the program handles itself. They matter twice:

- Operations of the main thread run the handlers while they wait, and a handler that raises ends the
  call (interrupt.h of the extension). Programs without handlers do not pay for that.
- A handler can end a wait, so a rank that has one is never proven to be deadlocked. Every Python has
  one for SIGINT: default_int_handler, which does not count, as only a person sends SIGINT to a rank,
  to end it. The interpreter has one function of C for all handlers, so the engine cannot tell them
  apart, and is told here.

signal.signal calls _signal.signal, which is replaced by a function that looks at the new handler."""

import os
import _signal

from . import _collrun

_own = set()  # signals whose handler is a function of the program


def _look(number):
    handler = _signal.getsignal(number)
    default = handler is _signal.default_int_handler
    if callable(handler) and not default:
        _own.add(number)
    else:
        _own.discard(number)
    _collrun._handlers(bool(_own))
    if number == _signal.SIGINT:
        _collrun._signal_harmless(number, default)


def install():
    """Does nothing in a process that is no rank."""
    if "COLLRUN_RANK" not in os.environ or hasattr(_signal.signal, "_collrun_original"):
        return
    original = _signal.signal

    def signal(number, handler, /):
        previous = original(number, handler)
        _look(number)
        return previous

    signal.__doc__ = original.__doc__
    signal._collrun_original = original
    _signal.signal = signal
    for number in _signal.valid_signals():
        _look(number)
