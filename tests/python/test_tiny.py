"""Random checkpoints of every family against transformers' float32 logits."""

from __future__ import annotations

import numpy as np
import pytest

import orlop
from conftest import tiny

names = sorted(p.name for p in tiny.iterdir() if (p / "golden.npz").is_file())


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def prompts(name):
    data = np.load(tiny / name / "golden.npz")
    for i in range(sum(k.startswith("ids") for k in data)):
        yield data[f"ids{i}"], data[f"logits{i}"], data[f"greedy{i}"], data[f"margin{i}"]


def rows(engine, ids, vocab):
    """Log-probabilities [len(ids), vocab]: the prompt's own rows, and the next token's."""
    result = engine.generate(
        tokens=ids, max_tokens=1, ignore_eos=True, prompt_logprobs=-1, logprobs=-1
    )
    got = [np.asarray(result.prompt_top_logprobs.by_token(i, vocab)) for i in range(1, len(ids))]
    return np.stack([*got, np.asarray(result.top_logprobs.by_token(0, vocab))])


def test_all_families_are_there():
    assert set(names) >= {
        "llama", "llama-sharded", "llama3-rope", "mistral-window", "qwen2", "qwen3",
    }


# fp32: rounding of float32 sums alone. bf16: activations and cache are rounded to 8 bits of
# mantissa (2^-9 relative) some ten times a layer; over three layers these add up to about 1% of the
# largest logit, 3% at worst.
@pytest.mark.parametrize("compute, bound", [("fp32", 1e-4), ("bf16", 0.03)])
@pytest.mark.parametrize("name", names)
def test_logits(name, compute, bound):
    with orlop.Engine(
        tiny / name, compute=compute, max_context=128, kv_bytes=4_000_000, threads=1
    ) as engine:
        for ids, logits, greedy, margin in prompts(name):
            vocab = logits.shape[1]
            allowed = bound * np.abs(logits).max()
            expected, got = log_softmax(logits), rows(engine, ids, vocab)
            assert got.shape == expected.shape
            # A log-probability moves by at most twice what the logits move by.
            error = np.abs(got - expected).max()
            print(name, compute, len(ids), "error / max logit", error / np.abs(logits).max())
            assert error <= 2 * allowed
            result = engine.generate(tokens=ids, max_tokens=12, ignore_eos=True, temperature=0)
            for mine, token, gap in zip(result.tokens, greedy, margin):
                if gap <= 2 * allowed:
                    break  # from here on the paths may part
                assert mine == token
