"""orlop eval --against: what a KV type costs in quality, in windows over a text."""

from __future__ import annotations

import json

import pytest

from conftest import root
from test_cli import few, run

text = root / "LICENSE"


def compare(model_path, kv_dtype, against, *more):
    done = run("eval", model_path, text, *few, "--compute", "fp32", "--kv-dtype", kv_dtype,
               "--against", against, "--json", "-q", *more)
    return json.loads(done.stdout)["kv"]


# The limits hold over the whole text; a part of it is measured here, with room for chance.
@pytest.mark.parametrize("kv_dtype, difference, perplexity", [
    ("fp16", 0.015, 0.003), ("int8", 0.02, 0.003), ("uint4", 0.2, 0.05),
])
def test_types(model_path, kv_dtype, difference, perplexity):
    kv = compare(model_path, kv_dtype, "bf16", "--tokens", "300", "--window", "256")
    assert (kv["dtype"], kv["against"], kv["tokens"], kv["scored"]) == (kv_dtype, "bf16", 300, 298)
    assert 0 < kv["mean_difference"] <= difference and 0 < kv["kl"] <= difference
    assert abs(kv["perplexity_change"]) <= perplexity
    assert kv["max_difference"] >= kv["mean_difference"]


def test_equal_types_are_equal(model_path):
    kv = compare(model_path, "bf16", "bf16", "--tokens", "40")
    assert kv["mean_difference"] == kv["max_difference"] == kv["kl"] == kv["perplexity_change"] == 0


def test_arguments(model_path):
    assert "needs a text file" in run("eval", model_path, "--against", "bf16", "--reference",
                                      root / "tests/python/data/smollm2.json", code=2).stderr
    assert "kv_dtype" in run("eval", model_path, text, "--against", "bf17", "-q", code=1).stderr
