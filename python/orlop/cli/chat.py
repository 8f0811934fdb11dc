"""orlop chat: a conversation in the terminal, or one question."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .._engine import Engine
from ..errors import ContextOverflowError
from . import common
from .run import summary

_help = "/reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer"


# For models whose files state no sampling defaults.
_calm = {"temperature": 0.7, "top_p": 0.9}


def add_command(commands: Any) -> None:
    options = common.Options()
    options.add_argument("--system", metavar="TEXT", help="the system message")
    common.add_sampling_options(options, max_tokens=None)
    common.add_engine_options(options)
    parser = commands.add_parser(
        "chat",
        parents=[options],
        help="talk with a model",
        description="A conversation in the terminal, with history. With a question: prints the "
        "answer and ends. From a pipe: every line is a turn or a command. " + _help + ".",
    )
    parser.add_argument("model", help="a checkpoint folder or a .gguf file")
    parser.add_argument("question", nargs="*", help="joined with spaces; - reads all of stdin")
    parser.set_defaults(run=_run, parser=parser)


def _run(args: argparse.Namespace) -> int:
    params = common.sampling(args)
    with common.load(args) as engine:
        _choose_sampling(params, engine, args.quiet)
        chat = _Chat(engine, args, params)
        if args.question:
            whole = sys.stdin.read() if args.question == ["-"] else " ".join(args.question)
            return 0 if chat.turn(whole) else 130
        if sys.stdin.isatty():
            return _interactive(chat)
        for line in sys.stdin:
            completed = _line(chat, line.rstrip("\n"))
            if completed is None:
                break
            if not completed:
                return 130
    return 0


def _choose_sampling(params: dict[str, Any], engine: Engine, quiet: bool) -> None:
    """Where neither the options nor the model say anything: calmer than the whole distribution."""
    given = any(params[name] is not None for name in ("temperature", "top_k", "top_p", "min_p"))
    if given or engine.info["sampling"]["source"] != "engine":
        return
    params.update(_calm)
    if not quiet:
        words = ", ".join(f"{name} {value:g}" for name, value in _calm.items())
        print(f"chat     {words} (the model states none)", file=sys.stderr)


def _line(chat: _Chat, text: str) -> bool | None:
    """One line of a conversation, a command or a turn; None: leave, False: interrupted."""
    command = text.strip()
    if command in ("/exit", "/quit"):
        return None
    if command == "/reset":
        chat.reset()
    elif command == "/help":
        print(_help + ".", file=sys.stderr)
    elif command:
        return chat.turn(text)
    return True


def _interactive(chat: _Chat) -> int:
    try:
        import readline  # noqa: F401  line editing for input()
    except ImportError:
        pass
    print(_help + ".", file=sys.stderr)
    while True:
        try:
            text = input("> ")
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print("\n(Ctrl-D or /exit leaves)", file=sys.stderr)
            continue
        if _line(chat, text) is None:
            return 0


class _Chat:
    def __init__(self, engine: Engine, args: argparse.Namespace, params: dict[str, Any]):
        self._engine = engine
        self._params = params
        self._quiet = args.quiet
        self._system = args.system
        self.reset()

    def reset(self) -> None:
        self._messages: list[dict[str, str]] = []
        if self._system is not None:
            self._messages.append({"role": "system", "content": self._system})

    def turn(self, text: str) -> bool:
        """Streams the answer to one message; False if it was interrupted."""
        self._messages.append({"role": "user", "content": text})
        completed = True
        with self._submit() as request:
            try:
                for output in request:
                    sys.stdout.write(output.text)
                    sys.stdout.flush()
            except KeyboardInterrupt:
                completed = False
                request.cancel()
                for output in request:  # what was produced until then belongs to the history
                    sys.stdout.write(output.text)
            print(flush=True)
            if not self._quiet:
                print(summary(request), file=sys.stderr)
            self._messages.append({"role": "assistant", "content": request.text})
        return completed

    def _submit(self) -> Any:
        while True:
            try:
                return self._engine.async_generate(messages=self._messages, **self._params)
            except ContextOverflowError:
                first = 1 if self._messages[0]["role"] == "system" else 0
                if len(self._messages) - first < 3:
                    raise
                del self._messages[first : first + 2]
                print("(the conversation is too long: forgetting its oldest turn)", file=sys.stderr)
