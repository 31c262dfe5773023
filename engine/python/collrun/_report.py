# SPDX-License-Identifier: Apache-2.0
"""Exceptions that nobody catches become the error of the rank in the job's report: those that end the
program, and those that end one of its threads. Of a collrun.Error the report has the failed call
already, and the text of sys.exit("text") is the last line of stderr, which it quotes.

A rank that fails because another one has failed prints one line in place of a traceback: the report
is about the other one, and with many ranks its traceback would be far above.
"""

import os
import sys
import sysconfig
import threading
import traceback

from . import _collrun
from ._errors import AbortedError, Error, PeerFailedError

_libraries = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {os.path.join(os.path.dirname(os.path.abspath(__file__)), "")}
)


def _is_of_user(frame):
    name = frame.filename
    return not name.startswith(("<frozen ", *_libraries)) and "/dist-packages/" not in name


def _frame(value):
    """Where it was raised: the last frame in the user's code, else the last one; None: none."""
    frames = traceback.extract_tb(value.__traceback__)
    return next((frame for frame in reversed(frames) if _is_of_user(frame)), frames[-1] if frames else None)


def _leaves(value):
    """The exceptions of a group, and of groups in it; or the exception."""
    return [leaf for each in value.exceptions for leaf in _leaves(each)] if isinstance(value, BaseExceptionGroup) else [value]


def _printable(text):
    """What is no text of C: bytes of a file's name that are no UTF-8, and NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _words(value):
    """Its type and text, as the last line of a traceback has them."""
    kind, _, text = "".join(traceback.format_exception_only(type(value), value)).strip().partition(": ")
    return (kind, text) if " " not in kind else (type(value).__qualname__, str(value))


def _summary(value):
    """Type, text and frame. Of a group those of its exceptions follow, those of collrun last."""
    leaves = sorted(_leaves(value), key=lambda leaf: isinstance(leaf, Error))
    kind, text = _words(value)
    frame = _frame(leaves[0]) or _frame(value)
    if leaves != [value]:
        parts = []
        for leaf in leaves[:4]:
            name, words = _words(leaf)
            place = _frame(leaf)
            parts.append(f"{name}: {words}" + (f" ({os.path.basename(place.filename)}:{place.lineno})" if place else ""))
        more = [f"{len(leaves) - 4} more"] if len(leaves) > 4 else []
        text = f"{str(value)}: {'; '.join(parts + more)}"
    return kind, text, frame


def _report(value, thread=None):
    kind, text, frame = _summary(value)
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
    kind, text, frame = _summary(value)
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
