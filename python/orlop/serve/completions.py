"""POST /v1/completions."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

from .. import _native
from .._request import Request
from .chat import finish
from .errors import invalid
from .exchange import Exchange, event, outputs
from .fields import Fields, wrong_type
from .logprobs import TokenTexts, shown
from .runtime import Model, Runtime
from .sampling import guide, is_token, most_tokens, sampling, set_max_tokens
from .usage import usage

_string = json.encoder.encode_basestring
_default_max_tokens = 16  # the API's


class Plan:
    """A checked request."""

    def __init__(self, body: dict[str, Any], runtime: Runtime):
        f, limits = Fields(body), runtime.settings.limits
        self.model: Model = runtime.model(body.get("model"))
        self.prompts = prompts(f, "prompt", limits.sequences)
        self.params = sampling(f, limits)
        self.n: int = self.params.get("n", 1)
        if self.n * len(self.prompts) > limits.sequences:
            raise invalid(
                "prompt",
                f"{len(self.prompts)} prompts times n {self.n} are more than {limits.sequences} samples",
            )
        self.echo = f.boolean("echo", False)
        most = f.integer("max_tokens", 0, most_tokens)
        most = _default_max_tokens if most is None else most
        if most == 0 and not self.echo:
            raise f.bad("max_tokens", "at least 1 without echo", 0)
        if most < (least := self.params.get("min_tokens", 0)) and body.get("max_tokens") is None:
            most = least
        set_max_tokens(self.params, "max_tokens", most)
        self.nothing = most == 0
        self.logprobs = f.integer("logprobs", 0, limits.logprobs)
        if isinstance(body.get("logprobs"), bool):
            raise wrong_type("logprobs", "an integer", body["logprobs"])
        if self.logprobs is not None:
            self.params["logprobs"] = self.logprobs
            if self.echo:
                self.params["prompt_logprobs"] = self.logprobs
        self.stream = f.boolean("stream", False)
        options = Fields(f.object("stream_options") or {}, "stream_options.")
        self.include_usage = options.boolean("include_usage", False)
        best_of = f.integer("best_of", 1, limits.n)
        if best_of is not None and best_of != self.n:
            raise invalid("best_of", f"best_of must equal n ({self.n}): samples are not ranked")
        if f.string("suffix"):
            raise invalid("suffix", "suffix is not supported", "unsupported_value")
        wanted, self.guide_field = guide(f, runtime.settings.guided)
        if wanted is not None:
            self.params["guide"] = wanted
        size = sum(len(p) * (1 if isinstance(p, str) else 4) for p in self.prompts)
        self.heavy = wanted is not None or self.echo or size > 8192 or len(self.prompts) > 16
        # What echo shows and, with logprobs, counts: filled by `start`.
        self.ids: list[list[int]] = []
        self.echoed: list[str] = []


def prompts(f: Fields, name: str, most: int) -> list[str | list[int]]:
    """A text, texts, token ids or lists of token ids, as a list of prompts."""
    value = f.get(name)
    if value is None:
        raise invalid(name, f"{name} is required")
    if isinstance(value, str):
        value = [value]
    elif isinstance(value, list) and value and not isinstance(value[0], (str, list)):
        value = [value]
    if not isinstance(value, list):
        raise wrong_type(name, "a string, an array of strings, of token ids or of such arrays", value)
    if not value:
        raise invalid(name, f"{name} is empty", "invalid_value")
    if len(value) > most:
        raise invalid(name, f"{name} has {len(value)} entries, at most {most} are taken")
    for i, one in enumerate(value):
        if isinstance(one, str):
            if not one:
                raise invalid(name, f"{name}[{i}] is empty", "invalid_value")
        elif not isinstance(one, list) or not all(is_token(token) for token in one):
            raise invalid(
                name, f"{name}[{i}] must be a string or an array of token ids", "invalid_type"
            )
        elif not one:
            raise invalid(name, f"{name}[{i}] is empty", "invalid_value")
    return value


async def completions(x: Exchange) -> None:
    runtime = x.runtime
    plan = Plan(await x.body(), runtime)
    x.guide_field = plan.guide_field
    engine = plan.model.engine
    with x.job("cmpl-", plan.n * len(plan.prompts), plan.stream) as job:
        for prompt in plan.prompts:

            def start(prompt: str | list[int] = prompt) -> Request:
                if plan.echo:
                    plan.echoed.append(prompt if isinstance(prompt, str) else engine.decode(prompt))
                    if plan.logprobs is not None:
                        if isinstance(prompt, str):
                            prompt = engine.encode(prompt, add_special=True, parse_special=True)
                        plan.ids.append(prompt)
                if isinstance(prompt, str):
                    return engine.async_generate(prompt, **plan.params)
                return engine.async_generate(tokens=prompt, **plan.params)

            await runtime.submit(job, engine, plan.heavy, start)
            if job.gone:
                return
        writer = Writer(plan, runtime.token_texts(engine))
        if plan.stream:
            await x.stream(job, _chunks(x, plan, job, writer))
            return
        choices: dict[int, dict[str, Any]] = {}
        async for which, out, tokens in _ordered(plan, outputs(job, runtime.metrics)):
            part = writer.part(which, out, tokens)
            index = part["index"]
            if index not in choices:
                choices[index] = part
            else:
                _append(choices[index], part)
        if job.gone:
            return
        await x.json(
            {
                "id": job.id,
                "object": "text_completion",
                "created": int(time.time()),
                "model": plan.model.name,
                "choices": [choices[i] for i in sorted(choices)],
                "usage": usage(job),
                "system_fingerprint": runtime.fingerprint,
            }
        )


_Outputs = AsyncGenerator[tuple[int, _native.Output, list[int]], None]


def _ordered(plan: Plan, parts: _Outputs) -> _Outputs:
    return _prompts_first(parts) if plan.echo and plan.logprobs is not None else parts


async def _prompts_first(parts: _Outputs) -> _Outputs:
    """Echoed prompts' logprobs come with an output of sample 0: that one before those of other samples."""
    held: dict[int, list[tuple[int, _native.Output, list[int]]] | None] = {}
    async with contextlib.aclosing(parts):
        async for item in parts:
            which, out, _ = item
            if held.get(which, []) is not None and out.finish_reason != "cancelled":
                if out.prompt_logprobs is None:
                    held.setdefault(which, []).append(item)  # type: ignore[union-attr]
                    continue
                yield item
                for other in held.get(which) or []:
                    yield other
                held[which] = None
                continue
            yield item


