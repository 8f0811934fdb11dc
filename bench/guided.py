#!/usr/bin/env python3
"""What guides cost a batch: the same requests with and without one, in turns.

    python3 bench/guided.py model.gguf [--streams 32] [--tokens 64] [--rounds 5]

The guide is a JSON schema whose texts are longer than --tokens, so that every request gives as many tokens with it
as without. Prints tokens a second of both, medians of the rounds, and their ratio.
"""
import argparse
import statistics
import time

import orlop

guide = {"json_schema": {
    "type": "array", "minItems": 500,
    "items": {"type": "object", "required": ["name", "age", "kind"], "additionalProperties": False, "properties": {
        "name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["ship", "boat", "raft"]}, "note": {"type": "string"}}}}}


def run(engine, args, seed, **params):
    start = time.perf_counter()
    requests = [engine.async_generate(f"A list of {i} things, as JSON:", max_tokens=args.tokens, seed=seed + i,
                                      temperature=0.8, **params) for i in range(args.streams)]
    tokens = sum(len(r.result().tokens) for r in requests)
    seconds = time.perf_counter() - start
    assert tokens == args.streams * args.tokens, tokens
    return tokens / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    with orlop.Engine(args.model, threads=args.threads, max_running_seqs=max(64, args.streams)) as engine:
        run(engine, args, 0, guide=guide)  # compiles the guide, fills the prefix cache
        free, guided = [], []
        for r in range(args.rounds):
            free.append(run(engine, args, 1000 * r, ignore_eos=True))
            guided.append(run(engine, args, 1000 * r, guide=guide))
        ratio = statistics.median(g / f for g, f in zip(guided, free))
        print(f"free   {statistics.median(free):8.1f} tokens/s ({min(free):.1f} to {max(free):.1f})")
        print(f"guided {statistics.median(guided):8.1f} tokens/s ({min(guided):.1f} to {max(guided):.1f})")
        print(f"guided of free: {ratio:.1%} (median of {args.rounds} rounds)")


if __name__ == "__main__":
    main()
