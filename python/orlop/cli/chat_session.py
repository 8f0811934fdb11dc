"""A conversation with an engine: its messages, its sampling, and what becomes of a full context."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from .._engine import Engine
from .._request import Request
from ..errors import ContextOverflowError
from .run import summary

Message = dict[str, Any]

# What a model writes must not steer the terminal: control characters are shown by their pictures
# (U+2400), those of the C1 range by U+FFFD. Line ends and tabs stay.
pictures = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
pictures |= {0x7F: 0x2421} | {code: 0xFFFD for code in range(0x80, 0xA0)}


def shown(text: str, stream: TextIO) -> str:
    """A text as it can be written to a stream: as it is, unless that is a terminal."""
    return text.translate(pictures) if stream.isatty() else text


class Session:
    """The messages so far, and one answer at a time.

    Every prompt is the conversation as the chat template renders it, so that each begins with the
    one before and the prefix cache spares computing it again. That is why a full context loses
    several old turns at once: each loss changes the beginning.
    """

    def __init__(
        self, engine: Engine, system: str | None, params: dict[str, Any], show_stats: bool
    ):
        self.engine = engine
        self.params = params
        self.system = system
        self.messages: list[Message] = []
        """Of user and assistant; the system message is apart."""
        self.show_stats = show_stats
        self.answers = 0
        self.output_tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.seconds = 0.0

    @property
    def whole(self) -> list[Message]:
        """The conversation with its system message."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, *self.messages]

    @property
    def context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return int(self.engine.info["limits"]["request_tokens"])

    def reset(self) -> None:
        """Forgets everything but the system message."""
        self.messages.clear()

    def replace(self, messages: Sequence[Message]) -> None:
        """Goes on with another conversation. A system message at its beginning is taken as such."""
        has_system = bool(messages) and messages[0]["role"] == "system"
        self.system = messages[0]["content"] if has_system else None
        self.messages = [dict(message) for message in messages[1 if has_system else 0 :]]

    def count(self) -> int:
        """The tokens of the conversation, without the beginning of an answer."""
        if not self.messages:
            return 0
        return self._count(self.messages, prompt=False)

    def _count(self, messages: list[Message], prompt: bool = True) -> int:
        first = self.whole[: len(self.whole) - len(self.messages)]
        ids = self.engine.apply_chat_template(
            first + messages, tokenize=True, add_generation_prompt=prompt
        )
        return len(ids)

    def turn(self, text: str) -> bool:
        """Streams the answer to one message; False if Ctrl-C stopped it.

        A turn that fails or ends before a word was said leaves the conversation as it was.
        """
        before = list(self.messages)
        self.messages.append({"role": "user", "content": text})
        try:
            start = time.monotonic()
            with self._submit() as request:
                with _interrupts(request.cancel) as interrupted:
                    for output in request:
                        sys.stdout.write(shown(output.text, sys.stdout))
                        sys.stdout.flush()
                    print(flush=True)
                    self._account(request, time.monotonic() - start)
            if interrupted() and not request.text:
                self.messages = before
            else:
                self.messages.append({"role": "assistant", "content": request.text})
        except BaseException:
            self.messages = before
            raise
        return not interrupted()

    def _submit(self) -> Request:
        """Starts the answer. Where the conversation is too long its oldest turns are forgotten."""
        try:
            return self._generate()
        except ContextOverflowError:
            kept = self._shortened()
            if kept is None:
                raise
        dropped = len(self.messages) - len(kept)
        print(
            f"(the conversation is too long, the context holds {self.context} tokens: forgetting "
            f"its oldest turn{'s' if dropped > 2 else ''}, {dropped} of {len(self.messages)} "
            "messages; /reset starts over, --max-context makes room)",
            file=sys.stderr,
            flush=True,
        )
        self.messages = kept
        return self._generate()

    def _generate(self) -> Request:
        return self.engine.async_generate(messages=self.whole, **self.params)

    def _shortened(self) -> list[Message] | None:
        """The conversation from a later turn on, within three quarters of the context.

        If not even the last message is, whatever fits at all; None: nothing does.
        """
        starts = [i for i, message in enumerate(self.messages) if message["role"] == "user"][1:]
        for limit in (self.context * 3 // 4, self.context - 1):
            low, high = 0, len(starts)  # a later start is shorter: the first one that fits
            while low < high:
                middle = (low + high) // 2
                if self._count(self.messages[starts[middle] :]) <= limit:
                    high = middle
                else:
                    low = middle + 1
            if low < len(starts):
                return self.messages[starts[low] :]
        return None

    def _account(self, request: Request, seconds: float) -> None:
        status = request.status
        self.answers += 1
        self.output_tokens += status.generated_tokens
        self.prompt_tokens += status.prompt_tokens
        self.cached_tokens += status.cached_tokens
        self.seconds += seconds
        if self.show_stats:
            print(dim(summary(request), sys.stderr), file=sys.stderr)
        used = status.prompt_tokens + status.generated_tokens
        if request.finish_reason == "length" and used >= self.context:
            print(
                f"(the answer was cut: the context of {self.context} tokens is full. The next "
                "message forgets the oldest turns; /reset starts over)",
                file=sys.stderr,
            )


def plain_terminal(stream: TextIO) -> bool:
    """Whether a stream takes no colours: no terminal, a dumb one, or the user wants none."""
    import os

    return not stream.isatty() or os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))


def dim(text: str, stream: TextIO) -> str:
    return text if plain_terminal(stream) else f"\x1b[2m{text}\x1b[0m"


@contextlib.contextmanager
def _interrupts(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """While inside, Ctrl-C calls `stop` and raises nothing, so that no output is lost half-way.

    Gives a function that tells whether it came.
    """
    came = False

    def handle(*_: object) -> None:
        nonlocal came
        came = True
        stop()

    if threading.current_thread() is not threading.main_thread():
        yield lambda: came  # signals are the main thread's
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
