"""Exceptions of orlop: one class for every status code of orlop.h, all below `Error`."""

from __future__ import annotations

__all__ = [
    "BadFormatError",
    "BusyError",
    "CancelledError",
    "ContextOverflowError",
    "DeadlineError",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "NotFoundError",
    "OutOfMemoryError",
    "QueueFullError",
    "ShutdownError",
    "UnsupportedError",
]


class Error(Exception):
    """Base of all errors that the library reports. `code` is the status code of orlop.h."""

    code: int = 0


class InvalidArgumentError(Error, ValueError):
    """A parameter has a value that is not allowed; the text names it."""

    code = -1


class NotFoundError(Error):
    """A file, folder or device does not exist."""

    code = -2


class IoError(Error, OSError):
    """Reading a file failed."""

    code = -3


class BadFormatError(Error):
    """A model file is damaged or not what it says; the text names file, part and reason."""

    code = -4


class UnsupportedError(Error):
    """The model, format or setting is known but cannot be served by this build."""

    code = -5


class OutOfMemoryError(Error, MemoryError):
    """Memory did not suffice."""

    code = -6


class ContextOverflowError(Error, ValueError):
    """The prompt is longer than the context; the text has both counts."""

    code = -7


class BusyError(Error):
    """The request already has a consumer at this moment."""

    code = -8


class QueueFullError(Error):
    """Too many requests wait; try again when some have ended."""

    code = -9


class CancelledError(Error):
    """The operation was cancelled."""

    code = -10


class ShutdownError(Error):
    """The engine is closed, or belongs to the process that this one was forked from."""

    code = -11


class InternalError(Error):
    """A defect of the library."""

    code = -12


class DeadlineError(Error, TimeoutError):
    """The request's deadline passed before it was done."""

    code = -13


_by_code = {
    cls.code: cls
    for cls in (
        InvalidArgumentError,
        NotFoundError,
        IoError,
        BadFormatError,
        UnsupportedError,
        OutOfMemoryError,
        ContextOverflowError,
        BusyError,
        QueueFullError,
        CancelledError,
        ShutdownError,
        InternalError,
        DeadlineError,
    )
}


def from_code(code: int, message: str) -> Error:
    """The exception (not raised) for a status code; an unknown code gives `Error` with that code."""
    cls = _by_code.get(code)
    if cls is not None:
        return cls(message)
    error = Error(message)
    error.code = code
    return error
