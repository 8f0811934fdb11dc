"""orlop chat: a conversation in the terminal, or one question."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .._engine import Engine
from ..errors import ContextOverflowError, Error
from . import common
from .chat_commands import Commands
from .chat_input import Abandoned, Reader
from .chat_session import Session

# For models whose files state no sampling defaults.
_calm = {"temperature": 0.7, "top_p": 0.9}

_greeting = (
    '/help lists the commands; """ begins and ends a message of several lines, as does a \\ at the '
    "end of a line; Ctrl-C stops an answer, Ctrl-D or /exit leaves."
)


def add_command(commands: Any) -> None:
    options = common.Options()
    options.add_argument("--system", metavar="TEXT", help="the system message")
    options.add_argument(
        "--stats",
        action="store_true",
        help="a line of counts and tokens/s after each answer on stderr, even if it is no terminal",
    )
    options.add_argument(
        "--no-history", action="store_true", help="do not read and write the history file"
    )
    common.add_sampling_options(options, max_tokens=None)
    common.add_engine_options(options)
    parser = commands.add_parser(
        "chat",
        parents=[options],
        help="talk with a model",
        description="A conversation in the terminal, with history. With a question: prints the "
        "answer and ends. From a pipe: every line is a turn or a command. /reset forgets the "
        "conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer, /help lists the other "
        "commands. What was typed is kept in orlop/chat_history below $XDG_STATE_HOME "
        "(~/.local/state).",
    )
    parser.add_argument("model", help="a checkpoint folder or a .gguf file")
    parser.add_argument("question", nargs="*", help="joined with spaces; - reads all of stdin")
    parser.set_defaults(run=_run, parser=parser)


def _run(args: argparse.Namespace) -> int:
    params = common.sampling(args)
    with common.load(args) as engine:
        _choose_sampling(params, engine, args.quiet)
        show = args.stats or (not args.quiet and sys.stderr.isatty())
        session = Session(engine, args.system, params, show_stats=show)
        if args.question:
            whole = sys.stdin.read() if args.question == ["-"] else " ".join(args.question)
            return 0 if session.turn(whole) else 130
        commands = Commands(session)
        if sys.stdin.isatty():
            return _interactive(commands, args)
        return _piped(commands)


def _choose_sampling(params: dict[str, Any], engine: Engine, quiet: bool) -> None:
    """Where neither the options nor the model say anything: calmer than the whole distribution."""
    given = any(params[name] is not None for name in ("temperature", "top_k", "top_p", "min_p"))
    if given or engine.info["sampling"]["source"] != "engine":
        return
    params.update(_calm)
    if not quiet:
        words = ", ".join(f"{name} {value:g}" for name, value in _calm.items())
        print(f"chat     {words} (the model states none)", file=sys.stderr)


def _piped(commands: Commands) -> int:
    """Every line is a turn or a command; an error ends the program."""
    for line in sys.stdin:
        text = line.rstrip("\n")
        if commands.knows(text):
            if not commands.run(text):
                break
        elif text.strip() and not commands.session.turn(text):
            return 130
    return 0


def _interactive(commands: Commands, args: argparse.Namespace) -> int:
    """A person at a terminal: an error costs a turn, never the conversation."""
    reader = Reader(commands.completions, keep_history=not args.no_history)
    if not args.quiet:
        print(_greeting, file=sys.stderr)
        if reader.complaint:
            print(f"({reader.complaint})", file=sys.stderr)
    leaving = False  # the last thing was a Ctrl-C at an empty prompt
    while True:
        try:
            message = reader.read()
            leaving = False
            if not message.verbatim and commands.looks_like_one(message.text):
                if not commands.run(message.text):
                    return 0
            elif message.text.strip():
                commands.session.turn(message.text)
        except EOFError:
            print()
            return 0
        except Abandoned as why:
            print()
            if why.empty and leaving:
                return 0
            leaving = why.empty
            if leaving:
                print("(Ctrl-C again, Ctrl-D or /exit leaves)", file=sys.stderr)
        except KeyboardInterrupt:  # between a turn and the next prompt
            print(file=sys.stderr)
        except ContextOverflowError as error:
            print(
                f"error: {error}. Shorten the message, /reset the conversation, or start with a "
                "larger --max-context.",
                file=sys.stderr,
            )
        except (common.CommandError, Error, OSError, MemoryError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            words = " ".join((str(error) or type(error).__name__).split())
            print(f"error: {words}", file=sys.stderr)
