"""Weights quantized at load and quantized checkpoints, from the outside.

What the readers make of other programs' files is compared with those programs' own values in
tests/model/test_quant.cc; here: the configuration keys, the facts, the command line, and a second
reader of AWQ's layout, written from its description with numpy alone.
"""

from __future__ import annotations

import json
import shutil
import struct

import numpy
import pytest

import orlop
from conftest import root, tiny
from test_cli import run

quant = root / "tests" / "data" / "quant"
small = {"max_context": 64, "kv_bytes": 4_000_000, "threads": 1}
prompt = [3, 17, 42, 5, 61, 8, 8, 30]


def logprobs(model, **config):
    with orlop.Engine(model, **small, **config) as engine:
        return engine.async_generate(
            tokens=prompt, max_tokens=0, prompt_logprobs=0
        ).result().prompt_logprobs[1:], engine.info


@pytest.mark.parametrize("config, key, words", [
    ({"quant": "int4"}, "quant", "must be none, iq, a8w8, gptq, awq, fp8 or compressed-tensors"),
    ({"quant": "iq", "quant_bits": 3}, "quant_bits", "8 or 4"),
    ({"quant": "iq", "quant_bits": "4"}, "quant_bits", "8 or 4"),
    ({"quant": "iq", "quant_bits": 0}, "quant_bits", "8 or 4"),
    ({"quant": "iq", "quant_group_size": -1}, "quant_group_size", "32, 64 or 128"),
    ({"quant": "a8w8", "quant_bits": 4}, "quant_bits", "must be 8"),
    ({"quant_bits": 8}, "quant_bits", "needs quant"),
    ({"quant": "gptq", "quant_group_size": 32}, "quant_group_size", "needs quant"),
    ({"quant_symmetric": True}, "quant_symmetric", "needs quant"),
    ({"quant": "iq", "quant_group_size": 48}, "quant_group_size", "32, 64 or 128"),
    ({"quant": "iq", "quant_granularity": "row"}, "quant_granularity", "per_channel or group"),
    ({"quant": "a8w8", "quant_granularity": "group"}, "quant_granularity", "per_channel"),
    ({"quant": "iq", "quant_granularity": "per_channel", "quant_group_size": 32},
     "quant_group_size", "needs quant_granularity"),
    ({"quant": "iq", "quant_symmetric": 1}, "quant_symmetric", "true or false"),
])
def test_contradictions_are_named(config, key, words):
    with pytest.raises(orlop.InvalidArgumentError, match=f"^{key}: .*{words}"):
        orlop.Engine(tiny / "llama", **small, **config)


@pytest.mark.parametrize("config, types, quant_text", [
    ({}, {"bf16"}, "none"),
    ({"quant": "iq"}, {"int8"}, "8 bits at load, groups of 32, symmetric"),
    ({"quant": "iq", "quant_bits": 4}, {"uint4", "int8"}, "4 bits at load, groups of 32, asymmetric"),
    ({"quant": "iq", "quant_bits": 4, "quant_symmetric": True, "quant_granularity": "per-channel"},
     {"int4", "int8"}, "4 bits at load, a scale per channel, symmetric"),
    ({"quant": "a8w8"}, {"int8"}, "8 bits at load, a scale per channel, symmetric; int8 activations"),
])
def test_facts(config, types, quant_text):
    found, info = logprobs(tiny / "llama", **config)
    assert numpy.isfinite(found).all()
    assert set(info["weights"]) == types and info["quant"].startswith(quant_text)
    assert (info["compute"] == "a8") == (config.get("quant") == "a8w8")
    # The matrices of tests/data/tiny/llama: embedding and head, three layers.
    layer = 96 * 96 * 2 + 96 * 32 * 2 + 96 * 160 * 3
    assert sum(info["weights"].values()) == 2 * 131 * 96 + 3 * layer


def test_a_quantized_folder_says_what_it_is():
    found = orlop.inspect(quant / "gptq-4-sym-v1-order")
    assert found["quantization"]["method"] == "gptq"
    assert found["quantization"]["summary"] == "gptq, 4 bits, groups of 32, symmetric, act-order"
    # of the matrices, not of the words they are packed in: q, k, v, o, gate, up, down, embedding, head
    layer = 128 * (128 + 64 + 64 + 128) + 3 * 192 * 128
    assert found["parameters"] == layer + 2 * 64 * 128
    assert orlop.inspect(tiny / "llama")["quantization"] is None
    assert "gptq, 4 bits" in run("inspect", quant / "gptq-4-asym-v2").stdout
    _, info = logprobs(quant / "ct-w8a8")
    assert info["compute"] == "a8" and info["compute_why"] == "what the weights are made for"
    assert logprobs(quant / "ct-w8a8", compute="fp32")[1]["compute"] == "fp32"
    with pytest.raises(orlop.InvalidArgumentError, match="quantized already"):
        orlop.Engine(quant / "awq-4", quant="iq")


