"""What stands before every route: Host and Origin checks, CORS, API keys, counters."""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError
from .runtime import Runtime
from .settings import Settings, is_loopback

# Served without a key: nothing of the operator's or the users' is in them.
open_paths = frozenset(("/", "/health", "/openapi.json"))
_good_id = re.compile(r"[A-Za-z0-9_.\-]{1,128}")


class Keys:
    """API keys, held and compared as digests; the time does not tell which key nearly fits."""

    def __init__(self, keys: Iterable[str]):
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def fits(self, given: bytes) -> bool:
        digest = hashlib.sha256(given).digest()
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, digest)
        return found


class Guard:
    def __init__(self, app: ASGIApp, runtime: Runtime, endpoints: Iterable[str]):
        settings = runtime.settings
        self._app = app
        self._metrics = runtime.metrics
        self._settings = settings
        self._keys = Keys(settings.api_keys)
        self._hosts = {host.lower() for host in settings.allowed_hosts}
        self._check_host = settings.loopback or bool(self._hosts)
        self._origins = set(settings.cors_origins)
        self._endpoints = frozenset(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        path: str = scope["path"]
        endpoint = path if path in self._endpoints else _family(path)
        given_id = headers.get(b"x-request-id", b"").decode("latin-1")
        identity = given_id if _good_id.fullmatch(given_id) else uuid.uuid4().hex
        extra = [(b"x-request-id", identity.encode()), (b"x-content-type-options", b"nosniff")]
        origin = headers.get(b"origin", b"").decode("latin-1")
        allowed = self._allowed_origin(origin)
        if self._origins:
            extra.append((b"vary", b"origin"))
        if allowed is not None:
            extra.append((b"access-control-allow-origin", allowed.encode()))
            extra.append((b"access-control-expose-headers", b"x-request-id, retry-after"))

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *extra]
                self._metrics.answered(endpoint, message["status"])
            await send(message)

        try:
            self._check(scope, headers, path, origin, allowed)
        except ApiError as error:
            await error.response()(scope, receive, tell)
            return
        if allowed is not None and scope["method"] == "OPTIONS":
            await _preflight(headers, tell)
            return
        await self._app(scope, receive, tell)

    def _check(
        self, scope: Scope, headers: dict[bytes, bytes], path: str, origin: str, allowed: str | None
    ) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if self._check_host and not self._good_host(host):
            raise ApiError(
                403,
                "the Host header names no host of this server (--allowed-host adds one)",
                code="host_not_allowed",
            )
        # A page of another site may send simple requests without asking; it is not to use this server.
        if origin and allowed is None and scope["method"] not in ("GET", "HEAD"):
            if origin == "null" or urlsplit(origin).netloc.lower() != host.lower():
                raise ApiError(
                    403,
                    "requests of pages of other origins are off (--cors-origin allows one)",
                    code="origin_not_allowed",
                )
        if not self._keys or path in open_paths or path.startswith("/page/"):
            return
        if scope["method"] == "OPTIONS" and allowed is not None:
            return
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not self._keys.fits(key.strip()):
            raise ApiError(
                401,
                "an API key is required: Authorization: Bearer KEY"
                if not key
                else "the API key is not one of this server's",
                type="authentication_error",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    def _good_host(self, value: str) -> bool:
        name = _host_name(value)
        return name is not None and (
            name in self._hosts or (self._settings.loopback and is_loopback(name))
        )

    def _allowed_origin(self, origin: str) -> str | None:
        if not origin:
            return None
        if "*" in self._origins:
            return "*"
        return origin if origin in self._origins else None


def _host_name(value: str) -> str | None:
    """The host of a Host header, without its port."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::\d{1,5})?", value)
    return match[1].strip("[]").lower() if match else None


def _family(path: str) -> str:
    if path.startswith("/v1/models/"):
        return "/v1/models/{model}"
    return "/page" if path.startswith("/page/") else "other"


async def _preflight(headers: dict[bytes, bytes], send: Send) -> None:
    wanted = headers.get(b"access-control-request-headers", b"authorization, content-type")
    await send(
        {
            "type": "http.response.start",
            "status": 204,
            "headers": [
                (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
                (b"access-control-allow-headers", wanted[:1000]),
                (b"access-control-max-age", b"600"),
            ],
        }
    )
    await send({"type": "http.response.body", "body": b""})
