"""The fields that chat and completions share -> keyword arguments of Engine.async_generate."""

from __future__ import annotations

import math
from typing import Any

from .errors import invalid
from .fields import Fields, kind, wrong_type
from .settings import Limits

most_tokens = 2**32 - 2
biggest_token = 2**31 - 1


def sampling(f: Fields, limits: Limits) -> dict[str, Any]:
    out: dict[str, Any] = {
        "temperature": f.number("temperature", 0, 1e6),
        "top_p": f.number("top_p", 0, 1),
        "min_p": f.number("min_p", 0, 1),
        "presence_penalty": f.number("presence_penalty", -2, 2),
        "frequency_penalty": f.number("frequency_penalty", -2, 2),
        "repetition_penalty": f.number("repetition_penalty", 1e-6, 1e6),
        "min_tokens": f.integer("min_tokens", 0, most_tokens),
        "n": f.integer("n", 1, limits.n),
        "priority": f.integer("priority", -100, 100),
        "stop": _stop(f, limits),
        "logit_bias": _logit_bias(f, limits),
        "stop_tokens": _stop_tokens(f),
        "cache_salt": f.string("cache_salt", 1024) or None,
    }
    top_k = f.integer("top_k", -1, biggest_token)  # others write -1 for off
    out["top_k"] = 0 if top_k == -1 else top_k
    seed = f.integer("seed", -(2**63), 2**64 - 1)
    if seed is not None:
        out["seed"] = seed % 2**64
    if f.boolean("ignore_eos", False):
        out["ignore_eos"] = True
    out = {name: value for name, value in out.items() if value is not None}
    if out.get("cache_salt", "").startswith("\0"):
        raise invalid("cache_salt", "cache_salt may not begin with a NUL", "invalid_value")
    return out


def set_max_tokens(params: dict[str, Any], name: str, value: int | None) -> None:
    if value is None:
        return
    params["max_tokens"] = value
    if params.get("min_tokens", 0) > value:
        raise invalid(
            "min_tokens", f"min_tokens must be at most {name} ({value}), got {params['min_tokens']}"
        )


def _stop(f: Fields, limits: Limits) -> list[str] | None:
    value = f.get("stop")
    if isinstance(value, str):
        value = [value]
    elif value is not None and not isinstance(value, list):
        raise wrong_type("stop", "a string or an array of strings", value)
    if not value:
        return None
    if len(value) > limits.stop:
        raise invalid("stop", f"stop has {len(value)} entries, at most {limits.stop} are taken")
    for i, text in enumerate(value):
        if not isinstance(text, str):
            raise wrong_type(f"stop[{i}]", "a string", text)
        if not 1 <= len(text.encode()) <= 4096:
            raise invalid("stop", f"stop[{i}] must have 1 to 4096 bytes, got {len(text.encode())}")
    return list(value)


def _stop_tokens(f: Fields) -> list[int] | None:
    value = f.array("stop_token_ids", 256)
    if value is None:
        return None
    for i, token in enumerate(value):
        if not is_token(token):
            raise invalid("stop_token_ids", f"stop_token_ids[{i}] is no token id: {kind(token)}")
    return value


def is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= biggest_token


def _logit_bias(f: Fields, limits: Limits) -> dict[int, float] | None:
    value = f.object("logit_bias")
    if not value:
        return None
    if len(value) > limits.logit_bias:
        raise invalid(
            "logit_bias", f"logit_bias has {len(value)} entries, at most {limits.logit_bias} are taken"
        )
    out: dict[int, float] = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) <= biggest_token):
            raise invalid("logit_bias", f"logit_bias: {key[:40]!r} is no token id", "invalid_value")
        if isinstance(bias, bool) or not isinstance(bias, (int, float)):
            raise wrong_type(f"logit_bias[{key}]", "a number", bias)
        if not -100 <= bias <= 100 or not math.isfinite(bias):
            raise invalid("logit_bias", f"logit_bias[{key}] must be -100 to 100, got {bias}")
        out[int(key)] = float(bias)
    return out


# -- guides ------------------------------------------------------------------------------------------

_extras = ("guided_json", "guided_regex", "guided_grammar", "guided_choice")


def guide(f: Fields, allowed: bool) -> tuple[dict[str, Any] | None, str | None]:
    """(the guide that response_format or one of the guided_ fields asks for, the field's name)."""
    asked: list[tuple[str, dict[str, Any]]] = []
    if (wanted := _response_format(f)) is not None:
        asked.append(("response_format", wanted))
    for name in _extras:
        value = f.get(name)
        if value is None:
            continue
        if name == "guided_json":
            if not isinstance(value, (dict, str, bool)):
                raise wrong_type(name, "a JSON Schema, as an object or as text", value)
            asked.append((name, {"json_schema": value}))
        elif name == "guided_choice":
            if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
                raise invalid(name, f"{name} must be a non-empty array of strings", "invalid_type")
            asked.append((name, {"choice": value}))
        else:
            asked.append((name, {name.removeprefix("guided_"): f.string(name)}))
    if not asked:
        return None, None
    if len(asked) > 1:
        names = " and ".join(name for name, _ in asked)
        raise invalid(asked[1][0], f"{names} exclude each other: give one", "invalid_value")
    if not allowed:
        raise invalid(asked[0][0], "guided decoding is disabled on this server", "guided_disabled")
    return asked[0][1], asked[0][0]


def _response_format(f: Fields) -> dict[str, Any] | None:
    value = f.object("response_format")
    if value is None:
        return None
    g = Fields(value, "response_format.")
    if g.string("type") is None:
        raise invalid("response_format.type", "response_format.type is required")
    match g.choice("type", ("text", "json_object", "json_schema"), "text"):
        case "json_object":
            return {"json_object": True}
        case "json_schema":
            inner = g.object("json_schema")
            if inner is None:
                raise invalid("response_format.json_schema", "response_format.json_schema is required")
            Fields(inner, "response_format.json_schema.").string("name")
            schema = inner.get("schema")
            if not isinstance(schema, (dict, bool)):
                raise wrong_type("response_format.json_schema.schema", "an object", schema)
            return {"json_schema": schema}
    return None
