"""SmolLM2 against Hugging Face transformers' numbers for the same weights.

The bounds are those of issue A: the engine computes in bf16, or in int8 activations by groups of
32, where the reference computes in float32.
"""

from __future__ import annotations

import json
import pathlib

import pytest

import orlop
from conftest import here
from orlop.cli.eval import agreement, perplexity

bounds = {
    # compute: mean |prompt logprob error|, least margin of a compared step, perplexity within
    "bf16": (0.03, 0.2, 0.003),
    "int8": (0.08, 0.5, 0.005),
}
# int8 with AVX2 is outside of that bound, at 0.72 %, as the README says: it may not go further.
int8_avx2_perplexity = 0.0075


def engine_of(request, compute) -> orlop.Engine:
    return request.getfixturevalue("engine" if compute == "bf16" else "engine_int8")


@pytest.mark.parametrize("compute", bounds)
def test_agreement(request, golden, compute, record_property):
    error, margin, _ = bounds[compute]
    found = agreement(engine_of(request, compute), golden, margin)
    record_property("agreement", found)
    print(compute, found)
    assert found["prompts"] == found["tokenized"] == 10
    assert found["mean_logprob_error"] <= error
    assert found["argmax_steps"] > (350 if compute == "bf16" else 250)
    assert found["argmax_equal"] == found["argmax_steps"], found["argmax_misses"]


@pytest.mark.parametrize("compute", bounds)
def test_perplexity(request, compute, record_property):
    text = pathlib.Path("/usr/share/common-licenses/GPL-3")
    if not text.is_file():
        pytest.skip(f"{text} is not on this machine (Debian's base-files has it)")
    expected = json.loads((here / "data" / "smollm2_ppl.json").read_text())
    engine = engine_of(request, compute)
    found = perplexity(engine, text.read_text(), tokens=1024)
    record_property("perplexity", found)
    print(compute, found)
    assert found["tokens"] == 1024 and found["scored"] == 1023
    avx2 = compute == "int8" and engine.info["kernels"].startswith("cpu avx2")
    assert abs(found["perplexity"] / expected["ppl"] - 1) <= (int8_avx2_perplexity if avx2 else bounds[compute][2])
    ids = engine.encode(text.read_text())
    assert ids[:32] == expected["ids_first_32"]
    assert len(ids) == expected["n_tokens_whole_file"]


def test_windows_score_every_token_once(engine):
    text = "The orlop is the lowest deck of a ship. " * 40
    whole = perplexity(engine, text, tokens=300, window=300)
    assert whole["scored"] == 299
    overlapping = perplexity(engine, text, tokens=300, window=100, stride=50)
    assert overlapping["scored"] == 299
    apart = perplexity(engine, text, tokens=300, window=100)
    assert apart["scored"] == 297  # each window's first token has nothing before it
    assert whole["perplexity"] < overlapping["perplexity"] < apart["perplexity"]


@pytest.mark.parametrize("compute", bounds)
def test_greedy_start(request, golden, compute):
    """Generated, not fed: equal up to the first step whose margin is small."""
    engine = engine_of(request, compute)
    results = engine.generate([e["ids"] for e in golden], max_tokens=48, temperature=0,
                              ignore_eos=True)
    compared = 0
    for entry, result in zip(golden, results):
        for mine, token, gap in zip(result.tokens, entry["greedy"], entry["greedy_margin"]):
            if gap < bounds[compute][1]:
                break
            assert mine == token
            compared += 1
    assert compared > 40
