"""orlop run: continue a text."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .._request import Request
from . import common


def add_command(commands: Any) -> None:
    options = common.Options()
    options.add_argument(
        "--plain", action="store_true", help="control tokens spelled in the prompt are plain text"
    )
    common.add_sampling_options(options, max_tokens=256)
    common.add_engine_options(options)
    parser = commands.add_parser(
        "run",
        parents=[options],
        help="continue a text",
        description="Continues a text, streaming to stdout. For instruction models see chat.",
    )
    parser.add_argument("model", help="a checkpoint folder or a .gguf file")
    parser.add_argument("prompt", nargs="+", help="joined with spaces; - reads stdin")
    parser.set_defaults(run=_run, parser=parser)


def _run(args: argparse.Namespace) -> int:
    params = common.sampling(args)
    if args.plain:
        params["parse_special"] = False
    prompt = sys.stdin.read() if args.prompt == ["-"] else " ".join(args.prompt)
    with common.load(args) as engine:
        with engine.async_generate(prompt, **params) as request:
            last = ""
            for output in request:
                sys.stdout.write(output.text)
                sys.stdout.flush()
                last = output.text or last
            if not last.endswith("\n"):
                print(flush=True)
            if not args.quiet:
                print(summary(request), file=sys.stderr)
    return 0


def summary(request: Request) -> str:
    """One line of counts and speeds of a finished request."""
    status = request.status
    cached = f" ({status.cached_tokens} cached)" if status.cached_tokens else ""
    parts = [
        f"prompt {status.prompt_tokens} tokens{cached}",
        f"output {status.generated_tokens} tokens",
    ]
    if status.ttft is not None:
        parts.append(f"first after {status.ttft:.3f} s")
    if status.tokens_per_second is not None:
        parts.append(f"{status.tokens_per_second:.1f} tokens/s")
    parts += [f"seed {status.seed}", f"ended by {status.finish_reason}"]
    return "[" + ", ".join(parts) + "]"
