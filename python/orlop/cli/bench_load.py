"""Load on a server: which requests, when they arrive, and what each one saw."""

from __future__ import annotations

import asyncio
import collections
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .bench_client import Client, Events, HttpError

# Common short words, each about one token in most vocabularies.
_words = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book eye "
    "job word business issue side kind head house service friend father power hour game line end "
    "member law car city community name president team minute idea body information back parent face "
    "others level office door health person art war history party result change morning reason "
    "research girl guy moment air teacher force education"
).split()


@dataclass
class Record:
    """One request: times are seconds of time.perf_counter."""

    arrival: float
    """When it should be sent, by the arrival process."""
    chunks: list[float] = field(default_factory=list)
    """When each piece of output came."""
    end: float = 0.0
    prompt_tokens: int | None = None
    """As the server's usage says; None: it did not."""
    output_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    """What kind of failure it was."""

    @property
    def tokens(self) -> int:
        """Output tokens: the server's count, or without one the pieces."""
        return len(self.chunks) if self.output_tokens is None else self.output_tokens

    @property
    def ttft(self) -> float:
        return self.chunks[0] - self.arrival

    @property
    def per_token(self) -> float | None:
        """Mean time between tokens; None for fewer than two."""
        if self.tokens < 2 or len(self.chunks) < 2:
            return None
        return (self.chunks[-1] - self.chunks[0]) / (self.tokens - 1)


@dataclass
class Run:
    """What a load did."""

    records: list[Record]
    begin: float
    end: float
    client_cpu: float
    """CPU seconds of this process."""
    lateness: list[float]
    """How late this process' own timers were, each 20 ms."""
    interrupted: bool

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Asker:
    """Sends a request, takes its stream, and notes the times."""

    def __init__(self, client: Client, path: str, timeout: float):
        self._client = client
        self._path = path
        self._timeout = timeout

    async def __call__(self, body: dict[str, Any], arrival: float) -> Record:
        record = Record(arrival)
        failure: list[str] = []
        finished = False

        def take(data: bytes, now: float) -> None:
            nonlocal finished
            if data == b"[DONE]":
                finished = True
                return
            event = json.loads(data)
            if error := event.get("error"):
                failure.append(_error_words(error))
            if usage := event.get("usage"):
                record.prompt_tokens = usage.get("prompt_tokens")
                record.output_tokens = usage.get("completion_tokens")
            for choice in event.get("choices") or ():
                if _says_something(choice):
                    record.chunks.append(now)
                if reason := choice.get("finish_reason"):
                    record.finish_reason = reason

        try:
            response = await asyncio.wait_for(
                self._client.request("POST", self._path, body, Events(take)), self._timeout
            )
            if response.status != 200:
                record.error = f"HTTP {response.status}: {_body_words(response.body)}"
            elif failure:
                record.error = f"error in the stream: {failure[0]}"
            elif not finished:
                record.error = "the stream ended without [DONE]"
            elif not record.chunks:
                record.error = "no output"
        except (asyncio.TimeoutError, TimeoutError):
            record.error = f"no end within {self._timeout:g} s"
        except HttpError as error:
            record.error = str(error)
        except OSError as error:
            record.error = error.strerror or str(error) or type(error).__name__
        record.end = time.perf_counter()
        return record


def _says_something(choice: dict[str, Any]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta") or {}
    names = ("content", "reasoning_content", "reasoning", "tool_calls")
    return any(delta.get(name) for name in names)


def _error_words(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error
    return " ".join(str(error).split())[:160]


def _body_words(body: bytes | bytearray) -> str:
    try:
        found = json.loads(body)
        return _error_words(found["error"] if "error" in found else found.get("detail", found))
    except (ValueError, TypeError, AttributeError):
        return " ".join(body[:160].decode(errors="replace").split()) or "no reason given"


def random_text(words: int, chance: random.Random) -> str:
    """Words whose beginning is unlikely to have been seen: no prefix cache helps."""
    return " ".join(chance.choices(_words, k=max(words, 1)))


def poisson(rate: float, chance: random.Random) -> Iterator[float]:
    """Arrival times from 0 on of a Poisson process with `rate` a second."""
    now = 0.0
    while True:
        now += chance.expovariate(rate)
        yield now


async def drive(
    ask: Asker,
    bodies: Sequence[dict[str, Any]],
    *,
    arrivals: Iterator[float] | None,
    concurrency: int,
    stop: asyncio.Event,
    progress: Callable[[int, int], None],
) -> Run:
    """Runs all requests: at the times of `arrivals`, or `concurrency` at a time.

    `stop` ends it early: what is on its way is given up and not counted.
    """
    records: list[Record] = []
    running = 0
    lateness: list[float] = []
    cpu = time.process_time()
    begin = time.perf_counter()

    async def one(body: dict[str, Any], arrival: float) -> None:
        nonlocal running
        running += 1
        try:
            records.append(await ask(body, arrival))
        finally:
            running -= 1
        progress(len(records), running)

    async def open_loop() -> None:
        assert arrivals is not None
        tasks = []
        try:
            for body, after in zip(bodies, arrivals):
                arrival = begin + after
                if (left := arrival - time.perf_counter()) > 0:
                    await asyncio.sleep(left)
                tasks.append(asyncio.create_task(one(body, arrival)))
        finally:  # cancelled while it waited for the next arrival: those on their way end too
            if len(tasks) < len(bodies):
                for task in tasks:
                    task.cancel()
            await asyncio.gather(*tasks)

    async def closed_loop() -> None:
        waiting = collections.deque(bodies)

        async def worker() -> None:
            while waiting:
                await one(waiting.popleft(), time.perf_counter())

        await asyncio.gather(*(worker() for _ in range(min(concurrency, len(bodies)))))

    async def watch() -> None:
        while True:
            due = time.perf_counter() + 0.02
            await asyncio.sleep(0.02)
            lateness.append(max(time.perf_counter() - due, 0.0))

    load = asyncio.create_task(closed_loop() if arrivals is None else open_loop())
    helpers = [asyncio.create_task(watch()), asyncio.create_task(stop.wait())]
    await asyncio.wait([load, helpers[1]], return_when=asyncio.FIRST_COMPLETED)
    interrupted = not load.done()
    for task in (load, *helpers):
        task.cancel()
    for result in await asyncio.gather(load, *helpers, return_exceptions=True):
        if isinstance(result, Exception):  # being cancelled is none
            raise result
    end = max((record.end for record in records), default=time.perf_counter())
    return Run(records, begin, end, time.process_time() - cpu, lateness, interrupted)
