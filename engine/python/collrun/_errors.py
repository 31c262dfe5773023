# SPDX-License-Identifier: Apache-2.0
"""Failures: one class per status, below Error."""

import builtins
import enum


class Status(enum.IntEnum):
    """What a call of libcollrun returned."""

    INVALID = -1
    NOT_FOUND = -2
    NOT_MEMBER = -3
    EXISTS = -4
    UNSUPPORTED = -5
    UNAVAILABLE = -6
    MISMATCH = -7
    TIMEOUT = -8
    PEER_FAILED = -9
    ABORTED = -10
    BACKEND = -11
    NO_MEMORY = -12
    SYSTEM = -13


class Error(RuntimeError):
    """A call that failed. str(error) names operation, group, number and reason."""

    status: Status
    culprits: list[int]

    def __init__(self, text: str, status: int = Status.INVALID, culprits=()):
        super().__init__(text)
        self.status = Status(status)
        self.culprits = list(culprits)

    def __reduce__(self):
        return type(self), (str(self), int(self.status), self.culprits), self.__dict__


class InvalidError(Error, ValueError):
    """A bad argument. Nothing was sent."""


class NotFoundError(Error, LookupError):
    """No such group or backend."""


class NotMemberError(Error):
    """The group exists, but this rank is not in it."""


class ExistsError(Error):
    """The name is taken."""


class UnsupportedError(Error, NotImplementedError):
    """The backend does not support the operation."""


class UnavailableError(Error):
    """The backend does not work on this host, or the program was not started by collrun."""


class MismatchError(Error):
    """Ranks called different operations; the text shows both calls."""


class TimeoutError(Error, builtins.TimeoutError):
    """The time-out of the operation, or of Request.wait(), expired."""


class PeerFailedError(Error):
    """Another rank has ended; culprits are the ranks that have failed."""


class AbortedError(Error):
    """The job or the group is being closed."""


class BackendError(Error):
    """The backend's library failed; the text quotes it."""


class OutOfMemoryError(Error, MemoryError):
    """There is not enough memory."""


class SystemCallError(Error):
    """A system call failed."""


_classes = {
    Status.INVALID: InvalidError,
    Status.NOT_FOUND: NotFoundError,
    Status.NOT_MEMBER: NotMemberError,
    Status.EXISTS: ExistsError,
    Status.UNSUPPORTED: UnsupportedError,
    Status.UNAVAILABLE: UnavailableError,
    Status.MISMATCH: MismatchError,
    Status.TIMEOUT: TimeoutError,
    Status.PEER_FAILED: PeerFailedError,
    Status.ABORTED: AbortedError,
    Status.BACKEND: BackendError,
    Status.NO_MEMORY: OutOfMemoryError,
    Status.SYSTEM: SystemCallError,
}


def make(status: int, text: str, culprits) -> Error:
    """The error of a call that returned `status`. Ranks are blamed only where others ended."""
    blamed = culprits if status in (Status.PEER_FAILED, Status.ABORTED) else ()
    return _classes.get(status, Error)(text, status, blamed)


for _class in (Error, *_classes.values()):
    _class.__module__ = "collrun"
