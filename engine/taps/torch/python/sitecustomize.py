# SPDX-License-Identifier: Apache-2.0
"""Python runs this file at its start, in ranks whose calls are observed: its folder is the first one of
PYTHONPATH. The program finds sys.path, PYTHONPATH and sitecustomize as they would be without it.

It costs nothing that can be measured: what records the calls of torch.distributed is loaded when the
program imports that, and what describes an exception when one ends the program."""

import atexit
import os
import sys


class _Finder:
    """Finds torch.distributed.distributed_c10d as the other finders do, and changes it once it is loaded."""

    name = "torch.distributed.distributed_c10d"

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _ignore_errors(lambda: _load("_collrun_torch").install(module))

        spec.loader.exec_module = exec_module
        return spec


def _load(name):
    """A module of this folder, which is in no list of modules."""
    import importlib.util

    end = ".abi3.so" if name == "_collrun_tap" else ".py"
    spec = importlib.util.spec_from_file_location(name, os.path.join(_folder, name + end))
    module = importlib.util.module_from_spec(spec)
    module.load = _load
    spec.loader.exec_module(module)
    return module


def _ignore_errors(function):
    """What cannot be observed must not break the program."""
    try:
        function()
    except Exception:
        pass


def _at_exit():
    """An exception that nobody has caught is there, whatever hook the program has for it. (A hook of our
    own would be seen; one for sys.audit would slow down each look at a frame.)"""
    value = getattr(sys, "last_value", None)
    if value is not None and os.getpid() == _pid:
        _ignore_errors(lambda: _load("_collrun_exceptions").record(_load("_collrun_tap"), value))


def _hide():
    """Takes this folder out of the paths, and runs the sitecustomize that it hides."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if paths[0] == _folder:
        if paths[1:]:
            os.environ["PYTHONPATH"] = os.pathsep.join(paths[1:])
        else:
            del os.environ["PYTHONPATH"]
    sys.path[:] = [path for path in sys.path if path != _folder]
    own = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault(__name__, own)


_folder = os.path.dirname(os.path.abspath(__file__))
_pid = os.getpid()
if sys.version_info >= (3, 9):
    sys.meta_path.insert(0, _Finder())
    atexit.register(_at_exit)
_hide()
