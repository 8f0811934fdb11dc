"""Errors in OpenAI's form: {"error": {"message", "type", "param", "code"}} with a status."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from .. import errors as library
from .openapi_schemas import schemas


class ApiError(Exception):
    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.type = type or ("invalid_request_error" if status < 500 else "server_error")
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> Response:
        return Response(
            json.dumps(self.body()),
            self.status,
            {**self.headers, "content-type": "application/json"},
        )


def invalid(param: str | None, message: str, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


# The engine's names of what requests call otherwise.
_names = {"stop_tokens": "stop_token_ids", "tokens": "prompt"}
_fields = {
    name for kind in ("Chat", "Completion", "Embedding") for name in schemas[f"{kind}Request"]["properties"]
} | {"tokens"}
_first_word = re.compile(r"([A-Za-z_]+)[\s:\[]")


def from_library(
    error: BaseException, prompt: str = "prompt", guide: str | None = None
) -> ApiError:
    """What a client is told of an error of the engine; `prompt` and `guide` are the fields that hold the
    prompt and the guide."""
    text = str(error)
    if isinstance(error, ApiError):
        return error
    if isinstance(error, library.ContextOverflowError):
        return ApiError(400, text, param=prompt, code="context_length_exceeded")
    if isinstance(error, library.QueueFullError):
        return ApiError(
            429, text, code="queue_full", type="rate_limit_error", headers={"retry-after": "1"}
        )
    if isinstance(error, (library.InvalidArgumentError, library.UnsupportedError)):
        code = "unsupported_value" if isinstance(error, library.UnsupportedError) else "invalid_value"
        word = _first_word.match(text)
        param = _names.get(word[1], word[1]) if word else None
        if param == "prompt":
            param = prompt
        elif param not in _fields:
            param = guide
        return ApiError(400, text, param=param, code=code)
    if isinstance(error, library.DeadlineError):
        return ApiError(504, text, code="deadline_exceeded")
    if isinstance(error, library.ShutdownError):
        return ApiError(503, "the server is shutting down", code="shutting_down")
    if isinstance(error, (library.OutOfMemoryError, MemoryError)):
        return ApiError(503, text or "memory did not suffice", code="out_of_memory")
    if isinstance(error, library.CancelledError):
        return ApiError(499, "the request was cancelled", code="cancelled")
    if isinstance(error, library.Error):
        return ApiError(500, text, code="internal_error")
    return ApiError(500, "internal error", code="internal_error")
