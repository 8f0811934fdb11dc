"""Outputs of chat models taken apart: any cuts, what a template says, wrong values."""

from __future__ import annotations

import json
import shutil

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orlop
from conftest import tiny


def tool(name, parameters=None):
    function = {"name": name}
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function}


tools = [tool("f", {"type": "object"}), tool("get_weather", {"type": "object"})]
modes = [
    {"format": format, "reasoning": reasoning, "prompt": prompt}
    for format in ("hermes", "llama3", "json", "none")
    for reasoning, prompt in ((False, None), (True, None), (True, "<think>\n"))
]


def joined(pieces, **options):
    """The events of a text, neighbours of one kind and call as one."""
    output = orlop.ChatOutput(tools=tools, **options)
    out = []
    events = [e for piece in pieces for e in output.push(piece)] + output.push("", last=True)
    for event in events:
        same = out and "text" in event and all(out[-1].get(k) == event.get(k) for k in ("type", "index"))
        if same:
            out[-1]["text"] += event["text"]
        else:
            out.append(dict(event))
    return out


names = st.sampled_from(["f", "get_weather", "unknown"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
    | st.sampled_from(["</tool_call>", "<tool_call>", '"}', "</think>", "<|im_end|>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(max_size=5), values, max_size=3)


@st.composite
def call_text(draw):
    members = [("name", draw(names)), (draw(st.sampled_from(["arguments", "parameters"])), draw(arguments))]
    members = draw(st.permutations(members))
    body = json.dumps(dict(members), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    before, after = draw(st.sampled_from([("<tool_call>\n", "\n</tool_call>"), ("<|python_tag|>", ""), ("", ""), ("[", "]")]))
    return before + body + after


marks = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "<|im_end|>", "{", "}", ";", "\n", "<"]
)
chat_text = st.lists(call_text() | marks | st.text(max_size=6), max_size=6).map("".join)


@settings(max_examples=400, deadline=None)
@given(chat_text, st.sampled_from(modes), st.lists(st.integers(1, 12), min_size=1, max_size=30))
def test_cuts_make_no_difference(text, mode, sizes):
    whole = joined([text], **mode)
    assert joined(text, **mode) == whole
    pieces, at = [], 0
    for i in range(len(text)):
        size = sizes[i % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    assert joined(pieces, **mode) == whole
    calls = [e for e in whole if e["type"] == "tool_call"]
    assert [e["index"] for e in calls] == list(range(len(calls)))
    assert all(e["name"] in ("f", "get_weather") for e in calls)
    if not calls and not mode["reasoning"] and not text.rstrip().endswith("<|im_end|>"):
        assert "".join(e["text"] for e in whole) == text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["f", "get_weather"]), arguments), min_size=1, max_size=3), st.booleans())
def test_calls_come_back(calls, ascii):
    def body(name, value, key):
        return json.dumps({"name": name, key: value}, ensure_ascii=ascii)

    texts = {
        "hermes": "\n".join(f"<tool_call>\n{body(n, a, 'arguments')}\n</tool_call>" for n, a in calls),
        "llama3": "; ".join(body(n, a, "parameters") for n, a in calls),
        "json": "[" + ", ".join(body(n, a, "arguments") for n, a in calls) + "]",
    }
    for format, text in texts.items():
        events = joined([text], format=format, reasoning=False)
        assert {e["type"] for e in events} == {"tool_call", "tool_arguments"}
        assert [e["name"] for e in events[::2]] == [n for n, _ in calls]
        assert [json.loads(e["text"]) for e in events[1::2]] == [a for _, a in calls]


def test_events():
    output = orlop.ChatOutput(tools=tools, format="hermes", reasoning=True)
    assert output.push("<think>Hm") == [{"type": "reasoning", "text": "Hm"}]
    assert output.push(".\n</think>\n\nSo: <tool_") == [
        {"type": "reasoning", "text": "."},
        {"type": "content", "text": "So:"},
    ]
    assert output.push('call>{"name": "f", "arguments": {"a": "é') == [
        {"type": "tool_call", "index": 0, "name": "f"},
        {"type": "tool_arguments", "index": 0, "text": '{"a": "é'},
    ]
    assert output.push('"}}</tool_call><|im_end|>', last=True) == [
        {"type": "tool_arguments", "index": 0, "text": '"}'}
    ]
    with pytest.raises(ValueError, match="its last text was pushed"):
        output.push("x")


def engine_with(tmp_path, template):
    folder = tmp_path / "model"
    shutil.copytree(tiny / "llama", folder)
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return orlop.Engine(folder, threads=1, kv_bytes=4_000_000)


