"""The command `orlop`: run, chat, serve, grammar, inspect, eval, bench."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import Error
from . import bench, chat, eval, grammar, inspect, run, serve
from .common import CommandError, CommandParser, UsageError

_commands = (run, chat, serve, grammar, inspect, eval, bench)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="orlop", description="Run language models on this machine.")
    parser.add_argument("--version", action="version", version=f"orlop {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for module in _commands:
        module.add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code: 0 well, 1 an error, 2 wrong usage."""
    parser = _parser()
    args = parser.parse_args(argv)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # whoever started us closed it
            setattr(sys, name, open(os.devnull, mode))
        elif hasattr(stream, "reconfigure"):
            # Terminals and pipes may hold anything; what cannot be shown must not end the program.
            stream.reconfigure(errors="replace")
    try:
        code = args.run(args)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UsageError as error:
        args.parser.print_usage(sys.stderr)
        print(f"orlop {args.command}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read us has left
        _give_up_stdout()
        return 141
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except (CommandError, Error, OSError, MemoryError) as error:
        text = str(error) or type(error).__name__
        print(f"orlop: error: {' '.join(text.split())}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:  # a full disk, for instance
            _give_up_stdout()
        return 1


def _give_up_stdout() -> None:
    """What stdout still holds cannot be written; Python would complain again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
