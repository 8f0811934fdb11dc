"""uvicorn's HTTP protocol with a bound on what a request's head may take.

Its parser keeps header lines of any length; its other protocol, h11, has a bound of its own.
"""

from __future__ import annotations

from typing import Any

most_head_bytes = 512 * 1024
"""Counted in whole reads, which are up to 256 kB and may hold a part of the body."""


def http_protocol() -> Any:
    """What uvicorn.Config takes as `http`."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:  # without httptools
        return "h11"

    class Bounded(HttpToolsProtocol):
        _head_bytes = 0

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            if self._head_bytes > most_head_bytes and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

        def on_headers_complete(self) -> None:
            # From here on it is a body, which has its own bound, and then another head.
            self._head_bytes = -(1 << 62)
            super().on_headers_complete()

        def on_message_begin(self) -> None:
            self._head_bytes = 0
            super().on_message_begin()

    return Bounded
