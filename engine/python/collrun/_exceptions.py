# SPDX-License-Identifier: Apache-2.0
"""An exception that nobody has caught, as the job's report shows it: type, text, and where it was raised
in the user's code. Of Python 3.9 and later: programs that do not use collrun are described by it, too."""

import builtins
import os
import sysconfig
import traceback

_Group = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.11
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


def leaves(value):
    """The exceptions of a group, and of groups in it; or the exception."""
    return [leaf for each in value.exceptions for leaf in leaves(each)] if isinstance(value, _Group) else [value]


def printable(text):
    """What is no text of C: bytes of a file's name that are no UTF-8, and NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _words(value):
    """Its type and text, as the last line of a traceback has them."""
    kind, _, text = "".join(traceback.format_exception_only(type(value), value)).strip().partition(": ")
    return (kind, text) if " " not in kind else (type(value).__qualname__, str(value))


def summary(value, last=()):
    """Type, text and frame. Of a group those of its exceptions follow, those of the types `last` at last."""
    parts_of = sorted(leaves(value), key=lambda leaf: isinstance(leaf, last))
    kind, text = _words(value)
    frame = _frame(parts_of[0]) or _frame(value)
    if parts_of != [value]:
        parts = []
        for leaf in parts_of[:4]:
            name, words = _words(leaf)
            place = _frame(leaf)
            parts.append(f"{name}: {words}" + (f" ({os.path.basename(place.filename)}:{place.lineno})" if place else ""))
        more = [f"{len(parts_of) - 4} more"] if len(parts_of) > 4 else []
        text = f"{str(value)}: {'; '.join(parts + more)}"
    return kind, text, frame


def record(tap, value, thread=""):
    """Into the record of the rank. KeyboardInterrupt is the end that a user or the job has asked for."""
    if isinstance(value, (KeyboardInterrupt, SystemExit)):
        return
    kind, text, frame = summary(value)
    file, line = (frame.filename, frame.lineno or 0) if frame else ("", 0)
    tap.exception(printable(kind), printable(text), printable(file), line, printable(thread))
