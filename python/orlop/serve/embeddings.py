"""POST /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
import struct
from typing import Any, cast

from .._request import Request
from .completions import prompts
from .errors import invalid
from .exchange import Exchange
from .fields import Fields


async def embeddings(x: Exchange) -> None:
    x.prompt_field = "input"
    runtime = x.runtime
    body = await x.body()
    f = Fields(body)
    model = runtime.model(body.get("model"))
    inputs = prompts(f, "input", runtime.settings.limits.inputs)
    form = f.choice("encoding_format", ("float", "base64"), "float")
    pooling = f.choice("pooling", ("mean", "last"), runtime.settings.pooling)
    dim = runtime.facts["dim"] if runtime.facts else 0
    dimensions = f.integer("dimensions", 1, 2**31 - 1)
    if dimensions is not None and dimensions != dim:
        raise invalid("dimensions", f"dimensions must be {dim} with this model", "unsupported_value")
    params: dict[str, Any] = {}
    if (salt := f.string("cache_salt", 1024)) is not None:
        params["cache_salt"] = salt
    if (priority := f.integer("priority", -100, 100)) is not None:
        params["priority"] = priority
    with x.job("embd-", len(inputs), False) as job:
        for text in inputs:

            def start(text: str | list[int] = text) -> Request:
                if isinstance(text, str):
                    return model.engine.async_embed(text, pooling=pooling, **params)
                return model.engine.async_embed(tokens=text, pooling=pooling, **params)

            heavy = len(inputs) > 16 or len(text) > (8192 if isinstance(text, str) else 2048)
            await runtime.submit(job, model.engine, heavy, start)
            if job.gone:
                return
        results = await asyncio.gather(*(request.aresult() for request in job.requests))
        if job.gone:
            return
        data = [
            {"object": "embedding", "index": i, "embedding": _encode(cast(list[float], result.embedding), form)}
            for i, result in enumerate(results)
        ]
        tokens = sum(result.status.prompt_tokens for result in results)
        await x.json(
            {
                "object": "list",
                "data": data,
                "model": model.name,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )


def _encode(values: list[float], form: str) -> list[float] | str:
    if form == "float":
        return values
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
