"""orlop grammar check: whether a text is what a guide asks for.

The same guides that a request can be given: a JSON Schema, any JSON object, a regular expression, a
grammar in GBNF, or a choice of texts. No model is needed.

    orlop grammar check --json-schema schema.json '{"name": "Ada"}'
    orlop grammar check --regex '[0-9]{4}-[0-9]{2}' 2024-1x
    orlop grammar check --grammar chess.gbnf --file game.txt
    model | orlop grammar check --choice yes --choice no --strip

Says that the text is accepted, or at which byte it stops, with the line and a caret below it. The exit
status is 0 for a text that is accepted and complete, 1 for one that is not, 2 for a wrong command
line, a file that cannot be read, or a source that is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import unicodedata
from dataclasses import dataclass
from typing import Any

from ..errors import Error
from . import common
from .chat_session import pictures

_before, _after = 60, 18  # columns of a long line that are shown around the caret


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "grammar",
        help="check a text against a schema, regular expression or grammar",
        description="Tools for guided output (a JSON schema, a regular expression, a grammar, a "
        "choice). They need no model.",
    )
    parser.set_defaults(parser=parser)
    forms = parser.add_subparsers(
        dest="form", metavar="FORM", required=True, parser_class=common.CommandParser
    )
    _add_check(forms)


def _add_check(forms: Any) -> None:
    options = common.Options()
    guides = options.add_argument_group("the guide (one of them)")
    guides.add_argument("--json-schema", metavar="FILE|TEXT", help="a JSON Schema, or its file")
    guides.add_argument("--json-object", action="store_true", help="any JSON object")
    guides.add_argument("--regex", metavar="PATTERN", help="of the whole text")
    guides.add_argument("--grammar", metavar="FILE|TEXT", help="a GBNF grammar, or its file")
    guides.add_argument(
        "--choice", metavar="TEXT", action="append", help="may be given several times"
    )
    options.add_argument("-f", "--file", help="the text is in this file")
    options.add_argument(
        "--strip", action="store_true", help="leave a line end at the end of the text out"
    )
    options.add_argument("--json", action="store_true", help="the answer as JSON on stdout")
    options.add_argument("-q", "--quiet", action="store_true", help="the exit status alone")
    parser = forms.add_parser(
        "check",
        parents=[options],
        help="says whether a text is accepted, and if not, at which byte it stops",
        description="Says whether a text is accepted by a guide, and if not, at which byte it stops. "
        "The text is an argument, a file, or stdin. Exit status: 0 accepted and complete, 1 not, "
        "2 wrong usage or a guide that is refused.",
    )
    parser.add_argument("text", nargs="?", help="the text; - or nothing reads stdin")
    parser.set_defaults(run=_check, parser=parser)


@dataclass(frozen=True)
class Verdict:
    """How far a text follows a guide. Bytes, lines and columns: line and column from 1."""

    complete: bool
    accepted: int
    """The bytes that can begin an accepted text."""
    size: int
    line: int
    column: int
    """In characters, as editors count."""
    utf8: bool
    """False: the text stops where it stops being UTF-8."""


def _check(args: argparse.Namespace) -> int:
    guide, name = _guide(args)
    try:
        if name == "--json-schema":
            guide = {"json_schema": _source(args.json_schema, schema=True)}
        elif name == "--grammar":
            guide = {"grammar": _source(args.grammar, schema=False)}
        data = _text(args)
    except OSError as error:
        raise common.UsageError(f"{error.filename}: {error.strerror}") from None
    hint = ""
    if data.endswith(b"\n") and args.strip:
        data = _without_line_end(data)
    try:
        verdict = check(guide, data)
        if not verdict.complete and data.endswith(b"\n"):
            if check(guide, _without_line_end(data)).complete:
                hint = "without the line end at its end the text is accepted: --strip leaves it out"
    except Error as error:
        words = " ".join(str(error).split())
        print(f"orlop grammar check: {name} is refused: {words}", file=sys.stderr)
        return 2
    if args.json:
        json.dump(
            {
                "complete": verdict.complete,
                "accepted_bytes": verdict.accepted,
                "bytes": verdict.size,
                "line": verdict.line,
                "column": verdict.column,
                "utf8": verdict.utf8,
            },
            sys.stdout,
        )
        print()
    elif not args.quiet:
        for line in report(verdict, data):
            print(line)
        if hint:
            print(hint)
    return 0 if verdict.complete else 1


def _guide(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The one guide that was given, a source in a file not read yet, and the option's name."""
    for text in (args.regex, args.json_schema, args.grammar, *(args.choice or ())):
        if text is not None and not _is_unicode(text):
            raise common.UsageError("the guide is not UTF-8")
    given: dict[str, dict[str, Any]] = {}
    if args.json_schema is not None:
        given["--json-schema"] = {}
    if args.json_object:
        given["--json-object"] = {"json_object": True}
    if args.regex is not None:
        given["--regex"] = {"regex": args.regex}
    if args.grammar is not None:
        given["--grammar"] = {}
    if args.choice is not None:
        given["--choice"] = {"choice": args.choice}
    if len(given) != 1:
        names = "--json-schema, --json-object, --regex, --grammar or --choice"
        got = f", got {' and '.join(given)}" if given else ""
        raise common.UsageError(f"exactly one guide is needed: {names}{got}")
    if args.text is not None and args.file is not None:
        raise common.UsageError("the text is an argument or in --file, not both")
    if "-" in (args.json_schema, args.grammar) and args.file is None and args.text in (None, "-"):
        raise common.UsageError("stdin can be the guide or the text, not both")
    name, guide = next(iter(given.items()))
    return guide, name


