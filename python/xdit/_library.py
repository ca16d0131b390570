"""Access to libxdit through cffi: loading, errors, and conversions of C values."""
from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes.util
import os
import pathlib
import signal
import socket
import sys
import threading
from typing import Any, Callable, Iterator

import cffi

from . import _cdef
from ._errors import BY_STATUS, Error

ffi = cffi.FFI()
ffi.cdef(_cdef.CDEF)


def _load() -> Any:
    """Loads the library: $XDIT_LIBRARY, the one next to this file, or the system's."""
    named = os.environ.get("XDIT_LIBRARY")
    beside = pathlib.Path(__file__).with_name("libxdit.so")
    usual = [str(beside), "libxdit.so.0", ctypes.util.find_library("xdit")]
    for path in [named] if named else usual:
        if path and (path != str(beside) or beside.exists()):
            try:
                return ffi.dlopen(path)
            except OSError as e:
                why = e
    raise ImportError(f"libxdit cannot be loaded: {why}; set XDIT_LIBRARY to its file")


lib = _load()


class _Lock:
    """Lets one thread at a time call the library."""

    def __init__(self) -> None:
        self._lock, self._depth = threading.RLock(), 0
        self._left: collections.deque[Callable[[], None]] = collections.deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: Any) -> None:
        if self._depth == 1:
            self._close_left()
        self._depth -= 1
        self._lock.release()

    def _close_left(self) -> None:
        while self._left:
            self._left.popleft()()

    def close(self, function: Callable[[], None]) -> None:
        """Calls `function` now if no thread is inside the library, else when that thread leaves it.
        Never waits: for finalizers, which Python runs in any thread and between any two lines."""
        self._left.append(function)
        if self._lock.acquire(blocking=False):
            if not self._depth:
                self._depth = 1
                self._close_left()
                self._depth = 0
            self._lock.release()


lock = _Lock()


def version() -> str:
    """Returns the version of the loaded library."""
    return text(lib.xd_version())


def text(p: Any) -> str | None:
    """Converts a C string; NULL becomes None."""
    return ffi.string(p).decode("utf-8", "replace") if p else None


class Kept:
    """Owns C values, such as texts, arrays and callbacks, for the lifetime of this object."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def keep(self, value: Any) -> Any:
        self._values.append(value)
        return value

    def text(self, value: Any) -> Any:
        """Converts a text or a path to a C string; None becomes NULL."""
        if value is None:
            return ffi.NULL
        raw = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
        return self.keep(ffi.new("char[]", os.fsencode(raw)))

    def texts(self, values: list[Any]) -> Any:
        return self.keep(ffi.new("const char *[]", [self.text(v) for v in values]))


def new_error() -> Any:
    return ffi.new("xd_err *")


def check(status: int, e: Any) -> None:
    """Raises the exception of a status that is not XD_OK."""
    if status == lib.XD_OK:
        return
    kind = BY_STATUS[status] if 0 < status < len(BY_STATUS) else Error
    raise kind(text(e.msg) or f"libxdit failed with status {status}", e.rank)


def record(name: str) -> Any:
    """Allocates a record and sets its defaults with its init function."""
    r = ffi.new(f"{name} *")
    getattr(lib, f"{name}_init_size")(r, ffi.sizeof(name))
    return r


def options(rows: str) -> dict[str, Any]:
    """Returns the rows of the library's function `rows` by name."""
    n = ffi.new("int *")
    table = getattr(lib, rows)(n)
    return {text(table[i].name): table[i] for i in range(n[0])}


def set_option(r: Any, option: Any, value: Any, kept: Kept) -> None:
    """Writes a value to the field of a record that an option describes. Raises TypeError."""
    name, kind = text(option.name), option.kind
    at = ffi.cast("char *", r) + option.offset
    if kind == lib.XD_OPT_TEXT:
        if isinstance(value, (list, tuple)):
            value = ",".join(str(v) for v in value)
        ffi.cast("const char **", at)[0] = kept.text(value)
    elif kind == lib.XD_OPT_REAL:
        ffi.cast("double *", at)[0] = float(value)
    elif kind == lib.XD_OPT_FLAG:
        if value not in (0, 1):
            raise TypeError(f"{name} must be True or False, not {value!r}")
        ffi.cast("int *", at)[0] = 1 if value else -1 if option.min < 0 else 0
    elif int(value) != value:
        raise TypeError(f"{name} must be an integer, not {value!r}")
    elif kind == lib.XD_OPT_INT:
        ffi.cast("int *", at)[0] = int(value)
    else:
        ffi.cast("int64_t *", at)[0] = int(value)


def _watch(cancel: Callable[[], None], read: socket.socket, old: int) -> None:
    """Thread: cancels the running call on SIGINT. Ends when the other end is closed."""
    while data := read.recv(64):
        if old != -1:
            with contextlib.suppress(OSError):
                os.write(old, data)
        if signal.SIGINT in data:
            cancel()


@contextlib.contextmanager
def interruptible(cancel: Callable[[], None]) -> Iterator[None]:
    """Lets Ctrl-C cancel a call of the library: Python runs its signal handler only after the
    library has returned, so another thread receives the signal and calls `cancel`."""
    if (threading.current_thread() is not threading.main_thread() or
            signal.getsignal(signal.SIGINT) is not signal.default_int_handler):
        yield
        return
    read, write = socket.socketpair()
    write.setblocking(False)
    old = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_watch, args=(cancel, read, old), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(old)
        write.close()
        thread.join()
        read.close()


_ranks: Any = None              # the rank group; MPI remains initialized while it is open


def join_ranks() -> None:
    """Initializes MPI once, if an MPI launcher has started this process. MPI can not be initialized
    again, so it is finalized at exit, while pipelines open and close in between. After an exception
    it is not finalized, and the launcher kills the other processes."""
    global _ranks
    if _ranks is not None or not lib.xd_launched(ffi.NULL):
        return
    ranks, e = ffi.new("xd_rank_group **"), new_error()
    check(lib.xd_rank_group_open(ranks, e), e)
    _ranks = ranks

    @atexit.register
    def leave() -> None:
        if getattr(sys, "last_value", None) is None:
            lib.xd_rank_group_close(_ranks)


def about() -> dict[str, Any]:
    """Describes the library and this machine, as `xdit doctor` does. A name with several values has
    a list."""
    facts: dict[str, Any] = {}

    @ffi.callback("xd_fact")
    def fact(_, name, value):
        name, value = text(name), text(value)
        if name in facts:
            old = facts[name]
            facts[name] = [*old, value] if isinstance(old, list) else [old, value]
        else:
            facts[name] = value
    with lock:
        lib.xd_about(fact, ffi.NULL)
    return facts
