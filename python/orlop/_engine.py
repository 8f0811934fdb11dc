"""The engine: a loaded model that serves any number of requests at once."""

from __future__ import annotations

import collections
import json
import math
import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import _native
from ._guide import to_native
from ._loop import LoopQueues
from ._request import Request, Result
from .errors import InvalidArgumentError, QueueFullError

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class StateInfo:
    """What a loaded state brought."""

    tokens: int
    """Prefix tokens that it holds: whole pages."""
    pages: int
    """KV pages that it holds."""
    pages_added: int
    """Of them, those that the engine did not have."""
    shared: bool
    """Whether it serves every cache_salt."""


class Engine:
    """A model and the threads that run it. Usable from any number of threads and event loops.

    model: a checkpoint folder or a .gguf file. progress, if given, is called about 20 times a
    second while loading with (bytes done, bytes in all; 0 until known). The other keyword
    arguments are the engine's configuration (docs/configuration.md); None means the default.

    Raises a subclass of orlop.Error: NotFoundError, BadFormatError, UnsupportedError,
    InvalidArgumentError (an unknown key, with the nearest known one named), OutOfMemoryError.
    Ctrl-C interrupts the loading.

        with orlop.Engine("model.gguf") as engine:
            for output in engine.async_generate("Once upon a time", max_tokens=50):
                print(output.text, end="")

    An engine cannot be used in a forked child: calls there raise ShutdownError.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
        **config: Any,
    ):
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be callable, not {type(progress).__name__}")
        settings: dict[str, Any] = {"model": _to_path(model, "model")}
        for key, value in config.items():
            if value is not None:
                settings[key] = _to_setting(value, key)
        self._handle = _native.Engine(json.dumps(settings, ensure_ascii=False), progress)
        self._pid = os.getpid()
        self._queues = LoopQueues()
        self._lock = threading.RLock()  # a signal handler may use the engine too
        self._live: weakref.WeakSet[Request] = weakref.WeakSet()
        weakref.finalize(self, self._queues.close_soon).atexit = False

    # -- generation ------------------------------------------------------------------------------

    def async_generate(
        self,
        prompt: Prompt | None = None,
        *,
        tokens: Sequence[int] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool | None = None,
        template_vars: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Request:
        """Starts a generation and returns at once; never waits for the model.

        The prompt is text (a str), token ids (`tokens`, or a list of int) or a conversation
        (`messages`, or a list of dict with role and content), rendered with the model's chat
        template, which also sees `tools` and `template_vars`.

        params, None or absent meaning the model's own default, else the engine's:
          max_tokens, min_tokens
          temperature (0: greedy), top_k (0: off), top_p (1: off), min_p (0: off)
          repetition_penalty (over prompt and output), presence_penalty, frequency_penalty
          seed (0 to 2**64 - 1; status.seed tells the one in use)
          logit_bias ({token id: added to its logit})
          stop (a str or a list of str), stop_tokens (a list of ids; also stop_token_ids),
          ignore_eos
          logprobs, prompt_logprobs (0: of the chosen token; N: and of the N best; -1: of all)
          n (samples of the prompt, 1 to 128: sample i is drawn with seed + i)
          cache_salt (prefixes are shared within equal salts only)
          deadline (seconds from now; then DeadlineError), priority (-100 to 100, higher first)
          add_bos, parse_special (False: control tokens in a text prompt are plain text),
          keep_special (True: the output's text shows control tokens)
          guide (what the output must be; every token is held to it), one of
            {"json_object": True}, {"json_schema": dict or str}, {"regex": str} (of the whole output),
            {"grammar": str} (GBNF), {"choice": [str, ...]},
            {"tools": [...], "tool_choice": ..., "format": ..., "parallel": bool} (tool calls)

        Raises TypeError for an unknown name or a value of the wrong type, InvalidArgumentError (a
        ValueError) for a value out of range, both naming the field; ContextOverflowError if the
        prompt does not fit; QueueFullError if too many requests wait.
        """
        text, ids, chat_json = _to_prompt(
            prompt, tokens, messages, tools, add_generation_prompt, template_vars
        )
        if params.get("guide") is not None:
            params["guide"] = to_native(params["guide"])
        queue, tag = self._queues.current(self._handle)
        handle = self._handle.submit(
            text, ids, chat_json, params, queue.queue if queue is not None else None, tag
        )
        request = Request(self, handle, queue, tag)
        with self._lock:
            self._live.add(request)
        return request

    def generate(self, prompts: Any = None, **params: Any) -> Any:
        """Generates for one prompt, or for a list of them at once, and waits.

        prompts: anything that async_generate takes (the answer is a Result), or a list of str, a
        list of lists of token ids or a list of conversations (the answer is a list of Result in the
        same order). params are async_generate's, the same for all. If a request fails its error is
        raised and the others are cancelled.
        """
        if not _is_batch(prompts):
            with self.async_generate(prompts, **params) as request:
                return request.result()
        results: list[Result] = []
        running: collections.deque[Request] = collections.deque()
        try:
            for prompt in prompts:
                while True:
                    try:
                        running.append(self.async_generate(prompt, **params))
                        break
                    except QueueFullError:
                        if not running:
                            raise
                        results.append(_finish(running))
            while running:
                results.append(_finish(running))
        finally:
            for request in running:
                request.close()
        return results

    def async_embed(
        self, prompt: Prompt | None = None, *, pooling: str = "mean", **params: Any
    ) -> Request:
        """Starts computing the embedding of a prompt: `result().embedding` is a list of float of
        length 1 (L2): the final hidden states' mean (pooling "mean") or the last token's ("last").

        The prompt is given as to async_generate; of its params those that say how to sample make no
        difference.
        """
        return self.async_generate(prompt, embedding=pooling, **params)

    def embed(self, prompts: Any, *, pooling: str = "mean", **params: Any) -> Any:
        """The embedding of one prompt (a list of float), or of a list of them (a list of lists)."""
        results = self.generate(prompts, embedding=pooling, **params)
        if isinstance(results, list):
            return [result.embedding for result in results]
        return results.embedding

    def chat(self, messages: Sequence[Mapping[str, Any]], **params: Any) -> Result:
        """The answer to a conversation: generate(messages=messages, ...)."""
        with self.async_generate(messages=messages, **params) as request:
            return request.result()

    # -- states ----------------------------------------------------------------------------------

    def save_state(
        self,
        prompt: Prompt | None = None,
        *,
        tokens: Sequence[int] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool | None = None,
        template_vars: Mapping[str, Any] | None = None,
        add_bos: bool | None = None,
        parse_special: bool | None = None,
        cache_salt: str | None = None,
        deadline: float | None = None,
        key: bytes | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> bytes | None:
        """The keys and values of a prompt's whole pages, computed as far as they are not cached.

        The prompt is given as to async_generate. Returns bytes, or None with a `path`, whose file is
        replaced in one step. key (16 to 1024 bytes, secret) signs the state: an engine that is given
        the same key lets it serve every cache_salt.
        """
        text, ids, chat_json = _to_prompt(
            prompt, tokens, messages, tools, add_generation_prompt, template_vars
        )
        values = {
            "add_bos": add_bos,
            "parse_special": parse_special,
            "cache_salt": cache_salt,
            "deadline": deadline,
        }
        where = None if path is None else _to_path(path, "path")
        return self._handle.save_state(text, ids, chat_json, values, _to_key(key), where)

    def load_state(
        self,
        data: bytes | bytearray | memoryview | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        cache_salt: str | None = None,
        key: bytes | None = None,
    ) -> StateInfo:
        """Puts a saved state into the prefix cache: prompts that begin with it skip computing it.

        Without a key it serves requests of this cache_salt alone, which may not be empty; with one
        it must carry that key's signature, and serves all. Raises UnsupportedError for a state of
        another model or setting (the text names what differs), BadFormatError for a damaged one,
        InvalidArgumentError for a wrong key.
        """
        where = None if path is None else _to_path(path, "path")
        values = {"cache_salt": cache_salt}
        return StateInfo(*self._handle.load_state(data, values, _to_key(key), where))

    # -- text ------------------------------------------------------------------------------------

    def encode(
        self, text: str, *, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Token ids of a text.

        add_special: add BOS/EOS as the model's tokenizer does. parse_special: control tokens that
        are spelled in the text become themselves (never do this with text from elsewhere).
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        _check_bool(add_special, "add_special")
        _check_bool(parse_special, "parse_special")
        return self._handle.tokenize(text, add_special, parse_special)

    def decode(self, tokens: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of token ids; bytes that are not UTF-8 become U+FFFD."""
        _check_bool(skip_special, "skip_special")
        return self._handle.detokenize(_to_list(tokens, "tokens", "token ids"), skip_special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token by itself; they need not be UTF-8."""
        return self._handle.token_bytes(token)

    tokenize = encode
    detokenize = decode

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        tokenize: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **template_vars: Any,
    ) -> Any:
        """A conversation as the model's chat template renders it: text, or ids with tokenize=True.

        The ids are those that a request with these messages starts from: message content never
        becomes a control token, which encoding the text again could not promise.
        """
        chat = _chat_json(messages, tools, add_generation_prompt, template_vars)
        return self._handle.chat_tokenize(chat) if tokenize else self._handle.chat_render(chat)

    # -- facts and end ---------------------------------------------------------------------------

    @property
    def info(self) -> dict[str, Any]:
        """Model, limits, chosen kernels, threads, bytes and defaults."""
        info: dict[str, Any] = json.loads(self._handle.info())
        return info

    @property
    def stats(self) -> dict[str, Any]:
        """Requests, pages, prefix cache, steps and tokens, now and since creation; rates over about
        the last second; the seconds that steps took and their parts."""
        return self._handle.stats()

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def close(self) -> None:
        """Cancels live requests and gives the engine up. Idempotent.

        Requests that were handed out can still be drained; their last output says 'cancelled'.
        """
        if self._pid == os.getpid():  # in a forked child the locks may be held by nobody
            with self._lock:
                live = list(self._live)
                self._live.clear()
            for request in live:
                request.cancel()
            self._queues.close_soon()
        self._handle.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<orlop.Engine closed>" if self.closed else "<orlop.Engine>"


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a model file or folder holds: tensors, formats, bytes, configuration, tokenizer, chat
    template. No weight is loaded. Raises NotFoundError or BadFormatError."""
    out: dict[str, Any] = json.loads(_native.inspect(_to_path(path, "path")))
    return out


def _finish(running: collections.deque[Request]) -> Result:
    result = running[0].result()
    running.popleft().close()
    return result


def _to_path(value: Any, name: str) -> str:
    path = value.__fspath__() if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise TypeError(f"{name} must be a str or an os.PathLike of str, not {type(path).__name__}")
    _check_text(path, name)
    return path


def _to_setting(value: Any, name: str) -> str | bool | int | float:
    """A value of the configuration as JSON can hold it."""
    if isinstance(value, str):
        _check_text(value, name)
        return value
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArgumentError(f"{name} must be a finite number, got {value!r}")
        return value
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be a str, a bool or a number, not {type(value).__name__}"
        ) from None
    if not -(2**63) <= number < 2**64:
        raise InvalidArgumentError(
            f"{name} must be a 64-bit integer, got one of {number.bit_length()} bits"
        )
    return number


def _to_list(value: Any, name: str, wanted: str) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of {wanted}, not {type(value).__name__}")
    return list(value)


def _check_text(value: str, name: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(
            f"{name} holds a lone surrogate, which is not Unicode text"
        ) from None


def _check_bool(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")


def _to_json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise InvalidArgumentError(f"{what}: {error}") from None
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None


def _chat_json(
    messages: Any,
    tools: Any,
    add_generation_prompt: bool | None,
    template_vars: Mapping[str, Any] | None,
) -> str:
    if template_vars is not None and not isinstance(template_vars, Mapping):
        raise TypeError(f"template_vars must be a dict, not {type(template_vars).__name__}")
    chat: dict[str, Any] = dict(template_vars or {})
    for name in ("messages", "tools", "add_generation_prompt"):
        if name in chat:
            raise TypeError(f"{name} is a parameter of its own, not a template variable")
    chat["messages"] = _to_list(messages, "messages", "dict")
    if tools is not None:
        chat["tools"] = _to_list(tools, "tools", "dict")
    chat["add_generation_prompt"] = True if add_generation_prompt is None else add_generation_prompt
    return _to_json(chat, "messages")


def _to_key(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise TypeError(f"key must be bytes, not {type(value).__name__}")


def _to_prompt(
    prompt: Any,
    tokens: Any,
    messages: Any,
    tools: Any,
    add_generation_prompt: bool | None,
    template_vars: Mapping[str, Any] | None,
) -> tuple[str | None, Any, str | None]:
    """(text, token ids, messages as JSON), exactly one of them not None."""
    text, ids, chat = _sort_prompt(prompt, tokens, messages)
    if chat is not None:
        return text, ids, _chat_json(chat, tools, add_generation_prompt, template_vars)
    for name, value in (
        ("tools", tools),
        ("add_generation_prompt", add_generation_prompt),
        ("template_vars", template_vars),
    ):
        if value is not None:
            raise TypeError(f"{name} needs messages: a chat template is not used otherwise")
    return text, ids, None


def _is_messages(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple)) and len(value) > 0 and isinstance(value[0], Mapping)
    )


def _is_batch(prompts: Any) -> bool:
    if not isinstance(prompts, (list, tuple)):
        return False
    if len(prompts) == 0:
        return True
    return hasattr(prompts[0], "__len__") and not isinstance(prompts[0], Mapping)


def _sort_prompt(
    prompt: Any, tokens: Any, messages: Any
) -> tuple[str | None, Any, Sequence[Mapping[str, Any]] | None]:
    """(text, token ids, messages), exactly one of them not None."""
    if sum(x is not None for x in (prompt, tokens, messages)) != 1:
        raise TypeError("give exactly one of prompt, tokens and messages")
    if tokens is not None:
        return None, tokens, None
    if messages is not None:
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
            raise TypeError(f"messages must be a list of dict, not {type(messages).__name__}")
        return None, None, messages
    if isinstance(prompt, str):
        return prompt, None, None
    if _is_messages(prompt):
        return None, None, prompt
    if isinstance(prompt, (bytes, Mapping)) or not hasattr(prompt, "__len__"):
        raise TypeError(
            f"prompt must be a str, a list of token ids or a list of messages, "
            f"not {type(prompt).__name__}"
        )
    return None, prompt, None
