"""Many streams at once over bare sockets: what test_load.py and bench/serve_load.py share. The client is
thin, for it takes processor time from the server."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """What became of one stream."""

    index: int
    text: str = ""
    status: int = 0
    ended: bool = False
    """data: [DONE] was seen."""
    left: bool = False
    """The client hung up on purpose."""
    tokens: int = 0
    times: list[float] = field(default_factory=list)
    start: float = 0.0


def body_of(model: str, index: int, max_tokens: int) -> dict:
    """Request `index` of a load: its own prompt and seed."""
    words = random.Random(index).sample(_words, 12)
    return {
        "model": model,
        "prompt": f"Story {index}: once upon a time {' '.join(words)}",
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0.8,
        "seed": index,
        "stream": True,
    }


_words = """anchor barge cable deck engine fog gale harbor island jetty keel lantern mast net oar pilot quay
rope sail tide upper vessel wave yacht zephyr bell crew dock ferry""".split()


async def one(host: str, port: int, body: dict, index: int, leave_after: int | None) -> Outcome:
    """Sends one request and reads its events; hangs up after `leave_after` of them."""
    out = Outcome(index, start=time.perf_counter())
    reader, writer = await asyncio.open_connection(host, port)
    raw = json.dumps(body).encode()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw
    )
    try:
        if leave_after == 0:
            await writer.drain()
            out.left = True
            return out
        head = await reader.readuntil(b"\r\n\r\n")
        out.status = int(head.split(b" ", 2)[1])
        seen, texts = 0, []
        while True:
            size = int(await reader.readline(), 16)  # chunked
            if size == 0:
                break
            data = await reader.readexactly(size + 2)
            now = time.perf_counter()
            for event in data[:-2].split(b"\n\n"):
                if event == b"data: [DONE]":
                    out.ended = True
                elif event:
                    texts.append(event)
                    out.times.append(now)
                    seen += 1
            if leave_after is not None and seen >= leave_after:
                out.left = True
                break
        for event in texts:
            chunk = json.loads(event.removeprefix(b"data: "))
            if chunk.get("choices"):
                out.text += chunk["choices"][0]["text"]
            if chunk.get("usage"):
                out.tokens = chunk["usage"]["completion_tokens"]
        return out
    finally:
        writer.close()


async def many(
    host: str,
    port: int,
    model: str,
    count: int,
    max_tokens: int,
    leaving: float,
    within: int | None = None,
) -> list[Outcome]:
    """`count` streams at once, of which the part `leaving` hangs up after a random number of events, less
    than `within` (max_tokens, if an event is a token)."""
    rng = random.Random(0)
    within = max_tokens if within is None else within
    after = [rng.randrange(within) if rng.random() < leaving else None for _ in range(count)]
    bodies = [body_of(model, i, max_tokens) for i in range(count)]
    for body in bodies:
        body["stream_options"] = {"include_usage": True}
    return list(
        await asyncio.gather(*(one(host, port, b, i, after[i]) for i, b in enumerate(bodies)))
    )
