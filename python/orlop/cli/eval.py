"""orlop eval: perplexity of a text, agreement with reference values."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import deque
from typing import Any

from .._engine import Engine
from .._request import Request, Result
from ..errors import QueueFullError
from . import common


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "eval",
        help="perplexity of a text file, agreement with a reference file",
        description="Perplexity of a text file, without special tokens. A text longer than the "
        "window is scored in windows of that many tokens that advance by the stride; each window "
        "scores the tokens that the one before did not reach. With --reference: agreement with a "
        "JSON file of prompts, prompt logprobs and greedy continuations with margins.",
    )
    parser.add_argument("model", help="a checkpoint folder or a .gguf file")
    parser.add_argument("file", nargs="?", help="a UTF-8 text")
    parser.add_argument("--tokens", type=common.positive, help="only the first N tokens")
    parser.add_argument("--window", type=common.positive, help="default: 2048 or the context")
    parser.add_argument("--stride", type=common.positive, help="default: the window")
    parser.add_argument("--reference", metavar="FILE.json", help="reference values")
    parser.add_argument(
        "--margin",
        type=float,
        default=0.2,
        help="compare greedy steps whose reference margin is at least this (default 0.2)",
    )
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    common.add_engine_options(parser)
    parser.set_defaults(run=_run, parser=parser)


def _run(args: argparse.Namespace) -> int:
    if args.file is None and args.reference is None:
        raise common.UsageError("give a text file, --reference, or both")
    with common.load(args) as engine:
        out: dict[str, Any] = {"model": args.model, "compute": engine.info.get("compute")}
        if args.file is not None:
            with open(args.file, encoding="utf-8", errors="replace") as file:
                text = file.read()
            out["perplexity"] = perplexity(engine, text, args.tokens, args.window, args.stride)
        if args.reference is not None:
            with open(args.reference, encoding="utf-8") as file:
                try:
                    reference = json.load(file)
                except ValueError as error:
                    raise OSError(f"{args.reference}: not JSON: {error}") from None
            out["agreement"] = agreement(engine, _checked(reference, args.reference), args.margin)
    if args.json:
        json.dump(out, sys.stdout, indent=1)
        print()
        return 0
    if "perplexity" in out:
        p = out["perplexity"]
        print(
            f"perplexity {p['perplexity']:.4f} over {p['scored']} of {p['tokens']} tokens, "
            f"window {p['window']}, stride {p['stride']}, {p['tokens_per_second']:.0f} tokens/s"
        )
    if "agreement" in out:
        a = out["agreement"]
        print(f"prompts whose token ids agree: {a['tokenized']} of {a['prompts']}")
        print(
            f"mean |prompt logprob error| {a['mean_logprob_error']:.5f} "
            f"(largest {a['max_logprob_error']:.5f}, {a['logprobs']} tokens)"
        )
        print(
            f"best token agrees at {a['argmax_equal']} of {a['argmax_steps']} steps "
            f"with a margin of at least {a['margin']:g}"
        )
    return 0


def _score(engine: Engine, prompts: list[list[int]], prompt_logprobs: int) -> list[Result]:
    """The prompts' own logprobs; nothing is generated."""
    results: list[Result] = []
    running: deque[Request] = deque()
    for tokens in prompts:
        while True:
            try:
                running.append(
                    engine.async_generate(
                        tokens=tokens, max_tokens=0, prompt_logprobs=prompt_logprobs
                    )
                )
                break
            except QueueFullError:
                if not running:
                    raise
                results.append(running.popleft().result())
    results += [request.result() for request in running]
    return results


def perplexity(
    engine: Engine,
    text: str,
    tokens: int | None = None,
    window: int | None = None,
    stride: int | None = None,
) -> dict[str, Any]:
    """exp of the mean negative logprob of a text's tokens, the first one excepted."""
    ids = engine.encode(text)[:tokens]
    if len(ids) < 2:
        raise common.UsageError("the text must have at least two tokens")
    context = int(engine.info["limits"]["request_tokens"])
    window = min(window or 2048, context)
    stride = min(stride or window, window)
    if window < 2:
        raise common.UsageError("the window must have at least two tokens")
    windows: list[tuple[int, int, int]] = []  # begin, end, first token scored
    scored_to = 0
    begin = 0
    while True:
        end = min(begin + window, len(ids))
        windows.append((begin, end, max(scored_to, begin + 1)))
        scored_to = end
        if end == len(ids):
            break
        begin += stride
    start = time.monotonic()
    results = _score(engine, [ids[a:b] for a, b, _ in windows], 0)
    seconds = time.monotonic() - start
    total, scored = 0.0, 0
    for (begin, _, first), result in zip(windows, results):
        assert result.prompt_logprobs is not None
        part = result.prompt_logprobs[first - begin :]
        total -= math.fsum(part)
        scored += len(part)
    return {
        "tokens": len(ids),
        "scored": scored,
        "window": window,
        "stride": stride,
        "mean_nll": total / scored,
        "perplexity": math.exp(total / scored),
        "tokens_per_second": sum(b - a for a, b, _ in windows) / seconds,
    }


def _checked(reference: Any, path: str) -> list[dict[str, Any]]:
    keys = ("text", "ids", "prompt_logprobs", "greedy", "greedy_margin")
    if not isinstance(reference, list) or not reference:
        raise OSError(f"{path}: must be a JSON array of prompts")
    for number, entry in enumerate(reference):
        missing = [k for k in keys if not isinstance(entry, dict) or k not in entry]
        if missing:
            raise OSError(f"{path}: entry {number} lacks {', '.join(missing)}")
        if (
            len(entry["prompt_logprobs"]) != len(entry["ids"]) - 1
            or len(entry["greedy"]) != len(entry["greedy_margin"])
        ):
            raise OSError(f"{path}: entry {number}: lengths disagree")
    return reference


def agreement(engine: Engine, reference: list[dict[str, Any]], margin: float) -> dict[str, Any]:
    """How a model's own numbers compare with reference values.

    The reference's greedy tokens are fed, so that one disagreement does not spoil what follows.
    """
    results = _score(engine, [entry["ids"] + entry["greedy"] for entry in reference], 1)
    errors: list[float] = []
    tokenized = steps = equal = 0
    misses: list[dict[str, Any]] = []
    for number, (entry, result) in enumerate(zip(reference, results)):
        ids, greedy = entry["ids"], entry["greedy"]
        tokenized += engine.encode(entry["text"], parse_special=True) == ids
        assert result.prompt_logprobs is not None and result.prompt_top_logprobs is not None
        mine = result.prompt_logprobs[1 : len(ids)]
        errors += [abs(a - b) for a, b in zip(mine, entry["prompt_logprobs"])]
        for step, (token, gap) in enumerate(zip(greedy, entry["greedy_margin"])):
            if gap < margin:
                continue
            steps += 1
            best = result.prompt_top_logprobs[len(ids) + step][0][0]
            if best == token:
                equal += 1
            else:
                misses.append({"prompt": number, "step": step, "margin": gap, "got": best})
    return {
        "prompts": len(reference),
        "tokenized": tokenized,
        "logprobs": len(errors),
        "mean_logprob_error": math.fsum(errors) / len(errors) if errors else 0.0,
        "max_logprob_error": max(errors, default=0.0),
        "margin": margin,
        "argmax_steps": steps,
        "argmax_equal": equal,
        "argmax_misses": misses,
    }
