"""Counters and latency histograms, and their text for Prometheus (exposition format 0.0.4)."""

from __future__ import annotations

import bisect
import collections
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._request import Status
    from .runtime import Runtime

content_type = "text/plain; version=0.0.4; charset=utf-8"

_first = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 30, 60)
_between = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5,
            1, 2.5)
_whole = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600)


class Series:
    """A histogram since the start, and the last values for quantiles."""

    def __init__(self, bounds: tuple[float, ...], help: str):
        self.bounds = bounds
        self.help = help
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self._recent: collections.deque[float] = collections.deque(maxlen=1000)

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.bounds, seconds)] += times
        self.sum += seconds * times
        self._recent.append(seconds)

    def summary(self) -> dict[str, Any]:
        values = sorted(self._recent)

        def quantile(q: float) -> float | None:
            return values[min(len(values) - 1, int(q * len(values)))] if values else None

        return {
            "count": sum(self.counts),
            "p50": quantile(0.5),
            "p90": quantile(0.9),
            "p99": quantile(0.99),
            "max": values[-1] if values else None,
            "histogram": {"le": [*self.bounds, None], "counts": list(self.counts)},
        }


class Metrics:
    """Touched by the loop's thread alone."""

    def __init__(self) -> None:
        self.responses: dict[tuple[str, int], int] = collections.defaultdict(int)
        self.series = {
            "ttft": Series(_first, "Seconds from a request's arrival in the engine to its first token."),
            "inter_token": Series(_between, "Seconds between output tokens of a stream."),
            "e2e": Series(_whole, "Seconds from a request's arrival to its last token."),
            "queue": Series(_first, "Seconds that a request waited for its first step."),
        }
        self.inter_token = self.series["inter_token"]
        self.finished: dict[str, int] = collections.defaultdict(int)
        self.prompt_tokens = self.cached_tokens = self.generated_tokens = 0
        self.completed = self.failed = self.cancelled = self.rejected = 0

    def answered(self, endpoint: str, status: int) -> None:
        self.responses[endpoint, status] += 1

    def ended(self, status: Status, seconds: float, cancelled: bool) -> None:
        """A request of the engine is over, or nobody waits for the rest of it."""
        self.prompt_tokens += status.prompt_tokens
        self.cached_tokens += status.cached_tokens
        self.generated_tokens += status.generated_tokens
        reason = "cancelled" if cancelled else status.finish_reason or "error"
        self.finished[reason] += 1
        if reason == "cancelled":
            self.cancelled += 1
        elif reason in ("stop", "length"):
            self.completed += 1
            self.series["e2e"].add(seconds)
        else:
            self.failed += 1
        if status.ttft is not None:
            self.series["ttft"].add(status.ttft)
        if status.queued is not None:
            self.series["queue"].add(status.queued)


class _Text:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def family(
        self, name: str, kind: str, help: str, rows: Iterable[tuple[dict[str, str], float]]
    ) -> None:
        self.lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
        for labels, value in rows:
            self.lines.append(f"{name}{_labels(labels)} {_number(value)}")

    def one(self, name: str, kind: str, help: str, value: float) -> None:
        self.family(name, kind, help, [({}, value)])

    def histogram(self, name: str, series: Series) -> None:
        self.lines += [f"# HELP {name} {series.help}", f"# TYPE {name} histogram"]
        total = 0
        for bound, count in zip([*(f"{b:g}" for b in series.bounds), "+Inf"], series.counts):
            total += count
            self.lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        self.lines += [f"{name}_sum {_number(series.sum)}", f"{name}_count {total}"]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    escape = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return "{" + ",".join(f'{k}="{v.translate(escape)}"' for k, v in labels.items()) + "}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


