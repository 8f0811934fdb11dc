"""What a chat model writes, taken apart: reasoning, content, tool calls. The work is the core's."""

from __future__ import annotations

from typing import Any, Protocol

from .._chat_output import ChatOutput
from .._engine import Engine
from .messages import Tools
from .runtime import Runtime


class Parser(Protocol):
    def push(self, text: str, last: bool = False) -> list[dict[str, Any]]: ...


class _Plain:
    """Everything is content."""

    def push(self, text: str, last: bool = False) -> list[dict[str, Any]]:
        return [{"type": "content", "text": text}] if text else []


class Reader:
    """Makes the parsers of a request's samples."""

    def __init__(self, runtime: Runtime, engine: Engine, tools: Tools, wanted: bool):
        self._engine = engine
        self._tools = tools.tools if tools.used and wanted else None
        self._reasoning = wanted and runtime.reasoning
        self._prompt: str | None = None
        # Calls and blocks may be written with control tokens.
        self.keep_special = self._tools is not None or self._reasoning

    def prepare(self, chat: dict[str, Any]) -> None:
        """Renders the prompt, which tells whether it leaves <think> open."""
        if self._reasoning:
            rest = {k: v for k, v in chat.get("template_vars", {}).items() if k != "tokenize"}
            self._prompt = self._engine.apply_chat_template(
                chat["messages"], tools=chat.get("tools"), **rest
            )

    def parser(self) -> Parser:
        if self._tools is None and not self._reasoning:
            return _Plain()
        return ChatOutput(
            self._engine,
            tools=self._tools,
            format="auto" if self._tools is not None else "none",
            reasoning="auto" if self._reasoning else False,
            prompt=self._prompt,
        )
