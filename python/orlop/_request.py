"""A running generation: taking its output, waiting, cancelling."""

from __future__ import annotations

import concurrent.futures
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _native
from ._native import LogprobTable, Output
from .errors import Error, from_code

if TYPE_CHECKING:
    import asyncio

    from ._engine import Engine
    from ._loop import LoopQueue

_states = ("waiting", "running", "done", "cancelled", "failed")


@dataclass(frozen=True)
class Status:
    """Where a request stands. Times are seconds, None while not known yet."""

    state: str
    """'waiting', 'running', 'done', 'cancelled' or 'failed'."""
    finish_reason: str | None
    """'stop', 'length', 'cancelled', 'error', or None."""
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that a prefix cache spared."""
    generated_tokens: int
    seed: int
    """The seed in use, given or drawn; passing it again reproduces the request."""
    queued: float | None
    """From submission to the first step that held the request."""
    ttft: float | None
    """From submission to the first token."""
    total: float | None
    """From submission to the latest token."""
    tokens_per_second: float | None
    """Of the tokens after the first."""

    @classmethod
    def _from_info(cls, info: dict[str, Any]) -> Status:
        start = info["queued_ns"]

        def since(end: int) -> float | None:
            return (end - start) * 1e-9 if start and end else None

        first, last = info["first_token_ns"], info["last_token_ns"]
        more = info["generated_tokens"] - 1
        return cls(
            state=_states[info["state"]],
            finish_reason=info["finish_reason"],
            prompt_tokens=info["prompt_tokens"],
            cached_tokens=info["cached_tokens"],
            generated_tokens=info["generated_tokens"],
            seed=info["seed"],
            queued=since(info["scheduled_ns"]),
            ttft=since(first),
            total=since(last),
            tokens_per_second=more * 1e9 / (last - first) if more > 0 and last > first else None,
        )


@dataclass(frozen=True)
class Sample:
    """One of the n samples of a request."""

    index: int
    text: str
    tokens: list[int]
    finish_reason: str
    logprobs: list[float] | None
    top_logprobs: LogprobTable | None
    stop_token: int | None
    stop_index: int | None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Result:
    """Everything that a request produced. str(result) is its text.

    With n > 1 the fields are sample 0's, and `samples` has all.
    """

    text: str
    tokens: list[int]
    """Generated ids, shape [n]."""
    finish_reason: str
    """'stop', 'length' or 'cancelled'."""
    logprobs: list[float] | None
    """Of each generated token, shape [n], if asked for."""
    top_logprobs: LogprobTable | None
    """Shape [n, top], if asked for."""
    prompt_logprobs: list[float] | None
    """Of each prompt token given those before it, shape [prompt]; entry 0 is 0."""
    prompt_top_logprobs: LogprobTable | None
    """Shape [prompt, top]; row 0 is all zero."""
    stop_token: int | None
    """The token id that ended the request."""
    stop_index: int | None
    """Which of the stop strings ended the request."""
    status: Status
    samples: list[Sample]
    """All n, in order."""
    embedding: list[float] | None = None
    """Of the prompt, of length 1, if asked for."""

    def __str__(self) -> str:
        return self.text


class _Part:
    """What was taken of one sample."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tokens: list[int] = []
        self.logprobs: list[float] | None = None
        self.tops: list[LogprobTable] = []
        self.last: Output | None = None
        self.embedding: list[float] | None = None

    def take(self, out: Output) -> None:
        if out.text:
            self.texts.append(out.text)
        self.tokens.extend(out.tokens)
        if (logprobs := out.logprobs) is not None:
            if self.logprobs is None:
                self.logprobs = []
            self.logprobs.extend(logprobs)
        if (top := out.top_logprobs) is not None:
            self.tops.append(top)
        if out.finish_reason is not None:
            self.last = out
            self.embedding = out.embedding

    def sample(self, index: int) -> Sample:
        assert self.last is not None
        return Sample(
            index=index,
            text="".join(self.texts),
            tokens=list(self.tokens),
            finish_reason=self.last.finish_reason or "",
            logprobs=self.logprobs,
            top_logprobs=LogprobTable.concat(self.tops) if self.tops else None,
            stop_token=self.last.stop_token,
            stop_index=self.last.stop_index,
        )


