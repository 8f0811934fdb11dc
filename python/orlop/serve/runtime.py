"""What the routes share: the engine (loaded in the background), the models' names, live requests."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .. import __version__
from .._chat_output import ChatOutput
from .._engine import Engine
from .._request import Request
from .errors import ApiError
from .logprobs import TokenTexts
from .metrics import Metrics
from .settings import Settings

T = TypeVar("T")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Model:
    """A name that requests may give. Adapters will be further entries on their parent's engine."""

    name: str
    engine: Engine
    created: int
    parent: str | None = None


@dataclass
class Job:
    """An API request in progress."""

    id: str
    endpoint: str
    samples: int = 1
    stream: bool = False
    start: float = field(default_factory=time.monotonic)
    requests: list[Request] = field(default_factory=list)
    gone: bool = False
    """Nobody waits for the answer any more."""

    def add(self, request: Request) -> Request:
        self.requests.append(request)
        if self.gone:
            request.cancel()
        return request

    def leave(self) -> None:
        """The client hung up."""
        self.gone = True
        self.cancel()

    def cancel(self) -> None:
        for request in self.requests:
            request.cancel()


class Runtime:
    """Made before the engine: `load` starts a thread that makes it. All but that thread's work
    happens on the event loop."""

    def __init__(self, make: Callable[[Progress], Engine], name: str, settings: Settings):
        self._make = make
        self.settings = settings
        self.version = __version__
        self.started = time.monotonic()
        self.created = int(time.time())
        self.metrics = Metrics()
        self.live: dict[str, Job] = {}
        self.models: dict[str, Model] = {}
        self._served = settings.served_names or [name]
        self.state = "loading"
        self.failure: str | None = None
        self.error: BaseException | None = None
        self.progress = (0, 0)
        self.facts: dict[str, Any] | None = None
        self.context = 0
        self.engine: Engine | None = None
        self.reasoning = False
        """Whether the chat template has <think> blocks."""
        self.fingerprint = f"orlop-{__version__}"
        self._texts: dict[int, TokenTexts] = {}
        self.loaded = asyncio.Event()
        self._stopping = False
        self._loader: threading.Thread | None = None
        self._numbers = itertools.count()
        self._prefix = os.urandom(6).hex()
        # Tokenizing and templates of long prompts, guides: the GIL is not held meanwhile.
        self._pool = concurrent.futures.ThreadPoolExecutor(
            max_workers=min(8, (os.cpu_count() or 1) + 1), thread_name_prefix="orlop-serve"
        )

    # -- loading ---------------------------------------------------------------------------------

    def load(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[Engine], None]) -> None:
        def progress(done: int, total: int) -> None:
            if self._stopping:
                raise KeyboardInterrupt  # cancels the load
            self.progress = (done, total)

        def work() -> None:
            try:
                engine = self._make(progress)
                info = engine.info
                reasoning = info["chat_template"] and knows_reasoning(engine)
            except BaseException as error:
                self._tell(loop, self._failed, error)
                return
            if not self._tell(loop, self._ready, engine, info, reasoning, on_ready):
                engine.close()

        self._loader = threading.Thread(target=work, name="orlop-load", daemon=True)
        self._loader.start()

    @staticmethod
    def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> bool:
        try:
            loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop has ended meanwhile
            return False
        return True

    def _ready(
        self,
        engine: Engine,
        info: dict[str, Any],
        reasoning: bool,
        on_ready: Callable[[Engine], None],
    ) -> None:
        self.engine = engine
        self.reasoning = reasoning
        if self._stopping:
            return
        for name in self._served:
            self.models[name] = Model(name, engine, self.created)
        self.context = info["limits"]["request_tokens"]
        self.facts = _facts(info, self.settings.guided)
        engine._queues.current(engine._handle)  # registers the loop
        self.state = "ready"
        self.loaded.set()
        on_ready(engine)

    def _failed(self, error: BaseException) -> None:
        self.error = error
        self.failure = str(error) or type(error).__name__
        self.state = "failed"
        self.loaded.set()

    def drain(self) -> None:
        """Requests in progress go on; nothing new is taken."""
        self._stopping = True
        if self.state in ("loading", "ready"):
            self.state = "draining"

    def cancel_all(self) -> None:
        for job in list(self.live.values()):
            job.cancel()

    def close(self) -> None:
        self.drain()
        self.cancel_all()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._loader is not None:
            self._loader.join(10)
        if self.engine is not None:
            self.engine.close()

    # -- models ----------------------------------------------------------------------------------

    @property
    def default_name(self) -> str:
        return self._served[0]

    def names(self) -> list[str]:
        return list(self._served)

    def model(self, name: Any) -> Model:
        """The model of a request; without a name the first one."""
        if self.state == "loading":
            raise ApiError(503, "the model is loading", code="loading", headers={"retry-after": "1"})
        if self.state != "ready":
            words = "shutting down" if self.state == "draining" else "without a model"
            raise ApiError(503, f"the server is {words}", code="unavailable")
        if name is None or name == "":
            return self.models[self.default_name]
        model = self.models.get(name) if isinstance(name, str) else None
        if model is None:
            if not isinstance(name, str):
                raise ApiError(400, "model must be a string", param="model", code="invalid_type")
            shown = name if len(name) <= 200 else name[:200] + "..."
            raise ApiError(
                404,
                f"the model '{shown}' does not exist; this server has: {', '.join(self._served)}",
                param="model",
                code="model_not_found",
            )
        return model

    def token_texts(self, engine: Engine) -> TokenTexts:
        texts = self._texts.get(id(engine))
        if texts is None:
            texts = self._texts[id(engine)] = TokenTexts(engine)
        return texts

    def engine_stats(self) -> dict[str, Any]:
        assert self.engine is not None
        return self.engine.stats

    # -- requests --------------------------------------------------------------------------------

    def new_id(self) -> str:
        return f"{self._prefix}{next(self._numbers):08x}"

    def begin(self, job: Job) -> None:
        if len(self.live) >= self.settings.limits.concurrent:
            raise ApiError(
                429,
                f"{len(self.live)} requests are in progress, which is this server's limit",
                code="queue_full",
                type="rate_limit_error",
                headers={"retry-after": "1"},
            )
        self.live[job.id] = job

    def end(self, job: Job) -> None:
        """Frees a job's requests, cancelling what is unfinished."""
        self.live.pop(job.id, None)
        seconds = time.monotonic() - job.start
        for request in job.requests:
            done = request.done
            self.metrics.ended(request.status, seconds, cancelled=not done)
            request.close()

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def submit(self, job: Job, engine: Engine, heavy: bool, call: Callable[[], Request]) -> Request:
        """The request that `call` makes, in a thread if that may take long. Its output is announced to
        this loop."""
        if not heavy:
            return job.add(call())
        queues = engine._queues
        lent = queues.current(engine._handle)

        def work() -> Request:
            with queues.lend(lent):
                return call()

        return job.add(await self.in_thread(work))


def knows_reasoning(engine: Engine) -> bool:
    events = ChatOutput(engine, reasoning="auto", prompt="<think>\n").push("x", last=True)
    return any(event["type"] == "reasoning" for event in events)


def _facts(info: dict[str, Any], guided: bool) -> dict[str, Any]:
    kv, limits, sampling = info["kv"], info["limits"], info["sampling"]
    return {
        **{
            key: info[key]
            for key in (
                "arch", "device", "kernels", "compute", "quant", "threads", "weight_bytes", "layers",
                "dim", "vocab", "prefix_cache",
            )
        },
        "context": limits["request_tokens"],
        "max_running": limits["max_running_seqs"],
        "max_waiting": limits["max_waiting"],
        "kv_dtype": kv["dtype"],
        "kv_bytes": kv["bytes"],
        "block_size": kv["block_size"],
        "guided": guided,
        "chat": info["chat_template"],
        "sampling": {
            key: sampling[key]
            for key in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        },
    }  # fmt: skip
