"""Reasoning blocks and Hermes tool calls, of a random model whose template has both."""

from __future__ import annotations

import json

import jsonschema
import openai
import pytest

end_of_thought, end_of_turn = 260, 258
ask = [{"role": "user", "content": "Hi"}]
tool = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "minimum": 0, "maximum": 99},
                "note": {"type": "string", "maxLength": 8},
            },
            "required": ["a", "note"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def chat(chat_server):
    client = openai.OpenAI(base_url=chat_server.url + "/v1", api_key="none", max_retries=0)

    def chat(**params):
        params = {"max_tokens": 40, "seed": 1, "messages": ask} | params
        return client.chat.completions.create(model=chat_server.model, **params)

    return chat


def streamed(stream):
    out = {"reasoning": "", "content": ""}
    for chunk in stream:
        delta = chunk.choices[0].delta
        out["reasoning"] += getattr(delta, "reasoning_content", None) or ""
        out["content"] += delta.content or ""
    return out


def test_an_open_block(chat):
    """The prompt ends with <think>: what comes before </think> is reasoning."""
    thinking = {"chat_template_kwargs": {"thinking": True}}
    never = {"logit_bias": {str(end_of_thought): -100, str(end_of_turn): -100}}
    for seed in range(5):
        message = chat(extra_body=thinking, seed=seed, **never).choices[0].message
        assert message.reasoning_content and not message.content
        assert streamed(chat(extra_body=thinking, seed=seed, stream=True, **never)) == {
            "reasoning": message.reasoning_content,
            "content": "",
        }
    at_once = {"logit_bias": {str(end_of_thought): 100}, "max_tokens": 1}
    message = chat(extra_body=thinking, **at_once).choices[0].message
    assert not getattr(message, "reasoning_content", None) and message.content == ""


def test_both_parts(chat):
    thinking = {"chat_template_kwargs": {"thinking": True}}
    both = 0
    for seed in range(40):
        params = dict(extra_body=thinking, seed=seed, logit_bias={str(end_of_thought): 3}, max_tokens=60)
        message = chat(**params).choices[0].message
        reasoning = getattr(message, "reasoning_content", None) or ""
        parts = streamed(chat(**params, stream=True))
        assert parts == {"reasoning": reasoning, "content": message.content or ""}
        both += bool(reasoning and message.content)
    assert both > 3


def test_without_a_block(chat):
    message = chat(logit_bias={"259": -100}).choices[0].message
    assert message.content and not getattr(message, "reasoning_content", None)


def test_forced_calls(chat):
    for seed in range(6):
        params = dict(tools=[tool], tool_choice="required", seed=seed, max_tokens=300, temperature=1.5)
        choice = chat(**params).choices[0]
        if choice.finish_reason == "length":
            continue
        assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
        for call in choice.message.tool_calls:
            jsonschema.validate(json.loads(call.function.arguments), tool["function"]["parameters"])
        calls = {}
        for chunk in chat(**params, stream=True):
            for delta in chunk.choices[0].delta.tool_calls or []:
                call = calls.setdefault(delta.index, ["", ""])
                call[0] += delta.function.name or ""
                call[1] += delta.function.arguments or ""
        assert [tuple(c) for c in calls.values()] == [
            (c.function.name, c.function.arguments) for c in choice.message.tool_calls
        ]


def test_one_call_only(chat):
    choice = chat(
        tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=400, seed=2
    ).choices[0]
    if choice.finish_reason == "tool_calls":
        assert len(choice.message.tool_calls) == 1


def test_random_bytes_are_text(chat):
    """Samples of random bytes: every answer is valid UTF-8, and streams say the same."""
    for seed in range(10):
        params = dict(seed=seed, temperature=2.0, max_tokens=80, n=2, logprobs=True, top_logprobs=2)
        answer = chat(**params)
        texts = ["", ""]
        for chunk in chat(**params, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        assert texts == [c.message.content for c in answer.choices]
        for choice in answer.choices:
            raw = b"".join(bytes(e.bytes) for e in choice.logprobs.content)
            # The end of a cut code point may be missing from the text, and specials are not shown.
            assert len(raw.decode(errors="replace")) >= len(choice.message.content) - 3
