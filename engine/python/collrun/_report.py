# SPDX-License-Identifier: Apache-2.0
"""An exception that ends the program becomes the error message of the rank in the job's report. Of a
collrun.Error the report has the failed call already."""

import os
import sys
import traceback

from . import _collrun
from ._errors import Error


def _place(trace):
    frames = traceback.extract_tb(trace)
    return f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


def _printable(text):
    """What is no text of C: bytes of a file's name that are no UTF-8, and NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def install():
    """Puts a hook before sys.excepthook, which still prints the traceback."""
    before = sys.excepthook

    def hook(kind, value, trace):
        if _collrun.is_initialized() and not issubclass(kind, (KeyboardInterrupt, Error)):
            text = "".join(traceback.format_exception_only(kind, value)).strip() + _place(trace)
            _collrun.fail(_printable(text))
        before(kind, value, trace)

    sys.excepthook = hook
