"""Exceptions: one class for each status of libxdit, each with the library's sentence."""
from __future__ import annotations


class Error(RuntimeError):
    """A failure of libxdit. `rank`: the rank that failed, or -1."""

    def __init__(self, message: str, rank: int = -1):
        super().__init__(message)
        self.rank = rank


class OutOfMemory(Error, MemoryError):
    """The request does not fit into memory, as found or as predicted."""


class InvalidRequest(Error, ValueError):
    """An option or a request is wrong."""


class FileError(Error, OSError):
    """A file or directory cannot be read or written."""


class FormatError(Error):
    """The content of a file is wrong."""


class Unsupported(Error, NotImplementedError):
    """Valid, but not supported here."""


class CommunicationError(Error):
    """Messages between ranks failed. The process must end."""


class DeviceError(Error):
    """A device failed."""


class Cancelled(Error):
    """The request was cancelled."""


# By the values of xd_status.
BY_STATUS = (None, OutOfMemory, InvalidRequest, FileError, FormatError, Unsupported,
             CommunicationError, DeviceError, Cancelled)
