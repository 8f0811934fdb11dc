#!/usr/bin/env python3
"""orlop serve under many streams at once, beside the same load through Engine.

Starts the server, opens --streams streams of --tokens tokens at once, of which --leaving hang up at a
random point, and prints throughput and the processor time outside the engine; then runs the streams that
stay through Engine in this process. With --llama-server PATH also through llama.cpp's server, with
--parallel slots and all requests queued at it at once.

    python bench/serve_load.py model.gguf --streams 256 --tokens 64
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "server"))
from load import Outcome, body_of, many  # noqa: E402


def metric(url: str, name: str) -> float:
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found, name
    return float(found[1])


def told(outcomes: list[Outcome], seconds: float) -> str:
    stayed = [o for o in outcomes if not o.left]
    bad = [o for o in stayed if not o.ended]
    tokens = sum(o.tokens for o in stayed)
    first = sorted(o.times[0] - o.start for o in stayed if o.times)
    gaps = sorted(b - a for o in stayed for a, b in zip(o.times, o.times[1:]))

    def at(values: list[float], q: float) -> str:
        return f"{1000 * values[min(len(values) - 1, int(q * len(values)))]:.0f}" if values else "-"

    return (
        f"{tokens / seconds:7.1f} tokens/s of {len(stayed)} streams in {seconds:.2f} s"
        f" (first token {at(first, 0.5)} ms, p99 {at(first, 0.99)};"
        f" between events {at(gaps, 0.5)} ms, p99 {at(gaps, 0.99)})"
        + (f"; {len(bad)} BROKEN" if bad else "")
    )


def serve(args: argparse.Namespace) -> float:
    process = subprocess.Popen(
        [sys.executable, "-m", "orlop", "serve", args.model, "--port", "0", "-q", *args.option],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        found = re.search(r"orlop serves (\S+) at (http://\S+:(\d+))/v1", process.stdout.readline())
        model, url, port = found[1], found[2], int(found[3])
        asyncio.run(many("127.0.0.1", port, model, 8, 8, 0))  # warm
        names = ("orlop_server_cpu_seconds_total", "process_cpu_seconds_total")
        best = 0.0
        for _ in range(args.rounds):
            before = [metric(url, name) for name in names]
            start = time.perf_counter()
            outcomes = asyncio.run(
                many("127.0.0.1", port, model, args.streams, args.tokens, args.leaving)
            )
            seconds = time.perf_counter() - start
            loop, whole = (metric(url, name) - b for name, b in zip(names, before))
            print(f"serve   {told(outcomes, seconds)}; outside the engine {loop / whole:.1%} of "
                  f"{whole:.2f} s of processor", flush=True)  # fmt: skip
            best = max(best, sum(o.tokens for o in outcomes if not o.left) / seconds)
        return best
    finally:
        process.terminate()
        process.wait()


def direct(args: argparse.Namespace) -> float:
    import random

    import orlop

    config = {}
    for name, value in zip(args.option[::2], args.option[1::2]):
        key = name.removeprefix("--").replace("-", "_")
        config[key] = int(value) if value.isdecimal() else value
    rng = random.Random(0)
    after = [rng.randrange(args.tokens) if rng.random() < args.leaving else None for _ in range(args.streams)]

    async def one(engine: orlop.Engine, index: int) -> int:
        body = body_of("", index, args.tokens)
        keep = ("max_tokens", "ignore_eos", "temperature", "seed")
        count = 0
        with engine.async_generate(body["prompt"], **{k: body[k] for k in keep}) as request:
            if after[index] == 0:
                return 0
            async for output in request:
                count += len(output.tokens)
                if after[index] is not None and count >= after[index]:
                    return 0
        return count

    async def load(engine: orlop.Engine) -> int:
        return sum(await asyncio.gather(*(one(engine, i) for i in range(args.streams))))

    best = 0.0
    with orlop.Engine(args.model, **config) as engine:
        engine.generate("Hi", max_tokens=8)
        for _ in range(args.rounds):
            start = time.perf_counter()
            tokens = asyncio.run(load(engine))
            seconds = time.perf_counter() - start
            print(f"Engine  {tokens / seconds:7.1f} tokens/s in {seconds:.2f} s", flush=True)
            best = max(best, tokens / seconds)
    return best


def llama(args: argparse.Namespace) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = str(args.parallel * 512)
    process = subprocess.Popen(
        [args.llama_server, "-m", args.model, "--port", str(port), "-np", str(args.parallel),
         "-c", context, "-cb", "--no-webui", *args.llama_option],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
                break
            except OSError:
                time.sleep(0.1)
        asyncio.run(many("127.0.0.1", port, "m", 8, 8, 0))
        best = 0.0
        for _ in range(args.rounds):
            start = time.perf_counter()
            outcomes = asyncio.run(
                many("127.0.0.1", port, "m", args.streams, args.tokens, args.leaving)
            )
            seconds = time.perf_counter() - start
            print(f"llama   {told(outcomes, seconds)}", flush=True)
            best = max(best, sum(o.tokens for o in outcomes if not o.left) / seconds)
        return best
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--leaving", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-server", metavar="PATH")
    parser.add_argument("--parallel", type=int, default=32, help="slots of llama-server")
    parser.add_argument("--llama-option", action="append", default=[], help="passed to llama-server")
    parser.epilog = "What follows -- are options of orlop serve, each with a value."
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:end])
    args.option = words[end + 1 :]
    served = serve(args)
    plain = direct(args)
    print(f"serve is {served / plain:.1%} of Engine")
    if args.llama_server:
        print(f"serve is {served / llama(args):.2f} x llama-server with {args.parallel} slots")


main()
