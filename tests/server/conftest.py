"""The tests talk to real server processes: of the demo model, and of a tiny random model where words do
not matter."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest
import tiny_chat

root = pathlib.Path(__file__).resolve().parent.parent.parent
tiny = root / "tests" / "data" / "tiny" / "llama"


def _model_path() -> pathlib.Path:
    named = os.environ.get("ORLOP_TEST_MODEL") or os.environ.get("ORLOP_MODEL")
    if named:
        return pathlib.Path(named)
    cache = pathlib.Path(os.environ.get("ORLOP_CACHE") or root / ".cache")
    return cache / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def model_path() -> str:
    path = _model_path()
    if not path.is_file():
        pytest.fail(f"the demo model is not at {path}: run scripts/fetch_model.py (make demo does)")
    return str(path)


class Server:
    def __init__(self, model, *options, wait=True):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "orlop", "serve", str(model), "--port", "0", *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()
        self.lines: list[str] = []
        if wait:
            self.wait()

    def _drain(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def wait(self):
        line = self.process.stdout.readline()
        self.lines.append(line)
        found = re.search(r"orlop serves (\S+) at (http://\S+)/v1", line)
        assert found, f"no address in {line!r}; stderr: {''.join(self.errors)}"
        self.model, self.url = found[1], found[2]
        threading.Thread(
            target=lambda: self.lines.extend(self.process.stdout), daemon=True
        ).start()
        self.http = httpx.Client(base_url=self.url, timeout=120)

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    def post(self, path, body, **more):
        return self.http.post(path, json=body, **more)

    def stats(self):
        return self.http.get("/stats").json()

    def until(self, ready, timeout=30.0):
        """Waits for ready(stats); returns the seconds that it took."""
        start = time.monotonic()
        while not ready(stats := self.stats()):
            assert time.monotonic() - start < timeout, stats
            time.sleep(0.01)
        return time.monotonic() - start

    def idle(self):
        """Nothing runs and no page is held by a request."""
        self.until(lambda s: s["requests"]["active"] == 0 and s["stats"]["requests_running"] == 0)
        stats = self.stats()["stats"]
        assert stats["requests_waiting"] == 0 and stats["pages_used"] == 0, stats
        assert stats["pages_free"] + stats["pages_cached"] == stats["pages_total"], stats

    def stop(self, sig=signal.SIGTERM, timeout=60):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process.stdout.close()


@contextlib.contextmanager
def serving(model, *options):
    server = Server(model, *options)
    try:
        yield server
    finally:
        server.stop()


small = ("--max-context", 2048, "--kv-bytes", 160_000_000, "--threads", 2)
smaller = ("--max-context", 512, "--kv-bytes", 8_000_000, "--threads", 1)


@pytest.fixture(scope="session")
def server(model_path):
    with serving(model_path, *small) as server:
        yield server
        server.idle()


@pytest.fixture(scope="session")
def tiny_server():
    """A random model without tokenizer that answers at once."""
    with serving(tiny, *smaller, "-q") as server:
        yield server
        server.idle()


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory):
    return tiny_chat.make(tmp_path_factory.mktemp("models") / "tiny-chat")


@pytest.fixture(scope="session")
def chat_server(chat_folder):
    """A random chat model, with tools and reasoning in its template, that answers at once."""
    with serving(chat_folder, *smaller, "-q") as server:
        yield server
        server.idle()


@pytest.fixture(scope="session")
def client(server):
    import openai

    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
