"""POST /v1/chat/completions."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from typing import Any

from .. import _native
from .._request import Request
from ..errors import UnsupportedError
from .errors import ApiError, invalid
from .exchange import Exchange, Pace, event, outputs
from .fields import Fields
from .logprobs import shown
from .messages import Tools, messages
from .output import Parser, Reader
from .runtime import Job, Model, Runtime
from .sampling import guide, most_tokens, sampling, set_max_tokens
from .usage import usage

_string = json.encoder.encode_basestring


class Plan:
    """A checked request."""

    def __init__(self, body: dict[str, Any], runtime: Runtime):
        f, limits = Fields(body), runtime.settings.limits
        self.model: Model = runtime.model(body.get("model"))
        if not runtime.facts or not runtime.facts["chat"]:
            raise invalid(
                "messages", "this model has no chat template: use /v1/completions", "no_chat_template"
            )
        self.messages = messages(f, limits)
        self.params = sampling(f, limits)
        self.n: int = self.params.get("n", 1)
        name = "max_completion_tokens"
        if body.get(name) is None:
            name = "max_tokens"
        set_max_tokens(self.params, name, f.integer(name, 1, most_tokens))
        self.stream = f.boolean("stream", False)
        options = Fields(f.object("stream_options") or {}, "stream_options.")
        self.include_usage = options.boolean("include_usage", False)
        self.logprobs = f.boolean("logprobs", False)
        self.top_logprobs = f.integer("top_logprobs", 0, limits.logprobs) or 0
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs", "top_logprobs needs logprobs to be true", "invalid_value")
        if self.logprobs:
            self.params["logprobs"] = self.top_logprobs
        self.tools = Tools(f, limits)
        self.template_vars = dict(f.object("chat_template_kwargs") or {})
        for name in ("messages", "tools", "add_generation_prompt"):
            if name in self.template_vars:
                raise invalid("chat_template_kwargs", f"chat_template_kwargs may not hold {name}")
        if (effort := f.string("reasoning_effort")) is not None:
            self.template_vars.setdefault("reasoning_effort", effort)
        self.free_fallback = False
        wanted, field = guide(f, runtime.settings.guided)
        if wanted is not None and self.tools.used and not self.tools.forced:
            raise invalid(
                field, f'{field} goes with tools only if tool_choice is "none"', "invalid_value"
            )
        self.parsed = wanted is None
        if self.tools.forced and not runtime.settings.guided:
            raise invalid("tool_choice", "guided decoding is disabled on this server", "guided_disabled")
        if self.tools.used and runtime.settings.guided:
            wanted = {
                "tools": self.tools.tools,
                "tool_choice": self.tools.choice,
                "format": "auto",
                "parallel": self.tools.parallel,
            }
            self.parsed = True
            # Where calls are not promised to be valid, a schema that cannot be kept is not an error.
            self.free_fallback = not self.tools.forced and not self.tools.strict
            field = "tools"
        self.guide_field = field
        if wanted is not None:
            self.params["guide"] = wanted
        self.heavy = wanted is not None or self.tools.used or _size(self.messages) > 4096


def _size(messages: list[dict[str, Any]]) -> int:
    return sum(64 + len(message["content"]) for message in messages)


async def chat(x: Exchange) -> None:
    x.prompt_field = "messages"
    runtime = x.runtime
    body = await x.body()
    plan = Plan(body, runtime)
    x.guide_field = plan.guide_field
    with x.job("chatcmpl-", plan.n, plan.stream) as job:
        reader = Reader(runtime, plan.model.engine, plan.tools, plan.parsed)
        if reader.keep_special:
            plan.params["keep_special"] = True

        def start() -> Request:
            chat: dict[str, Any] = {"messages": plan.messages}
            if plan.tools.used:
                chat["tools"] = plan.tools.tools
            if plan.template_vars:
                chat["template_vars"] = plan.template_vars
            reader.prepare(chat)
            try:
                return plan.model.engine.async_generate(**chat, **plan.params)
            except UnsupportedError:
                if not plan.free_fallback:
                    raise
                free = {k: v for k, v in plan.params.items() if k != "guide"}
                return plan.model.engine.async_generate(**chat, **free)

        await runtime.submit(job, plan.model.engine, plan.heavy, start)
        parsers = [reader.parser() for _ in range(plan.n)]
        if plan.stream:
            await x.stream(job, _chunks(x, plan, job, parsers))
        else:
            await _whole(x, plan, job, parsers)


def finish(reason: str, called: bool) -> str:
    if reason == "cancelled":
        raise ApiError(503, "the request was cancelled: the server is shutting down", code="cancelled")
    return "tool_calls" if called and reason == "stop" else reason


# -- one answer --------------------------------------------------------------------------------------


async def _whole(x: Exchange, plan: Plan, job: Job, parsers: list[Parser]) -> None:
    request, pace = job.requests[0], Pace(x.runtime.metrics)
    texts: list[list[str]] = [[] for _ in parsers]
    logprobs: list[list[dict[str, Any]]] = [[] for _ in parsers]
    reasons: list[str] = ["stop"] * len(parsers)
    while (out := await request.aget()) is not None:
        index, tokens = out.index, out.tokens
        pace.add(index, len(tokens))
        texts[index].append(out.text)
        if plan.logprobs:
            logprobs[index] += _logprobs(x.runtime, plan, out, tokens)
        if (reason := out.finish_reason) is not None:
            reasons[index] = reason
    if job.gone:
        return
    choices = []
    for index, parser in enumerate(parsers):
        parts = parser.push("".join(texts[index]), True)
        message, called = _message(parts, job.id, index)
        choices.append(
            {
                "index": index,
                "message": message,
                "logprobs": {"content": logprobs[index], "refusal": None} if plan.logprobs else None,
                "finish_reason": finish(reasons[index], called),
            }
        )
    await x.json(
        {
            "id": job.id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": plan.model.name,
            "choices": choices,
            "usage": usage(job),
            "system_fingerprint": x.runtime.fingerprint,
        }
    )


def _message(parts: list[dict[str, Any]], job: str, sample: int) -> tuple[dict[str, Any], bool]:
    texts: dict[str, list[str]] = {"content": [], "reasoning": []}
    calls: list[dict[str, Any]] = []
    for part in parts:
        match part["type"]:
            case "tool_call":
                calls.append(
                    {
                        "id": call_id(job, sample, part["index"]),
                        "type": "function",
                        "function": {"name": part["name"], "arguments": ""},
                    }
                )
            case "tool_arguments":
                calls[part["index"]]["function"]["arguments"] += part["text"]
            case kind:
                texts[kind].append(part["text"])
    content = "".join(texts["content"])
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not content.strip() else content,
        "refusal": None,
    }
    if texts["reasoning"]:
        message["reasoning_content"] = "".join(texts["reasoning"])
    if calls:
        message["tool_calls"] = calls
    return message, bool(calls)


def call_id(job: str, sample: int, call: int) -> str:
    return f"call_{job.rpartition('-')[2]}{sample:x}x{call:x}"


def _logprobs(
    runtime: Runtime, plan: Plan, out: _native.Output, tokens: list[int]
) -> list[dict[str, Any]]:
    if (values := out.logprobs) is None:
        return []
    count = shown(out, tokens)
    texts = runtime.token_texts(plan.model.engine)
    return texts.chat(tokens[:count], values, out.top_logprobs, plan.top_logprobs)


# -- a stream ----------------------------------------------------------------------------------------


async def _chunks(
    x: Exchange, plan: Plan, job: Job, parsers: list[Parser]
) -> AsyncGenerator[bytes, None]:
    """Chunks of one request as events. The texts of one output are sent as one piece."""
    head = (
        f'data: {{"id":{_string(job.id)},"object":"chat.completion.chunk","created":{int(time.time())},'
        f'"model":{_string(plan.model.name)},"system_fingerprint":{_string(x.runtime.fingerprint)},'
        '"choices":[{"index":'
    )
    tail = '}],"usage":null}\n\n' if plan.include_usage else "}]}\n\n"
    plain = ',"logprobs":null,"finish_reason":null' + tail

    def chunk(index: int, delta: Any, logprobs: Any = None, reason: str | None = None) -> str:
        rest = f',"logprobs":{json.dumps(logprobs)},"finish_reason":{json.dumps(reason)}{tail}'
        return f'{head}{index},"delta":{json.dumps(delta, ensure_ascii=False)}{rest}'

    open_ = [False] * len(parsers)
    called = [False] * len(parsers)
    async for _, out, tokens in outputs(job, x.runtime.metrics):
        index, text, reason, pieces = out.index, out.text, out.finish_reason, []
        if not open_[index]:
            open_[index] = True
            pieces.append(chunk(index, {"role": "assistant", "content": ""}))
        logprobs = None
        if plan.logprobs and (content := _logprobs(x.runtime, plan, out, tokens)):
            logprobs = {"content": content, "refusal": None}
        parts = parsers[index].push(text, reason is not None)
        if logprobs is not None and not parts:
            parts = [{"type": "content", "text": ""}]
        for part in parts:
            kind = part["type"]
            if kind == "content" and logprobs is None:
                pieces.append(f'{head}{index},"delta":{{"content":{_string(part["text"])}}}{plain}')
                continue
            called[index] |= kind.startswith("tool")
            pieces.append(chunk(index, _delta(part, job.id, index), logprobs))
            logprobs = None
        if reason is not None:
            if job.gone and reason == "cancelled":
                return
            pieces.append(chunk(index, {}, None, finish(reason, called[index])))
        if pieces:
            yield "".join(pieces).encode()
    if plan.include_usage:
        yield event(
            {
                "id": job.id,
                "object": "chat.completion.chunk",
                "created": int(time.time()),
                "model": plan.model.name,
                "system_fingerprint": x.runtime.fingerprint,
                "choices": [],
                "usage": usage(job),
            }
        )


def _delta(part: dict[str, Any], job: str, sample: int) -> dict[str, Any]:
    match part["type"]:
        case "tool_call":
            call = {
                "index": part["index"],
                "id": call_id(job, sample, part["index"]),
                "type": "function",
                "function": {"name": part["name"], "arguments": ""},
            }
            return {"tool_calls": [call]}
        case "tool_arguments":
            call = {"index": part["index"], "function": {"arguments": part["text"]}}
            return {"tool_calls": [call]}
        case "reasoning":
            return {"reasoning_content": part["text"]}
    return {"content": part["text"]}
