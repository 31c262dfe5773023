# SPDX-License-Identifier: Apache-2.0
"""Failures: one class per status, below Error."""

import builtins
import enum
import re


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
    """A call that failed. str(error) names operation, group, number and reason.

    culprits: world ranks. Of a PeerFailedError or an AbortedError those that have failed; of a
    TimeoutError those that the call has waited for, which may wait for others in turn; of a
    MismatchError those whose call differs from that of the majority, or, where the error does not
    tell what most ranks have called, those that differ.
    """

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
    """Ranks called different operations; the text shows both calls, and culprits are who differs."""


class TimeoutError(Error, builtins.TimeoutError):
    """The time-out of the operation, or of Request.wait(), expired; culprits are those it waited for."""


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


_LIST = r"ranks? (\d+(?:-\d+)?(?:(?:, | and )\d+(?:-\d+)?)*)"
_WAITED = re.compile(rf"waited [0-9.]+ s for {_LIST}|{_LIST} did not join|for {_LIST}, wh")
_SIDES = re.compile(rf"{_LIST} (?:calls?|ha(?:s|ve) ended)\b")
_TWO_SIDES = re.compile(rf"{_LIST} and {_LIST} differ\b")


def _ranks(text):
    """The ranks of "0-2, 5 and 7"."""
    ends = [part.split("-") for part in re.split(", | and ", text)]
    return {rank for part in ends for rank in range(int(part[0]), int(part[-1]) + 1)}


def _differing(text):
    """Of "ranks 0-2 call A, rank 3 calls B": [3]."""
    both = _TWO_SIDES.search(text)
    lists = both.groups() if both else _SIDES.findall(text)
    sides = [_ranks(each) for each in lists]
    named = set().union(*sides)
    for side in sides:
        if 2 * len(side) > len(named) and len(sides) > 1:
            return sorted(named - side)
    return sorted(named)


def _blamed(status, text, failed):
    """The engine's errors name the ranks in their texts."""
    if status == Status.TIMEOUT:
        found = _WAITED.search(text)
        return sorted(_ranks(next(filter(None, found.groups())))) if found else ()
    if status == Status.MISMATCH:
        return _differing(text)
    if status == Status.ABORTED and not failed and _TWO_SIDES.search(text):
        return _differing(text)
    return failed if status in (Status.PEER_FAILED, Status.ABORTED) else ()


def make(status, text, failed) -> Error:
    """The error of a call that returned `status`. `failed`: the ranks that have failed so far."""
    return _classes.get(status, Error)(text, status, _blamed(status, text, failed))


for _class in (Error, *_classes.values()):
    _class.__module__ = "collrun"