# Name, kind, help, key of Engine.stats
_engine = (
    ("requests_running", "gauge", "Requests that hold KV pages.", "requests_running"),
    ("requests_waiting", "gauge", "Requests that wait for their first step.", "requests_waiting"),
    ("requests_paused", "gauge", "Requests that wait for their client to read.", "requests_paused"),
    ("preemptions_total", "counter", "Requests that gave their pages up and began again.", "preemptions"),
    ("kv_pages", "gauge", "KV pages in all.", "pages_total"),
    ("kv_pages_used", "gauge", "KV pages held by requests.", "pages_used"),
    ("kv_pages_cached", "gauge", "KV pages held by the prefix cache alone.", "pages_cached"),
    ("kv_pages_free", "gauge", "KV pages that hold nothing.", "pages_free"),
    ("kv_host_pages_used", "gauge", "Pages of the prefix cache's second tier.", "host_pages_used"),
    ("prefix_lookup_tokens_total", "counter", "Prompt tokens looked up in the prefix cache.",
     "prefix_lookup_tokens"),
    ("prefix_hit_tokens_total", "counter", "Prompt tokens found in the prefix cache.", "prefix_hit_tokens"),
    ("steps_total", "counter", "Model steps.", "steps"),
    ("prefill_tokens_total", "counter", "Prompt tokens computed by the model.", "prompt_tokens"),
    ("sampled_tokens_total", "counter", "Tokens sampled.", "generated_tokens"),
    ("step_seconds_total", "counter", "Seconds inside steps.", "step_seconds"),
)  # fmt: skip


def text(runtime: Runtime) -> str:
    m = runtime.metrics
    out = _Text()
    out.one("orlop_up", "gauge", "1 when requests are served, 0 while loading or draining.",
            1 if runtime.state == "ready" else 0)  # fmt: skip
    out.family(
        "orlop_info", "gauge", "Version and model, as labels.",
        [({"version": runtime.version, "model": runtime.default_name}, 1)],
    )  # fmt: skip
    out.family(
        "orlop_http_requests_total", "counter", "HTTP answers by endpoint and status.",
        [({"endpoint": e, "status": str(s)}, n) for (e, s), n in sorted(m.responses.items())],
    )  # fmt: skip
    out.one("orlop_requests_active", "gauge", "API requests in progress.", len(runtime.live))
    out.family(
        "orlop_requests_finished_total", "counter", "Finished generations by reason.",
        [({"reason": r}, n) for r, n in sorted(m.finished.items())],
    )  # fmt: skip
    out.one("orlop_requests_rejected_total", "counter", "Requests refused because the queue was full.",
            m.rejected)  # fmt: skip
    out.one("orlop_prompt_tokens_total", "counter", "Prompt tokens of finished requests.", m.prompt_tokens)
    out.one("orlop_cached_prompt_tokens_total", "counter",
            "Of them, tokens that the prefix cache spared.", m.cached_tokens)  # fmt: skip
    out.one("orlop_generated_tokens_total", "counter", "Output tokens of finished requests.",
            m.generated_tokens)  # fmt: skip
    for name, series in (
        ("time_to_first_token", m.series["ttft"]),
        ("inter_token_latency", m.series["inter_token"]),
        ("request_latency", m.series["e2e"]),
        ("queue_time", m.series["queue"]),
    ):
        out.histogram(f"orlop_{name}_seconds", series)
    if runtime.facts is not None:
        stats = runtime.engine_stats()
        for name, kind, help, key in _engine:
            out.one("orlop_" + name, kind, help, stats[key])
        out.family(
            "orlop_step_part_seconds_total", "counter", "Seconds of the parts of steps.",
            [({"part": part}, stats[part + "_seconds"])
             for part in ("plan", "forward", "sample", "commit")],
        )  # fmt: skip
    out.one("orlop_server_cpu_seconds_total", "counter",
            "Processor seconds of the server's event loop, the engine's threads not included.",
            time.thread_time())  # fmt: skip
    out.one("process_cpu_seconds_total", "counter", "Processor seconds of the process.",
            time.process_time())  # fmt: skip
    return "\n".join(out.lines) + "\n"
