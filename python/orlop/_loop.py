"""asyncio: one completion queue for every pair of engine and event loop.

The queue's descriptor is registered with the loop, so that nothing polls and no thread waits.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import _native
from .errors import BusyError

if TYPE_CHECKING:
    import asyncio  # it takes more memory and time to load than the rest of the package


class LoopQueue:
    """Wakes the coroutines of one loop that wait for requests of one engine.

    Everything but `close_soon` runs on the loop's thread.
    """

    def __init__(self, engine: _native.Engine, loop: asyncio.AbstractEventLoop):
        self.queue = _native.Queue(engine)
        # Weak: the loop holds this object through its list of readers.
        self._loop = weakref.ref(loop)
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._closing = False
        self._fd = self.queue.fileno()
        loop.add_reader(self._fd, self._ready)

    def serves(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop() is loop

    def _ready(self) -> None:
        while (tag := self.queue.wait(0)) is not None:
            waiter = self._waiters.pop(tag, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        self._detach_if_idle()

    async def wait(self, tag: int, loop: asyncio.AbstractEventLoop) -> None:
        """Until the request with this tag is announced (spurious wake-ups are possible)."""
        waiter = self._waiters.get(tag)
        if waiter is not None and not waiter.done():
            raise BusyError("another task waits for this request")
        if self._fd < 0:  # the engine was closed when nobody waited; this request still ends
            self._fd = self.queue.fileno()
            loop.add_reader(self._fd, self._ready)
        self._waiters[tag] = waiter = loop.create_future()
        try:
            await waiter
        finally:
            if self._waiters.get(tag) is waiter:
                del self._waiters[tag]
            self._detach_if_idle()

    def _detach_if_idle(self) -> None:
        if self._closing and not self._waiters:
            loop = self._loop()
            if loop is not None and not loop.is_closed() and self._fd >= 0:
                loop.remove_reader(self._fd)
            self._fd = -1

    def close_soon(self) -> None:
        """Leaves the loop once nobody waits; callable from any thread."""
        self._closing = True
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(self._detach_if_idle)
        except RuntimeError:  # closed in the meantime
            pass


class LoopQueues:
    """The loop queues of one engine."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue] = (
            weakref.WeakKeyDictionary()
        )
        self._tags = itertools.count(1)
        self._lent = threading.local()

    @contextlib.contextmanager
    def lend(self, pair: tuple[LoopQueue | None, int]) -> Iterator[None]:
        """For one request that another thread submits: its output is announced to the loop where
        `pair` came from `current`."""
        self._lent.pair = pair
        try:
            yield
        finally:
            self._lent.pair = None

    def current(self, engine: _native.Engine) -> tuple[LoopQueue | None, int]:
        """The running loop's queue and a new tag, or (None, 0) outside of a loop."""
        lent: tuple[LoopQueue | None, int] | None = getattr(self._lent, "pair", None)
        if lent is not None:
            return lent
        loaded = sys.modules.get("asyncio")  # where a loop runs it is there
        loop = loaded._get_running_loop() if loaded else None
        if loop is None:
            return None, 0
        with self._lock:
            queue = self._by_loop.get(loop)
            if queue is None:
                try:
                    queue = LoopQueue(engine, loop)
                except NotImplementedError:  # a loop without readers: await goes through a thread
                    return None, 0
                self._by_loop[loop] = queue
            return queue, next(self._tags)

    def close_soon(self) -> None:
        if self._pid != os.getpid():  # the loops are the parent's
            return
        with self._lock:
            queues = list(self._by_loop.values())
            self._by_loop.clear()
        for queue in queues:
            queue.close_soon()
