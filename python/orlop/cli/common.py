"""What the commands share: options, loading with a progress bar, the facts at start."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from .._engine import Engine
from .._logging import logger, set_log_level


class UsageError(Exception):
    """The command line asks for something that makes no sense: exit code 2."""


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def counts(text: str) -> list[int]:
    """1,4,8 -> [1, 4, 8]"""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers with commas, got {text!r}") from None
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return values


# Keys of the engine's configuration, with --names of the same spelling.
_engine: dict[str, dict[str, Any]] = {
    "device": {"help": "default: cpu"},
    "compute": {"help": "bf16, int8 or fp32; default: best for this machine"},
    "quant": {"help": "quantize weights at load"},
    "kv_dtype": {"help": "what the KV cache stores: bf16 or fp32"},
    "kv_bytes": {"type": positive, "help": "bytes of the KV cache"},
    "block_size": {"type": positive, "help": "tokens a KV page"},
    "threads": {"type": positive, "help": "default: from cores and quota"},
    "max_context": {"type": positive, "help": "tokens of one sequence"},
    "max_running_seqs": {"type": positive, "help": "sequences of one step"},
    "max_waiting": {"type": positive, "help": "requests that may wait"},
    "step_tokens": {"type": positive, "help": "tokens of one step"},
    "load": {"choices": ("mmap", "read"), "help": "map the file, or read it into memory"},
}


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    for name, settings in _engine.items():
        group.add_argument("--" + name.replace("_", "-"), dest=name, **settings)
    group.add_argument("-q", "--quiet", action="store_true", help="no facts and progress on stderr")
    group.add_argument(
        "--log", choices=("error", "warning", "info", "debug"), help="the library's log on stderr"
    )


def add_sampling_options(parser: argparse.ArgumentParser, max_tokens: int | None) -> None:
    group = parser.add_argument_group("sampling (defaults: the model's own)")
    default = "until the context is full" if max_tokens is None else str(max_tokens)
    group.add_argument(
        "-n", "--max-tokens", type=int, default=max_tokens, help=f"default: {default}"
    )
    group.add_argument("--min-tokens", type=int)
    group.add_argument("-t", "--temperature", type=float, help="0: greedy")
    group.add_argument("--top-k", type=int, help="0: off")
    group.add_argument("--top-p", type=float, help="1: off")
    group.add_argument("--min-p", type=float, help="0: off")
    group.add_argument("--repetition-penalty", type=float)
    group.add_argument("--presence-penalty", type=float)
    group.add_argument("--frequency-penalty", type=float)
    group.add_argument("--seed", type=int)
    group.add_argument("--stop", action="append", metavar="TEXT", help="may be given several times")
    group.add_argument("--ignore-eos", action="store_true", default=None)
    group.add_argument(
        "--keep-special", action="store_true", default=None, help="show control tokens"
    )


_sampling = (
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "ignore_eos",
    "keep_special",
)


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in _sampling}


class _Progress:
    """A bar on a terminal; elsewhere a line every few seconds, from loads of over a second."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._tty = sys.stderr.isatty()
        self._next = self._start + (0.1 if self._tty else 1.0)
        self._drawn = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (0.1 if self._tty else 3.0)
        part = min(done / total, 1.0) if total else 0.0
        text = f"{part:4.0%} of {megabytes(total)}" if total else "reading the header"
        if self._tty:
            bar = "#" * round(part * 30)
            sys.stderr.write(f"\rloading [{bar:<30}] {text} \x1b[K")
            self._drawn = True
        else:
            sys.stderr.write(f"loading: {text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def load(args: argparse.Namespace, **defaults: Any) -> Engine:
    """The engine that the options ask for; says what it is on stderr."""
    config: dict[str, Any] = dict(defaults)
    config |= {name: getattr(args, name) for name in _engine if getattr(args, name) is not None}
    if args.log:
        import logging

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(levelname)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        set_log_level(args.log)
    start = time.monotonic()
    progress = None if args.quiet else _Progress()
    try:
        engine = Engine(args.model, progress=progress, **config)
    finally:
        if progress is not None:
            progress.close()
    if not args.quiet:
        for line in facts(engine.info, time.monotonic() - start):
            print(line, file=sys.stderr)
        sys.stderr.flush()
    return engine


def facts(info: dict[str, Any], seconds: float) -> list[str]:
    """What was chosen and why, in a few lines."""
    kv, limits, sampling = info["kv"], info["limits"], info["sampling"]
    defaults = ", ".join(
        f"{name} {sampling[name]:g}" for name in ("temperature", "top_k", "top_p", "min_p")
    )
    return [
        f"model    {info['name'] or info['model']} ({info['arch']}, {info['layers']} layers), "
        f"{megabytes(info['weight_bytes'])} of weights",
        f"kernels  {info['kernels']}; compute {info['compute']} ({info['compute_why']})",
        f"threads  {info['threads']} ({info['threads_why']})",
        f"KV cache {kv['tokens']} tokens of {kv['dtype']}, {megabytes(kv['bytes'])} ({kv['why']}); "
        f"context {limits['request_tokens']}",
        f"sampling {defaults} (from {sampling['source']})",
        f"ready in {seconds:.2f} s",
    ]


def megabytes(n: int) -> str:
    if n >= 10**9:
        return f"{n / 1e9:.2f} GB"
    return f"{n / 1e6:.1f} MB" if n >= 10**5 else f"{n / 1e3:.1f} kB"
