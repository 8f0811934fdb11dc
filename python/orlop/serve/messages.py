"""Messages and tools of a chat request, checked and as chat templates expect them."""

from __future__ import annotations

import json
import re
from typing import Any

from .errors import invalid
from .fields import Fields, kind, wrong_type
from .settings import Limits

_roles = ("system", "developer", "user", "assistant", "tool", "function")
_text_parts = ("text", "input_text", "output_text", "refusal")
_name = re.compile(r"[A-Za-z0-9_.\-]{1,128}")


def messages(f: Fields, limits: Limits) -> list[dict[str, Any]]:
    value = f.array("messages", limits.messages)
    if value is None:
        raise invalid("messages", "messages is required")
    if not value:
        raise invalid("messages", "messages must have at least one message", "invalid_value")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(value)]


def _message(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong_type(path, "an object", value)
    g = Fields(value, path + ".")
    role = g.string("role")
    if role not in _roles:
        raise g.bad("role", "one of " + ", ".join(_roles), role)
    calls = _calls(g) if role == "assistant" else None
    content = _content(value.get("content"), path)
    if content is None and not calls and role != "assistant":
        raise invalid(path + ".content", f"{path}.content is required", "missing_content")
    out: dict[str, Any] = {
        "role": "system" if role == "developer" else role,
        "content": content or "",
    }
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (text := g.string(name)) is not None:
            out[name] = text
    if calls:
        out["tool_calls"] = calls
    return out


def _content(value: Any, path: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(path + ".content", "a string or an array of parts", value)
    if not value:
        raise invalid(path + ".content", f"{path}.content has no parts", "missing_content")
    texts = []
    for i, part in enumerate(value):
        where = f"{path}.content[{i}]"
        if not isinstance(part, dict):
            raise wrong_type(where, "an object", part)
        sort = part.get("type")
        if sort not in _text_parts:
            shown = json.dumps(sort) if isinstance(sort, str) and len(sort) < 60 else kind(sort)
            raise invalid(
                where, f"{where} is of type {shown}: this model takes text only", "unsupported_content"
            )
        text = part.get("refusal" if sort == "refusal" else "text")
        if not isinstance(text, str):
            raise wrong_type(where + ".text", "a string", text)
        texts.append(text)
    return "\n".join(texts)


def _calls(g: Fields) -> list[dict[str, Any]] | None:
    value = g.array("tool_calls", 1024)
    if not value:
        return None
    out = []
    for i, call in enumerate(value):
        path = f"{g.path}tool_calls[{i}]"
        if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
            raise invalid(path, f"{path} must be an object with a function", "invalid_type")
        Fields(call, path + ".").choice("type", ("function",), "function")
        inner = Fields(call["function"], path + ".function.")
        name, arguments = inner.string("name"), call["function"].get("arguments")
        arguments = {} if arguments is None else arguments
        if not name:
            raise invalid(path, f"{path}.function.name is required")
        if isinstance(arguments, str):  # the API has text, templates want what it says
            try:
                parsed = json.loads(arguments or "{}")
                arguments = parsed if isinstance(parsed, dict) else arguments
            except (ValueError, RecursionError):
                pass
        elif not isinstance(arguments, dict):
            raise wrong_type(f"{path}.function.arguments", "a string", arguments)
        identity = Fields(call, path + ".").string("id")
        out.append(
            {"type": "function", "function": {"name": name, "arguments": arguments}}
            | ({"id": identity} if identity else {})
        )
    return out


class Tools:
    """The tools of a request and which of them the model may or must call."""

    def __init__(self, f: Fields, limits: Limits):
        self.tools = _tools(f, limits)
        self.choice: Any = _choice(f, self.tools)
        self.parallel = f.boolean("parallel_tool_calls", True)

    @property
    def used(self) -> bool:
        return bool(self.tools) and self.choice != "none"

    @property
    def forced(self) -> bool:
        return self.used and self.choice != "auto"

    @property
    def strict(self) -> bool:
        return any(tool["function"].get("strict") is True for tool in self.tools)


def _tools(f: Fields, limits: Limits) -> list[dict[str, Any]]:
    value = f.array("tools", limits.tools) or []
    names = set()
    for i, tool in enumerate(value):
        path = f"tools[{i}]"
        if not isinstance(tool, dict):
            raise wrong_type(path, "an object", tool)
        if tool.get("type") != "function":
            raise invalid(path + ".type", f'{path}.type must be "function"', "invalid_value")
        function = Fields(tool, path + ".").object("function")
        if function is None:
            raise invalid(path + ".function", f"{path}.function is required")
        g = Fields(function, path + ".function.")
        name = g.string("name")
        if name is None or not _name.fullmatch(name):
            raise g.bad("name", "1 to 128 letters, digits, dots, dashes or underscores", name)
        if name in names:
            raise invalid(path + ".function.name", f"{path}.function.name: {name} is there twice")
        names.add(name)
        g.string("description")
        g.object("parameters")
        g.boolean("strict", False)
    return value


def _choice(f: Fields, tools: list[dict[str, Any]]) -> Any:
    value = f.get("tool_choice")
    if value is None:
        return "auto" if tools else "none"
    if isinstance(value, str):
        if value not in ("none", "auto", "required"):
            raise f.bad("tool_choice", "none, auto, required or an object", value)
        if value != "none" and not tools:
            raise invalid("tool_choice", f"tool_choice is {value}, but there are no tools")
        return value
    if not isinstance(value, dict):
        raise wrong_type("tool_choice", "a string or an object", value)
    function = value.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if value.get("type") != "function" or not isinstance(name, str):
        raise invalid(
            "tool_choice",
            'tool_choice must be {"type": "function", "function": {"name": ...}}',
            "invalid_value",
        )
    if all(tool["function"]["name"] != name for tool in tools):
        raise invalid("tool_choice", f"tool_choice names {name[:128]}, which is no tool of the request")
    return value