class Request:
    """A generation in progress, made by `Engine.async_generate`.

    Take its output with `get`, by iterating (`for` or `async for`), with `aget`, or all at once with
    `result`. One consumer at a time; `cancel`, `status`, `text` and `tokens` from any thread. As a
    context manager it is cancelled and freed at the end of the block. A request that nobody holds
    any more is cancelled.
    """

    def __init__(self, engine: Engine, handle: _native.Request, queue: LoopQueue | None, tag: int):
        self._engine = engine
        self._handle = handle
        self._queue = queue
        self._tag = tag
        self._parts = [_Part() for _ in range(handle.status()["samples"])]
        self._prompt: tuple[list[float] | None, LogprobTable | None] = (None, None)
        self._done = False
        self._error: Error | None = None
        self._final_status: Status | None = None
        # A blocking get in a thread of its own, for loops that the request was not submitted from.
        self._helper: concurrent.futures.Future[Output | None] | None = None

    # -- taking output ---------------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> Output | None:
        """The output since the last call, waiting up to `timeout` seconds (None: for ever).

        None when the time is over or everything was delivered (then `done` is true). Raises
        BusyError while another thread is inside, and the request's own error if it failed. Ctrl-C
        interrupts the wait; the request goes on.
        """
        if self._done:
            return None
        if self._helper is not None:
            helper = self._helper
            try:
                out = helper.result(timeout)
            except (concurrent.futures.TimeoutError, TimeoutError):
                return None
            self._helper = None
            return self._take(out)
        try:  # as _next and _take, without their calls: a poll that finds nothing is to cost little
            out = self._handle.get(timeout)
        except StopIteration:
            return None
        return None if out is None else self._take(out)

    async def aget(self) -> Output | None:
        """As `get` without a timeout, for asyncio. Use asyncio.wait_for for one: nothing is lost.

        In the loop that the request was submitted from this waits on the engine's completion queue;
        elsewhere a helper thread does the waiting.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        while not self._done:
            if self._helper is None:
                out = _next(self._handle, 0)
                if out is not None:
                    return self._take(out)
                if self._queue is not None and self._queue.serves(loop):
                    await self._queue.wait(self._tag, loop)
                    continue
                self._helper = _in_thread(self._handle)
            helper = self._helper
            await _until_done(helper, loop)
            if self._helper is helper:
                self._helper = None
                return self._take(helper.result())
        return None

    def _take(self, out: Output | None) -> Output | None:
        if out is None:
            return None
        self._parts[out.index].take(out)
        if (prompt := out.prompt_logprobs) is not None:
            self._prompt = (prompt, out.prompt_top_logprobs)
        failed = out.finish_reason == "error"
        if failed or (out.finish_reason and all(part.last for part in self._parts)):
            if failed:  # of n samples the first error ends them all
                self._handle.cancel()
            self._final_status = Status._from_info(self._handle.status())
            self._done = True
            if failed:
                self._error = from_code(out.error_code, out.message)
                raise self._error
        return out

    def __iter__(self) -> Request:
        return self

    def __next__(self) -> Output:
        out = self.get()
        if out is None:
            raise StopIteration
        return out

    def __aiter__(self) -> Request:
        return self

    async def __anext__(self) -> Output:
        out = await self.aget()
        if out is None:
            raise StopAsyncIteration
        return out

    def result(self) -> Result:
        """Waits for the end and returns all output. Raises the request's error if it failed."""
        while self.get() is not None:
            pass
        return self._result()

    async def aresult(self) -> Result:
        """As `result`, for asyncio."""
        while await self.aget() is not None:
            pass
        return self._result()

    def _result(self) -> Result:
        if self._error is not None:
            raise self._error
        assert self._final_status is not None
        samples = [part.sample(index) for index, part in enumerate(self._parts)]
        first = samples[0]
        return Result(
            text=first.text,
            tokens=first.tokens,
            finish_reason=first.finish_reason,
            logprobs=first.logprobs,
            top_logprobs=first.top_logprobs,
            prompt_logprobs=self._prompt[0],
            prompt_top_logprobs=self._prompt[1],
            stop_token=first.stop_token,
            stop_index=first.stop_index,
            status=self._final_status,
            samples=samples,
            embedding=self._parts[0].embedding,
        )

    # -- control ---------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ends the request within one step; its last output says 'cancelled'. Idempotent."""
        self._handle.cancel()

    def close(self) -> None:
        """Cancels if unfinished and frees; output not taken yet is lost."""
        self._handle.close()

    def __enter__(self) -> Request:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- looking ---------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The text taken so far, of sample 0."""
        return self.texts[0]

    @property
    def texts(self) -> list[str]:
        """The text taken so far of each of the n samples."""
        return ["".join(part.texts) for part in self._parts]

    @property
    def tokens(self) -> list[int]:
        """The token ids taken so far, of sample 0."""
        return list(self._parts[0].tokens)

    @property
    def done(self) -> bool:
        """Whether the last output was taken."""
        return self._done

    @property
    def finish_reason(self) -> str | None:
        """'stop', 'length', 'cancelled' or 'error' once the last output was taken, else None.

        Of sample 0, unless another one failed.
        """
        if self._error is not None:
            return "error"
        last = self._parts[0].last
        return last.finish_reason if self._done and last is not None else None

    @property
    def status(self) -> Status:
        """State, counts and timings at this moment; never waits."""
        if self._final_status is not None:
            return self._final_status
        return Status._from_info(self._handle.status())

    def __repr__(self) -> str:
        if self._final_status is None and self._handle.closed:
            return "<orlop.Request closed>"
        status = self.status
        return f"<orlop.Request {status.state}, {status.generated_tokens} tokens>"


def _next(handle: _native.Request, timeout: float | None) -> Output | None:
    try:
        return handle.get(timeout)
    except StopIteration:
        return None


def _in_thread(handle: _native.Request) -> concurrent.futures.Future[Output | None]:
    future: concurrent.futures.Future[Output | None] = concurrent.futures.Future()

    def wait() -> None:
        try:
            future.set_result(_next(handle, None))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=wait, name="orlop-await", daemon=True).start()
    return future


async def _until_done(
    helper: concurrent.futures.Future[Output | None], loop: asyncio.AbstractEventLoop
) -> None:
    """Waits for a thread's future; cancelling the wait, or closing the loop, leaves it alone."""
    ended = loop.create_future()

    def wake() -> None:
        if not ended.done():
            ended.set_result(None)

    def tell(_: object) -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    helper.add_done_callback(tell)
    await ended


__all__ = ["Request", "Result", "Sample", "Status"]
