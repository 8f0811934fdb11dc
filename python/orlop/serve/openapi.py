"""The OpenAPI document that /openapi.json serves."""

from __future__ import annotations

from typing import Any

from .openapi_schemas import ref, schemas

_errors = {
    400: "The request is wrong; the message names the field. A prompt longer than the context has the "
    "code context_length_exceeded.",
    401: "An API key is required.",
    403: "The Host or Origin header is not one that this server takes.",
    404: "There is no such model.",
    413: "The body is too large.",
    429: "Too many requests wait.",
    500: "A defect.",
    503: "The model is loading, memory did not suffice, or the server is shutting down.",
}


def _json(schema: str, says: str) -> dict[str, Any]:
    return {"description": says, "content": {"application/json": {"schema": ref(schema)}}}


def _answers(ok: dict[str, Any], errors: tuple[int, ...]) -> dict[str, Any]:
    return {"200": ok} | {str(status): _json("Error", _errors[status]) for status in errors}


def _post(name: str, says: str, body: str, answer: str, stream: str = "") -> dict[str, Any]:
    ok = _json(answer, "The answer.")
    if stream:
        ok["content"]["text/event-stream"] = {
            "schema": {  # of each event
                "type": "object",
                "properties": {"data": {"type": "string"}},
                "required": ["data"],
                "description": stream,
            }
        }
    return {
        "post": {
            "operationId": name,
            "summary": says,
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": ref(body)}},
            },
            "responses": _answers(ok, tuple(_errors)),
        }
    }


def _get(name: str, says: str, ok: dict[str, Any], errors: tuple[int, ...]) -> dict[str, Any]:
    return {"get": {"operationId": name, "summary": says, "responses": _answers(ok, errors)}}


def _text(kind: str, says: str) -> dict[str, Any]:
    return {"description": says, "content": {kind: {"schema": {"type": "string"}}}}


def document(version: str) -> dict[str, Any]:
    events = "Events `data: {chunk}`; the last one is `data: [DONE]`. With stream_options.include_usage "
    events += "a chunk without choices before it has the usage. An error in mid-stream is an event with "
    events += "an `error`."
    health = _get("health", "Whether requests are served.", _json("Health", "They are."), (403,))
    health["get"]["responses"]["503"] = _json("Health", "Not yet, or no longer.")
    health["get"]["security"] = []
    model = _get("getModel", "One model.", _json("Model", "It."), (401, 403, 404, 503))
    model["get"]["parameters"] = [
        {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    ]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "orlop",
            "version": version,
            "description": "The OpenAI API of an orlop engine. Fields of the API that this document does "
            "not name are accepted and not used.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"key": []}],
        "paths": {
            "/v1/chat/completions": _post(
                "createChatCompletion", "The answer to a conversation.",
                "ChatRequest", "ChatCompletion", events,
            ),
            "/v1/completions": _post(
                "createCompletion", "Texts continued.", "CompletionRequest", "Completion", events
            ),
            "/v1/embeddings": _post(
                "createEmbedding", "Pooled hidden states, of length 1.",
                "EmbeddingRequest", "Embeddings",
            ),
            "/v1/models": _get("listModels", "The models.", _json("Models", "All."), (401, 403)),
            "/v1/models/{model}": model,
            "/tokenize": _post(
                "tokenize", "Token ids of a text or a conversation.", "TokenizeRequest", "Tokens"
            ),
            "/detokenize": _post(
                "detokenize", "The text of token ids.", "DetokenizeRequest", "Text"
            ),
            "/health": health,
            "/metrics": _get(
                "metrics", "Counters and histograms for Prometheus.",
                _text("text/plain", "Exposition format 0.0.4."), (401, 403),
            ),
            "/stats": _get(
                "stats", "What the live page draws.",
                {
                    "description": "Numbers of this moment.",
                    "content": {"application/json": {"schema": {"type": "object"}}},
                },
                (401, 403),
            ),
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip
