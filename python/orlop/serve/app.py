"""The ASGI application: routes and what they answer."""

from __future__ import annotations

import json
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from . import metrics, openapi
from .chat import chat
from .completions import completions
from .embeddings import embeddings
from .errors import ApiError
from .exchange import Endpoint, Exchange
from .guard import Guard
from .page import Page
from .runtime import Model, Runtime
from .stats import stats
from .tokens import detokenize, tokenize


def create_app(runtime: Runtime) -> ASGIApp:
    """`runtime` loads the engine; until it is ready /health and the API answer 503."""
    page = Page()
    document = json.dumps(openapi.document(runtime.version)).encode()

    async def health(x: Exchange) -> None:
        body: dict[str, Any] = {"status": runtime.state}
        if runtime.state == "loading":
            body["progress"] = {"done": runtime.progress[0], "total": runtime.progress[1]}
        status = 200 if runtime.state == "ready" else 503
        await x.respond(Response(json.dumps(body), status, media_type="application/json"))

    async def models(x: Exchange) -> None:
        data = [_model(runtime, model) for model in runtime.models.values()]
        await x.json({"object": "list", "data": data})

    async def model(x: Exchange) -> None:
        name = x.request.path_params["model"]
        if not name:
            raise ApiError(404, "there is no such path", code="not_found")
        await x.json(_model(runtime, runtime.model(name)))

    async def show_metrics(x: Exchange) -> None:
        await x.respond(Response(metrics.text(runtime), media_type=metrics.content_type))

    async def show_stats(x: Exchange) -> None:
        await x.json(stats(runtime))

    async def show_openapi(x: Exchange) -> None:
        await x.respond(Response(document, media_type="application/json"))

    async def index(x: Exchange) -> None:
        found = page.response("index.html") if runtime.settings.page else None
        await x.respond(found or PlainTextResponse(f"orlop {runtime.version}\n"))

    async def page_file(x: Exchange) -> None:
        name = x.request.path_params["name"]
        found = page.response(name) if runtime.settings.page else None
        if found is None:
            raise ApiError(404, "there is no such file", code="not_found")
        await x.respond(found)

    table = (
        ("POST", "/v1/chat/completions", chat),
        ("POST", "/v1/completions", completions),
        ("POST", "/v1/embeddings", embeddings),
        ("GET", "/v1/models", models),
        ("GET", "/v1/models/{model:path}", model),
        ("POST", "/tokenize", tokenize),
        ("POST", "/detokenize", detokenize),
        ("GET", "/health", health),
        ("GET", "/metrics", show_metrics),
        ("GET", "/stats", show_stats),
        ("GET", "/openapi.json", show_openapi),
        ("GET", "/", index),
        ("GET", "/page/{name}", page_file),
    )
    routes = [
        Route(path, Endpoint(runtime, path, handler), methods=[method])
        for method, path, handler in table
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
    app.router.redirect_slashes = False
    return Guard(app, runtime, (path for _, path, _ in table))


def _model(runtime: Runtime, model: Model) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "orlop",
        "parent": model.parent,
        "max_model_len": runtime.context,
    }


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "there is no such path", 405: "the path does not take this method"}
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    return ApiError(
        error.status_code,
        words.get(error.status_code, str(error.detail)),
        code=code,
        headers=error.headers,
    ).response()
