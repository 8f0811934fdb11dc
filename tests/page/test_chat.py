"""The chat: answers stream in, stop when told, and are text whatever is in them."""

from __future__ import annotations

import json
import time

import pytest

lengths = """() => {
  const log = window.seen = [];
  new MutationObserver(() => {
    const n = [...document.querySelectorAll('.theirs .text')].at(-1)?.textContent.length ?? 0;
    if (n && n !== log.at(-1)) log.push(n);
  }).observe(document.getElementById('turns'), {subtree: true, childList: true, characterData: true});
}"""


def test_streams(tab):
    tab.setting(max_tokens="100", temperature="0")
    tab.send("What is the capital of France?")
    assert "Paris" in tab.wait_answer()
    tab.page.evaluate(lengths)
    tab.send("Tell me a long story about a dog.")
    tab.wait_answer()
    seen = tab.page.evaluate("window.seen")
    # It grew, in many small pieces (not one a token: what comes within a frame is drawn together).
    assert len(seen) >= 5 and seen == sorted(seen), seen
    foot = tab.page.locator(".theirs .foot").last.inner_text()
    assert "tokens/s" in foot and "first after" in foot
    assert tab.page.locator("#context-use").inner_text().endswith("of 2,048 tokens of context")


def test_a_model_without_defaults_is_not_drawn_from_as_it_is(tab, server):
    """What the fields show is what is sent."""
    assert server.stats()["engine"]["sampling"]["temperature"] == 1
    sent = []
    tab.page.on("request", lambda r: r.url.endswith("/completions") and sent.append(r.post_data_json))
    tab.setting(max_tokens="4", top_p="0.5")
    tab.send("Hello.")
    tab.wait_answer()
    assert tab.page.get_attribute("#s-temperature", "placeholder") == "0.7"
    assert sent[0]["temperature"] == 0.7 and sent[0]["top_p"] == 0.5 and "top_k" not in sent[0]


def test_is_what_the_api_says(tab, server):
    """The page sends what is set, and shows what comes, to the letter."""
    sent = []
    tab.page.on("request", lambda r: r.url.endswith("/completions") and sent.append(r.post_data_json))
    tab.setting(system="You answer in one short sentence.", max_tokens="40", temperature="0.7", top_p="0.9",
                top_k="40", seed="7")  # fmt: skip
    tab.send("Name a ship.")
    tab.wait_answer()
    tab.send("And another one.")
    tab.wait_answer()
    first, second = sent
    assert first["messages"] == [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Name a ship."},
    ]
    assert [m["role"] for m in second["messages"]] == ["system", "user", "assistant", "user"]
    for name, value in {"max_tokens": 40, "temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 7,
                        "stream": True, "model": "SmolLM2-135M-Instruct"}.items():  # fmt: skip
        assert first[name] == value, name
    alone = tab.page.evaluate(
        """async (body) => (await (await fetch('/v1/chat/completions', {method: 'POST', body: JSON.stringify(body),
             headers: {'Content-Type': 'application/json'}})).json()).choices[0].message.content""",
        first | {"stream": False, "stream_options": None},
    )
    assert second["messages"][2]["content"] == alone


@pytest.mark.parametrize("way", ["escape", "button", "new chat", "closed tab"])
def test_stop_frees_the_engine(tab, server, way):
    tab.setting(max_tokens="1900", temperature="0.9", seed="3")
    tab.send("Write a very long story about a voyage around the world, with many chapters.")
    tab.wait_words()
    stats = server.stats()
    assert stats["stats"]["requests_running"] == 1
    before = stats["requests"]["cancelled"]
    if way == "escape":
        tab.page.keyboard.press("Escape")
    elif way == "button":
        tab.page.click("#stop")
    elif way == "new chat":
        tab.page.click("#reset")
    else:
        tab.page.close()
    assert server.wait_idle(3) < 3
    deadline = time.monotonic() + 3
    while server.stats()["requests"]["cancelled"] != before + 1:
        assert time.monotonic() < deadline
    if way in ("escape", "button"):
        tab.page.wait_for_selector("#send:not([hidden])")
        assert "stopped" in tab.page.locator(".theirs .foot").last.inner_text()
        assert len(tab.answer()) >= 20  # what had come stays
        assert tab.page.evaluate("document.activeElement.id") == "prompt"
        tab.setting(max_tokens="8")
        tab.send("Go on.")  # and the conversation goes on
        tab.wait_answer()
        assert tab.page.locator(".turn").count() == 4
    elif way == "new chat":
        assert tab.page.locator(".turn").count() == 0


