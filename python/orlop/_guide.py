"""Guides: what the output of a generation must be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from . import _native

_kinds = {"json_object": 1, "json_schema": 2, "regex": 3, "grammar": 4, "choice": 5, "tools": 6}
_tool_keys = ("tools", "tool_choice", "format", "parallel")


def to_native(guide: Mapping[str, Any]) -> tuple[int, str]:
    """A guide as the library takes it: its kind and its source."""
    if not isinstance(guide, Mapping):
        raise TypeError(f"guide must be a dict, not {type(guide).__name__}")
    if "tools" in guide:
        unknown = [key for key in guide if key not in _tool_keys]
        if unknown:
            raise TypeError(f"guide: unknown key {unknown[0]!r} beside 'tools'")
        return _kinds["tools"], _json({k: v for k, v in guide.items() if v is not None})
    if len(guide) != 1 or next(iter(guide)) not in _kinds:
        raise TypeError(f"guide must have one of the keys {', '.join(_kinds)}, got {list(guide)}")
    kind, value = next(iter(guide.items()))
    if kind == "json_object":
        if value is not True:
            raise TypeError("guide: json_object must be True")
        return _kinds[kind], ""
    if kind == "choice":
        if isinstance(value, str | bytes) or not all(isinstance(text, str) for text in value):
            raise TypeError("guide: choice must be a list of str")
        return _kinds[kind], _json(list(value))
    if kind == "json_schema" and not isinstance(value, str):
        return _kinds[kind], _json(value)
    if not isinstance(value, str):
        raise TypeError(f"guide: {kind} must be a str, not {type(value).__name__}")
    return _kinds[kind], value


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise TypeError(f"guide: {error}") from None


def guide_check(guide: Mapping[str, Any], text: str | bytes) -> tuple[int, bool]:
    """How far a text follows a guide (as in `Engine.async_generate`): (bytes, complete).

    bytes: how many of its first bytes (UTF-8) can begin such a text. complete: whether all of them are
    one. Needs no model. Raises InvalidArgumentError or UnsupportedError for a guide that cannot be
    served, naming what and where.
    """
    kind, source = to_native(guide)
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    return _native.guide_check(kind, source, data)


__all__ = ["guide_check"]
