"""The dashboard: its numbers are the server's, and they move."""

from __future__ import annotations

import functools
import json
import threading
import urllib.request

import pytest

Route = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").Route


def number(text: str) -> float:
    return float(text.replace(",", "").replace("–", "nan"))


class Load:
    """Requests beside the page: `n` streams with a long prefix in common."""

    def __init__(self, server, n: int = 3, tokens: int = 400):
        self._stop = False
        self._threads = [threading.Thread(target=self._one, args=(server, i, tokens)) for i in range(n)]

    def _one(self, server, i, tokens):
        prefix = "You are a careful clerk who keeps the log of a ship. " * 12
        body = {"messages": [{"role": "system", "content": prefix}, {"role": "user", "content": f"Story {i}, please."}],
                "max_tokens": tokens, "stream": True, "seed": i}  # fmt: skip
        request = urllib.request.Request(server.url + "v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as answer:
            for _ in answer:
                if self._stop:
                    return

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop = True
        for thread in self._threads:
            thread.join()


def test_numbers_move(tab, server):
    page = tab.page
    with Load(server, 1, 4):  # its prefix is in the cache from here on
        pass
    server.wait_idle()
    with Load(server):
        page.wait_for_function("() => Number(document.getElementById('running').textContent) === 3")
        page.wait_for_function("() => parseFloat(document.getElementById('out-rate').textContent) > 0")
        page.wait_for_selector("#live li:nth-child(3)")
        assert "from the cache" in page.locator("#live").inner_text()  # the common prefix
        page.wait_for_function("() => document.querySelector('#pages-legend .shared dd').textContent !== '0'")
        shared, alone = (number(page.locator(f"#pages-legend .{name} dd").inner_text()) for name in ("shared", "used"))
        stats = server.stats()["stats"]
        assert shared == stats["pages_shared"] >= 8  # the prefix has more than 8 pages, and three hold them
        assert alone > 0 and abs(alone + shared - stats["pages_used"]) < 0.2 * alone + 10
        assert page.locator("#pages rect.used").count() > 0 and page.locator("#pages rect.shared").count() > 0
        first = page.locator("#out-spark .line").get_attribute("d")
        page.wait_for_function("d => document.querySelector('#out-spark .line').getAttribute('d') !== d", arg=first)
        assert page.locator("#split-stack .piece.forward").is_visible()
        shares = page.locator("#split-legend dd").all_inner_texts()
        assert len(shares) >= 4 and 90 <= sum(float(s.split(" %")[0].lstrip("<> ")) for s in shares) <= 104
    server.wait_idle()
    page.wait_for_function("() => document.getElementById('running').textContent === '0'")
    page.wait_for_function("() => document.getElementById('out-rate').textContent === '0'")
    page.wait_for_function("() => document.querySelector('#pages-legend .used dd').textContent === '0'")
    assert page.locator("#live li").count() == 0
    stats = server.stats()
    page.click("text=Since start")
    share = stats["stats"]["prefix_hit_tokens"] / stats["stats"]["prefix_lookup_tokens"]
    assert abs(float(page.locator("#hit-rate").inner_text().strip("<> %")) - 100 * share) <= 1
    assert page.locator("#finished").inner_text() == str(stats["stats"]["requests_finished"])
    for name, key in (("ttft", "ttft"), ("itl", "inter_token")):
        count = stats["latency"][key]["count"]
        assert count > 0
        bars = page.locator(f"#{name}-bars .column").evaluate_all("all => all.map((b) => Number(b.title.split(': ')[1]))")
        assert bars == stats["latency"][key]["histogram"]["counts"]
        median = page.locator(f"#{name}-quantiles dd").first.inner_text()
        value, unit = median.split(" ")
        assert float(value) * {"µs": 1e-6, "ms": 1e-3, "s": 1}[unit] == pytest.approx(stats["latency"][key]["p50"], rel=0.1)


def test_last_minute_counts_from_the_first_look(tab, server):
    """Since the page was opened, not since the server's start."""
    tab.page.wait_for_function("() => document.getElementById('ttft-note').textContent.startsWith('No request')")
    tab.setting(max_tokens="20")
    tab.send("Hello.")
    tab.wait_answer()
    tab.page.wait_for_function("() => document.getElementById('ttft-note').textContent.startsWith('1 request in the last')")
    gaps = sum(tab.page.locator("#itl-bars .column").evaluate_all("all => all.map((b) => Number(b.title.split(': ')[1]))"))
    assert 1 <= gaps <= 20


def stats_asked(tab) -> int:
    return sum(url.endswith("/stats") for url in tab.requests)


def test_polls_once_a_second_and_only_while_seen(tab):
    page = tab.page
    page.wait_for_timeout(500)
    before = stats_asked(tab)
    page.wait_for_timeout(4000)
    assert 3 <= stats_asked(tab) - before <= 5
    page.evaluate("""() => {
      Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true});
      document.dispatchEvent(new Event('visibilitychange'));
    }""")
    page.wait_for_timeout(1200)
    before = stats_asked(tab)
    page.wait_for_timeout(2500)
    assert stats_asked(tab) == before
    page.evaluate("""() => {
      delete document.visibilityState;
      document.dispatchEvent(new Event('visibilitychange'));
    }""")
    page.wait_for_timeout(1500)
    assert stats_asked(tab) > before


def test_pause(tab):
    tab.page.click("#pause")
    assert tab.page.get_attribute("#pause", "aria-pressed") == "true"
    tab.page.wait_for_timeout(1200)
    before = stats_asked(tab)
    tab.page.wait_for_timeout(2000)
    assert stats_asked(tab) == before
    tab.page.click("#pause")
    tab.page.wait_for_timeout(1500)
    assert stats_asked(tab) > before


def test_no_request_leaves_the_server(tab, server):
    tab.setting(max_tokens="8")
    tab.send("Hello.")
    tab.wait_answer()
    assert tab.requests and all(url.startswith(server.url) for url in tab.requests)


def test_policy(tab, server):
    """Scripts and styles of the server alone, no frame around the page."""
    with urllib.request.urlopen(server.url, timeout=10) as answer:
        policy = answer.headers["content-security-policy"]
    for rule in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe" not in policy


def test_api_key(open_tab, locked_server):
    tab = open_tab(locked_server)
    tab.allowed.append("401")
    page = tab.page
    page.wait_for_selector("#state[data-state=locked]")
    tab.send("Hello.")
    page.wait_for_selector(".theirs .alert >> text=asks for an API key")
    page.click("text=Enter the key")
    assert page.evaluate("document.activeElement.id") == "s-key"
    page.keyboard.type("wrong")
    page.keyboard.press("Escape")
    page.click("text=Try again")
    page.wait_for_selector(".theirs .alert >> text=does not accept")
    tab.setting(key="correct-horse", max_tokens="8")
    page.wait_for_selector("#state[data-state=ready]")
    page.click("text=Try again")
    tab.wait_answer()
    page.wait_for_function("() => document.getElementById('finished').textContent !== '–'")
    kept = page.evaluate("({...sessionStorage})")
    assert kept["orlop.key"] == "correct-horse"
    assert sum("correct-horse" in value for value in kept.values()) == 1
    assert page.evaluate("localStorage.length") == 0 and not page.context.cookies()
    assert not [url for url in tab.requests if "correct-horse" in url]
    page.reload()
    page.wait_for_selector("#state[data-state=ready]")
    tab.setting(key="")
    page.wait_for_selector("#state[data-state=locked]")
    assert "orlop.key" not in page.evaluate("({...sessionStorage})")


def test_a_loading_and_a_failed_model(tab, server):
    """What the page says while there is no engine yet."""
    stats = server.stats()
    for state, more, shown, notice in (
        ("loading", {"progress": {"done": 55, "total": 100}}, "loading 50 %", "being loaded"),
        ("failed", {"error": "weights.gguf: cut off"}, "failed to load", "weights.gguf: cut off"),
        ("draining", {}, "shutting down", None),
    ):
        body = stats | {"engine": None, "stats": None, "state": state, "progress": None} | more
        tab.page.route("**/stats", functools.partial(Route.fulfill, json=body))
        tab.page.wait_for_selector(f"#state[data-state={state}]")
        assert tab.page.locator("#state-text").inner_text() == shown
        if notice:
            assert notice in tab.page.locator("#engine-notice").inner_text()
        tab.page.unroute("**/stats")
