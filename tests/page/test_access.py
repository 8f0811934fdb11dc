"""For everyone: keyboard alone, screen readers, narrow screens, dark and still."""

from __future__ import annotations

import os
import pathlib

import pytest

fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
focused = "document.activeElement.id || document.activeElement.textContent.trim()"
long_answer = ("A" * 300 + "\n\n```\n" + "x = 1; " * 60 + "\n```\n\n| a | b | c |\n|---|---|---|\n" + "| wide cell of a table " * 3 + "|\n\n"
               "https://a.example/" + "y" * 200)  # fmt: skip


@pytest.mark.parametrize("width, height", [(320, 640), (360, 740), (320, 256), (768, 1024), (1280, 800)])
def test_nothing_is_cut_off_or_scrolls_sideways(open_tab, server, width, height):
    tab = open_tab(server, viewport={"width": width, "height": height})
    page = tab.page
    page.evaluate(
        """async (text) => {
          const { Renderer } = await import(new URL('page/render.js', location.href));
          const root = document.createElement('div');
          root.className = 'text';
          const li = document.createElement('li');
          li.className = 'turn theirs';
          li.append(root);
          document.getElementById('turns').append(li);
          const r = new Renderer(root);
          r.push(text);
          r.draw();
        }""",
        long_answer,
    )
    inside = """() => [...document.querySelectorAll('button, input, select, textarea, .card, .turn')]
      .filter((e) => e.checkVisibility() && !e.closest('pre, .table'))
      .map((e) => [e.id || e.textContent.slice(0, 20), e.getBoundingClientRect()])
      .filter(([, r]) => r.width > 0 && (r.left < -0.5 || r.right > innerWidth + 0.5)).map(([name]) => name)"""
    assert page.evaluate(fits) and page.evaluate(inside) == []
    narrow = page.locator("[data-show=engine]").is_visible()
    assert narrow == (width < 900)
    if narrow:
        page.click("[data-show=engine]")
        assert page.locator("#engine").is_visible() and not page.locator("#chat").is_visible()
        page.wait_for_selector("#pages rect")
        assert page.evaluate(fits) and page.evaluate(inside) == []
        page.click("[data-show=chat]")
    page.click("#open-settings")
    page.select_option("#s-guide", "json_schema")
    assert page.evaluate("d => d.scrollWidth <= d.clientWidth", page.query_selector("#settings"))
    assert page.evaluate(inside) == []


def test_keyboard_alone(tab, server):
    page = tab.page
    press = page.keyboard.press
    page.mouse.click(2, 2)  # the prompt had the focus: to the top of the page
    order = []
    for _ in range(9):
        press("Tab" if order else "Shift+Tab")
        order.append(page.evaluate(focused))
        ring = page.evaluate("""() => {
          const e = document.activeElement;
          const has = (s) => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1 || s.boxShadow !== 'none';
          return has(getComputedStyle(e)) || has(getComputedStyle(e.closest('form') ?? e));
        }""")
        assert ring, f"no visible focus on {order[-1]}"
    assert order[0] == "Skip to the message box"
    assert order[1] == "log"
    starters = ["Why is the sky blue?", "Write four lines about the sea at night.",
                "Explain what a prefix cache does, step by step."]  # fmt: skip
    assert order[2:] == [*starters, "prompt", "open-settings", "reset", "send"]

    page.focus(".skip")
    press("Enter")
    assert page.evaluate(focused) == "prompt"
    # Settings: open, fill, close, and back where one was.
    press("Tab")
    press("Enter")
    assert page.locator("#settings").is_visible()
    for _ in range(30):
        if page.evaluate(focused) == "s-max_tokens":
            break
        press("Tab")
    assert page.evaluate(focused) == "s-max_tokens"
    press("Control+a")
    page.keyboard.type("1500")
    press("Escape")
    assert not page.locator("#settings").is_visible()
    assert page.evaluate(focused) == "open-settings"
    assert "max tokens 1500" in page.locator("#active-settings").inner_text()
    press("Shift+Tab")
    # Shift+Enter begins a line, Enter sends, Escape stops, and the focus stays.
    page.keyboard.type("Tell me a long story")
    press("Shift+Enter")
    page.keyboard.type("with many chapters.")
    assert page.input_value("#prompt") == "Tell me a long story\nwith many chapters."
    press("Enter")
    assert page.locator(".mine .text").inner_text() == "Tell me a long story\nwith many chapters."
    tab.wait_words()
    page.keyboard.type("next")
    press("Enter")  # not while the answer comes: nothing is lost
    assert page.input_value("#prompt") == "next"
    assert page.locator(".turn").count() == 2
    press("Escape")
    page.wait_for_selector("#send:not([hidden])")
    server.wait_idle(3)
    assert page.evaluate(focused) == "prompt"


