"""The live page in headless Chromium, against `orlop serve` with the demo model.

Needs `playwright` (PyPI) and a Chromium: the one that ORLOP_TEST_BROWSER names, one in PATH, or
playwright's own. Where there is none, the tests are skipped and say so.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest

root = pathlib.Path(__file__).resolve().parent.parent.parent
model_name = "SmolLM2-135M-Instruct"


def _model_path() -> pathlib.Path:
    named = os.environ.get("ORLOP_TEST_MODEL") or os.environ.get("ORLOP_MODEL")
    cache = pathlib.Path(os.environ.get("ORLOP_CACHE") or root / ".cache")
    return pathlib.Path(named) if named else cache / "SmolLM2-135M-Instruct.Q4_1.gguf"


class Server:
    def __init__(self, url: str, key: str | None):
        self.url = url
        self.key = key

    def get(self, path: str):
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def stats(self):
        return self.get("stats")

    def wait_idle(self, seconds: float = 5) -> float:
        """Seconds until nothing runs or waits any more."""
        start = time.monotonic()
        while True:
            stats = self.stats()["stats"]
            passed = time.monotonic() - start
            if stats["requests_running"] + stats["requests_waiting"] == 0:
                return passed
            assert passed < seconds, f"after {passed:.1f} s: {stats}"
            time.sleep(0.02)


@contextlib.contextmanager
def _serve(folder: pathlib.Path, key: str | None = None):
    path = _model_path()
    if not path.is_file():
        pytest.fail(f"the demo model is not at {path}: run scripts/fetch_model.py (make demo does)")
    command = [sys.executable, "-m", "orlop", "serve", str(path), "--port", "0",
               "--served-model-name", model_name, "--max-context", "2048",
               "--kv-bytes", "160000000", "--threads", "2"]  # fmt: skip
    if key:
        command += ["--api-key", key]
    log = folder / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 90
        while not (said := re.search(r"^page +(http\S+)", log.read_text(errors="replace"), re.MULTILINE)):
            assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")
            time.sleep(0.1)
        server = Server(said[1], key)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory, browser):
    with _serve(tmp_path_factory.mktemp("serve")) as server:
        yield server


@pytest.fixture(scope="session")
def locked_server(tmp_path_factory, browser):
    with _serve(tmp_path_factory.mktemp("serve"), key="correct-horse") as server:
        yield server


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = os.environ.get("ORLOP_TEST_BROWSER") or next(filter(None, map(shutil.which, names)), None)
    with api.sync_playwright() as p:
        if path is None and not pathlib.Path(p.chromium.executable_path).exists():
            pytest.skip("no Chromium: ORLOP_TEST_BROWSER, PATH and playwright's folder have none")
        # Without its sandbox: a container's root may not set one up, and the pages are ours.
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page of the browser and what it said on the way."""

    def __init__(self, page, server: Server):
        self.page = page
        self.server = server
        self.errors: list[str] = []
        self.allowed: list[str] = []  # patterns of errors that the test brings about
        self.requests: list[str] = []
        page.on("console", lambda m: m.type in ("error", "warning") and self.errors.append(m.text))
        page.on("pageerror", lambda e: self.errors.append(f"uncaught: {e}"))
        page.on("request", lambda r: self.requests.append(r.url))

    def open(self) -> None:
        self.page.goto(self.server.url)
        self.page.wait_for_selector("#state[data-state=ready], #state[data-state=locked]")

    def unexpected(self) -> list[str]:
        return [e for e in self.errors if not any(re.search(p, e) for p in self.allowed)]

    def setting(self, **values: str) -> None:
        """Fills fields of the settings: by their names in the form, `source` and `key`."""
        self.page.click("#open-settings")
        for name, value in values.items():
            field = self.page.locator(f"#s-{name}")
            if field.evaluate("e => e.localName") == "select":
                field.select_option(value)
            else:
                field.fill(value)
        self.page.click("#settings button[value=close]")

    def send(self, text: str) -> None:
        self.page.fill("#prompt", text)
        self.page.press("#prompt", "Enter")

    def wait_answer(self) -> str:
        """The answer that comes in, once it is complete."""
        self.page.wait_for_selector(".theirs:last-child .foot button", timeout=60_000)
        return self.answer()

    def answer(self) -> str:
        return self.page.locator(".theirs .text").last.inner_text()

    def wait_words(self, letters: int = 20) -> None:
        self.page.wait_for_function(
            "n => [...document.querySelectorAll('.theirs .text')].at(-1)?.textContent.length >= n", arg=letters)


@pytest.fixture
def open_tab(browser):
    contexts, tabs = [], []

    def open_one(server: Server, **options) -> Tab:
        options = {"viewport": {"width": 1280, "height": 860}} | options
        context = browser.new_context(**options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        tab = Tab(context.new_page(), server)
        tabs.append(tab)
        tab.open()
        return tab

    yield open_one
    unexpected = [e for tab in tabs for e in tab.unexpected()]
    for context in contexts:
        context.close()
    assert not unexpected


@pytest.fixture
def tab(open_tab, server) -> Tab:
    return open_tab(server)
