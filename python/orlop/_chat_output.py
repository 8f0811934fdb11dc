"""What a chat model writes, taken apart as it streams: reasoning, content, tool calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from . import _native
from ._engine import Engine

ToolFormat = Literal["auto", "hermes", "llama3", "json", "none"]


class ChatOutput:
    """Takes apart the output of one sample.

    engine: whose chat template says what "auto" means; needed where a value is "auto".
    tools: OpenAI's list of tools; only calls of these are taken for calls. None: of any name, if a
    format is given.
    format: how the model writes its calls: "hermes" (Hermes, Qwen), "llama3", "json" (the whole
    content is a call or a list of calls), "none". Hermes and Llama 3 models write control tokens
    around calls, so generate with keep_special=True.
    reasoning: whether <think> ... </think> is split off.
    prompt: the rendered prompt, which may leave <think> open.

        output = orlop.ChatOutput(engine, tools=tools)
        for piece in engine.async_generate(messages=m, tools=tools, keep_special=True):
            for event in output.push(piece.text, last=piece.finish_reason is not None):
                ...

    Raises InvalidArgumentError (a ValueError) for wrong tools or values. One thread at a time.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        format: ToolFormat = "auto",
        reasoning: bool | Literal["auto"] = "auto",
        prompt: str | None = None,
    ):
        if engine is not None and not isinstance(engine, Engine):
            raise TypeError(f"engine must be an Engine or None, not {type(engine).__name__}")
        options: dict[str, Any] = {"format": format, "reasoning": reasoning}
        if tools is not None:
            options["tools"] = list(tools)
        if prompt is not None:
            options["prompt"] = prompt
        try:
            text = json.dumps(options, ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise TypeError(f"tools: {error}") from None
        handle = engine._handle if engine is not None else None
        self._handle = _native.ChatOutput(handle, text)

    def push(self, text: str, last: bool = False) -> list[dict[str, Any]]:
        """Takes text in any pieces, and says with the last one that it is. What is new, in order:

        {"type": "reasoning", "text": ...}
        {"type": "content", "text": ...}
        {"type": "tool_call", "index": 0, "name": ...}
        {"type": "tool_arguments", "index": 0, "text": ...}

        The texts of one call, joined, are its arguments as JSON (cut off where the output is). What is
        no well-formed call of a known tool is content.
        """
        events = json.loads(self._handle.push(text, last))
        return cast("list[dict[str, Any]]", events)


__all__ = ["ChatOutput"]
