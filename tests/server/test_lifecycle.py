"""Starting, loading, draining, stopping."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import conftest
import httpx
import pytest

endless = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True}


def run(*args, **env):
    return subprocess.run(
        [sys.executable, "-m", "orlop", "serve", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | env,
    )


def test_greeting(model_path):
    """What is printed works as it stands."""
    with conftest.serving(model_path, *conftest.small, "--max-context", 128) as server:
        _try_greeting(server)


def _try_greeting(server):
    server.until(lambda _: len(server.lines) > 6)
    text = "".join(server.lines)
    assert server.url in text
    code = text.partition("python  ")[2].replace("\n        ", "\n")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0 and out.stdout.strip(), out.stderr
    curl = text.partition("curl    ")[2].partition("\npython")[0]
    out = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=120)
    if out.returncode == 127:
        pytest.skip("no curl on this machine")
    assert '"chat.completion"' in out.stdout, out.stderr


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(model_path, sig):
    server = conftest.Server(model_path, *conftest.small)
    body = endless | {"max_tokens": 150}
    with server.http.stream("POST", "/v1/completions", json=body) as answer:
        parts = answer.iter_bytes()
        next(parts)
        server.process.send_signal(sig)
        time.sleep(0.3)
        assert server.process.poll() is None
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/health")
        text = b"".join(parts)
    assert text.endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in text.replace(b": ", b":")
    assert server.process.wait(30) == 0
    assert any("waiting for 1 request" in line for line in server.errors)


def test_a_second_signal_stops_at_once(model_path):
    server = conftest.Server(model_path, *conftest.small)
    with server.http.stream("POST", "/v1/completions", json=endless) as answer:
        next(answer.iter_bytes())
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) is not None
        assert time.monotonic() - start < 3


def test_draining_has_an_end(model_path):
    server = conftest.Server(model_path, *conftest.small, "--drain-seconds", 0.3)
    with server.http.stream("POST", "/v1/completions", json=endless) as answer:
        parts = answer.iter_bytes()
        next(parts)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        text = b"".join(parts)
    assert b'"error"' in text and b"shutting down" in text
    assert server.process.wait(20) == 0 and time.monotonic() - start < 5


def test_503_while_loading():
    from orlop.serve.app import create_app
    from orlop.serve.runtime import Runtime
    from orlop.serve.settings import Settings

    async def main():
        runtime = Runtime(lambda progress: None, "m", Settings())
        runtime.progress = (5, 10)
        transport = httpx.ASGITransport(create_app(runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            health = await client.get("/health")
            assert health.status_code == 503
            assert health.json() == {"status": "loading", "progress": {"done": 5, "total": 10}}
            answer = await client.post("/v1/completions", json={"prompt": "x"})
            assert answer.status_code == 503 and answer.json()["error"]["code"] == "loading"
            assert "retry-after" in answer.headers
            stats = (await client.get("/stats")).json()
            assert stats["state"] == "loading" and stats["progress"] == {"done": 5, "total": 10}
            assert stats["stats"] is None
            assert "orlop_up 0" in (await client.get("/metrics")).text
            assert (await client.get("/v1/models")).json()["data"] == []

    asyncio.run(main())


def test_loading_that_fails(tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\0" * 100)
    out = run(bad, "--port", 0)
    assert out.returncode == 1 and "orlop: error:" in out.stderr and "Traceback" not in out.stderr
    out = run(tmp_path / "none.gguf")
    assert out.returncode == 1 and "does not exist" in out.stderr


def test_a_taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        out = run(conftest.tiny, "--port", taken.getsockname()[1])
    assert out.returncode == 1 and "use" in out.stderr


def test_wrong_options(tmp_path):
    assert run(conftest.tiny, "--port", 70000).returncode == 2
    assert run(conftest.tiny, "--api-key", " ").returncode == 2
    (tmp_path / "empty").write_text("# none\n")
    assert run(conftest.tiny, "--api-key-file", tmp_path / "empty").returncode == 1


def test_a_public_address_is_warned_of():
    server = conftest.Server(conftest.tiny, *conftest.smaller, "--host", "0.0.0.0")
    try:
        assert server.http.get("/health", headers={"host": "any.example"}).status_code == 200
        assert any("without an API key" in line for line in server.errors)
    finally:
        server.stop()


def test_names(model_path):
    options = ("--served-model-name", "a/b", "--served-model-name", "second")
    with conftest.serving(conftest.tiny, *conftest.smaller, *options) as server:
        names = [m["id"] for m in server.http.get("/v1/models").json()["data"]]
        assert names == ["a/b", "second"]
        assert server.http.get("/v1/models/a/b").json()["id"] == "a/b"
        for name in names:
            answer = server.post("/v1/completions", {"model": name, "prompt": [5], "max_tokens": 1})
            assert answer.json()["model"] == name
        answer = server.post("/v1/completions", {"model": "llama", "prompt": [5]})
        assert answer.status_code == 404
