"""What the commands share: options, loading with a progress bar, the facts at start."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .._engine import Engine
from .._logging import logger, set_log_level


class UsageError(Exception):
    """The command line asks for something that makes no sense: exit code 2."""


class CommandError(Exception):
    """The command cannot give what was asked for: exit code 1."""


class Options(argparse.ArgumentParser):
    """The options of a command, without its positional arguments."""

    def __init__(self) -> None:
        super().__init__(add_help=False)
        self.owner: argparse.ArgumentParser | None = None

    def error(self, message: str) -> NoReturn:
        if self.owner is not None:
            self.owner.error(message)
        super().error(message)


class CommandParser(argparse.ArgumentParser):
    """A command, whose options may stand before, between and behind its positional arguments.

    argparse alone gives positional arguments with a variable count all that they will get at the
    first one that it meets. So the options, which come as `parents`, are taken out first.
    """

    def __init__(self, parents: Sequence[Options] = (), **settings: Any):
        super().__init__(parents=list(parents), **settings)
        self._options = parents
        for options in parents:
            options.prog, options.owner = self.prog, self
        self.forms: dict[str, argparse.ArgumentParser] = {}
        """Other forms of the command, by their first word."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = [str(word) for word in args]
        if words and words[0] in self.forms:
            return self.forms[words[0]].parse_known_args(words[1:], namespace)
        end = words.index("--") if "--" in words else len(words)
        # --kv_dtype is --kv-dtype: configuration keys may be spelled as they are.
        head, tail = _stated([_dashed(word) for word in words[:end]]), words[end:]
        for options in self._options:
            namespace, head = options.parse_known_args(head, namespace)
        return super().parse_known_args(head + tail, namespace)


def _dashed(word: str) -> str:
    name, equals, value = word.partition("=")
    if not name.startswith("--") or " " in name:
        return word
    return name.replace("_", "-") + equals + value


def _stated(words: list[str]) -> list[str]:
    """A switch without its value means true: --enable-prefix-cache."""
    switches = {
        "--" + name.replace("_", "-") for name, s in _engine.items() if s.get("type") is yes_or_no
    }
    following = [*words[1:], ""]
    return [
        word + "=true" if word in switches and after not in ("true", "false") else word
        for word, after in zip(words, following)
    ]


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be {low} to {high}, got {text}")
        return value

    return parse


