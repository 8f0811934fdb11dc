"""orlop bench serve: load on a running server, and what its users would see.

Any server of OpenAI's API will do. Requests arrive as a Poisson process (--rate) or so that a fixed
number is always on its way (--concurrency); they stream. Tokens are counted by the server's own usage.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from .. import __version__
from . import common
from .bench_client import Address, Client, HttpError
from .bench_load import Asker, drive, poisson, random_text
from .bench_report import figures, plot, table

_paths = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


def make_parser(prog: str) -> common.CommandParser:
    options = common.Options()
    load = options.add_argument_group("load")
    add = load.add_argument
    add("--rate", type=common.number(1e-6, 1e6, "above 0 and at most 1000000"), metavar="R",
        help="Poisson arrivals, R requests a second on average, however many are on their way")
    add("--concurrency", type=common.positive, metavar="N",
        help="N requests on their way at any time, each followed by the next (default: 8)")
    add("--requests", type=common.positive, metavar="N",
        help="how many in all (default: 100, or the lines of --prompts)")
    add("--seed", type=common.integer(0, 2**63), default=0, help="of arrivals and prompts (default 0)")
    add("--timeout", type=common.number(0.001, 1e6, "above 0 and at most 1000000"), default=600.0,
        metavar="SECONDS", help="that a request may take (default 600)")
    what = options.add_argument_group("requests")
    add = what.add_argument
    add("--api", choices=tuple(_paths),
        help="default: by the URL's path or the prompts, else completions")
    add("--model", help="default: the first that the server lists")
    add("--prompt-tokens", type=spread, default=(128, 128), metavar="N|A-B",
        help="random words of about so many tokens (default 128); A-B: evenly spread")
    add("--gen-tokens", type=spread, metavar="N|A-B", help="max_tokens (default 64)")
    add("--prompts", metavar="FILE",
        help='one JSON a line instead: a text, or an object with "prompt" or "messages" and any other '
        "field of a request; taken in order, again from the start if need be")
    add("--ignore-eos", type=common.yes_or_no, metavar="true|false",
        help="ask for outputs of full length (default: true, with --prompts false)")
    add("--body", type=_fields, default={}, metavar="JSON", help="more fields of every request")
    add("--api-key", help="default: $ORLOP_API_KEY")
    output = options.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    output.add_argument("--plot", metavar="FILE", help="the distributions as an SVG picture")
    output.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    parser = common.CommandParser(
        prog=prog,
        parents=[options],
        description="Drives a server and measures: time to first token, from a request's arrival; "
        "inter-token time of each request, from its first piece of output to its last over the "
        "tokens after the first; the time between pieces; end to end; throughput. Tokens are "
        "counted by the usage that the server sends, without one by the pieces. Ctrl-C ends early "
        "with the figures so far. Exit status: 0 all requests succeeded, 1 some failed.",
    )
    parser.add_argument("url", metavar="URL", help="such as http://127.0.0.1:8000")
    parser.set_defaults(run=_run, parser=parser)
    return parser


def spread(text: str) -> tuple[int, int]:
    """64 -> (64, 64), 64-256 -> (64, 256)"""
    low, dash, high = text.partition("-")
    try:
        found = (int(low), int(high if dash else low))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be N or A-B, got {text!r}") from None
    if not 1 <= found[0] <= found[1] <= 10_000_000:
        raise argparse.ArgumentTypeError(f"must be 1 to 10000000, the lower end first, got {text}")
    return found


def _fields(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object, got {text!r}")
    return found


def _run(args: argparse.Namespace) -> int:
    if args.rate is not None and args.concurrency is not None:
        raise common.UsageError("--rate and --concurrency are two arrival processes: give one")
    lines = read_prompts(args.prompts) if args.prompts else []
    api, address = _target(args.url, args.api, lines)
    key = args.api_key if args.api_key is not None else os.environ.get("ORLOP_API_KEY")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise common.UsageError("the API key may hold printable ASCII only")
    if args.plot:
        with open(args.plot, "a"):  # a wrong path shows now, not after the run
            pass
    return asyncio.run(_bench(args, api, Client(address, key), lines))


def _target(url: str, api: str | None, lines: Sequence[dict[str, Any]]) -> tuple[str, Address]:
    """Which of the two routes, and the server. A URL may name the route or /v1."""
    try:
        address = Address.parse(url)
    except ValueError as error:
        raise common.UsageError(str(error)) from None
    path = address.path
    for name in ("chat", "completions"):
        if path.endswith(_paths[name]):
            if api not in (None, name):
                raise common.UsageError(f"--api {api}, but the URL is that of {name}")
            path, api = path.removesuffix(_paths[name]), name
            break
    path = path.removesuffix("/v1")
    kinds = {"chat" if "messages" in line else "completions" for line in lines}
    if len(kinds) == 2:
        raise common.UsageError('--prompts has lines with "messages" and lines without')
    if api is None:
        api = kinds.pop() if kinds else "completions"
    elif api == "completions" and "chat" in kinds:
        raise common.UsageError('--prompts has "messages", which are for --api chat')
    return api, Address(address.host, address.port, address.tls, path)


def read_prompts(path: str) -> list[dict[str, Any]]:
    """The requests of a file, one JSON a line."""
    found: list[dict[str, Any]] = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise common.CommandError(f"{path}: line {number}: not JSON: {error}") from None
            if isinstance(entry, str):
                entry = {"prompt": entry}
            if not isinstance(entry, dict) or ("prompt" in entry) == ("messages" in entry):
                raise common.CommandError(
                    f'{path}: line {number}: must be a text or an object with "prompt" or "messages"'
                )
            found.append(entry)
    if not found:
        raise common.CommandError(f"{path}: no prompts")
    return found


async def _bench(
    args: argparse.Namespace, api: str, client: Client, lines: list[dict[str, Any]]
) -> int:
    ask = Asker(client, _paths[api], args.timeout)
    try:
        model = args.model if args.model is not None else await _first_model(client)
        chance = random.Random(args.seed)
        bodies = await _bodies(args, api, model, lines, ask, chance)
    except (HttpError, OSError) as error:
        raise common.CommandError(f"{client.address}: {error}") from None
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop.set)
    except (NotImplementedError, RuntimeError, ValueError):  # no such signals here
        pass
    gc.collect()
    gc.freeze()  # a collection must not look at all this again while streams run
    run = await drive(
        ask,
        bodies,
        arrivals=None if args.rate is None else poisson(args.rate, chance),
        concurrency=args.concurrency or 8,
        stop=stop,
        progress=_progress(len(bodies), args.quiet),
    )
    client.close()
    process = (
        f"Poisson arrivals, {args.rate:g} requests/s, seed {args.seed}"
        if args.rate is not None
        else f"{args.concurrency or 8} requests at any time"
    )
    title = f"{client.address}{client.address.path}{_paths[api]}, model {model}"
    found = figures(run)
    if args.plot:
        with open(args.plot, "w", encoding="utf-8") as file:
            file.write(plot(run, title, process, found))
    if args.json:
        head = {
            "version": __version__,
            "url": args.url,
            "api": api,
            "model": model,
            "arrivals": {
                "rate": args.rate,
                "concurrency": None if args.rate is not None else args.concurrency or 8,
                "seed": args.seed,
            },
        }
        json.dump(head | found, sys.stdout, indent=1)
        print()
    else:
        print(f"{title}\n{process}")
        for line in table(found):
            print(line)
    if run.interrupted:
        return 130
    return 1 if found["failed"] else 0


async def _first_model(client: Client) -> str:
    response = await client.request("GET", "/v1/models")
    if response.status != 200:
        raise HttpError(f"/v1/models answers HTTP {response.status}: give --model, --api-key")
    try:
        return str(json.loads(response.body)["data"][0]["id"])
    except (ValueError, TypeError, LookupError):
        raise HttpError("/v1/models lists no model: give --model") from None


async def _bodies(
    args: argparse.Namespace,
    api: str,
    model: str,
    lines: list[dict[str, Any]],
    ask: Asker,
    chance: random.Random,
) -> list[dict[str, Any]]:
    """The requests, made beforehand so that making them costs the run nothing."""
    count = args.requests or len(lines) or 100
    ignore = args.ignore_eos if args.ignore_eos is not None else not lines
    common_fields: dict[str, Any] = {"model": model} | ({"ignore_eos": True} if ignore else {})
    if args.gen_tokens is None and not lines:
        args.gen_tokens = (64, 64)
    if not lines:
        words_of = await _words_a_token(common_fields | args.body, api, ask, chance)
    bodies = []
    for line in itertools.islice(itertools.cycle(lines or [{}]), count):
        body = common_fields | line
        if not lines:
            words = words_of(chance.randint(*args.prompt_tokens))
            body |= _prompt(api, random_text(words, chance))
        elif api == "chat" and "prompt" in body:
            body |= _prompt(api, body.pop("prompt"))
        if args.gen_tokens is not None and "max_tokens" not in line:
            body["max_tokens"] = chance.randint(*args.gen_tokens)
        bodies.append(body | args.body | {"stream": True, "stream_options": {"include_usage": True}})
    return bodies


def _prompt(api: str, text: str) -> dict[str, Any]:
    if api == "completions":
        return {"prompt": text}
    return {"messages": [{"role": "user", "content": text}]}


async def _words_a_token(
    fields: dict[str, Any], api: str, ask: Asker, chance: random.Random
) -> Callable[[int], int]:
    """How many words make a prompt of so many tokens, from two small requests.

    They also wake the server up. What a chat template adds is the same in both.
    """
    small, large = 8, 72
    tokens = []
    for words in (small, large):
        body = fields | _prompt(api, random_text(words, chance))
        body |= {"max_tokens": 1, "stream": True, "stream_options": {"include_usage": True}}
        record = await ask(body, time.perf_counter())
        if record.error is not None and record.error != "no output":
            raise HttpError(record.error)
        tokens.append(record.prompt_tokens)
    if tokens[0] is None or tokens[1] is None or tokens[1] <= tokens[0]:
        return lambda wanted: wanted  # no usage: a word counts as a token
    each = (tokens[1] - tokens[0]) / (large - small)
    base = tokens[0] - small * each
    return lambda wanted: max(1, round((wanted - base) / each))


def _progress(total: int, quiet: bool) -> Callable[[int, int], None]:
    if quiet or not sys.stderr.isatty():
        return lambda done, running: None
    due = 0.0

    def show(done: int, running: int) -> None:
        nonlocal due
        if done == total:
            sys.stderr.write("\r\x1b[K")
        elif time.monotonic() >= due:
            due = time.monotonic() + 0.2
            sys.stderr.write(f"\r{done} of {total} done, {running} on their way\x1b[K")
        sys.stderr.flush()

    return show
