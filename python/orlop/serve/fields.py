"""A request's JSON and its typed fields. A field that is null is a field left out; unknown fields are
accepted, as the API does."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from .errors import ApiError, invalid


async def read_body(request: Request, most: int) -> dict[str, Any]:
    """The JSON object that a request carries."""
    return parse_object(await _read(request, most))


async def _read(request: Request, most: int) -> bytes:
    too_large = ApiError(
        413, f"the body is larger than {most} bytes, which is this server's limit", code="body_too_large"
    )
    stated = request.headers.get("content-length")
    if stated is not None and stated.isdecimal() and (len(stated) > 15 or int(stated) > most):
        raise too_large
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large
            parts.append(part)
    except ClientDisconnect:
        raise ApiError(499, "the client closed the connection", code="disconnected") from None
    return b"".join(parts)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def parse_object(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode()
        value = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:  # only an escape can make a lone surrogate
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise invalid(None, "the body is nested too deeply", "invalid_json") from None
    except UnicodeDecodeError as error:
        raise invalid(None, f"the body is not UTF-8 (byte {error.start})", "invalid_json") from None
    except UnicodeEncodeError:
        raise invalid(None, "the body holds a lone surrogate", "invalid_json") from None
    except ValueError as error:
        raise invalid(None, f"the body is not JSON: {error}", "invalid_json") from None
    if not isinstance(value, dict):
        raise invalid(None, f"the body must be a JSON object, not {kind(value)}", "invalid_json")
    return value


def kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def wrong_type(name: str, wanted: str, value: Any) -> ApiError:
    return invalid(name, f"{name} must be {wanted}, not {kind(value)}", "invalid_type")


def shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else text[:100] + "..."


class Fields:
    """The fields of an object; `path` leads their names in messages."""

    def __init__(self, body: dict[str, Any], path: str = ""):
        self.body = body
        self.path = path

    def get(self, name: str) -> Any:
        return self.body.get(name)

    def boolean(self, name: str, default: bool) -> bool:
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong_type(self.path + name, "true or false", value)
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        value = self.body.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():  # 3.0 is an integer in JSON
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong_type(self.path + name, "an integer", value)
        if not low <= value <= high:
            raise self.bad(name, f"{low} to {high}", value)
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise wrong_type(self.path + name, "a number", value)
        if not low <= value <= high or not math.isfinite(value):
            raise self.bad(name, f"{low:.7g} to {high:.7g}", value)
        return float(value)

    def string(self, name: str, most: int | None = None) -> str | None:
        value = self.body.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise wrong_type(self.path + name, "a string", value)
        if most is not None and len(value.encode()) > most:
            raise invalid(self.path + name, f"{self.path}{name} has more than {most} bytes")
        return value

    def array(self, name: str, most: int | None = None) -> list[Any] | None:
        value = self.body.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise wrong_type(self.path + name, "an array", value)
        if most is not None and len(value) > most:
            raise invalid(
                self.path + name, f"{self.path}{name} has {len(value)} entries, at most {most} are taken"
            )
        return value

    def object(self, name: str) -> dict[str, Any] | None:
        value = self.body.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise wrong_type(self.path + name, "an object", value)
        return value

    def choice(self, name: str, values: tuple[str, ...], default: str) -> str:
        value = self.string(name)
        if value is None:
            return default
        if value not in values:
            raise self.bad(name, "one of " + ", ".join(values), value)
        return value

    def bad(self, name: str, rule: str, value: Any) -> ApiError:
        name = self.path + name
        return invalid(name, f"{name} must be {rule}, got {shown(value)}", "invalid_value")
