"""accuracy.py FOLDER TEXT [--tokens N] [--only WORD]: what every weight format and setting costs.

FOLDER holds float weights (bench/dequantize_gguf.py makes one); its logprobs in compute fp32 with an
fp32 KV cache are the base. One row for each format and compute setting: what `orlop eval FOLDER TEXT
--against-model FOLDER --kv-dtype fp32 ...` says, with the base computed once.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import orlop

FORMATS = {
    "float32": {},
    "int8 g32": {"quant": "iq", "quant_bits": 8},
    "int8 channel": {"quant": "iq", "quant_bits": 8, "quant_granularity": "per_channel"},
    "int4 g32 asym": {"quant": "iq", "quant_bits": 4},
    "int4 g32 sym": {"quant": "iq", "quant_bits": 4, "quant_symmetric": True},
    "int4 g128 asym": {"quant": "iq", "quant_bits": 4, "quant_group_size": 128},
    "int4 channel asym": {"quant": "iq", "quant_bits": 4, "quant_granularity": "per_channel"},
}
ROWS = [("float32", "bf16")]
ROWS += [(f, c) for f in ("int8 g32", "int8 channel") for c in ("fp32", "bf16", "int8")]
ROWS += [("int4 g32 asym", c) for c in ("bf16", "int8")]
ROWS += [(f, "int8") for f in ("int4 g32 sym", "int4 g128 asym", "int4 channel asym")]
A8W8 = {"quant": "a8w8"}


def logprobs(engine: orlop.Engine, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Of each token given those before it: [n - 1], and of all tokens there: [n - 1, vocab]."""
    result = engine.async_generate(tokens=ids, max_tokens=0, prompt_logprobs=-1).result()
    rows = [np.asarray(result.prompt_top_logprobs.by_token(i)) for i in range(1, len(ids))]
    return np.array(result.prompt_logprobs[1:]), np.stack(rows).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    common = {"max_context": 1024, "kv_bytes": 200_000_000, "kv_dtype": "fp32"}

    base, windows = [], []
    with orlop.Engine(args.folder, compute="fp32", **common) as engine:
        with open(args.text, encoding="utf-8") as text:
            ids = engine.encode(text.read())[: args.tokens]
        windows = [ids[i : i + 1024] for i in range(0, len(ids), 1024)]
        windows = [w for w in windows if len(w) > 1]
        base = [logprobs(engine, w) for w in windows]
    scored = sum(len(w) - 1 for w in windows)
    base_nll = -sum(float(chosen.sum()) for chosen, _ in base) / scored
    print(f"{scored} of {len(ids)} tokens, windows of 1024, perplexity {math.exp(base_nll):.4f}", flush=True)
    print("| weights | compute | MB | mean error of a logprob | KL | perplexity | best token the same |")
    print("|---|---|---|---|---|---|---|", flush=True)
    rows = [(f, c, FORMATS[f]) for f, c in ROWS] + [("int8 channel", "a8", A8W8)]
    for name, compute, settings in rows:
        if args.only not in f"{name} {compute}":
            continue
        error = kl = nll = 0.0
        same = 0
        with orlop.Engine(args.folder, compute=compute, **settings, **common) as engine:
            size = engine.info["weight_bytes"] / 1e6
            for window, (chosen, rows_of_base) in zip(windows, base):
                mine, mine_rows = logprobs(engine, window)
                error += float(np.abs(mine - chosen).sum())
                nll -= float(mine.sum())
                for p, q in zip(rows_of_base, mine_rows):
                    p64 = p.astype(np.float64)
                    kl += float(np.sum(np.exp(p64) * (p64 - q)))
                    same += int(np.argmax(p) == np.argmax(q))
        change = math.exp(nll / scored - base_nll) - 1
        print(f"| {name} | {compute} | {size:.0f} | {error / scored:.4f} | {kl / scored:.4f} | "
              f"{change:+.2%} | {same / scored:.1%} |", flush=True)


if __name__ == "__main__":
    main()
