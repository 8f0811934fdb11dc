"""The slash commands of orlop chat."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from . import common
from .chat_session import Message, Session

_shape = re.compile(r"/([A-Za-z]+)(?:\s+|$)")
_largest_file = 64 << 20


class _OneOption(common.Options):
    """Parses the sampling options; a wrong value is an error of the command, not of the program."""

    def error(self, message: str) -> NoReturn:
        raise common.CommandError(message.removeprefix("argument "))


class Commands:
    """What a line that begins with / does to a session."""

    def __init__(self, session: Session):
        self.session = session
        self._own_file: pathlib.Path | None = None  # saved or loaded: may be written again
        self._table: dict[str, tuple[str, str, Callable[[str], None]]] = {
            "help": ("", "this list", self._help),
            "reset": ("", "forgets the conversation, not the system message", self._reset),
            "system": ("[TEXT]", 'shows or sets the system message; "" removes it', self._system),
            "set": (
                "[NAME [VALUE]]",
                "shows or sets a sampling parameter, such as temperature 0.2; VALUE default: the "
                "model's own",
                self._set,
            ),
            "save": ("[FILE]", "writes the messages as JSON", self._save),
            "load": ("FILE", "goes on with the messages of such a file", self._load),
            "stats": ("", "tokens, speed and the engine's memory", self._stats),
        }
        self._options = _OneOption()
        common.add_sampling_options(self._options, max_tokens=None)
        self._actions = {
            action.dest: action
            for action in self._options._actions  # the only place that knows them all
            if action.dest in session.params
        }

    # -- finding them ----------------------------------------------------------------------------

    def knows(self, text: str) -> bool:
        """Whether a line is one of the commands."""
        found = _shape.match(text.strip())
        return bool(found) and self._name(found) in (*self._table, "exit", "quit")

    def looks_like_one(self, text: str) -> bool:
        """Whether a person means a command, be it a wrong one. A path such as /etc/hosts is none."""
        stripped = text.strip()
        found = _shape.match(stripped)
        return bool(found) and ("\n" not in stripped or self._name(found) == "system")

    @staticmethod
    def _name(found: re.Match[str] | None) -> str:
        return found.group(1).lower() if found else ""

    def completions(self, line: str) -> list[str]:
        """What may stand at the end of a beginning of a line."""
        words = line.split(" ")
        if len(words) == 1 and line.startswith("/"):
            names = (f"/{name}" for name in (*self._table, "exit"))
            return [f"{name} " for name in names if name.startswith(line)]
        if len(words) == 2 and words[0] == "/set":
            return [f"{name} " for name in self._actions if name.startswith(words[1])]
        if len(words) == 2 and words[0] in ("/save", "/load"):
            return _paths(words[1])
        return []

    def run(self, text: str) -> bool:
        """Runs one; False: leave. CommandError says what was wrong."""
        found = _shape.match(text.strip())
        assert found
        name, rest = self._name(found), text.strip()[found.end() :].strip()
        if name in ("exit", "quit"):
            return False
        if name not in self._table:
            raise common.CommandError(
                f"there is no command /{found.group(1)}: /help lists them; what stands between two "
                '""" is a message in any case'
            )
        wants, _, action = self._table[name]
        if rest and not wants:
            raise common.CommandError(f"/{name} takes no argument")
        if not rest and wants and not wants.startswith("["):
            raise common.CommandError(f"/{name} needs {wants}")
        action(rest)
        return True

    # -- what they do ----------------------------------------------------------------------------

    def _help(self, _: str) -> None:
        rows = [(f"/{name} {wants}".rstrip(), what) for name, (wants, what, _f) in self._table.items()]
        rows.append(("/exit", "leaves, as Ctrl-D and a second Ctrl-C at an empty prompt do"))
        for command, what in rows:
            _say(f"{command:<20} {what}")
        _say('A message of several lines stands between two """, or its lines end with \\, or it is')
        _say("pasted. Ctrl-C stops an answer.")

    def _reset(self, _: str) -> None:
        self.session.reset()

    def _system(self, text: str) -> None:
        if text:
            self.session.system = None if text in ('""', "''") else text
        _say(f"system: {'none' if self.session.system is None else self.session.system}")

    def _set(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        name, value = name.replace("-", "_"), value.strip()
        params = self.session.params
        if not name:
            for key in self._actions:
                _say(f"{key:<20} {_value(params[key])}")
            return
        if name not in self._actions:
            raise common.CommandError(
                f"there is no parameter {name}: {', '.join(self._actions)} may be set"
            )
        if value:
            params[name] = None if value == "default" else self._parsed(name, value)
        _say(f"{name} {_value(params[name])}")

    def _parsed(self, name: str, value: str) -> Any:
        action = self._actions[name]
        if action.nargs == 0:  # a switch
            try:
                return common.yes_or_no(value)
            except argparse.ArgumentTypeError as error:
                raise common.CommandError(f"{name}: {error}") from None
        option = action.option_strings[-1]
        parsed = getattr(self._options.parse_args([f"{option}={value}"]), name)
        low, high = self.session.params["min_tokens"], self.session.params["max_tokens"]
        low, high = (parsed if name == "min_tokens" else low), (parsed if name == "max_tokens" else high)
        if None not in (low, high) and low > high:
            raise common.CommandError(
                f"min_tokens must be at most max_tokens, got {low} and {high}"
            )
        return parsed

    def _save(self, name: str) -> None:
        path = pathlib.Path(name).expanduser() if name else self._own_file
        if path is None:
            raise common.CommandError("/save needs FILE: this conversation has none yet")
        path = path.absolute()
        if path != self._own_file and path.exists() and _messages_of(path) is None:
            raise common.CommandError(f"{path} is there and no conversation: not overwritten")
        whole = self.session.whole
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            new.write_text(json.dumps(whole, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            os.replace(new, path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        self._own_file = path
        _say(f"{_messages(len(whole))} in {path}")

    def _load(self, name: str) -> None:
        path = pathlib.Path(name).expanduser().absolute()
        if path.stat().st_size > _largest_file:
            raise common.CommandError(f"{path} has more than {_largest_file >> 20} MB")
        messages = _messages_of(path)
        if messages is None:
            raise common.CommandError(
                f"{path} is no conversation: a JSON array of objects with role and content, both text"
            )
        self.session.replace(messages)
        self._own_file = path
        _say(f"{_messages(len(messages))} from {path}")

    def _stats(self, _: str) -> None:
        session = self.session
        stats = session.engine.stats
        spared = f"{session.cached_tokens / session.prompt_tokens:.0%}" if session.prompt_tokens else "-"
        speed = f"{session.output_tokens / session.seconds:.1f}" if session.seconds > 0 else "-"
        block = int(session.engine.info["kv"]["block_size"])
        _say(
            f"conversation {_messages(len(session.whole))}, {session.count()} tokens of a context of "
            f"{session.context}"
        )
        _say(
            f"answers      {session.answers}, {session.output_tokens} tokens in "
            f"{session.seconds:.1f} s ({speed} tokens/s, prompts included)"
        )
        _say(
            f"prompts      {session.prompt_tokens} tokens, of them {session.cached_tokens} found in "
            f"the prefix cache ({spared})"
        )
        _say(
            f"KV cache     {stats['pages_used']} pages in use, {stats['pages_cached']} kept for later, "
            f"of {stats['pages_total']} ({block} tokens each)"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _value(value: Any) -> str:
    return "default" if value is None else json.dumps(value, ensure_ascii=False)


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _messages_of(path: pathlib.Path) -> list[Message] | None:
    """The messages of a file; None if it is something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # ValueError: no UTF-8, no JSON
        return None
    if isinstance(found, dict):  # the body of a request
        found = found.get("messages")
    if not isinstance(found, list):
        return None
    good = all(
        isinstance(message, dict)
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
        for message in found
    )
    return found if good else None


def _paths(begin: str) -> list[str]:
    folder, _, name = begin.rpartition("/")
    where = pathlib.Path(f"{folder}/" if "/" in begin else ".").expanduser()
    try:
        entries = sorted(where.iterdir())
    except (OSError, RuntimeError):
        return []
    head = f"{folder}/" if "/" in begin else ""
    return [
        f"{head}{entry.name}{'/' if entry.is_dir() else ' '}"
        for entry in entries
        if entry.name.startswith(name)
    ]
