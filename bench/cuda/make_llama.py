"""Writes a Llama checkpoint of real shape with random weights: make_llama.py 1b|8b|tiny FOLDER [bf16|fp8].

For timing alone: safetensors, a vocabulary of 128,256 and no tokenizer. The values are normal with a deviation
of 0.02, from a block that is repeated. fp8: the layers' matrices in e4m3 with a scale for each row
(compressed-tensors, float-quantized), embedding, head and norms in bfloat16. tiny: to see that it runs.
"""
import bisect
import json
import pathlib
import random
import struct
import sys

SHAPES = {
    "1b": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64),
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128),
    "tiny": dict(hidden_size=256, intermediate_size=768, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64, vocab_size=32768),
}
FP8 = dict(quant_method="compressed-tensors", format="float-quantized", quantization_status="compressed", ignore=["lm_head"],
           config_groups=dict(group_0=dict(targets=["Linear"], weights=dict(type="float", num_bits=8, strategy="channel", symmetric=True, dynamic=False),
                                          input_activations=dict(type="float", num_bits=8, strategy="token", symmetric=True, dynamic=True))))


def tensors(c):
    dim, ffn, kv, q = c["hidden_size"], c["intermediate_size"], c["num_key_value_heads"] * c["head_dim"], c["num_attention_heads"] * c["head_dim"]
    yield "model.embed_tokens.weight", (c["vocab_size"], dim)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name, shape in [("self_attn.q_proj", (q, dim)), ("self_attn.k_proj", (kv, dim)), ("self_attn.v_proj", (kv, dim)), ("self_attn.o_proj", (dim, q)),
                            ("mlp.gate_proj", (ffn, dim)), ("mlp.up_proj", (ffn, dim)), ("mlp.down_proj", (dim, ffn)), ("input_layernorm", (dim,)), ("post_attention_layernorm", (dim,))]:
            yield p + name + ".weight", shape
    yield "model.norm.weight", (dim,)
    yield "lm_head.weight", (c["vocab_size"], dim)


def normal_bf16(draw):
    """The upper half of a float32."""
    return struct.pack("<f", draw.gauss(0, 0.02))[2:]


def positive_e4m3():
    """Of the codes 0 to 126, in order: 4 bits of exponent from -6 (and below it the subnormals), 3 of mantissa."""
    return [(8 + c % 8) * 2.0 ** (c // 8 - 10) if c >= 8 else c * 2.0**-9 for c in range(127)]


def normal_e4m3(draw, values=positive_e4m3()):
    """A deviation of 1: the scales make it 0.02."""
    v = draw.gauss(0, 1)
    above = min(bisect.bisect(values, abs(v)), 126)
    code = above if values[above] - abs(v) < abs(v) - values[above - 1] else above - 1
    return bytes([code | (128 if v < 0 else 0)])


def repeated(one, draw):
    """16 MiB: 65,536 values, from another one of them on each time."""
    values = b"".join(one(draw) for _ in range(1 << 16))
    size = len(values) >> 16
    block = bytearray()
    while len(block) < 16 << 20:
        turn = draw.randrange(0, len(values), size)
        block += values[turn:] + values[:turn]
    return block


def main(kind, folder, form="bf16"):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = dict(dict(vocab_size=128256), **SHAPES[kind], architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", rms_norm_eps=1e-5,
                  rope_theta=500000.0, max_position_embeddings=131072, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, torch_dtype="bfloat16")
    if form == "fp8":
        config["quantization_config"] = FP8
    elif form != "bf16":
        sys.exit(f"{form} is neither bf16 nor fp8")
    (folder / "config.json").write_text(json.dumps(config))
    draw = random.Random(1)
    blocks = {"BF16": repeated(normal_bf16, draw)}
    if form == "fp8":
        blocks["F8_E4M3"] = repeated(normal_e4m3, draw)
    header, writes, at = {}, [], 0

    def add(name, dtype, shape, block):
        nonlocal at
        size = 1 if dtype == "F8_E4M3" else 2
        for n in shape:
            size *= n
        header[name] = dict(dtype=dtype, shape=list(shape), data_offsets=[at, at + size])
        writes.append((size, block))
        at += size

    for name, shape in tensors(config):
        if len(shape) == 1:
            add(name, "BF16", shape, struct.pack("<f", 1.0)[2:] * shape[0])
        elif form == "fp8" and "_proj" in name:
            add(name, "F8_E4M3", shape, blocks["F8_E4M3"])
            add(name + "_scale", "BF16", (shape[0], 1), struct.pack("<f", 0.02)[2:] * shape[0])
        else:
            add(name, "BF16", shape, blocks["BF16"])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for size, block in writes:
            while size:
                n = min(size, len(block))
                f.write(memoryview(block)[:n])
                size -= n


if __name__ == "__main__":
    main(*sys.argv[1:])
