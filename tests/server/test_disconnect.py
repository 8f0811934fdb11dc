"""A client that hangs up is cancelled within a step, streaming or not, and gives its pages back."""

from __future__ import annotations

import json
import socket
import time

import pytest

endless = {"max_tokens": 1900, "ignore_eos": True}


def hang(server, path, body, wait_for_bytes):
    """Sends a request on a bare socket, waits until it runs, and closes the socket."""
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {len(raw)}\r\n\r\n"
    sock = socket.create_connection(("127.0.0.1", server.port))
    sock.sendall(head.encode() + raw)
    if wait_for_bytes:
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
    server.until(lambda s: s["stats"]["requests_running"] >= 1)
    return sock


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 4])
def test_hanging_up(server, stream, n):
    server.idle()
    before = server.stats()
    body = {"prompt": "Once upon a time", "stream": stream, "n": n, **endless}
    sock = hang(server, "/v1/completions", body, stream)
    sock.close()
    start = time.monotonic()
    server.until(lambda s: s["requests"]["active"] == 0 and s["stats"]["requests_running"] == 0)
    seconds = time.monotonic() - start
    server.idle()
    after = server.stats()
    step = after["stats"]["step_seconds"] / after["stats"]["steps"]
    assert seconds < 0.25 + 5 * step, (seconds, step)
    assert after["requests"]["cancelled"] == before["requests"]["cancelled"] + 1
    assert after["stats"]["generated_tokens"] - before["stats"]["generated_tokens"] < 1000 * n


def test_hanging_up_while_waiting(server):
    """Requests that have not begun are taken out of the queue too."""
    server.idle()
    body = {"prompt": ["Once upon a time"] * 70, **endless}  # more than run at once
    socks = [hang(server, "/v1/completions", body, False) for _ in range(2)]
    server.until(lambda s: s["stats"]["requests_waiting"] > 0)
    for sock in socks:
        sock.close()
    server.idle()


def test_chat_stream(server):
    body = {"messages": [{"role": "user", "content": "Tell a story."}], "stream": True, **endless}
    sock = hang(server, "/v1/chat/completions", body, True)
    sock.close()
    server.idle()


def test_a_half_sent_body(server):
    sock = socket.create_connection(("127.0.0.1", server.port))
    sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{")
    time.sleep(0.05)
    sock.close()
    assert server.http.get("/health").status_code == 200
    server.idle()


def test_a_client_that_does_not_read(server):
    """Its request pauses when the pipes are full; others go on; hanging up frees it."""
    body = {"prompt": "Once upon a time", "stream": True, "n": 8, "logprobs": 20, **endless}
    raw = json.dumps(body).encode()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", server.port))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
    sock.sendall(head.encode() + raw)
    server.until(lambda s: s["stats"]["requests_running"] >= 1)
    answer = server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 4, "temperature": 0})
    assert answer.status_code == 200
    sock.close()
    server.idle()
