"""The files of the live page, and the policy that they are served with."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import re

from starlette.responses import Response

folder = pathlib.Path(__file__).parent / "page"
_kinds = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
_inline = re.compile(rb"<(script|style)(?:\s[^>]*)?>(.*?)</\1\s*>", re.DOTALL | re.IGNORECASE)


class Page:
    """Read once. Inline scripts and styles run because the policy names their hashes; nothing from
    elsewhere is loaded, and the page may not be framed."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str]] = {}
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if path.suffix in _kinds:
                    self._files[path.name] = path.read_bytes(), _kinds[path.suffix]

    def response(self, name: str) -> Response | None:
        found = self._files.get(name)
        if found is None:
            return None
        data, kind = found
        headers = {
            "content-security-policy": policy(data if kind == "text/html" else b""),
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
        }
        return Response(data, media_type=kind, headers=headers)


def policy(html: bytes) -> str:
    hashes: dict[bytes, list[str]] = {b"script": [], b"style": []}
    for match in _inline.finditer(html):
        if match[2]:
            digest = base64.b64encode(hashlib.sha256(match[2]).digest()).decode()
            hashes[match[1].lower()].append(f"'sha256-{digest}'")
    return "; ".join(
        (
            "default-src 'none'",
            " ".join(["script-src 'self'", *hashes[b"script"]]),
            " ".join(["style-src 'self'", *hashes[b"style"]]),
            "connect-src 'self'",
            "img-src 'self' data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
