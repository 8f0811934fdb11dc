"""A small HTTP/1.1 client for load: one protocol object a connection, streams of server-sent events.

Bytes are taken apart where the event loop delivers them, without a task or a buffer in between, so
that hundreds of streams cost little. HTTP as of RFC 9112, server-sent events as of the HTML standard.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_largest_head = 1 << 16
_largest_line = 16 << 20

Sink = Callable[[bytes, float], None]


class HttpError(Exception):
    """A response that is none, or a connection that broke."""


@dataclass
class Response:
    """The head of a response, and its body unless that went to a sink."""

    status: int
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Address:
    """Where a server listens, and the path that its routes begin with."""

    host: str
    port: int
    tls: bool
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """ValueError says what is wrong."""
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https"):
            raise ValueError(f"the URL must be http or https, got {url!r}")
        if not parts.hostname:
            raise ValueError(f"the URL names no host: {url!r}")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"the URL may hold a host, a port and a path only, got {url!r}")
        tls = parts.scheme == "https"
        port = parts.port if parts.port is not None else (443 if tls else 80)
        return cls(parts.hostname, port, tls, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}"


class _Connection(asyncio.Protocol):
    """One connection; one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.reusable = False
        self.touched = False  # something of the response in progress has come
        self._buffer = bytearray()
        self._done: asyncio.Future[Response] | None = None
        self._sink: Sink | None = None
        self._response: Response | None = None
        self._left: int | None = 0  # of the body or chunk; None: until the connection ends
        self._chunked = False
        self._stage = "head"

    def exchange(self, data: bytes, sink: Sink) -> asyncio.Future[Response]:
        """Sends a request. The body of a good response goes to `sink`, another one is kept."""
        assert self.transport is not None and self._done is None
        self.touched, self._stage, self._sink, self._response = False, "head", sink, None
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return self._done

    def close(self) -> None:
        self.reusable = False
        if self.transport is not None:
            self.transport.abort()

    # -- what the event loop calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.touched = True
        self._buffer += data
        try:
            while self._done is not None and self._advance(now):
                pass
        except HttpError as error:
            self._fail(str(error))
            self.close()
        except (ValueError, TypeError, AttributeError) as error:  # no number, no JSON, no such field
            self._fail(f"the response is not what the API sends: {error}")
            self.close()

    def eof_received(self) -> None:
        self.reusable = False
        if self._stage == "body" and self._left is None:
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if self._stage == "body" and self._left is None and error is None:
            self._finish()
        self._fail(f"the connection broke: {error}" if error else "the server closed the connection")

    # -- taking it apart -------------------------------------------------------------------------

    def _advance(self, now: float) -> bool:
        """One step; False if more bytes are needed."""
        if self._stage == "head":
            return self._head()
        if self._stage == "size":
            return self._chunk_size()
        if self._stage == "trailer":
            return self._trailer()
        if not self._buffer:
            return False
        count = len(self._buffer) if self._left is None else min(self._left, len(self._buffer))
        self._deliver(bytes(self._buffer[:count]), now)
        del self._buffer[:count]
        if self._left is not None:
            self._left -= count
            if self._left == 0:
                if self._chunked:
                    self._stage = "size"
                else:
                    self._finish()
        return True

    def _deliver(self, data: bytes, now: float) -> None:
        assert self._response is not None and self._sink is not None
        if self._response.status == 200:
            self._sink(data, now)
        else:
            self._response.body += data

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _largest_head:
                raise HttpError("the head of the response is too long")
            return False
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        version, _, rest = lines[0].partition(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0") or not rest[:3].isdigit():
            raise HttpError(f"no HTTP response: {lines[0][:60]!r}")
        status = int(rest[:3])
        if 100 <= status < 200:
            return True
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        self._response = Response(status, headers)
        self.reusable = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        if self._chunked:
            self._stage = "size"
            return True
        length = headers.get("content-length")
        self._left = None if length is None else int(length)
        self._stage = "body"
        if self._left is None:
            self.reusable = False
        elif self._left == 0 or status in (204, 304):
            self._finish()
        return True

    def _chunk_size(self) -> bool:
        # The line end after a chunk's data is an empty line before the next size.
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > _largest_head:
                raise HttpError("a chunk of the response has no size")
            return False
        size = int(self._buffer[:end].split(b";")[0], 16)
        del self._buffer[: end + 2]
        self._left = size
        self._stage = "body" if size else "trailer"
        return True

    def _trailer(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        del self._buffer[: end + 2]
        if end == 0:
            self._finish()
        return True

    def _finish(self) -> None:
        done, self._done, self._stage = self._done, None, "head"
        if done is not None and not done.done():
            assert self._response is not None
            done.set_result(self._response)

    def _fail(self, words: str) -> None:
        done, self._done = self._done, None
        if done is not None and not done.done():
            done.set_exception(HttpError(words))


class Client:
    """Requests to one server, over connections that are kept."""

    def __init__(self, address: Address, api_key: str | None = None):
        self.address = address
        self._headers = f"Host: {address.authority}\r\nUser-Agent: orlop-bench\r\n"
        if api_key is not None:
            self._headers += f"Authorization: Bearer {api_key}\r\n"
        self._tls = ssl.create_default_context() if address.tls else None
        self._free: list[_Connection] = []

    async def request(
        self, method: str, path: str, body: Any = None, sink: Sink | None = None
    ) -> Response:
        """A response; with a `sink` the body of a good one goes there as it comes."""
        kept = bytearray()
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {self.address.path}{path} HTTP/1.1\r\n{self._headers}"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        wire = head.encode("latin-1") + b"\r\n" + data
        take = sink if sink is not None else (lambda part, _: kept.extend(part))
        while True:
            connection, fresh = await self._connection()
            try:
                response = await connection.exchange(wire, take)
            except HttpError:
                if fresh or connection.touched:
                    raise
                continue  # the server had closed it meanwhile
            except BaseException:  # cancelled: the server hears of it by the closed connection
                connection.close()
                raise
            if connection.reusable:
                self._free.append(connection)
            else:
                connection.close()
            response.body += kept
            return response

    async def _connection(self) -> tuple[_Connection, bool]:
        while self._free:
            connection = self._free.pop()
            if connection.reusable:
                return connection, False
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            _Connection, self.address.host, self.address.port, ssl=self._tls
        )
        return made, True

    def close(self) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()


class Events:
    """Server-sent events from bytes: calls `take` with the data of each and the time it came."""

    def __init__(self, take: Callable[[bytes, float], None]):
        self._take = take
        self._rest = b""
        self._data: list[bytes] = []

    def __call__(self, part: bytes, now: float) -> None:
        lines = (self._rest + part).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _largest_line:
            raise HttpError("a line of the stream is too long")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                data, self._data = self._data, []
                self._take(data[0] if len(data) == 1 else b"\n".join(data), now)
