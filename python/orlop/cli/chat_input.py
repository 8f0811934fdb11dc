"""What a person types: line editing, a history that survives the program, messages of several lines.

The history file has one JSON string a line, so that a message of several lines comes back as one.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from .chat_session import plain_terminal

_kept = 2000  # entries of the history file
_longest = 100_000  # characters of an entry that is remembered


class Abandoned(Exception):
    """Ctrl-C at a prompt, or Ctrl-D inside a message of several lines."""

    def __init__(self, empty: bool):
        super().__init__()
        self.empty = empty
        """Nothing had been typed."""


@dataclass(frozen=True)
class Input:
    """One message."""

    text: str
    verbatim: bool
    '''It was written within """ and so is no command.'''


def state_folder() -> pathlib.Path:
    """Where the history lies, by the XDG base directory specification 0.8."""
    given = os.environ.get("XDG_STATE_HOME", "")
    base = pathlib.Path(given) if os.path.isabs(given) else pathlib.Path.home() / ".local" / "state"
    return base / "orlop"


def join_lines(ask: Callable[[bool], str]) -> Input:
    '''A message from lines: ask(False) gives the first, ask(True) each further one.

    """ begins a block that goes on to the next """; elsewhere a \\ at the end of a line takes the next
    one in. A line may itself hold line ends: pasted text arrives whole.
    '''
    line = ask(False)
    if line.lstrip().startswith('"""'):
        text = line.lstrip()[3:]
        while not text.rstrip().endswith('"""'):
            text += "\n" + ask(True)
        return Input(text.rstrip()[:-3].strip("\n"), True)
    lines = [line]
    while _continues(lines[-1]):
        lines[-1] = lines[-1][:-1]
        lines.append(ask(True))
    return Input("\n".join(lines), False)


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


class Reader:
    """Messages from the terminal."""

    def __init__(self, completions: Callable[[str], list[str]], keep_history: bool):
        self.complaint = ""
        """Why there is no history file, if there should be one."""
        self._file: pathlib.Path | None = None
        self._prompted_by_input = sys.stdout.isatty()
        self._readline: Any = None
        try:
            import readline
        except ImportError:  # a Python without it: plain lines
            return
        self._readline = readline
        self._gnu = "libedit" not in (readline.__doc__ or "")
        readline.set_auto_history(False)  # whole messages are remembered, not their lines
        self._set_completion(completions)
        if self._gnu:
            readline.parse_and_bind("set enable-bracketed-paste on")
        if keep_history:
            try:
                self._load(state_folder() / "chat_history")
            except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
                self.complaint = f"no history: {error}"

    def read(self) -> Input:
        """The next message. EOFError: Ctrl-D at an empty prompt; Abandoned: see there."""
        before: list[str] = []

        def ask(more: bool) -> str:
            try:
                before.append(self._ask("... " if more else "> "))
            except KeyboardInterrupt:
                raise Abandoned(not before and not self._pending()) from None
            except EOFError:
                if before:
                    raise Abandoned(False) from None
                raise
            return before[-1]

        message = join_lines(ask)
        self._remember("\n".join(before))
        return message

    def _ask(self, prompt: str) -> str:
        if not self._prompted_by_input:  # stdout is a file: the answers', not ours
            print(prompt, end="", file=sys.stderr, flush=True)
            return input()
        if self._readline is not None and self._gnu and not plain_terminal(sys.stdout):
            # Between \1 and \2 lies what takes no room on the line.
            prompt = f"\1\x1b[1;36m\2{prompt}\1\x1b[0m\2"
        return input(prompt)

    def _pending(self) -> bool:
        """Whether something had been typed when Ctrl-C came."""
        return self._readline is not None and bool(self._readline.get_line_buffer())

    def _set_completion(self, completions: Callable[[str], list[str]]) -> None:
        readline = self._readline
        found: list[str] = []

        def complete(_: str, state: int) -> str | None:
            nonlocal found
            if state == 0:
                found = completions(readline.get_line_buffer()[: readline.get_endidx()])
            return found[state] if state < len(found) else None

        readline.set_completer(complete)
        readline.set_completer_delims(" \t\n")
        readline.parse_and_bind("tab: complete" if self._gnu else "bind ^I rl_complete")

    def _load(self, path: pathlib.Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _private(path, os.O_RDONLY | os.O_CREAT) as stream:
            lines = stream.read().splitlines()
        entries = [entry for line in lines if (entry := _entry(line)) is not None]
        for entry in entries[-_kept:]:
            self._readline.add_history(entry)
        if len(lines) > 2 * _kept:
            _rewrite(path, entries[-_kept:])
        self._file = path

    def _remember(self, text: str) -> None:
        if self._readline is None or not text.strip() or len(text) > _longest:
            return
        last = self._readline.get_current_history_length()
        if last and self._readline.get_history_item(last) == text:
            return
        self._readline.add_history(text)
        if self._file is None:
            return
        try:  # one write: other chats append to the same file
            with _private(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as stream:
                stream.write(json.dumps(text) + "\n")
        except OSError as error:
            self._file = None
            print(f"(no history any more: {error})", file=sys.stderr)


def _entry(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):  # a line that another hand wrote
        return None
    return entry if isinstance(entry, str) and entry and "\0" not in entry else None


def _rewrite(path: pathlib.Path, entries: list[str]) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with _private(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as stream:
        stream.writelines(json.dumps(entry) + "\n" for entry in entries)
    os.replace(new, path)


def _private(path: pathlib.Path, flags: int) -> IO[str]:
    """Opens a file that nobody else may read: what a person asked is nobody else's business."""
    mode = "r" if flags & os.O_ACCMODE == os.O_RDONLY else "w"
    return open(os.open(path, flags, 0o600), mode, encoding="utf-8", errors="replace")
