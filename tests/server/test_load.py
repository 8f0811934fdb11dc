"""Many streams at once, a third of them hanging up: what survives equals its lone run, and every page
comes back. ORLOP_TEST_STREAMS sets how many."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import conftest
import httpx
from load import body_of, many

count = int(os.environ.get("ORLOP_TEST_STREAMS") or 48)


def survive(server, count, tokens, within=None):
    server.idle()
    outcomes = asyncio.run(many("127.0.0.1", server.port, server.model, count, tokens, 0.3, within))
    server.idle()
    stayed = [o for o in outcomes if not o.left]
    assert 0.4 * count < len(stayed) < 0.95 * count
    for outcome in stayed:
        assert outcome.status == 200 and outcome.ended and outcome.tokens == tokens
        alone = server.post(
            "/v1/completions", body_of(server.model, outcome.index, tokens) | {"stream": False}
        ).json()
        assert outcome.text == alone["choices"][0]["text"], outcome.index
    stats = server.stats()
    assert stats["requests"]["failed"] == 0 and stats["requests"]["active"] == 0
    assert server.process.poll() is None and not [e for e in server.errors if "Traceback" in e]


def test_survivors_equal_their_lone_runs(server):
    survive(server, count, 16)


def test_a_storm(chat_folder):
    """Many more, of a model that answers at once, with fewer pages than they want."""
    options = ("--max-context", 512, "--kv-bytes", 500_000, "--threads", 1, "-q")
    with conftest.serving(chat_folder, *options) as server:
        survive(server, 256, 200, within=3)  # several tokens are one event there
        assert server.stats()["stats"]["preemptions"] > 0


def test_health_is_instant_while_busy(server):
    """Also while long prompts are tokenized: that is done beside the loop."""
    slowest, stop = 0.0, threading.Event()

    def ask():
        nonlocal slowest
        with httpx.Client(base_url=server.url) as client:
            while not stop.is_set():
                start = time.monotonic()
                assert client.get("/health").status_code == 200
                slowest = max(slowest, time.monotonic() - start)
                time.sleep(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        long = {"prompt": "word " * 400_000, "max_tokens": 1}  # two megabytes; too long, in the end
        load = threading.Thread(
            target=lambda: asyncio.run(many("127.0.0.1", server.port, server.model, 32, 16, 0))
        )
        load.start()
        for _ in range(3):
            assert server.post("/v1/completions", long).status_code == 400
        load.join()
    finally:
        stop.set()
        thread.join()
    assert slowest < 1.0, slowest
    server.idle()