def number(low: float = -math.inf, high: float = math.inf, rule: str = "") -> Callable[[str], float]:
    """A finite number within [low, high]; `rule` says so in words."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None
        if not math.isfinite(value) or not low <= value <= high:
            words = rule or (f"{low:g} to {high:g}" if math.isfinite(low) else "a finite number")
            raise argparse.ArgumentTypeError(f"must be {words}, got {text}")
        return value

    return parse


def yes_or_no(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, got {text}")
    return text == "true"


def stop_text(text: str) -> str:
    size = len(text.encode(errors="surrogateescape"))
    if not 1 <= size <= 4096:
        raise argparse.ArgumentTypeError(f"must have 1 to 4096 bytes, got {size}")
    return text


def counts(text: str) -> list[int]:
    """1,4,8 -> [1, 4, 8]"""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers with commas, got {text!r}") from None
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return values


# Keys of the engine's configuration; the options spell them with dashes or underscores.
_switch: dict[str, Any] = {"type": yes_or_no, "nargs": "?", "const": True, "metavar": "true|false"}
_engine: dict[str, dict[str, Any]] = {
    "device": {"help": "default: cpu"},
    "compute": {"help": "bf16, int8, a8 or fp32; default: best for weights and machine"},
    "quant": {
        "help": "iq or a8w8: quantize float weights at load; gptq, awq, fp8, compressed-tensors: "
        "the checkpoint must be of that kind; default: none, weights as they are"
    },
    "quant_bits": {"type": positive, "help": "of iq: 8 or 4; default: 8"},
    "quant_granularity": {"help": "of iq: what shares a scale, per_channel or group (the default)"},
    "quant_group_size": {"type": positive, "help": "of iq: 32, 64 or 128; default: 32"},
    "quant_symmetric": {
        "type": yes_or_no,
        "help": "of iq: no minimum beside the scale; default: true with 8 bits, false with 4",
    },
    "kv_dtype": {"help": "what the KV cache stores: bf16, fp16, int8, uint4 or fp32"},
    "kv_bytes": {"type": positive, "help": "bytes of the KV cache"},
    "kv_fraction": {"type": number(0, 1, "above 0, at most 1"), "help": "or its part of the memory that is left"},
    "n_gpu_layers": {"type": integer(0, 2**31 - 1), "help": "cuda: layers on the GPU, the others on the processor; default: all"},
    "block_size": {"type": positive, "help": "tokens a KV page"},
    "deterministic": {
        "type": yes_or_no,
        "help": "cuda: answers depend on the request alone (default); false: faster, only equal batches answer alike",
    },
    "threads": {"type": positive, "help": "default: from cores and quota"},
    "max_context": {"type": positive, "help": "tokens of one sequence"},
    "max_running_seqs": {"type": positive, "help": "sequences of one step"},
    "max_waiting": {"type": positive, "help": "requests that may wait"},
    "step_tokens": {"type": positive, "help": "tokens of one step"},
    "itl_target_ms": {
        "type": number(0, 1e6, "0 to 1000000"),
        "help": "prefill gives way so that running streams keep this time between tokens; 0: off",
    },
    "scheduling": {"choices": ("fair", "fcfs"), "help": "default: fair"},
    "enable_prefix_cache": {**_switch, "help": "default: true"},
    "enable_guided_decoding": {**_switch, "help": "guides' tables are made while loading"},
    "enable_cpu_prefix_swap": {**_switch, "help": "a second tier in host memory"},
    "cpu_prefix_bytes": {"type": positive, "help": "bytes of that tier"},
    "chunked_prefill": {"type": yes_or_no, "help": "default: true"},
    "output_bytes": {"type": positive, "help": "output a request may leave untaken"},
    "load": {"choices": ("mmap", "read"), "help": "map the file, or read it into memory"},
}


def engine_keys() -> list[str]:
    return list(_engine)


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
    add = group.add_argument
    tokens = integer(0, 2**32 - 2)
    add("-n", "--max-tokens", type=tokens, default=max_tokens, help=f"default: {default}")
    add("--min-tokens", type=tokens)
    add("-t", "--temperature", type=number(0, 1e6, "0 to 1000000"), help="0: greedy")
    add("--top-k", type=integer(0, 2**31 - 1), help="0: off")
    add("--top-p", type=number(0, 1), help="1: off")
    add("--min-p", type=number(0, 1), help="0: off")
    add("--repetition-penalty", type=number(1e-6, 1e6, "above 0 and at most 1000000"))
    add("--presence-penalty", type=number(-2, 2))
    add("--frequency-penalty", type=number(-2, 2))
    add("--seed", type=integer(0, 2**64 - 1))
    add("--stop", type=stop_text, action="append", metavar="TEXT", help="may be given several times")
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
    """The parameters that the options ask for; needs no model, so that errors come at once."""
    if None not in (args.max_tokens, args.min_tokens) and args.min_tokens > args.max_tokens:
        raise UsageError(
            f"--min-tokens must be at most --max-tokens ({args.max_tokens}), got {args.min_tokens}"
        )
    if args.stop is not None and len(args.stop) > 256:
        raise UsageError(f"--stop: at most 256 texts, got {len(args.stop)}")
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
        f"{megabytes(info['weight_bytes'])} of weights ({', '.join(info['weights'])}"
        + (")" if info["quant"] == "none" else f"; {info['quant']})"),
        f"kernels  {info['kernels']}; compute {info['compute']} ({info['compute_why']})",
        *(
            f"         {first['layers']} of {info['layers']} layers on {first['kernels']}; compute {first['compute']}"
            for first in [info.get("processor")]
            if first
        ),
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
