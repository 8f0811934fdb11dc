"""Running the application: listening, signals, draining."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from .._engine import Engine
from .app import create_app
from .protocol import http_protocol
from .runtime import Progress, Runtime
from .settings import Settings


class _Server(uvicorn.Server):
    """The first signal drains, the second one stops at once."""

    def __init__(self, config: uvicorn.Config, runtime: Runtime):
        super().__init__(config)
        self._runtime = runtime

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        runtime = self._runtime
        runtime.drain()
        if runtime.live:
            print(
                f"waiting for {len(runtime.live)} requests (a second signal stops at once)",
                file=sys.stderr,
                flush=True,
            )
        cancel = asyncio.get_running_loop().create_task(self._cancel_when_forced())
        try:
            await super().shutdown(sockets)
        finally:
            cancel.cancel()

    async def _cancel_when_forced(self) -> None:
        loop = asyncio.get_running_loop()
        limit = self._runtime.settings.drain_seconds
        end = loop.time() + limit if limit > 0 else None
        while not self.force_exit and (end is None or loop.time() < end):
            await asyncio.sleep(0.05)
        self._runtime.cancel_all()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; an address that cannot be had fails before the model loads."""
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    found = socket.getaddrinfo(name, port, family, socket.SOCK_STREAM)[0]
    sock = socket.socket(found[0], socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(found[4])
        sock.listen(2048)
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def url(host: str, sock: socket.socket) -> str:
    name = host.strip("[]")
    if name in ("", "0.0.0.0", "::"):
        name = "127.0.0.1"
    return f"http://{f'[{name}]' if ':' in name else name}:{sock.getsockname()[1]}"


def run(
    make: Callable[[Progress], Engine],
    name: str,
    settings: Settings,
    sock: socket.socket,
    on_ready: Callable[[Engine], None],
) -> None:
    """Serves until a signal. `make` loads the engine, in a thread; raises its error if that fails."""
    failed: list[BaseException] = []

    async def main() -> None:
        runtime = Runtime(make, name, settings)
        config = uvicorn.Config(
            create_app(runtime),
            http=http_protocol(),
            log_level="info" if settings.access_log else "warning",
            access_log=settings.access_log,
            lifespan="off",
            ws="none",
            server_header=False,
            backlog=2048,
            timeout_keep_alive=75,
            h11_max_incomplete_event_size=64 * 1024,
        )
        server = _Server(config, runtime)
        runtime.load(asyncio.get_running_loop(), on_ready)
        stop = asyncio.get_running_loop().create_task(_stop_if_failed(runtime, server))
        try:
            await server.serve(sockets=[sock])
        finally:
            stop.cancel()
            runtime.close()
            if runtime.error is not None and not server.force_exit:
                failed.append(runtime.error)

    with asyncio.Runner(loop_factory=_loop_factory()) if sys.version_info >= (3, 11) else _Runner() as r:
        r.run(main())
    if failed and not isinstance(failed[0], KeyboardInterrupt):
        raise failed[0]


class _Runner:
    """asyncio.Runner of Python 3.10."""

    def __enter__(self) -> _Runner:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, main: Any) -> None:
        if (factory := _loop_factory()) is not None:
            import uvloop

            uvloop.install()
        asyncio.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _stop_if_failed(runtime: Runtime, server: _Server) -> None:
    await runtime.loaded.wait()
    if runtime.error is not None:
        server.should_exit = True