def test_quantized_ggufs_are_not_quantized_again(model_path):
    with pytest.raises(orlop.InvalidArgumentError, match="^quant: .*holds no float matrices"):
        orlop.Engine(model_path, quant="iq", max_context=64, kv_bytes=10_000_000)


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], entry["shape"],
               data[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]])
        for name, entry in header.items()
    }


def write_folder(folder, source, tensors):
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)


def test_a_second_reader_of_awq(tmp_path):
    """AutoAWQ's file read with numpy into float32 weights: the engine's logprobs are the same."""
    source = quant / "awq-4"
    tensors = read_safetensors(source / "model.safetensors")
    group = json.loads((source / "config.json").read_text())["quantization_config"]["group_size"]
    plain = {}

    def nibbles(name):  # [rows, columns / 8] words -> [rows, columns]
        _, (rows, words), raw = tensors[name]
        packed = numpy.frombuffer(raw, "<u4").reshape(rows, words)
        out = numpy.empty((rows, words, 8), numpy.float32)
        for i, column in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
            out[:, :, column] = packed >> (4 * i) & 15
        return out.reshape(rows, words * 8)

    for name, value in tensors.items():
        module, _, part = name.rpartition(".")
        if part == "qweight":
            codes, zeros = nibbles(name), nibbles(f"{module}.qzeros")
            scales = numpy.frombuffer(tensors[f"{module}.scales"][2], "<f2").reshape(zeros.shape)
            rows = numpy.arange(codes.shape[0]) // group
            weight = ((codes - zeros[rows]) * scales.astype(numpy.float32)[rows]).T
            plain[f"{module}.weight"] = ("F32", list(weight.shape), weight.astype("<f4").tobytes())
        elif part not in ("qzeros", "scales"):
            plain[name] = value
    write_folder(tmp_path / "plain", source, plain)
    mine, _ = logprobs(source, compute="fp32")
    theirs, _ = logprobs(tmp_path / "plain", compute="fp32")
    assert numpy.abs(numpy.array(mine) - theirs).max() < 1e-5


def test_integers_without_a_configuration_are_refused(tmp_path):
    shutil.copytree(quant / "ct-w8a8", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(orlop.UnsupportedError, match="proj.weight holds i8, and no quantization_config"):
        orlop.Engine(tmp_path / "m", **small)


@pytest.mark.parametrize("folder, tensor, config", [
    ("awq-4", "model.layers.0.mlp.up_proj.scales", {}),
    ("ct-fp8-block", "model.layers.0.self_attn.o_proj.weight_scale", {}),
    (None, "model.layers.1.mlp.down_proj.weight", {"quant": "iq"}),
])
def test_numbers_that_are_none(tmp_path, folder, tensor, config):
    """NaN where a scale, or a weight to be quantized, should be: found while packing, by name."""
    shutil.copytree(quant / folder if folder else tiny / "llama", tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    data = bytearray(file.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8 : 8 + size])[tensor]
    at = 8 + size + entry["data_offsets"][0]
    nan = {"F16": b"\x00\x7e", "BF16": b"\xc0\x7f", "F32": b"\x00\x00\xc0\x7f"}[entry["dtype"]]
    data[at : at + len(nan)] = nan
    file.write_bytes(data)
    with pytest.raises(orlop.BadFormatError, match=tensor):
        orlop.Engine(tmp_path / "m", **small, **config)


def test_orders_that_differ_are_refused(tmp_path):
    """q, k and v are multiplied together: one order of the inputs for all three."""
    shutil.copytree(quant / "gptq-4-sym-v1-order", tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    data = bytearray(file.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8 : 8 + size])["model.layers.0.self_attn.k_proj.g_idx"]
    at = 8 + size + entry["data_offsets"][0]
    g_idx = numpy.frombuffer(data, "<i4", 128, at).copy()
    other = int(numpy.flatnonzero(g_idx != g_idx[0])[0])
    g_idx[[0, other]] = g_idx[[other, 0]]
    data[at : at + 512] = g_idx.tobytes()
    file.write_bytes(data)
    with pytest.raises(orlop.UnsupportedError, match="q_proj and .*k_proj order their inputs"):
        orlop.Engine(tmp_path / "m", **small)


def compare(*words):
    done = run("eval", *words, "--json", "-q", "--threads", "2", "--max-context", "512")
    return json.loads(done.stdout)


def test_against_model(model_path):
    text = root / "LICENSE"
    found = compare(model_path, text, "--tokens", "40", "--against-model", model_path,
                    "--compute", "fp32")["model_quality"]
    assert found["mean_difference"] == found["kl"] == found["perplexity_change"] == 0
    assert found["argmax_equal"] == found["scored"] == 39
    found = compare(model_path, text, "--tokens", "40", "--against-model", model_path,
                    "--compute", "bf16")["model_quality"]
    assert 0 < found["mean_difference"] < 0.1 and 0 < found["kl"] < 0.01
    assert "needs a text" in run("eval", model_path, "--against-model", model_path,
                                 "--reference", "x", code=2).stderr