def test_enter_that_ends_a_word_of_an_input_method_does_not_send(tab):
    tab.page.fill("#prompt", "日本")
    tab.page.evaluate("""document.getElementById('prompt').dispatchEvent(
      new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true}))""")
    assert tab.page.locator(".turn").count() == 0 and tab.page.input_value("#prompt") == "日本"


def test_screen_reader_hears_sentences(tab):
    page = tab.page
    page.evaluate("""() => {
      window.heard = [];
      new MutationObserver((all) => all.forEach((m) => m.addedNodes.forEach((n) => window.heard.push(n.textContent))))
        .observe(document.getElementById('announcer'), {childList: true});
    }""")
    tab.setting(max_tokens="120", temperature="0")
    tab.send("Tell me about the sea in five sentences.")
    answer = tab.wait_answer()
    heard = page.evaluate("window.heard")
    assert heard[-1] in ("End of the answer.", "Cut off.")
    squeeze = lambda s: "".join(c for c in s if c.isalpha())  # noqa: E731
    assert squeeze("".join(heard[:-1])) == squeeze(answer)  # all of it, once
    tokens = int(page.locator(".theirs .foot").inner_text().split(" tokens")[0].split()[-1])
    assert len(heard) <= max(4, tokens / 5)
    assert page.get_attribute("#announcer", "aria-live") == "polite"
    assert page.locator("#log[aria-live], #turns[aria-live], #engine [aria-live]").count() == 0


def test_names_and_landmarks(tab):
    page = tab.page
    assert page.get_attribute("html", "lang") == "en"
    for role, name in (("banner", None), ("main", None), ("region", "Chat"), ("region", "Engine")):
        assert page.get_by_role(role, name=name, exact=True).count() == 1, name or role
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("textbox", name="Message").count() == 1
    for name in ("Send", "Settings", "New chat", "Pause", "Last minute", "Since start"):
        assert page.get_by_role("button", name=name, exact=True).count() == 1, name
    page.click("#open-settings")
    assert page.get_by_role("dialog", name="Settings").is_visible()
    unnamed = page.evaluate("""() => [...document.querySelectorAll('input, select, textarea')]
      .filter((e) => !e.labels.length).map((e) => e.id)""")
    assert unnamed == []


def test_dark_and_light(open_tab, server):
    def shade(scheme):
        tab = open_tab(server, color_scheme=scheme)
        color = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(v) for v in color.strip("rgb()").split(","))

    assert shade("dark") < 150 and shade("light") > 650


def test_stands_still_if_asked(open_tab, server):
    tab = open_tab(server, reduced_motion="reduce")
    moving = tab.page.evaluate("""() => [...document.querySelectorAll('*')].filter((e) => {
      const s = getComputedStyle(e);
      return s.animationName !== 'none' || s.transitionDuration.split(', ').some((d) => parseFloat(d) > 0);
    }).map((e) => e.className)""")
    assert moving == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe(open_tab, server, scheme, width):
    """WCAG 2.2 A and AA as far as axe-core sees. ORLOP_TEST_AXE: the path of its axe.min.js."""
    path = os.environ.get("ORLOP_TEST_AXE")
    if not path:
        pytest.skip("ORLOP_TEST_AXE names no axe.min.js")
    tab = open_tab(server, color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce")
    page = tab.page
    tab.setting(max_tokens="30")
    tab.send("Write `code` and a list.")
    tab.wait_answer()
    page.wait_for_timeout(1500)
    script = pathlib.Path(path).read_text()
    found = {}
    for view in ("chat", "engine", "settings"):
        if view == "settings":
            if width < 900:
                page.click("[data-show=chat]")
            page.click("#open-settings")
            page.select_option("#s-guide", "regex")
        elif width < 900:
            page.click(f"[data-show={view}]")
        page.evaluate(script)
        result = page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})")
        for violation in result["violations"]:
            found[f"{view}: {violation['id']}"] = [n["html"][:200] + " " + n["failureSummary"][:300] for n in violation["nodes"]]
    assert found == {}
