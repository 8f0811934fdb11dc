"""The library's log lines in Python's logging, under the logger "orlop"."""

from __future__ import annotations

import atexit
import logging
import os
import threading

from . import _native

logger = logging.getLogger("orlop")

# orlop.h's levels to Python's.
_to_python = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}
_names = {"error": 1, "warning": 2, "info": 3, "debug": 4}

_lock = threading.Lock()
_thread: threading.Thread | None = None
_pid = 0


def _forward() -> None:
    while (line := _native.log_take()) is not None:
        level, text = line
        logger.log(_to_python.get(level, logging.DEBUG), "%s", text)


def _stop() -> None:
    global _thread
    thread, _thread = _thread, None
    if thread is not None and _pid == os.getpid():
        _native.log_stop()
        if thread is not threading.current_thread():
            thread.join()


def set_log_level(level: str | int | None) -> None:
    """Sends the library's messages up to `level` to the logger "orlop".

    level: "error", "warning", "info", "debug", one of logging's numbers, or None to silence the
    library again (the state at start). The lines come from a thread of their own, so that no engine
    thread ever waits for Python; None also delivers those still queued.
    """
    global _thread, _pid
    if level is None:
        with _lock:
            _stop()
        return
    if isinstance(level, str):
        if level.lower() not in _names:
            raise ValueError(f"level must be one of {', '.join(_names)}, got {level!r}")
        number = _names[level.lower()]
    elif isinstance(level, int) and not isinstance(level, bool):
        number = next((n for n, value in _to_python.items() if value <= level), 4)
    else:
        raise TypeError(f"level must be a str, an int or None, not {type(level).__name__}")
    with _lock:
        _native.log_start(number)
        if _thread is None or _pid != os.getpid():
            _pid = os.getpid()
            _thread = threading.Thread(target=_forward, name="orlop-log", daemon=True)
            _thread.start()


def _after_fork() -> None:
    global _lock, _thread
    _lock = threading.Lock()  # a thread of the parent may have held it
    _thread = None


atexit.register(set_log_level, None)
os.register_at_fork(after_in_child=_after_fork)
