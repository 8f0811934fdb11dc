"""One object from a model's path to texts."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from ._engine import Engine


class Pipeline:
    """An engine behind a call: pipe(prompts, **params) answers Results in the prompts' order."""

    def __init__(self, engine: Engine, chat: bool):
        self.engine = engine
        self._chat = chat

    def __call__(self, prompts: Any, **params: Any) -> Any:
        """See Engine.generate. With chat=True each str is a user's message to the model."""
        if self._chat:
            if isinstance(prompts, str):
                prompts = _user(prompts)
            elif isinstance(prompts, (list, tuple)):
                prompts = [_user(p) if isinstance(p, str) else p for p in prompts]
        return self.engine.generate(prompts, **params)

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def pipeline(
    model_path: str | os.PathLike[str],
    *,
    quant: str | None = None,
    device: str | None = None,
    chat: bool = False,
    **config: Any,
) -> Pipeline:
    """Loads a model and returns a callable.

        pipe = orlop.pipeline(model_path="model.gguf")
        for result in pipe(["The capital of France is", "1, 2, 3,"], max_tokens=16):
            print(result.text)

    quant, device and config are the engine's configuration. chat: strings are user messages, put
    into the model's chat template.
    """
    return Pipeline(Engine(model_path, quant=quant, device=device, **config), chat)
