"""The component schemas of the OpenAPI document: requests and answers as they are checked and sent."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def integer(low: int | None = None, high: int | None = None, says: str = "") -> Schema:
    out: Schema = {"type": "integer"}
    if low is not None:
        out["minimum"] = low
    if high is not None:
        out["maximum"] = high
    return out | ({"description": says} if says else {})


def number(low: float, high: float, says: str = "") -> Schema:
    out: Schema = {"type": "number", "minimum": low, "maximum": high}
    return out | ({"description": says} if says else {})


def text(says: str = "", **more: Any) -> Schema:
    return {"type": "string", **more} | ({"description": says} if says else {})


def array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: Schema) -> Schema:
    """Null is the field left out."""
    return {"anyOf": [schema, {"type": "null"}]}


def obj(properties: dict[str, Schema], required: tuple[str, ...] = (), says: str = "") -> Schema:
    out: Schema = {"type": "object", "properties": properties}
    if required:
        out["required"] = list(required)
    return out | ({"description": says} if says else {})


def request(properties: dict[str, Schema], required: tuple[str, ...]) -> Schema:
    """Unknown fields are accepted; those that are not required may be null."""
    return obj({k: v if k in required else maybe(v) for k, v in properties.items()}, required)


flag: Schema = {"type": "boolean"}
token: Schema = integer(0, 2**31 - 1)
model = text("A name of /v1/models; left out: the first one.")

_common: dict[str, Schema] = {
    "model": model,
    "temperature": number(0, 1e6, "0: greedy."),
    "top_p": number(0, 1, "1: off."),
    "top_k": integer(-1, 2**31 - 1, "0 or -1: off."),
    "min_p": number(0, 1, "0: off."),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "repetition_penalty": number(1e-6, 1e6, "1: off; over prompt and output."),
    "n": integer(1, 128, "Samples of each prompt; sample i is drawn with seed + i."),
    "seed": integer(-(2**63), 2**64 - 1),
    "stop": {
        "anyOf": [
            text(minLength=1, maxLength=1024),
            array(text(minLength=1, maxLength=1024), maxItems=16),
        ],
        "description": "Texts that end the output and are no part of it; at most 4,096 bytes each.",
    },
    "stop_token_ids": array(token, maxItems=256),
    "min_tokens": integer(0, 2**32 - 2, "Stops are held off before this many tokens."),
    "ignore_eos": flag,
    "logit_bias": {
        "type": "object",
        "additionalProperties": number(-100, 100),
        "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "maxProperties": 1024,
        "description": "By token id.",
    },
    "stream": flag,
    "stream_options": obj({"include_usage": maybe(flag)}),
    "response_format": {
        "oneOf": [
            obj({"type": {"enum": ["text"]}}, ("type",)),
            obj({"type": {"enum": ["json_object"]}}, ("type",)),
            obj(
                {
                    "type": {"enum": ["json_schema"]},
                    "json_schema": obj(
                        {
                            "name": maybe(text()),
                            "schema": {"type": "object", "description": "A JSON Schema."},
                        },
                        ("schema",),
                    ),
                },
                ("type", "json_schema"),
            ),
        ]
    },
    "guided_json": {
        "anyOf": [{"type": "object"}, {"type": "string"}],
        "description": "A JSON Schema. Of response_format and the guided_ fields only one may be given.",
    },
    "guided_regex": text("A regular expression that the whole output fits."),
    "guided_grammar": text("A grammar in GBNF."),
    "guided_choice": array(text(), minItems=1),
    "cache_salt": text(
        "Prefixes are shared within equal salts only.", maxLength=256, pattern="^[^\\u0000]*$"
    ),
    "priority": integer(-100, 100, "Higher goes first."),
    "user": {"description": "Accepted and not used."},
}



def _prompts(most: int) -> Schema:
    return {
        "anyOf": [
            text(minLength=1),
            array(text(minLength=1), minItems=1, maxItems=most),
            array(token, minItems=1),
            array(array(token, minItems=1), minItems=1, maxItems=most),
        ]
    }


_logprob: dict[str, Schema] = {
    "token": text(),
    "logprob": {"type": "number"},
    "bytes": array(integer(0, 255)),
}
_choice_index = integer(0)
_usage = obj(
    {
        "prompt_tokens": integer(0),
        "completion_tokens": integer(0),
        "total_tokens": integer(0),
        "prompt_tokens_details": obj({"cached_tokens": integer(0)}, ("cached_tokens",)),
    },
    ("prompt_tokens", "completion_tokens", "total_tokens"),
)
_call = obj(
    {
        "id": text(),
        "type": {"enum": ["function"]},
        "function": obj({"name": text(), "arguments": text()}, ("name", "arguments")),
    },
    ("id", "type", "function"),
)
_part = obj({"type": {"enum": ["text"]}, "text": text()}, ("type", "text"))
_message_text: Schema = {"anyOf": [text(), array(_part, minItems=1)]}


def _message(role: Schema, content: Schema, more: dict[str, Schema], required: tuple[str, ...]) -> Schema:
    return obj({"role": role, "content": content, "name": maybe(text()), **more}, required)


schemas: dict[str, Schema] = {
    "Error": obj(
        {
            "error": obj(
                {
                    "message": text(),
                    "type": text(),
                    "param": maybe(text("The field that is wrong.")),
                    "code": maybe(text()),
                },
                ("message", "type", "param", "code"),
            )
        },
        ("error",),
    ),
    "Message": {
        "oneOf": [
            _message(
                {"enum": ["system", "developer", "user", "function"]},
                _message_text, {}, ("role", "content"),
            ),
            _message(
                {"enum": ["assistant"]},
                maybe(_message_text),
                {"tool_calls": maybe(array(ref("ToolCall"))), "reasoning_content": maybe(text())},
                ("role",),
            ),
            _message(
                {"enum": ["tool"]}, _message_text, {"tool_call_id": maybe(text())}, ("role", "content")
            ),
        ]
    },
    "ToolCall": obj(
        {
            "id": maybe(text()),
            "type": maybe({"enum": ["function"]}),
            "function": obj(
                {
                    "name": text(minLength=1),
                    "arguments": {
                        "anyOf": [text("JSON."), {"type": "object"}, {"type": "null"}],
                        "description": "Left out: {}.",
                    },
                },
                ("name",),
            ),
        },
        ("function",),
    ),
    "Tool": obj(
        {
            "type": {"enum": ["function"]},
            "function": obj(
                {
                    "name": text(pattern="^[A-Za-z0-9_.-]{1,128}$"),
                    "description": maybe(text()),
                    "parameters": maybe({"type": "object", "description": "A JSON Schema."}),
                    "strict": maybe(flag),
                },
                ("name",),
            ),
        },
        ("type", "function"),
    ),
    "ChatRequest": request(
        {
            "messages": array(ref("Message"), minItems=1, maxItems=4096),
            **_common,
            "max_tokens": integer(1, 2**32 - 2, "Default: until the context is full."),
            "max_completion_tokens": integer(1, 2**32 - 2, "As max_tokens, and before it."),
            "logprobs": flag,
            "top_logprobs": integer(0, 20),
            "tools": array(ref("Tool"), maxItems=128),
            "tool_choice": {
                "anyOf": [
                    {"enum": ["none", "auto", "required"]},
                    obj(
                        {
                            "type": {"enum": ["function"]},
                            "function": obj({"name": text()}, ("name",)),
                        },
                        ("type", "function"),
                    ),
                ]
            },
            "parallel_tool_calls": flag,
            "reasoning_effort": text(),
            "chat_template_kwargs": {"type": "object", "description": "Variables of the template."},
        },
        ("messages",),
    ),
    "CompletionRequest": request(
        {
            "prompt": _prompts(1024),
            **_common,
            "max_tokens": integer(0, 2**32 - 2, "Default: 16. 0 needs echo."),
            "logprobs": integer(0, 20),
            "echo": flag,
            "best_of": integer(1, 128, "Must equal n."),
            "suffix": text("Not supported, unless empty.", maxLength=0),
        },
        ("prompt",),
    ),
    "EmbeddingRequest": request(
        {
            "input": _prompts(2048),
            "model": model,
            "encoding_format": {"enum": ["float", "base64"]},
            "dimensions": integer(1, 2**31 - 1, "Must be the model's."),
            "pooling": {"enum": ["mean", "last"]},
            "cache_salt": _common["cache_salt"],
            "priority": _common["priority"],
        },
        ("input",),
    ),
    "TokenizeRequest": {
        "oneOf": [
            obj(
                {
                    "prompt": text(),
                    "messages": {"type": "null"},
                    "model": maybe(model),
                    "add_special_tokens": maybe(flag),
                    "return_token_strs": maybe(flag),
                },
                ("prompt",),
            ),
            obj(
                {
                    "messages": array(ref("Message"), minItems=1, maxItems=4096),
                    "prompt": {"type": "null"},
                    "model": maybe(model),
                    "tools": maybe(array(ref("Tool"), maxItems=128)),
                    "add_generation_prompt": maybe(flag),
                    "return_token_strs": maybe(flag),
                },
                ("messages",),
            ),
        ]
    },
    "DetokenizeRequest": request({"tokens": array(token), "model": model}, ("tokens",)),
    "ChatCompletion": obj(
        {
            "id": text(),
            "object": {"enum": ["chat.completion"]},
            "created": integer(0),
            "model": text(),
            "system_fingerprint": maybe(text()),
            "choices": array(
                obj(
                    {
                        "index": _choice_index,
                        "message": obj(
                            {
                                "role": {"enum": ["assistant"]},
                                "content": maybe(text()),
                                "refusal": {"type": "null"},
                                "reasoning_content": text(),
                                "tool_calls": array(_call),
                            },
                            ("role", "content"),
                        ),
                        "logprobs": maybe(ref("ChatLogprobs")),
                        "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
                    },
                    ("index", "message", "logprobs", "finish_reason"),
                )
            ),
            "usage": _usage,
        },
        ("id", "object", "created", "model", "choices", "usage"),
    ),
    "ChatLogprobs": obj(
        {
            "content": array(
                obj(
                    {**_logprob, "top_logprobs": array(obj(_logprob, tuple(_logprob)), maxItems=20)},
                    (*_logprob, "top_logprobs"),
                )
            ),
            "refusal": {"type": "null"},
        },
        ("content",),
    ),
    "Completion": obj(
        {
            "id": text(),
            "object": {"enum": ["text_completion"]},
            "created": integer(0),
            "model": text(),
            "system_fingerprint": maybe(text()),
            "choices": array(
                obj(
                    {
                        "index": _choice_index,
                        "text": text(),
                        "finish_reason": {"enum": ["stop", "length"]},
                        "logprobs": maybe(
                            obj(
                                {
                                    "tokens": array(text()),
                                    "token_logprobs": array(maybe({"type": "number"})),
                                    "top_logprobs": array(
                                        maybe(
                                            {
                                                "type": "object",
                                                "additionalProperties": {"type": "number"},
                                            }
                                        )
                                    ),
                                    "text_offset": array(integer(0)),
                                },
                                ("tokens", "token_logprobs", "top_logprobs", "text_offset"),
                            )
                        ),
                    },
                    ("index", "text", "logprobs", "finish_reason"),
                )
            ),
            "usage": _usage,
        },
        ("id", "object", "created", "model", "choices", "usage"),
    ),
    "Embeddings": obj(
        {
            "object": {"enum": ["list"]},
            "model": text(),
            "data": array(
                obj(
                    {
                        "object": {"enum": ["embedding"]},
                        "index": integer(0),
                        "embedding": {"anyOf": [array({"type": "number"}), text("float32, base64.")]},
                    },
                    ("object", "index", "embedding"),
                )
            ),
            "usage": obj(
                {"prompt_tokens": integer(0), "total_tokens": integer(0)},
                ("prompt_tokens", "total_tokens"),
            ),
        },
        ("object", "model", "data", "usage"),
    ),
    "Model": obj(
        {
            "id": text(),
            "object": {"enum": ["model"]},
            "created": integer(0),
            "owned_by": text(),
            "parent": maybe(text("Of an adapter: the model that it changes.")),
            "max_model_len": integer(1),
        },
        ("id", "object", "created", "owned_by"),
    ),
    "Models": obj({"object": {"enum": ["list"]}, "data": array(ref("Model"))}, ("object", "data")),
    "Tokens": obj(
        {
            "count": integer(0),
            "max_model_len": integer(1),
            "tokens": array(token),
            "token_strs": maybe(array(text())),
        },
        ("count", "max_model_len", "tokens"),
    ),
    "Text": obj({"prompt": text()}, ("prompt",)),
    "Health": obj(
        {
            "status": {"enum": ["loading", "ready", "draining", "failed"]},
            "progress": obj({"done": integer(0), "total": integer(0)}, ("done", "total")),
        },
        ("status",),
    ),
}  # fmt: skip
