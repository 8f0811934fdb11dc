"""Recomputes tests/data/tiny/*/golden.npz with Hugging Face transformers in float32.

Prompts are kept; logits, greedy continuation and margins are computed anew from the checkpoint
loaded with dtype=float32. (Casting a model to bfloat16 and back is not the same: it also rounds the
rotary inverse frequencies, which moves logits by up to 1 % of the largest.)
Run from the repository root in an environment with torch and transformers (made with 2.13.0 and
5.x): python tests/data/make_golden.py, then python tests/data/pack_golden.py
"""
import pathlib

import numpy as np
import torch
from transformers import AutoModelForCausalLM

for npz in sorted(pathlib.Path(__file__).parent.glob("tiny/*/golden.npz")):
    model = AutoModelForCausalLM.from_pretrained(npz.parent, dtype=torch.float32).eval()
    old, new = np.load(npz), {}
    for i in range(sum(1 for k in old if k.startswith("ids"))):
        ids = torch.tensor(old[f"ids{i}"][None].astype(np.int64))
        steps, greedy, margin = len(old[f"greedy{i}"]), [], []
        with torch.no_grad():
            logits = model(ids).logits[0]
            new[f"ids{i}"], new[f"logits{i}"] = old[f"ids{i}"], logits.numpy().astype(np.float32)
            for _ in range(steps):
                best = torch.topk(logits[-1], 2)
                greedy.append(int(best.indices[0]))
                margin.append(float(best.values[0] - best.values[1]))
                ids = torch.cat([ids, best.indices[:1][None]], dim=1)
                logits = model(ids).logits[0]
        new[f"greedy{i}"] = np.array(greedy, dtype=np.int32)
        new[f"margin{i}"] = np.array(margin, dtype=np.float32)
    np.savez_compressed(npz, **new)