hostile = [
    "<img src=x onerror=window.hacked=1>",
    "<script>window.hacked=1</script>",
    "[click](javascript:window.hacked=1)",
    "![x](http://127.0.0.1:1/leak.png)",
    "<a href='javascript:window.hacked=1'>x</a>",
    "`<svg onload=window.hacked=1>`",
    "| <b>a</b> |\n|---|\n| <iframe src='javascript:window.hacked=1'> |",
    "```html\n<script>window.hacked=1</script>\n```",
    "[x](data:text/html,<script>window.hacked=1</script>)",
    "- <style>*{display:none}</style>\n> <object data=x>",
    "</div></li></ol><h1>out</h1>",
    "[x](https://a.example/\"onmouseover=\"window.hacked=1)",
]


def test_hostile_text_is_text(tab):
    """Through the page's own renderer, whole and letter by letter."""
    found = tab.page.evaluate(
        """async (texts) => {
          const { Renderer } = await import(new URL('page/render.js', location.href));
          const out = [];
          for (const text of texts) for (const step of [text.length, 1]) {
            const root = document.createElement('div');
            document.body.append(root);
            const r = new Renderer(root);
            for (let i = 0; i < text.length; i += step) { r.push(text.slice(i, i + step)); r.draw(); }
            await new Promise((done) => setTimeout(done, 20));
            const nodes = [...root.querySelectorAll('*')];
            out.push({
              text: root.textContent,
              names: [...new Set(nodes.map((n) => n.localName))],
              attributes: [...new Set(nodes.flatMap((n) => n.getAttributeNames()))],
              links: nodes.filter((n) => n.localName === 'a').map((n) => n.protocol),
            });
            root.remove();
          }
          return { out, hacked: window.hacked ?? null, visible: document.body.checkVisibility() };
        }""",
        hostile,
    )
    assert found["hacked"] is None and found["visible"]
    known = set("a p code strong em del br ul ol li blockquote hr h3 h4 h5 h6 figure figcaption span button pre "
                "div table thead tbody tr th td".split())  # fmt: skip
    for one in found["out"]:
        assert set(one["names"]) <= known
        assert not [a for a in one["attributes"] if a.startswith("on") or a in ("src", "srcdoc", "style", "action")]
        assert set(one["links"]) <= {"http:", "https:", "mailto:"}
    assert not [url for url in tab.requests if "leak" in url]
    whole, by_letter = found["out"][::2], found["out"][1::2]
    assert whole == by_letter
    assert "<script>window.hacked=1</script>" in whole[1]["text"]


def test_hostile_answer_of_the_model(tab):
    """A guide makes the model itself write markup."""
    tab.setting(guide="choice")
    tab.setting(source="<img src=x onerror=window.hacked=1><b>bold</b>")
    tab.send("<img src=y onerror=window.hacked=2> Say it.")
    answer = tab.wait_answer()
    assert answer.strip() == "<img src=x onerror=window.hacked=1><b>bold</b>"
    assert tab.page.locator(".mine .text").last.inner_text().startswith("<img src=y")
    assert tab.page.locator("#turns img, #turns b").count() == 0
    assert tab.page.evaluate("window.hacked ?? null") is None


def test_renders(tab):
    text = (
        "# Title\n\nSome *words*, **bold** `code_a` and snake_case_name 2 * 3 * 4.\nA line.\n\n"
        "1. one\n2. two\n   - deep\n   - deeper\n\n   more of two\n3. three\n\n"
        "| a | b |\n|---|--:|\n| 1 | 2 |\n\n> quoted\n\n---\n\n```py\nif a < b:\n    pass\n```\n\n"
        "See https://a.example/x_y_z. And [this](https://b.example/)."
    )
    html = tab.page.evaluate(
        """async (text) => {
          const { Renderer } = await import(new URL('page/render.js', location.href));
          const root = document.createElement('div');
          const r = new Renderer(root);
          for (const c of text) { r.push(c); r.draw(); }
          return root.innerHTML;
        }""",
        text,
    )
    for part in ("<h3>Title</h3>", "<em>words</em>", "<strong>bold</strong>", "<code>code_a</code>",
                 "snake_case_name 2 * 3 * 4.<br>A line.", "<li>two<ul><li>deep</li><li>deeper</li></ul><p>more of two</p></li>",
                 "<li>three</li>", '<td class="right">2</td>', "<blockquote><p>quoted</p></blockquote>", "<hr>",
                 "if a &lt; b:\n    pass", 'href="https://a.example/x_y_z"', ">this</a>"):  # fmt: skip
        assert part in html, part