def _append(choice: dict[str, Any], part: dict[str, Any]) -> None:
    choice["text"] += part["text"]
    choice["finish_reason"] = part["finish_reason"]
    if part["logprobs"] is not None:
        if choice["logprobs"] is None:
            choice["logprobs"] = part["logprobs"]
        else:
            for name, values in part["logprobs"].items():
                choice["logprobs"][name] += values


class Writer:
    """Outputs -> pieces of choices."""

    def __init__(self, plan: Plan, texts: TokenTexts):
        self._plan = plan
        self._texts = texts
        self._offsets: dict[int, int] = {}
        self._begun: set[int] = set()
        self._prompts: dict[int, tuple[list[int], list[Any], list[Any]]] = {}

    def part(self, which: int, out: _native.Output, tokens: list[int]) -> dict[str, Any]:
        plan = self._plan
        index = which * plan.n + out.index
        text, logprobs = out.text, None
        first = index not in self._begun
        self._begun.add(index)
        count = shown(out, tokens)
        if plan.logprobs is not None and (count or (first and plan.echo)):
            logprobs = self._logprobs(which, index, out, tokens[:count], first)
        if first and plan.echo:
            text = plan.echoed[which] + text
        reason = out.finish_reason
        if reason is not None:
            reason = "length" if plan.nothing else finish(reason, False)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _logprobs(
        self, which: int, index: int, out: _native.Output, tokens: list[int], first: bool
    ) -> dict[str, Any]:
        plan, most = self._plan, self._plan.logprobs or 0
        ids: list[int] = []
        values: list[float | None] = []
        rows: list[list[tuple[int, float]] | None] = []
        if first and plan.echo:
            prompt = self._prompt(which, out)
            ids, values, rows = list(prompt[0]), list(prompt[1]), list(prompt[2])
        ids += tokens
        values += (out.logprobs or [])[: len(tokens)]
        top = out.top_logprobs
        rows += [
            _with_chosen(top[i][:most] if top is not None and most else [], token, (out.logprobs or [])[i])
            for i, token in enumerate(tokens)
        ]
        table, offset = self._texts.completion(ids, values, rows, self._offsets.get(index, 0))
        self._offsets[index] = offset
        return table

    def _prompt(self, which: int, out: _native.Output) -> tuple[list[int], list[Any], list[Any]]:
        """Tokens, logprobs and best tokens of a prompt; they come with the first output of sample 0."""
        if (values := out.prompt_logprobs) is not None:
            ids, top = self._plan.ids[which], out.prompt_top_logprobs
            most = self._plan.logprobs or 0
            rows = [
                _with_chosen(top[i][:most] if top is not None and most else [], token, values[i])
                for i, token in enumerate(ids)
            ]
            self._prompts[which] = ids, [None, *values[1:]], [None, *rows[1:]]
        return self._prompts.get(which, ([], [], []))  # none yet: it was cancelled before


def _with_chosen(
    row: list[tuple[int, float]], token: int, logprob: float
) -> list[tuple[int, float]]:
    """The API lists the chosen token too, if it is not among the best."""
    return row if any(t == token for t, _ in row) else [*row, (token, logprob)]


async def _chunks(x: Exchange, plan: Plan, job: Any, writer: Writer) -> AsyncGenerator[bytes, None]:
    head = (
        f'data: {{"id":{_string(job.id)},"object":"text_completion","created":{int(time.time())},'
        f'"model":{_string(plan.model.name)},"system_fingerprint":{_string(x.runtime.fingerprint)},'
        '"choices":[{"index":'
    )
    tail = '}],"usage":null}\n\n' if plan.include_usage else "}]}\n\n"
    async for which, out, tokens in _ordered(plan, outputs(job, x.runtime.metrics)):
        if job.gone and out.finish_reason == "cancelled":
            return
        part = writer.part(which, out, tokens)
        if not part["text"] and part["logprobs"] is None and part["finish_reason"] is None:
            continue
        rest = f'"logprobs":{json.dumps(part["logprobs"])},"finish_reason":{json.dumps(part["finish_reason"])}'
        yield f'{head}{part["index"]},"text":{_string(part["text"])},{rest}{tail}'.encode()
    if plan.include_usage:
        yield event(
            {
                "id": job.id,
                "object": "text_completion",
                "created": int(time.time()),
                "model": plan.model.name,
                "system_fingerprint": x.runtime.fingerprint,
                "choices": [],
                "usage": usage(job),
            }
        )
