"""orlop bench: prefill and decode speed; orlop bench serve: see bench_serve."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from typing import Any

from .. import __version__, _native
from .._engine import Engine
from . import bench_serve, common


def add_command(commands: Any) -> None:
    options = common.Options()
    options.add_argument("--batch", type=common.counts, default=[1], help="e.g. 1,4,8 (default 1)")
    options.add_argument(
        "--prompt", type=common.positive, default=512, help="tokens (default 512)"
    )
    options.add_argument("--gen", type=common.positive, default=32, help="tokens (default 32)")
    options.add_argument("--repeat", type=common.positive, default=3, help="default 3")
    options.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    common.add_engine_options(options)
    parser = commands.add_parser(
        "bench",
        parents=[options],
        help="prefill and decode tokens/s; bench serve: load on a server",
        description="Speed with random prompts. Prefill: prompt tokens of the whole batch over the "
        "time to its last first token. Decode: output tokens of the whole batch over the time from "
        "there to the end, at contexts from PROMPT on. Medians of the repeats. A model so small that "
        "its whole output arrives at once has no decode time: - (null in JSON). With serve as its first "
        "word it drives a running server: orlop bench serve URL, see orlop bench serve --help. (A "
        "model in a folder of that name is ./serve.)",
    )
    parser.add_argument("model", help="a checkpoint folder or a .gguf file")
    parser.set_defaults(run=_run, parser=parser)
    parser.forms["serve"] = bench_serve.make_parser(f"{parser.prog} serve")


def _run(args: argparse.Namespace) -> int:
    if args.gen < 2:
        raise common.UsageError("--gen must be at least 2: decoding is timed from token to token")
    rows: list[dict[str, Any]] = []
    with common.load(args) as engine:
        info = engine.info
        measure(engine, 1, 16, 4, random.Random(0))  # warm up: pages touched, threads awake
        for batch in args.batch:
            chance = random.Random(batch)
            runs = [
                measure(engine, batch, args.prompt, args.gen, chance) for _ in range(args.repeat)
            ]
            row: dict[str, Any] = {"batch": batch}
            for key in ("prefill_tokens_per_second", "decode_tokens_per_second", "ttft_seconds"):
                values = [run[key] for run in runs]
                timed = [value for value in values if value is not None]
                row[key] = statistics.median(timed) if timed else None
                row[key + "_runs"] = values
            rows.append(row)
            if not args.json:
                if len(rows) == 1:
                    print(
                        f"compute {info['compute']}, {info['kernels']}, {info['threads']} threads; "
                        f"prompt {args.prompt}, gen {args.gen}, median of {args.repeat}"
                    )
                    print(f"{'batch':>6} {'prefill tok/s':>14} {'decode tok/s':>14} {'first s':>9}")
                print(
                    f"{batch:6d} {_shown(row['prefill_tokens_per_second'], 14, 1)} "
                    f"{_shown(row['decode_tokens_per_second'], 14, 1)} "
                    f"{_shown(row['ttft_seconds'], 9, 3)}",
                    flush=True,
                )
    if args.json:
        out = {
            "version": __version__,
            "model": args.model,
            "prompt": args.prompt,
            "gen": args.gen,
            "repeat": args.repeat,
            "engine": info,
            "results": rows,
        }
        json.dump(out, sys.stdout, indent=1)
        print()
    return 0


def _shown(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"


def _rate(tokens: int, seconds: float) -> float | None:
    """None: nothing was timed."""
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def measure(
    engine: Engine, batch: int, prompt: int, gen: int, chance: random.Random
) -> dict[str, float | None]:
    """One run of `batch` equal requests with random prompts; None where no time passed."""
    vocab = int(engine.info["vocab"])
    # Ordinary ids only: the lowest ones are control tokens in many vocabularies.
    low = min(256, vocab // 2)
    prompts = [[chance.randrange(low, vocab) for _ in range(prompt)] for _ in range(batch)]
    # The first to be prefilled decode while the others are not yet done: they get more tokens, so
    # that the whole batch is there until the last one has made its own.
    tokens = gen + batch * prompt // 128 + 8
    params = {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True, "temperature": 0.0}
    queue = _native.Queue(engine._handle)
    start = time.perf_counter()
    requests = [
        engine._handle.submit(None, ids, None, params, queue, tag)
        for tag, ids in enumerate(prompts)
    ]
    first: dict[int, float] = {}
    counts = [0] * batch
    decoded = 0  # since the last request's first token
    begin = end = start
    while len(first) < batch or min(counts) < gen:
        tag = queue.wait(None)
        assert tag is not None
        output = requests[tag].get(0)
        if output is None:
            continue
        end = time.perf_counter()
        if output.finish_reason not in (None, "length"):
            raise common.CommandError(f"a request ended early: {output.finish_reason} {output.message}")
        if not output.tokens:
            continue
        if len(first) == batch:
            decoded += len(output.tokens)
        counts[tag] += len(output.tokens)
        if tag not in first:
            first[tag] = begin = end
    for request in requests:
        request.close()
    queue.close()
    return {
        "prefill_tokens_per_second": _rate(batch * prompt, begin - start),
        "decode_tokens_per_second": _rate(decoded, end - begin),
        "ttft_seconds": statistics.median(t - start for t in first.values()),
    }
