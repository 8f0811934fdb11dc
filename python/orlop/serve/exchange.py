"""One HTTP request and its answer: JSON, or events as they come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .. import _native
from .._logging import logger
from .._request import Request as EngineRequest
from . import fields
from .errors import ApiError, from_library
from .runtime import Job, Runtime

if TYPE_CHECKING:
    from .metrics import Metrics

done_event = b"data: [DONE]\n\n"
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def event(value: Any) -> bytes:
    return b"data: " + _compact(value).encode() + b"\n\n"


class Exchange:
    def __init__(self, runtime: Runtime, endpoint: str, scope: Scope, receive: Receive, send: Send):
        self.runtime = runtime
        self.endpoint = endpoint
        self.request = Request(scope, receive)
        self.prompt_field = "prompt"
        self.guide_field: str | None = None
        self._receive = receive
        self._send = send
        self._scope = scope
        self._started = False

    async def body(self) -> dict[str, Any]:
        return await fields.read_body(self.request, self.runtime.settings.limits.body_bytes)

    @contextlib.contextmanager
    def job(self, kind: str, samples: int, stream: bool) -> Iterator[Job]:
        """A job that is cancelled as soon as the client hangs up, and freed at the end."""
        job = Job(kind + self.runtime.new_id(), self.endpoint, samples, stream)
        self.runtime.begin(job)
        watch = asyncio.get_running_loop().create_task(self._watch(job))
        try:
            yield job
        finally:
            watch.cancel()
            self.runtime.end(job)

    async def _watch(self, job: Job) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        job.leave()

    async def json(self, value: Any) -> None:
        await self.respond(Response(_compact(value).encode(), media_type="application/json"))

    async def respond(self, response: Response) -> None:
        self._started = True
        await response(self._scope, self._receive, self._send)

    async def stream(self, job: Job, events: AsyncGenerator[bytes, None]) -> None:
        """Server-sent events. The head is sent with the first one, so that what fails before it has
        the status of its error."""
        async with contextlib.aclosing(events):
            first = await anext(events, None)
            if first is None:  # the client hung up
                return
            self._started = True
            send = self._send
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", b"text/event-stream; charset=utf-8"),
                        (b"cache-control", b"no-cache"),
                        (b"x-accel-buffering", b"no"),
                    ],
                }
            )
            await send({"type": "http.response.body", "body": first, "more_body": True})
            try:
                async for data in events:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            except Exception as error:
                if not job.gone:
                    told = self.told(error)
                    await send(
                        {
                            "type": "http.response.body",
                            "body": event(told.body()),
                            "more_body": True,
                        }
                    )
            await send({"type": "http.response.body", "body": done_event, "more_body": False})

    def told(self, error: Exception) -> ApiError:
        told = from_library(error, self.prompt_field, self.guide_field)
        if told.status == 429:
            self.runtime.metrics.rejected += 1
        if told.status == 500:
            logger.error("orlop serve: %s failed", self.endpoint, exc_info=error)
        return told

    async def failed(self, error: Exception) -> None:
        if not self._started:
            await self.respond(self.told(error).response())
        else:
            logger.error("orlop serve: %s failed", self.endpoint, exc_info=error)


class Endpoint:
    """An ASGI application of a handler; whatever it raises becomes an answer."""

    def __init__(self, runtime: Runtime, path: str, handler: Callable[[Exchange], Awaitable[None]]):
        self.runtime = runtime
        self.path = path
        self.handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(self.runtime, self.path, scope, receive, send)
        try:
            await self.handler(exchange)
        except Exception as error:
            await exchange.failed(error)


class Pace:
    """Times between the tokens of one request's samples."""

    def __init__(self, metrics: Metrics):
        self._series = metrics.inter_token
        self._last: dict[int, float] = {}

    def add(self, index: int, tokens: int) -> None:
        if not tokens:
            return
        now = time.perf_counter()
        last = self._last.get(index)
        self._last[index] = now
        if last is not None:
            self._series.add((now - last) / tokens, tokens)


async def outputs(
    job: Job, metrics: Metrics
) -> AsyncGenerator[tuple[int, _native.Output, list[int]], None]:
    """(which request, output, its tokens) of all requests of a job, as they come."""
    if len(job.requests) == 1:
        request, pace = job.requests[0], Pace(metrics)
        while (out := await request.aget()) is not None:
            tokens = out.tokens
            pace.add(out.index, len(tokens))
            yield 0, out, tokens
        return
    merged: asyncio.Queue[Any] = asyncio.Queue(maxsize=2 * len(job.requests))

    async def follow(which: int, request: EngineRequest) -> None:
        pace = Pace(metrics)
        try:
            while (out := await request.aget()) is not None:
                tokens = out.tokens
                pace.add(out.index, len(tokens))
                await merged.put((which, out, tokens))
            await merged.put(None)
        except Exception as error:
            await merged.put(error)

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(follow(i, request)) for i, request in enumerate(job.requests)]
    try:
        left = len(tasks)
        while left:
            item = await merged.get()
            if item is None:
                left -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
