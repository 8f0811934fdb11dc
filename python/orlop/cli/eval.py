"""orlop eval: perplexity of a text, agreement with reference values."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .._engine import Engine
from .._request import Request, Result
from ..errors import QueueFullError
from . import common


def add_command(commands: Any) -> None:
    options = common.Options()
    options.add_argument("--tokens", type=common.positive, help="only the first N tokens")
    options.add_argument("--window", type=common.positive, help="default: 2048 or the context")
    options.add_argument("--stride", type=common.positive, help="default: the window")
    options.add_argument("--reference", metavar="FILE.json", help="reference values")
    options.add_argument(
        "--margin",
        type=common.number(),
        default=0.2,
        help="compare greedy steps whose reference margin is at least this (default 0.2)",
    )
    options.add_argument(
        "--against",
        metavar="KV_DTYPE",
        help="compare --kv-dtype with this one over the text (needs numpy): mean |logprob "
        "difference|, KL divergence and perplexity, in windows of 1024 by default",
    )
    options.add_argument(
        "--against-model",
        metavar="MODEL",
        help="compare with this model over the text (needs numpy), computed in fp32 with the "
        "weights and the KV cache as they are: as --against, and how often the best token is the "
        "same",
    )
    options.add_argument(
        "--json",
        action="store_true",
        help="the figures as JSON on stdout; a figure beyond a double's range is null",
    )
    common.add_engine_options(options)
    parser = commands.add_parser(
        "eval",
        parents=[options],
        help="perplexity of a text file, agreement with a reference file",
        description="Perplexity of a text file, without special tokens. A text longer than the "
        "window is scored in windows of that many tokens that advance by the stride; each window "
        "scores the tokens that the one before did not reach. With --reference: agreement with a "
        "JSON file of prompts, prompt logprobs and greedy continuations with margins. "
        "A model that gives NaN is an error.",
    )
    parser.add_argument("model", help="a checkpoint folder or a .gguf file")
    parser.add_argument("file", nargs="?", help="a UTF-8 text")
    parser.set_defaults(run=_run, parser=parser)


def _run(args: argparse.Namespace) -> int:
    if args.file is None and args.reference is None:
        raise common.UsageError("give a text file, --reference, or both")
    if args.against is not None and args.against_model is not None:
        raise common.UsageError("--against and --against-model: one comparison at a time")
    for option, value in (("--against", args.against), ("--against-model", args.against_model)):
        if value is not None and args.file is None:
            raise common.UsageError(f"{option} needs a text file")
    # Both files before the model: their errors come at once.
    text = reference = None
    if args.file is not None:
        with open(args.file, encoding="utf-8", errors="replace") as file:
            text = file.read()
    if args.reference is not None:
        reference = read_reference(args.reference)
    with common.load(args) as engine:
        out: dict[str, Any] = {"model": args.model, "compute": engine.info.get("compute")}
        if text is not None and args.against is not None:
            with _against(args) as base:
                found = quality(engine, base, text, args.tokens, args.window or 1024)
                out["kv"] = {
                    "dtype": engine.info["kv"]["dtype"],
                    "against": base.info["kv"]["dtype"],
                    **found,
                }
        elif text is not None and args.against_model is not None:
            with _against_model(args) as base:
                found = quality(engine, base, text, args.tokens, args.window or 1024)
                out["model_quality"] = {
                    "quant": engine.info["quant"],
                    "against": args.against_model,
                    **found,
                }
        elif text is not None:
            out["perplexity"] = perplexity(engine, text, args.tokens, args.window, args.stride)
        if reference is not None:
            check_fits(engine, reference, args.reference)
            out["agreement"] = agreement(engine, reference, args.margin)
    if args.json:
        json.dump(_json_safe(out), sys.stdout, indent=1, allow_nan=False)
        print()
        return 0
    if "perplexity" in out:
        p = out["perplexity"]
        shown = f"{p['perplexity']:.4f}"
        if math.isinf(p["perplexity"]):
            shown = f"inf (beyond a double: exp of {p['mean_nll']:g})"
        print(
            f"perplexity {shown} over {p['scored']} of {p['tokens']} tokens, "
            f"window {p['window']}, stride {p['stride']}, {p['tokens_per_second']:.0f} tokens/s"
        )
    for name in ("kv", "model_quality"):
        if name not in out:
            continue
        k = out[name]
        which = f"kv_dtype {k['dtype']}" if name == "kv" else args.model
        print(
            f"{which} against {k['against']} over {k['scored']} of {k['tokens']} tokens, "
            f"window {k['window']}"
        )
        print(
            f"mean |logprob difference| {k['mean_difference']:.5f} "
            f"(largest {k['max_difference']:.4f}), KL {k['kl']:.6f}"
        )
        if name == "model_quality":
            print(f"best token the same at {k['argmax_equal']} of {k['scored']} positions")
        print(
            f"perplexity {k['perplexity']:.4f} against {k['perplexity_against']:.4f} "
            f"({k['perplexity_change']:+.3%})"
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


def _json_safe(value: Any) -> Any:
    """JSON has no infinity: null."""
    if isinstance(value, dict):
        return {key: _json_safe(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_json_safe(part) for part in value]
    return None if isinstance(value, float) and math.isinf(value) else value


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


def _against(args: argparse.Namespace) -> Engine:
    other = argparse.Namespace(**vars(args))
    other.kv_dtype, other.quiet = args.against, True
    return common.load(other)


def _against_model(args: argparse.Namespace) -> Engine:
    other = argparse.Namespace(**vars(args))
    for key in common.engine_keys():
        if key.startswith("quant"):
            setattr(other, key, None)
    other.model, other.compute, other.quiet = args.against_model, "fp32", True
    return common.load(other)


def quality(
    engine: Engine, base: Engine, text: str, tokens: int | None, window: int
) -> dict[str, Any]:
    """How the distributions of two engines differ over a text in windows, each on its own."""
    try:
        import numpy as np
    except ImportError:
        raise common.CommandError("a comparison needs numpy") from None
    if engine.info["vocab"] != base.info["vocab"]:
        raise common.CommandError(
            f"the models' vocabularies differ: {engine.info['vocab']} and {base.info['vocab']}"
        )
    ids = engine.encode(text)[:tokens]
    if len(ids) < 2:
        raise common.UsageError("the text must have at least two tokens")
    context = min(int(e.info["limits"]["request_tokens"]) for e in (engine, base))
    window = min(window, context)
    if window < 2:
        raise common.UsageError("the window must have at least two tokens")
    differences: list[float] = []
    kl: list[float] = []
    sums = [0.0, 0.0]
    same = 0
    for begin in range(0, len(ids), window):
        part = ids[begin : begin + window]
        if len(part) < 2:
            break
        mine, theirs = (_score(e, [part], -1)[0] for e in (engine, base))
        for i, result in enumerate((mine, theirs)):
            assert result.prompt_logprobs is not None
            sums[i] -= math.fsum(result.prompt_logprobs[1:])
        assert mine.prompt_logprobs is not None and theirs.prompt_logprobs is not None
        differences += [
            abs(a - b) for a, b in zip(mine.prompt_logprobs[1:], theirs.prompt_logprobs[1:])
        ]
        assert mine.prompt_top_logprobs is not None and theirs.prompt_top_logprobs is not None
        for row in range(1, len(part)):  # KL(base || engine) of each next-token distribution
            q = np.asarray(mine.prompt_top_logprobs.by_token(row)).astype(np.float64)
            p = np.asarray(theirs.prompt_top_logprobs.by_token(row)).astype(np.float64)
            kl.append(float(np.sum(np.exp(p) * (p - q))))
            same += int(np.argmax(p) == np.argmax(q))
    scored = len(differences)
    perplexities = [_exp(s / scored) for s in sums]
    return {
        "tokens": len(ids),
        "scored": scored,
        "window": window,
        "argmax_equal": same,
        "mean_difference": math.fsum(differences) / scored,
        "max_difference": max(differences),
        "kl": math.fsum(kl) / scored,
        "perplexity": perplexities[0],
        "perplexity_against": perplexities[1],
        "perplexity_change": perplexities[0] / perplexities[1] - 1,
    }


def perplexity(
    engine: Engine,
    text: str,
    tokens: int | None = None,
    window: int | None = None,
    stride: int | None = None,
) -> dict[str, Any]:
    """exp of the mean negative logprob of a text's tokens, the first one excepted.

    Infinity if that is beyond a double.
    """
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
    for (begin, end, first), result in zip(windows, results):
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
        "perplexity": _exp(total / scored),
        "tokens_per_second": (
            sum(b - a for a, b, _ in windows) / seconds if seconds > 0 else math.inf
        ),
    }


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _not_json(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def read_reference(path: str) -> list[dict[str, Any]]:
    """The checked entries of a reference file."""
    with open(path, encoding="utf-8") as file:
        try:
            reference = json.load(file, parse_constant=_not_json)
        except (ValueError, RecursionError) as error:
            raise common.CommandError(f"{path}: not JSON: {error}") from None
    if not isinstance(reference, list) or not reference:
        raise common.CommandError(f"{path}: must be a JSON array of prompts")
    for number, entry in enumerate(reference):
        if wrong := _wrong(entry):
            raise common.CommandError(f"{path}: entry {number}: {wrong}")
    return reference


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no double holds
        return False


def _wrong(entry: Any) -> str | None:
    """What is wrong with an entry of a reference file; None if nothing is."""
    if not isinstance(entry, dict):
        return f"must be an object, not {_json_kind(entry)}"
    fields: dict[str, tuple[str, Callable[[Any], bool]]] = {
        "ids": ("a token id", _is_id),
        "prompt_logprobs": ("a finite number", _is_number),
        "greedy": ("a token id", _is_id),
        "greedy_margin": ("a finite number", _is_number),
    }
    missing = [name for name in ("text", *fields) if name not in entry]
    if missing:
        return f"lacks {', '.join(missing)}"
    if not isinstance(entry["text"], str):
        return f"text must be a string, not {_json_kind(entry['text'])}"
    try:
        entry["text"].encode()
    except UnicodeEncodeError:
        return "text holds a lone surrogate"
    for name, (rule, good) in fields.items():
        values = entry[name]
        if not isinstance(values, list):
            return f"{name} must be an array, not {_json_kind(values)}"
        for position, value in enumerate(values):
            if not good(value):
                return f"{name}[{position}] must be {rule}, got {json.dumps(value)[:40]}"
    if not entry["ids"]:
        return "ids is empty"
    for name, others, more in (("ids", "prompt_logprobs", 1), ("greedy", "greedy_margin", 0)):
        mine, theirs = len(entry[name]), len(entry[others])
        if mine != theirs + more:
            return f"{others} must have {mine - more} values for {mine} of {name}, got {theirs}"
    return None


def _json_kind(value: Any) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else kinds.get(type(value), "a number")


def check_fits(engine: Engine, reference: list[dict[str, Any]], path: str) -> None:
    """Whether the model can compute every entry of a reference file."""
    info = engine.info
    vocab, context = int(info["vocab"]), int(info["limits"]["request_tokens"])
    for number, entry in enumerate(reference):
        for name in ("ids", "greedy"):
            for position, token in enumerate(entry[name]):
                if token >= vocab:
                    raise common.CommandError(
                        f"{path}: entry {number}: {name}[{position}] is {token}, but the model's "
                        f"vocabulary has {vocab} tokens"
                    )
        count = len(entry["ids"]) + len(entry["greedy"])
        if count > context:
            raise common.CommandError(
                f"{path}: entry {number}: ids and greedy have {count} tokens, but the context "
                f"holds {context}"
            )


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
            best, logprob = result.prompt_top_logprobs[len(ids) + step][0]
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