def test_headings(tab):
    texts = ["# a #", "# a#", "## #", "# a   ##  ", "#a", "####### a", "# C# and F#"]
    assert tab.page.evaluate(
        """async (texts) => {
          const { Renderer } = await import(new URL('page/render.js', location.href));
          return texts.map((text) => {
            const r = new Renderer(document.createElement('div'));
            r.push(text);
            r.draw();
            return r.root.innerHTML;
          });
        }""",
        texts,
    ) == ["<h3>a</h3>", "<h3>a#</h3>", "<h4></h4>", "<h3>a</h3>", "<p>#a</p>", "<p>####### a</p>", "<h3>C# and F#</h3>"]


@pytest.mark.parametrize("piece", ["*a ", "**a ", "`", "[", "[a](", "[a](b", "- ", "> ", "| a ", "_a", "http://", "http://% ",
                                   "http://%", "```\n", "\n\n", "1. ", "- a\n", "> a\n", "# a", "# a" + " " * 40, "|-|\n", "*_~`[h"])
def test_long_text_is_drawn_fast(tab, piece):
    """No text makes the renderer take more than linear time, but for its bounded nesting."""
    took = tab.page.evaluate(
        """async (piece) => {
          const { Renderer } = await import(new URL('page/render.js', location.href));
          const time = (n) => {
            const r = new Renderer(document.createElement('div'));
            r.push(piece.repeat(n));
            const start = performance.now();
            r.draw();
            return performance.now() - start;
          };
          time(1000);
          return [time(5000), time(20000)];
        }""",
        piece,
    )
    small, large = took
    assert large < 12 * small + 100, took  # four times the text


def test_errors_are_readable(tab):
    tab.allowed.append("status of 400")
    tab.setting(max_tokens="")
    tab.send("word " * 3000)
    alert = tab.page.locator(".theirs .alert")
    alert.wait_for()
    words = alert.inner_text()
    assert "2048" in words.replace(",", "") and "{" not in words  # names the context, and is not JSON
    assert alert.get_attribute("role") == "alert"
    assert tab.page.locator(".theirs .foot button", has_text="Try again").is_visible()
    # The failed exchange leaves no trace in the next request.
    tab.setting(max_tokens="8")
    tab.send("Hello.")
    tab.wait_answer()
    assert tab.page.locator(".turn").count() == 4
    assert not tab.page.locator("text=Try again").is_visible()


def test_bad_settings_are_told_at_the_field(tab):
    tab.page.click("#open-settings")
    tab.page.fill("#s-temperature", "9")
    assert tab.page.locator("#e-temperature").inner_text() == "At most 2."
    assert tab.page.get_attribute("#s-temperature", "aria-invalid") == "true"
    tab.page.fill("#s-max_tokens", "1.5")
    assert "whole number" in tab.page.locator("#e-max_tokens").inner_text()
    tab.page.select_option("#s-guide", "json_schema")
    tab.page.fill("#s-source", "{no")
    assert tab.page.locator("#e-source").inner_text().startswith("Not JSON")
    tab.page.click("#settings button[value=close]")
    tab.send("Hello")
    assert tab.page.evaluate("document.activeElement.id") == "s-temperature"  # nothing was sent
    assert tab.page.locator(".turn").count() == 0
    tab.page.click("#defaults")
    assert tab.page.locator("#settings .problem:visible").count() == 0


def test_schema(tab):
    tab.setting(guide="json_schema", temperature="1", max_tokens="200")
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "sails": {"type": "integer"}},
              "required": ["name", "sails"], "additionalProperties": False}  # fmt: skip
    tab.setting(source=json.dumps(schema))
    assert "schema" in tab.page.locator("#active-settings").inner_text()
    tab.send("Describe a ship as JSON.")
    answer = json.loads(tab.wait_answer())
    assert set(answer) == {"name", "sails"} and isinstance(answer["sails"], int)


def test_regex(tab):
    tab.setting(guide="regex", temperature="1")
    tab.setting(source="(yes|no), [a-z]{3,8}\\.")
    tab.send("Is the sky blue?")
    import re

    assert re.fullmatch(r"(yes|no), [a-z]{3,8}\.", tab.wait_answer().strip())


def test_conversation_survives_a_reload_and_ends_with_new_chat(tab):
    tab.setting(max_tokens="12", system="Be brief.")
    tab.send("Hello.")
    answer = tab.wait_answer()
    tab.page.reload()
    assert tab.answer() == answer
    tab.page.click("#reset")
    assert tab.page.locator(".turn").count() == 0 and tab.page.locator("#empty").is_visible()
    tab.page.click("#undo")
    assert tab.answer() == answer
    tab.page.click("#reset")
    tab.page.reload()
    assert tab.page.locator(".turn").count() == 0
    assert "system prompt" in tab.page.locator("#active-settings").inner_text()