def _source(given: str, schema: bool) -> str:
    """A schema or grammar, itself or in a file."""
    if schema:
        itself = given.lstrip().startswith("{") or given.strip() in ("true", "false")
    else:
        itself = "::=" in given
    if itself:
        return given
    data = _stdin() if given == "-" else _file(given)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise common.UsageError(f"{given}: not UTF-8 at byte {error.start}") from None


def _text(args: argparse.Namespace) -> bytes:
    if args.file is not None:
        return _file(args.file)
    if args.text is not None and args.text != "-":
        return str(args.text).encode("utf-8", "surrogateescape")  # as the shell gave it
    if sys.stdin.isatty():
        print("(type the text; Ctrl-D ends it)", file=sys.stderr)
    return _stdin()


def _file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _stdin() -> bytes:
    binary = getattr(sys.stdin, "buffer", None)  # what stands in for stdin may have none
    return bytes(binary.read()) if binary is not None else sys.stdin.read().encode()


def _without_line_end(data: bytes) -> bytes:
    return data[:-2] if data.endswith(b"\r\n") else data[:-1]


def check(guide: dict[str, Any], data: bytes) -> Verdict:
    """Asks the library. Raises its error if the guide is refused."""
    import orlop

    accepted, complete = orlop.guide_check(guide, data)
    try:
        data.decode()
        good = len(data)
    except UnicodeDecodeError as error:
        good = error.start
    before = data[:accepted]
    begin = before.rfind(b"\n") + 1
    column = len(before[begin:].decode(errors="ignore")) + 1
    return Verdict(
        complete=complete,
        accepted=accepted,
        size=len(data),
        line=before.count(b"\n") + 1,
        column=column,
        utf8=accepted < good or good == len(data),
    )


def report(verdict: Verdict, data: bytes) -> list[str]:
    """What a person reads."""
    if verdict.complete:
        return [f"accepted: {_bytes(verdict.size)}"]
    if verdict.size == 0:
        return ["not complete: the text is empty"]
    if verdict.accepted == verdict.size:
        begin = _shown(data.decode(errors="replace"))
        return [
            f"not complete: {_bytes(verdict.size)} can begin an accepted text, and more must follow",
            f"accepted so far: {_tail(begin) or '(nothing)'}",
        ]
    why = "" if verdict.utf8 else ": it is not UTF-8 from there on"
    line, caret = _pointed(verdict, data)
    accepted = _shown(data[: verdict.accepted].decode(errors="ignore"))
    return [
        f"not accepted: stops at byte {verdict.accepted} of {verdict.size} (line {verdict.line}, "
        f"column {verdict.column}){why}",
        f"  {line}",
        f"  {caret}",
        f"accepted so far: {_tail(accepted) or '(nothing)'}",
    ]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of the command line that are no UTF-8
        return False
    return True


def _bytes(count: int) -> str:
    return f"{count} byte{'' if count == 1 else 's'}"


def _pointed(verdict: Verdict, data: bytes) -> tuple[str, str]:
    """The line on which a text stops, cut to what a terminal shows, and the caret's line."""
    begin = data.rfind(b"\n", 0, verdict.accepted) + 1
    end = data.find(b"\n", verdict.accepted)
    line = data[begin : end if end >= 0 else len(data)].decode(errors="replace")
    left, right = _shown(line[: verdict.column - 1]), _shown(line[verdict.column - 1 :])
    if end == verdict.accepted:  # it is the line end that is not accepted
        right += "\u240a"
    left = _tail(left)
    if len(right) > _after:
        right = right[: _after - 1] + "\u2026"
    return left + right, " " * sum(map(_width, left)) + "^"


def _tail(text: str) -> str:
    return text if len(text) <= _before else "\u2026" + text[1 - _before :]


def _shown(text: str) -> str:
    """A text on one line, nothing in it that moves a cursor."""
    return text.translate(pictures | {0x0A: 0x240A, 0x09: 0x2409})


def _width(char: str) -> int:
    """The columns of a terminal that a character takes."""
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
