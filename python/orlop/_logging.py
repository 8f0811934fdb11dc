"""The library's log lines in Python's logging, under the logger "orlop"."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading

from . import _native

logger = logging.getLogger("orlop")

# orlop.h's levels to Python's.
_to_python = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}
_names = {"error": 1, "warning": 2, "info": 3, "debug": 4}

# Never held while a handler runs or a thread is waited for: handlers may call set_log_level. Reentrant
# for signal handlers.
_lock = threading.RLock()
_wanted = False  # between set_log_level(a level) and set_log_level(None)
_thread: threading.Thread | None = None  # the one that delivers; it takes itself out when it leaves
_delivered = 0

_patience = 2.0  # seconds that set_log_level(None) waits for one line to be delivered


def _forward() -> None:
    global _thread, _delivered
    while True:
        line = _native.log_take()
        if line is None:
            with _lock:
                if _wanted:  # stopped and started again before this thread had left
                    continue
                _thread = None
                return
        level, text = line
        try:
            logger.log(_to_python.get(level, logging.DEBUG), "%s", text)
        except Exception:  # a handler's or a filter's: it costs its line, not those after it
            kind, value, trace = sys.exc_info()
            assert kind is not None
            threading.excepthook(
                threading.ExceptHookArgs((kind, value, trace, threading.current_thread()))
            )
        _delivered += 1


def _stop() -> None:
    global _wanted
    with _lock:
        thread = _thread
        if thread is None:
            return
        _wanted = False
        _native.log_stop()
    if thread is threading.current_thread():
        return  # a handler asks: what is queued follows when it returns
    # The caller may hold a lock that a handler needs, such as the handler's own if one of its
    # methods calls this: waiting goes on only while lines are delivered.
    seen = -1
    while thread.is_alive() and not _wanted and seen != _delivered:
        seen = _delivered
        thread.join(_patience)


def set_log_level(level: str | int | None) -> None:
    """Sends the library's messages up to `level` to the logger "orlop".

    level: "error", "warning", "info", "debug", one of logging's numbers, or None to silence the
    library again (the state at start). The lines come from a thread of their own, so that no engine
    thread ever waits for Python. None also delivers those still queued, but does not wait for a
    handler that takes over two seconds for one line. Handlers may call this function; the lines
    queued then follow when they return.
    """
    global _thread, _wanted
    if level is None:
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
        if _thread is None:
            # Its first log_take may find nothing running; then it waits for this lock.
            thread = threading.Thread(target=_forward, name="orlop-log", daemon=True)
            thread.start()
            _thread = thread
        _wanted = True
        _native.log_start(number)


def _after_fork() -> None:
    global _lock, _thread, _wanted
    _lock = threading.RLock()  # a thread of the parent may have held it
    _thread = None
    _wanted = False


atexit.register(set_log_level, None)
os.register_at_fork(after_in_child=_after_fork)
