"""Guided generation through the engine: the output is what its guide says, whatever the sampling."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

import orlop
from conftest import small, tiny

person = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
        "home": {"type": ["object", "null"], "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
                 "required": ["zip"], "additionalProperties": False},
    },
    "required": ["name", "age", "tags", "home"],
    "additionalProperties": False,
}
arithmetic = r"""
root ::= sum
sum ::= term ("+" term){0,3}
term ::= number | "(" sum ")"
number ::= "0" | [1-9] [0-9]{0,2}
"""


def is_arithmetic(text):
    return set(text) <= set("0123456789+()") and eval(text) >= 0  # of these characters alone


def is_person(text):
    value = json.loads(text)
    return (set(value) == {"name", "age", "tags", "home"} and len(value["name"]) <= 12
            and 0 <= value["age"] <= 130 and len(value["tags"]) <= 3
            and (value["home"] is None or re.fullmatch("[0-9]{5}", value["home"]["zip"])))


cases = [
    ({"regex": r"[A-Z][a-z]{2,8} \d{4}(-\d{2}){2}"}, lambda t: re.fullmatch(r"[A-Z][a-z]{2,8} \d{4}(-\d{2}){2}", t)),
    ({"choice": ["yes", "no", "perhaps", "yesterday"]}, lambda t: t in ("yes", "no", "perhaps", "yesterday")),
    ({"json_schema": person}, is_person),
    ({"grammar": arithmetic}, is_arithmetic),
    ({"regex": "[äöü€😀]{3,6}"}, lambda t: re.fullmatch("[äöü€😀]{3,6}", t)),
]


@pytest.mark.parametrize("guide, holds", cases, ids=lambda v: next(iter(v)) if isinstance(v, dict) else "")
@pytest.mark.parametrize("params", [{"temperature": 0}, {"temperature": 1.0, "n": 4, "seed": 5},
                                    {"temperature": 100.0, "n": 4, "seed": 11}], ids=["greedy", "1", "hot"])
def test_the_output_is_what_the_guide_says(engine, guide, holds, params):
    result = engine.generate("Answer:", guide=guide, max_tokens=400, **params)
    for sample in result.samples:
        assert sample.finish_reason == "stop", sample
        assert holds(sample.text), sample.text
        accepted, complete = orlop.guide_check(guide, sample.text)
        assert complete and accepted == len(sample.text.encode())


def test_any_json_object(engine):
    result = engine.generate("A JSON object:", guide={"json_object": True}, max_tokens=300, n=6, seed=3,
                             temperature=0.7)
    done = [s for s in result.samples if s.finish_reason == "stop"]
    for sample in done:
        assert isinstance(json.loads(sample.text), dict)
    for sample in result.samples:  # a beginning of one, where max_tokens cut it
        assert orlop.guide_check({"json_object": True}, sample.text)[0] == len(sample.text.encode())
    assert done


def test_length_ends_it_in_the_middle(engine):
    result = engine.generate("x", guide={"regex": "a{200}"}, max_tokens=3, temperature=0)
    assert result.finish_reason == "length" and set(result.text) == {"a"}


def test_where_nothing_can_follow_it_ends_at_once(engine):
    # No token is spent on the end of a text that cannot go on.
    result = engine.generate("x", guide={"choice": ["no"]}, temperature=0, max_tokens=8)
    assert result.text == "no" and result.finish_reason == "stop" and result.stop_token is None
    # One that could go on ends with an end-of-turn token.
    result = engine.generate("x", guide={"regex": "no+"}, temperature=0, max_tokens=40,
                             logit_bias={i: -100 for i in engine.encode("oooooooo")})
    assert re.fullmatch("no+", result.text)


def test_stop_strings_logprobs_and_seeds_work_as_without(engine):
    guide = {"regex": "[a-z ]{1,60}"}
    free = engine.generate("Once upon", guide=guide, seed=1, temperature=1.0, logprobs=2, max_tokens=12)
    again = engine.generate("Once upon", guide=guide, seed=1, temperature=1.0, logprobs=2, max_tokens=12)
    assert (free.text, free.tokens, free.logprobs) == (again.text, again.tokens, again.logprobs)
    assert len(free.logprobs) == len(free.tokens) and all(v <= 0 for v in free.logprobs)
    stopped = engine.generate("Once upon", guide=guide, seed=1, temperature=1.0, max_tokens=12,
                              stop=free.text[1:3])
    assert stopped.text == free.text[:free.text.index(free.text[1:3])] and stopped.stop_index == 0


def test_many_at_once_equal_each_alone(model_path):
    prompts = [(f"Number {i}:", guide, {"temperature": 1.0, "seed": i, "max_tokens": 60})
               for i in range(6) for guide, _ in cases]
    with orlop.Engine(model_path, **small | {"threads": 1}) as one:
        alone = [one.generate(p, guide=g, **params) for p, g, params in prompts]
    with orlop.Engine(model_path, **small) as two:
        requests = [two.async_generate(p, guide=g, **params) for p, g, params in prompts]
        requests += [two.async_generate("free", max_tokens=20) for _ in range(4)]
        together = [r.result() for r in requests[: len(prompts)]]
    assert [(r.text, r.tokens, r.finish_reason) for r in alone] == [
        (r.text, r.tokens, r.finish_reason) for r in together]


def test_async_and_cancel(engine):
    async def run():
        request = engine.async_generate("x", guide={"regex": "(ab)+"}, max_tokens=1500, temperature=0)
        async for out in request:
            if len(request.tokens) > 3:
                request.cancel()
        return request

    request = asyncio.run(run())
    assert request.finish_reason == "cancelled" and re.match("(ab)*a?$", request.text)
    assert engine.stats["pages_used"] == 0 or engine.stats["requests_running"] == 0


@pytest.mark.parametrize("guide, error, words", [
    ({"regex": "a("}, orlop.InvalidArgumentError, "byte 1"),
    ({"regex": r"(a)\1"}, (orlop.InvalidArgumentError, orlop.UnsupportedError), "byte 3"),
    ({"grammar": "root ::= missing"}, orlop.InvalidArgumentError, "missing"),
    ({"grammar": 'root ::= root "a"'}, (orlop.InvalidArgumentError, orlop.UnsupportedError), ""),
    ({"choice": []}, orlop.InvalidArgumentError, ""),
    ({"json_schema": "{"}, (orlop.InvalidArgumentError, orlop.BadFormatError), ""),
    ({"json_schema": {"type": "array", "uniqueItems": True}}, orlop.UnsupportedError, "/uniqueItems"),
    ({"json_schema": {"properties": {"a": {"not": {}}}}}, orlop.UnsupportedError, "/properties/a/not"),
    ({"regex": "(" * 30000 + ")" * 30000}, orlop.InvalidArgumentError, ""),
    ({"regex": "[^\\s\\S]"}, orlop.InvalidArgumentError, ""),
])
def test_what_cannot_be_served_is_refused(engine, guide, error, words):
    for call in (lambda: engine.async_generate("x", guide=guide), lambda: orlop.guide_check(guide, "x")):
        with pytest.raises(error, match=re.escape(words) or None):
            call()


@pytest.mark.parametrize("guide, words", [
    ("json", "must be a dict"), ({}, "one of the keys"), ({"json": True}, "one of the keys"),
    ({"regex": 3}, "must be a str"), ({"choice": "ab"}, "list of str"), ({"json_object": False}, "must be True"),
    ({"regex": "a", "choice": ["b"]}, "one of the keys"), ({"json_schema": {"a": float("nan")}}, "guide"),
    ({"tools": [], "what": 1}, "unknown key"),
])
def test_wrong_types(engine, guide, words):
    with pytest.raises(TypeError, match=re.escape(words)):
        engine.async_generate("x", guide=guide)


def test_what_goes_against_the_guide(engine):
    with pytest.raises(orlop.InvalidArgumentError, match="ignore_eos"):
        engine.async_generate("x", guide={"choice": ["a"]}, ignore_eos=True)
    allowed = {token: float("-inf") for token in range(engine.info["vocab"])}
    with pytest.raises(orlop.InvalidArgumentError, match="guide allows"):
        engine.generate("x", guide={"choice": ["a", "b"]}, logit_bias=allowed)


def test_a_model_without_tokenizer_says_so():
    with orlop.Engine(tiny / "llama", kv_bytes=4_000_000, threads=1) as engine:
        with pytest.raises(orlop.UnsupportedError, match="no tokenizer"):
            engine.async_generate(tokens=[1, 2], guide={"choice": ["a"]})
        assert orlop.guide_check({"regex": "a+b"}, "aab") == (3, True)
        assert orlop.guide_check({"regex": "a+b"}, b"aa\xff") == (2, False)