hermes = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
llama3 = '<|python_tag|>{"name": "f", "parameters": {}}'
plain = '{"name": "f", "arguments": {}}'


@pytest.mark.parametrize(
    ("template", "takes", "reasons"),
    [
        ("{{ messages }}<tool_call></tool_call>", hermes, False),
        ("{% if x %}<think></think>{% endif %}<tool_call>", hermes, True),
        ("Environment: ipython", llama3, False),
        ("{{ messages }}", plain, False),
        ("{% broken <tool_call>", hermes, False),  # a template that cannot be used still tells
        (None, plain, False),
    ],
)
def test_auto(tmp_path, template, takes, reasons):
    with engine_with(tmp_path, template) as engine:
        for text in (hermes, llama3, plain):
            events = orlop.ChatOutput(engine, tools=tools).push(text, last=True)
            assert (events[0]["type"] == "tool_call") == (text == takes or text == plain and takes == llama3)
        events = orlop.ChatOutput(engine).push("<think>a</think>b", last=True)
        assert (events[0]["type"] == "reasoning") == reasons
        # No tools: no calls.
        assert orlop.ChatOutput(engine, reasoning=False).push(takes, last=True) == [{"type": "content", "text": takes}]
    with pytest.raises(orlop.ShutdownError):
        orlop.ChatOutput(engine)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "engine is NULL"),
        ({"reasoning": False, "tools": tools}, "format: .auto. asks the engine"),
        ({"reasoning": "yes"}, "reasoning"),
        ({"reasoning": True, "format": "xml"}, "xml"),
        ({"reasoning": True, "tools": [{"type": "function"}]}, r"tools\[0\].function"),
        ({"reasoning": True, "tools": [tool("f"), tool("f")]}, "two tools"),
        ({"reasoning": True, "prompt": 3}, "prompt"),
    ],
)
def test_wrong_values(options, words):
    with pytest.raises(orlop.InvalidArgumentError, match=words):
        orlop.ChatOutput(**options)


def test_wrong_types():
    with pytest.raises(TypeError, match="engine"):
        orlop.ChatOutput("model.gguf")
    with pytest.raises(TypeError):
        orlop.ChatOutput(tools=[{"a": {1}}], reasoning=False)
    with pytest.raises(TypeError, match="tools"):
        orlop.ChatOutput(tools=[tool("f", {"x": float("nan")})], reasoning=False, format="json")
    output = orlop.ChatOutput(reasoning=False)
    with pytest.raises(TypeError):
        output.push(b"x")
    with pytest.raises(ValueError, match="surrogate"):
        output.push("\ud800")


weather = tool(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
)
clock = tool("clock")
schemas = {"get_weather": weather["function"]["parameters"], "clock": {"maxProperties": 0}}


@pytest.mark.parametrize("format", ["hermes", "llama3", "json"])
@pytest.mark.parametrize(
    ("choice", "parallel"),
    [("required", True), ("required", False), ({"type": "function", "function": {"name": "get_weather"}}, False), ("auto", True)],
)
def test_guided_calls(engine, format, choice, parallel):
    """What a guide lets the model write comes back as calls that validate."""
    guide = {"tools": [weather, clock], "tool_choice": choice, "format": format, "parallel": parallel}
    messages = [{"role": "user", "content": "How is the weather in Oslo and in Rome? And what time is it?"}]
    whole = calls = 0
    for seed in range(3):
        result = engine.generate(messages, guide=guide, max_tokens=80, temperature=1.2, seed=seed)
        output = orlop.ChatOutput(tools=[weather, clock], format=format, reasoning=False)
        events = [e for c in result.text for e in output.push(c)] + output.push("", last=True)
        accepted, complete = orlop.guide_check(guide, result.text)
        assert accepted == len(result.text.encode())
        assert complete or result.finish_reason == "length"
        names = [e["name"] for e in events if e["type"] == "tool_call"]
        for i, name in enumerate(names):
            text = "".join(e["text"] for e in events if e["type"] == "tool_arguments" and e["index"] == i)
            if complete or i < len(names) - 1:  # the last one may be cut off
                jsonschema.validate(json.loads(text), schemas[name])
                calls += 1
        whole += complete
        if choice != "auto" and complete:
            assert names and all(e["type"] != "content" for e in events)
            assert parallel or len(names) == 1
            assert isinstance(choice, str) or names == ["get_weather"]
    # In parallel a small model calls on and on.
    assert choice == "auto" or calls > 0 and (parallel or whole > 0)
