"""Exceptions: one class for each status of libxdit, with the library's error message."""
from __future__ import annotations

import builtins


class Error(RuntimeError):
    """A failure of libxdit. `rank`: the rank that failed, or -1."""

    def __init__(self, message: str, rank: int = -1):
        super().__init__(message)
        self.rank = rank


class OutOfMemory(Error, MemoryError):
    """The request does not fit into memory, as measured or predicted."""


class InvalidRequest(Error, ValueError):
    """An option or a request is wrong."""


class FileError(Error, OSError):
    """A file or directory cannot be read or written."""


class FormatError(Error):
    """The content of a file is wrong."""


class Unsupported(Error, NotImplementedError):
    """Valid, but not supported here."""


class CommunicationError(Error):
    """Messages between ranks failed. The process must exit."""


class DeviceError(Error):
    """A device failed."""


class Cancelled(Error):
    """The request was cancelled."""


# By the values of xd_status.
BY_STATUS = (None, OutOfMemory, InvalidRequest, FileError, FormatError, Unsupported,
             CommunicationError, DeviceError, Cancelled)


def describe(e: BaseException) -> str:
    """Formats an exception of a callback as a reason to cancel: "ValueError: no such colour"."""
    words = " ".join(str(e).split())
    return f"{type(e).__name__}: {words}" if words else type(e).__name__


def of_another_rank(reason: str, rank: int) -> Exception:
    """Returns the exception to raise when another rank has cancelled the call: of the class in
    `reason` (see describe), if it is a class of Python or of this module, else Cancelled."""
    name = reason.partition(":")[0]
    kind = globals().get(name, getattr(builtins, name, None))
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            e = kind(f"rank {rank}: {reason}")
        except TypeError:               # a class with more arguments, as UnicodeDecodeError
            return Cancelled(f"rank {rank}: {reason}", rank)
        e.rank = rank
        return e
    return Cancelled(reason if reason == "cancelled" else f"rank {rank}: {reason}", rank)
