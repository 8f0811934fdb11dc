"""Embeddings: pooled hidden states of a prompt."""

from __future__ import annotations

import math

import pytest

import orlop
from conftest import small, tiny

text = "A lighthouse keeper writes down the weather every morning."


def length(vector):
    return math.sqrt(sum(v * v for v in vector))


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_vectors_of_length_one(engine):
    for pooling in ("mean", "last"):
        vector = engine.embed(text, pooling=pooling)
        assert len(vector) == engine.info["dim"] and abs(length(vector) - 1) < 1e-5
    result = engine.async_embed(text).result()
    assert result.embedding == engine.embed(text) and result.tokens == [] and result.finish_reason == "length"
    assert engine.generate(text, max_tokens=1).embedding is None


def test_they_mean_something(engine):
    ship, boat, tax = engine.embed([
        "The ship sails across the sea.", "A boat crosses the ocean.", "Income tax forms are due in April."])
    assert cosine(ship, boat) > cosine(ship, tax)


def test_same_bits_however_it_is_cut_and_whatever_is_cached(model_path):
    long = text * 30
    with orlop.Engine(model_path, **small | {"threads": 1}) as engine:
        want = [engine.embed(long, pooling=p) for p in ("mean", "last")]
        engine.generate(long, max_tokens=2)  # leaves the prompt in the prefix cache
        assert [engine.embed(long, pooling=p) for p in ("mean", "last")] == want
    with orlop.Engine(model_path, step_tokens=48, **small) as engine:
        busy = [engine.async_generate("Once", max_tokens=60, seed=i) for i in range(3)]
        got = [engine.async_embed(long, pooling=p) for p in ("mean", "last")]
        assert [r.result().embedding for r in got] == want
        for request in busy:
            request.result()


def test_of_token_ids_and_messages(engine):
    assert engine.embed(tokens := engine.encode(text)) == engine.embed(text)
    messages = [{"role": "user", "content": "hi"}]
    assert engine.async_embed(messages=messages).result().embedding == engine.embed(
        engine.apply_chat_template(messages, tokenize=True))
    assert tokens


def test_without_a_tokenizer_and_one_token():
    with orlop.Engine(tiny / "llama", kv_bytes=4_000_000, threads=1) as engine:
        one = engine.embed([7])
        assert one == engine.embed([7], pooling="last") and abs(length(one) - 1) < 1e-5


@pytest.mark.parametrize("more, words", [
    ({"n": 2}, "n: an embedding"), ({"guide": {"choice": ["a"]}}, "guide: an embedding"),
    ({"prompt_logprobs": 1}, "prompt_logprobs: an embedding"), ({"max_tokens": 4}, "max_tokens: an embedding"),
    ({"pooling": "max"}, "'mean' or 'last'"),
])
def test_refusals(engine, more, words):
    with pytest.raises(orlop.InvalidArgumentError, match=words):
        engine.async_embed("x", **more)
