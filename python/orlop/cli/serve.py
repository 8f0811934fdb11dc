"""orlop serve: an OpenAI-compatible server."""

from __future__ import annotations

import argparse
import pathlib
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from .._engine import Engine, inspect
from .._logging import logger, set_log_level
from . import common

if TYPE_CHECKING:
    from ..serve.settings import Settings


def add_command(commands: Any) -> None:
    options = common.Options()
    _add_server_options(options)
    common.add_engine_options(options)
    parser = commands.add_parser(
        "serve",
        parents=[options],
        help="serve the OpenAI API over HTTP",
        description="Serves the OpenAI API (/v1/chat/completions, /v1/completions, /v1/embeddings, "
        "...), metrics and a live page. Guided decoding is on; --enable-guided-decoding false "
        "refuses requests that ask for it. The first Ctrl-C or SIGTERM lets requests in progress end, "
        "the second one stops at once.",
    )
    parser.add_argument("model", help="a checkpoint folder or a .gguf file")
    parser.set_defaults(run=_run, parser=parser)


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    add = group.add_argument
    add("--host", default="127.0.0.1", help="the address to listen on; default: 127.0.0.1")
    add("--port", type=common.integer(0, 65535), default=8000, help="default: 8000; 0: a free one")
    add(
        "--served-model-name", action="append", metavar="NAME",
        help="what requests call the model; may be given several times; default: the file's name",
    )  # fmt: skip
    add(
        "--api-key", action="append", metavar="KEY",
        help="requests must carry it; may be given several times. Others see command lines: "
        "prefer --api-key-file",
    )  # fmt: skip
    add("--api-key-file", metavar="FILE", help="keys, one a line; # begins a comment")
    add(
        "--cors-origin", action="append", metavar="ORIGIN",
        help="pages of this origin may use the server (* : all); may be given several times; "
        "default: none",
    )  # fmt: skip
    add(
        "--allowed-host", action="append", metavar="NAME",
        help="a further name that the Host header may have; may be given several times",
    )  # fmt: skip
    add("--pooling", choices=("mean", "last"), default="mean", help="of embeddings; default: mean")
    add("--no-page", action="store_true", help="no live page at /")
    add(
        "--max-body-bytes", type=common.integer(1024, 2**31), default=8 * 1024 * 1024,
        help="of a request; default: 8 MiB",
    )  # fmt: skip
    add("--max-n", type=common.integer(1, 128), default=128, help="samples of a prompt; default: 128")
    add(
        "--max-requests", type=common.integer(1, 1_000_000), default=4096,
        help="API requests in progress; one more gets 429; default: 4096",
    )  # fmt: skip
    add(
        "--drain-seconds", type=common.number(0, 1e6, "0 to 1000000"), default=0,
        help="how long requests in progress may take after a signal; 0, the default: as they need",
    )  # fmt: skip
    add("--access-log", action="store_true", help="a line for every request on stderr")


def settings(args: argparse.Namespace) -> Settings:
    from ..serve.settings import Limits, Settings

    return Settings(
        host=args.host,
        port=args.port,
        served_names=args.served_model_name or [],
        api_keys=_keys(args),
        cors_origins=args.cors_origin or [],
        allowed_hosts=args.allowed_host or [],
        guided=args.enable_guided_decoding is not False,
        pooling=args.pooling,
        page=not args.no_page,
        drain_seconds=args.drain_seconds,
        access_log=args.access_log,
        limits=Limits(body_bytes=args.max_body_bytes, n=args.max_n, concurrent=args.max_requests),
    )


def _keys(args: argparse.Namespace) -> list[str]:
    keys = list(args.api_key or [])
    if args.api_key_file is not None:
        lines = pathlib.Path(args.api_key_file).read_text().splitlines()
        found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not found:
            raise common.CommandError(f"{args.api_key_file} holds no key")
        keys += found
    if any(not key.strip() or not key.isascii() or " " in key for key in keys):
        raise common.UsageError("an API key must be ASCII without spaces, and not empty")
    return keys


def _run(args: argparse.Namespace) -> int:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise common.CommandError(
            f"orlop serve needs the server extra ({error.name} is missing): pip install 'orlop[server]'"
        ) from None
    from ..serve import server

    chosen = settings(args)
    path = pathlib.Path(args.model)
    if not path.exists():
        raise common.CommandError(f"{args.model} does not exist")
    name = path.resolve().name.removesuffix(".gguf")
    sock = server.listen(args.host, args.port)
    address = server.url(args.host, sock)
    if not chosen.loopback and not chosen.api_keys:
        print(
            f"warning: listening on {args.host} without an API key: whoever reaches this address "
            "can use the model (--api-key-file)",
            file=sys.stderr,
        )
    config = {key: getattr(args, key) for key in common.engine_keys() if getattr(args, key) is not None}
    if inspect(args.model).get("tokenizer"):
        config.setdefault("enable_guided_decoding", True)  # its tables are made while loading
    start = time.monotonic()
    bar = None if args.quiet else common._Progress()

    def make(progress: Any) -> Engine:
        def both(done: int, total: int) -> None:
            progress(done, total)
            if bar is not None:
                bar(done, total)

        try:
            return Engine(args.model, progress=both, **config)
        finally:
            if bar is not None:
                bar.close()

    def ready(engine: Engine) -> None:
        if not args.quiet:
            for line in common.facts(engine.info, time.monotonic() - start):
                print(line, file=sys.stderr)
            sys.stderr.flush()
        served = chosen.served_names[0] if chosen.served_names else name
        print(greeting(address, served, bool(chosen.api_keys), args.quiet), flush=True)

    _start_log(args.log)
    with sock:
        server.run(make, name, chosen, sock, ready)
    return 0


def greeting(address: str, model: str, keyed: bool, quiet: bool) -> str:
    """What is printed once requests are served."""
    first = f"orlop serves {model} at {address}/v1"
    if quiet:
        return first
    key = "$ORLOP_API_KEY" if keyed else ""
    header = f' -H "Authorization: Bearer {key}"' if keyed else ""
    quoted = shlex.quote(
        f'{{"model": "{model}", "messages": [{{"role": "user", "content": "What is a ship?"}}]}}'
    )
    python_key = 'os.environ["ORLOP_API_KEY"]' if keyed else '"none"'
    return f"""{first}
page    {address}/
curl    curl {address}/v1/chat/completions{header} -H 'Content-Type: application/json' \\
          -d {quoted}
python  from openai import OpenAI
        client = OpenAI(base_url="{address}/v1", api_key={python_key})
        messages = [{{"role": "user", "content": "What is a ship?"}}]
        print(client.chat.completions.create(model="{model}", messages=messages).choices[0].message.content)"""


def _start_log(level: str | None) -> None:
    """Defects are always told; with --log the library speaks too."""
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(name)s: %(levelname)s: %(message)s"))
    logger.addHandler(handler)
    if level:
        logger.setLevel(logging.DEBUG)
        set_log_level(level)