@pytest.mark.parametrize("height", [500, 300])
def test_the_view_follows_until_one_scrolls_up(open_tab, server, height):
    """Where the conversation scrolls, and on a short screen where the page does."""
    tab = open_tab(server, viewport={"width": 700, "height": height})
    page = tab.page
    place = "(() => { const e = document.getElementById('log');" \
            " return getComputedStyle(e).overflowY === 'visible' ? document.scrollingElement : e; })()"  # fmt: skip
    rest = f"{place}.scrollHeight - {place}.scrollTop - {place}.clientHeight"
    tab.setting(max_tokens="400", temperature="0.8", seed="5")
    tab.send("Write a long story with many short paragraphs.")
    tab.wait_words(1000)
    page.wait_for_timeout(200)
    assert page.evaluate(rest) < 80 and not page.locator("#latest").is_visible()
    page.evaluate(f"{place}.scrollTop = 20")
    page.locator("#latest").wait_for()
    before = len(tab.answer())
    tab.wait_words(before + 60)
    assert page.evaluate(f"{place}.scrollTop") == 20  # it stays where the reader is
    page.click("#latest")
    page.wait_for_timeout(200)
    assert page.evaluate(rest) < 80
    page.keyboard.press("Escape")
    page.wait_for_selector("#send:not([hidden])")


def test_again_and_copy(tab, browser):
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.setting(max_tokens="12", temperature="0")
    tab.send("Name three colours.")
    first = tab.wait_answer()
    tab.page.click(".theirs .foot button[aria-label='Copy the answer']")
    tab.page.wait_for_selector("text=Copied")
    raw = tab.page.evaluate("JSON.parse(sessionStorage['orlop.chat'])[1].content")
    assert tab.page.evaluate("navigator.clipboard.readText()") == raw != ""
    tab.page.click(".theirs .foot button[aria-label='Answer again']")
    assert tab.wait_answer() == first and tab.page.locator(".turn").count() == 2


def test_reasoning_is_folded(tab):
    """The demo model does not reason: the stream of one that does, word for word as the API has it."""
    deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": "First <b>this</b>"},
              {"reasoning_content": ", then that."}, {"content": "So: "}, {"content": "yes."}]  # fmt: skip
    chunks = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    body = "".join(f"data: {json.dumps(c)}\r\n\r\n" for c in chunks) + ": a comment\n\ndata: [DONE]\n\n"
    tab.page.route("**/v1/chat/completions", lambda r: r.fulfill(body=body, content_type="text/event-stream"))
    tab.send("Is it?")
    assert tab.wait_answer() == "So: yes."
    thoughts = tab.page.locator(".reasoning .thoughts")
    assert not thoughts.is_visible()
    tab.page.focus(".reasoning summary")
    tab.page.keyboard.press("Enter")
    assert thoughts.inner_text() == "First <b>this</b>, then that."
    sent = []
    tab.page.on("request", lambda r: r.url.endswith("/completions") and sent.append(r.post_data_json))
    tab.send("Sure?")
    tab.page.wait_for_function("() => document.querySelectorAll('.theirs').length === 2")
    assert sent[0]["messages"][1] == {"role": "assistant", "content": "So: yes."}


@pytest.mark.parametrize(
    "body, words",
    [
        ('data: {"choices":[{"delta":{"content":"Half"}}]}\n\n', "broke off"),
        ('data: {"choices":[{"delta":{"content":"Half"}}]}\n\ndata: {"error":{"message":"the engine failed: no memory"}}\n\n'
         "data: [DONE]\n\n", "no memory"),
    ],
)  # fmt: skip
def test_a_stream_that_fails_half_way(tab, body, words):
    tab.page.route("**/v1/chat/completions", lambda r: r.fulfill(body=body, content_type="text/event-stream"))
    tab.send("Hello")
    alert = tab.page.locator(".theirs .alert")
    alert.wait_for()
    assert words in alert.inner_text() and tab.answer() == "Half"


def test_a_server_that_is_gone(tab):
    tab.allowed.append("ERR_CONNECTION")
    tab.page.route("**/v1/chat/completions", lambda r: r.abort("connectionrefused"))
    tab.page.route("**/stats", lambda r: r.abort("connectionrefused"))
    tab.send("Hello")
    tab.page.wait_for_selector(".theirs .alert >> text=cannot be reached")
    tab.page.wait_for_selector("#state[data-state=lost]")
    tab.page.unroute("**/v1/chat/completions")
    tab.page.unroute("**/stats")
    tab.page.wait_for_selector("#state[data-state=ready]")  # it comes back by itself
    tab.setting(max_tokens="8")
    tab.page.click("text=Try again")
    tab.page.wait_for_selector(".theirs .foot button[aria-label='Copy the answer']")
