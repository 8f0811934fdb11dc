"""/tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

from .errors import invalid
from .exchange import Exchange
from .fields import Fields
from .messages import Tools, messages
from .sampling import is_token


async def tokenize(x: Exchange) -> None:
    """A text (`prompt`) or a conversation (`messages`) as token ids."""
    runtime = x.runtime
    body = await x.body()
    f = Fields(body)
    engine = runtime.model(body.get("model")).engine
    strings = f.boolean("return_token_strs", False)
    text = f.string("prompt")
    if (text is None) == (body.get("messages") is None):
        raise invalid("prompt", "give either prompt or messages")
    if text is not None:
        special = f.boolean("add_special_tokens", True)

        def work() -> list[int]:
            return engine.encode(text, add_special=special, parse_special=True)

    else:
        if not runtime.facts or not runtime.facts["chat"]:
            raise invalid("messages", "this model has no chat template", "no_chat_template")
        chat = messages(f, runtime.settings.limits)
        tools = Tools(f, runtime.settings.limits)
        generation = f.boolean("add_generation_prompt", True)

        def work() -> list[int]:
            ids: list[int] = engine.apply_chat_template(
                chat,
                tokenize=True,
                tools=tools.tools if tools.used else None,
                add_generation_prompt=generation,
            )
            return ids

    ids = await runtime.in_thread(work)
    texts = runtime.token_texts(engine)
    answer: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": runtime.context,
        "tokens": ids,
        "token_strs": [texts.name(token) for token in ids] if strings else None,
    }
    await x.json(answer)


async def detokenize(x: Exchange) -> None:
    runtime = x.runtime
    body = await x.body()
    f = Fields(body)
    engine = runtime.model(body.get("model")).engine
    ids = f.array("tokens")
    if ids is None:
        raise invalid("tokens", "tokens is required")
    for i, token in enumerate(ids):
        if not is_token(token):
            raise invalid("tokens", f"tokens[{i}] is no token id", "invalid_type")
    await x.json({"prompt": await runtime.in_thread(lambda: engine.decode(ids))})
