"""orlop eval --against: what a KV type costs in quality, in windows over a text."""

from __future__ import annotations

import json
import shutil
import struct

import numpy
import pytest

import orlop
from conftest import root, tiny
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


def with_key_biases(folder, size):
    """A copy of the tiny Qwen2 whose keys have offsets of about `size` in every channel."""
    shutil.copytree(tiny / "qwen2", folder)
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    random = numpy.random.default_rng(1)
    for name, tensor in json.loads(data[8:begin]).items():
        if not name.endswith("k_proj.bias"):
            continue
        bias = (random.normal(size=tensor["shape"]) * size).astype("<f4")
        assert tensor["dtype"] == "BF16"
        first, last = (begin + x for x in tensor["data_offsets"])
        data[first:last] = (bias.view("<u4") >> 16).astype("<u2").tobytes()
    file.write_bytes(data)


# Offsets that are large beside what differs between keys are what breaks caches with one scale a
# token; here they cost a per-channel int8 little more than bf16's own rounding of such keys.
@pytest.mark.parametrize("size, uint4", [(10, 0.35), (50, 0.6)])
def test_large_key_biases(tmp_path, size, uint4):
    with_key_biases(tmp_path / "model", size)
    prompt = numpy.random.default_rng(3).integers(3, 140, size=300).tolist()
    logprobs = {}
    for kv_dtype in ("fp32", "bf16", "int8", "uint4"):
        with orlop.Engine(tmp_path / "model", compute="fp32", kv_dtype=kv_dtype, threads=1,
                          kv_bytes=16_000_000) as engine:
            outs = list(engine.async_generate(tokens=prompt, max_tokens=1, prompt_logprobs=0))
            logprobs[kv_dtype] = numpy.array(next(o.prompt_logprobs for o in outs
                                                  if o.prompt_logprobs is not None)[1:])
    error = {k: numpy.abs(v - logprobs["fp32"]).mean() for k, v in logprobs.items()}
    assert 0 < error["bf16"] and error["int8"] <= 2 * error["bf16"], error
    assert error["uint4"] <= uint4, error
