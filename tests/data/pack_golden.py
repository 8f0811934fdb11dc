"""Rewrites each tiny checkpoint's golden.npz as golden.bin, which the C++ tests read.

golden.bin, little endian: int32 count; then for each prompt int32 tokens, vocab, steps; int32 ids
[tokens]; float32 logits [tokens, vocab]; int32 greedy [steps]; float32 margin [steps].
Run from the repository root after changing a checkpoint: python tests/data/pack_golden.py
"""
import pathlib
import struct

import numpy as np

for npz in sorted(pathlib.Path(__file__).parent.glob("tiny/*/golden.npz")):
    data = np.load(npz)
    count = sum(1 for k in data if k.startswith("ids"))
    with open(npz.with_suffix(".bin"), "wb") as out:
        out.write(struct.pack("<i", count))
        for i in range(count):
            ids, logits = data[f"ids{i}"], data[f"logits{i}"]
            greedy, margin = data[f"greedy{i}"], data[f"margin{i}"]
            out.write(struct.pack("<iii", len(ids), logits.shape[1], len(greedy)))
            for array, kind in ((ids, "<i4"), (logits, "<f4"), (greedy, "<i4"), (margin, "<f4")):
                out.write(np.ascontiguousarray(array, dtype=kind).tobytes())
