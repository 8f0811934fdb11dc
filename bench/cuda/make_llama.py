"""Writes a Llama checkpoint of real shape with random weights: make_llama.py 1b|8b FOLDER.

For timing alone: bfloat16 safetensors, a vocabulary of 128,256 and no tokenizer. The values are normal with
a deviation of 0.02, from a block of 8 million that is repeated.
"""
import json
import pathlib
import random
import struct
import sys

SHAPES = {
    "1b": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64),
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128),
}


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


def main(kind, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = dict(SHAPES[kind], architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", vocab_size=128256, rms_norm_eps=1e-5,
                  rope_theta=500000.0, max_position_embeddings=131072, tie_word_embeddings=False, bos_token_id=128000, eos_token_id=128001, torch_dtype="bfloat16")
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, shape in tensors(config):
        size = 2
        for n in shape:
            size *= n
        header[name] = dict(dtype="BF16", shape=list(shape), data_offsets=[at, at + size])
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = random.Random(1)
    values = bytearray()
    for _ in range(1 << 16):  # the upper half of a float32
        values += struct.pack("<f", draw.gauss(0, 0.02))[2:]
    block = bytearray()
    while len(block) < 16 << 20:
        turn = draw.randrange(0, len(values), 2)
        block += values[turn:] + values[:turn]
    ones = struct.pack("<f", 1.0)[2:]
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors(config):
            size = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
            if len(shape) == 1:
                f.write(ones * shape[0])
                continue
            while size:
                n = min(size, len(block))
                f.write(memoryview(block)[:n])
                size -= n


if __name__ == "__main__":
    main(*sys.argv[1:])
