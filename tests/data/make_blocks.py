"""Writes blocks.bin: random blocks of every quantized GGUF type and what the Python package `gguf`
dequantizes them to. Per type: name in 8 bytes, raw bytes, 512 float32 values."""

import pathlib

import gguf
import numpy as np

TYPES = {  # type -> where a block holds its float16 scales
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0],
}

rng = np.random.default_rng(1)
out = b""
for name, scales in TYPES.items():
    kind = gguf.GGMLQuantizationType[name]
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (512 // elems, size), dtype=np.uint8)
    for at in scales:  # any finite float16, subnormals included
        blocks[:, at + 1] = np.where((blocks[:, at + 1] & 0x7C) == 0x7C, blocks[:, at + 1] & 0x8F, blocks[:, at + 1])
    values = gguf.quants.dequantize(blocks.reshape(1, -1), kind).astype(np.float32)
    assert values.size == 512 and np.isfinite(values).all()
    out += name.lower().encode().ljust(8, b"\0") + blocks.tobytes() + values.tobytes()
pathlib.Path(__file__).with_name("blocks.bin").write_bytes(out)
