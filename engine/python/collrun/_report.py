# SPDX-License-Identifier: Apache-2.0
"""Exceptions that nobody catches become the error of the rank in the job's report: those that end the
program, and those that end one of its threads. Of a collrun.Error the report has the failed call
already, and the text of sys.exit("text") is the last line of stderr, which it quotes.

A rank that fails because another one has failed prints one line in place of a traceback: the report
is about the other one, and with many ranks its traceback would be far above.
"""

import os
import sys
import threading

from . import _collrun
from ._errors import AbortedError, Error, PeerFailedError
from ._exceptions import leaves as _leaves
from ._exceptions import printable as _printable
from ._exceptions import summary


def _report(value, thread=None):
    kind, text, frame = summary(value, Error)
    own = any(not isinstance(leaf, (Error, KeyboardInterrupt, SystemExit)) for leaf in _leaves(value))
    if own:
        _collrun._fail_exception(
            _printable(kind), _printable(text), frame and _printable(frame.filename), frame.lineno or 0 if frame else 0, thread
        )


def _is_consequence(value):
    """Of the failure of another rank: a call of collrun, or one of torch.distributed, has reported it."""
    while value is not None:
        if isinstance(value, (PeerFailedError, AbortedError)):
            return True
        if type(value).__name__ == "DistBackendError" and _collrun.stopping():
            return True
        value = value.__cause__
    return False


def _print_line(value, thread=None):
    kind, text, frame = summary(value, Error)
    where = f"{os.path.basename(frame.filename)}:{frame.lineno}: " if frame else ""
    print(f"{where}{f'thread {thread}: ' if thread else ''}{kind}: {text}", file=sys.stderr, flush=True)


def install():
    """Puts hooks before those of sys and threading, which still print the tracebacks."""
    before, before_thread = sys.excepthook, threading.excepthook

    def hook(kind, value, trace):
        if _collrun.is_initialized():
            _report(value)
            if before is sys.__excepthook__ and all(map(_is_consequence, _leaves(value))):
                return _print_line(value)
        before(kind, value, trace)

    def thread_hook(args):
        if _collrun.is_initialized() and args.exc_value is not None:
            name = args.thread.name if args.thread else "of another library"
            _report(args.exc_value, _printable(name))
            if before_thread is threading.__excepthook__ and all(map(_is_consequence, _leaves(args.exc_value))):
                return _print_line(args.exc_value, name)
        before_thread(args)

    sys.excepthook = hook
    threading.excepthook = thread_hook
