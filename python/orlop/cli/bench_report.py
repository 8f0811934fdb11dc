"""What a load on a server amounts to: figures, the table of a terminal, the picture."""

from __future__ import annotations

import collections
import itertools
import math
from typing import Any

from .bench_load import Run
from .bench_plot import draw, percentile

_kinds = 20  # of errors that are told apart


def _spread(values: list[float]) -> dict[str, float] | None:
    """Mean, percentiles and largest; None of nothing."""
    if not values:
        return None
    values = sorted(values)
    return {
        "mean": math.fsum(values) / len(values),
        "p50": percentile(values, 0.5),
        "p90": percentile(values, 0.9),
        "p99": percentile(values, 0.99),
        "max": values[-1],
    }


def figures(run: Run) -> dict[str, Any]:
    """All figures, times in seconds. Latencies and throughput are of requests that succeeded."""
    good = [record for record in run.records if record.error is None]
    kinds = collections.Counter(r.error for r in run.records if r.error is not None).most_common()
    errors = {str(kind): count for kind, count in kinds[:_kinds]}
    if more := sum(count for _, count in kinds[_kinds:]):
        errors["others"] = more
    tokens = sum(record.tokens for record in good)
    pieces = sum(len(record.chunks) for record in good)
    prompts = [record.prompt_tokens for record in good if record.prompt_tokens is not None]
    counted = sum(record.output_tokens is not None for record in good)
    by = "usage" if counted == len(good) else "usage and pieces" if counted else "pieces"
    seconds = max(run.seconds, 1e-9)
    late = sorted(run.lateness) or [0.0]
    gaps = [b - a for record in good for a, b in itertools.pairwise(record.chunks)]
    return {
        "requests": len(run.records),
        "failed": len(run.records) - len(good),
        "errors": errors,
        "interrupted": run.interrupted,
        "seconds": run.seconds,
        "requests_per_second": len(good) / seconds,
        "output_tokens_per_second": tokens / seconds,
        "prompt_tokens_per_second": sum(prompts) / seconds if prompts else None,
        "prompt_tokens_mean": sum(prompts) / len(prompts) if prompts else None,
        "output_tokens_mean": tokens / len(good) if good else None,
        "tokens_counted_by": by,
        "pieces": pieces,
        "output_tokens": tokens,
        "ttft_seconds": _spread([record.ttft for record in good]),
        "inter_token_seconds": _spread([t for r in good if (t := r.per_token) is not None]),
        "between_pieces_seconds": _spread(gaps),
        "end_to_end_seconds": _spread([record.end - record.arrival for record in good]),
        "client": {
            "cpu_of_a_core": run.client_cpu / seconds,
            "late_seconds_p99": percentile(late, 0.99),
            "late_seconds_max": late[-1],
        },
    }


def table(found: dict[str, Any]) -> list[str]:
    """The figures for a person."""
    good = found["requests"] - found["failed"]
    lines = [
        f"{good} requests in {found['seconds']:.2f} s, {found['failed']} failed"
        + (", interrupted" if found["interrupted"] else "")
        + f": {found['requests_per_second']:.2f} requests/s, "
        f"{found['output_tokens_per_second']:.1f} output tokens/s"
    ]
    for kind, count in found["errors"].items():
        lines.append(f"  {count} x {kind}")
    if not good:
        return lines
    prompt = found["prompt_tokens_mean"]
    by = found["tokens_counted_by"]
    lines.append(
        f"tokens a request: prompt {'-' if prompt is None else f'{prompt:.1f}'}, output "
        f"{found['output_tokens_mean']:.1f}, counted by "
        + ("the server's usage" if by == "usage" else f"{by} of the streams: a piece may hold several")
        + f"; {found['pieces'] / max(found['output_tokens'], 1):.2f} pieces a token"
    )
    lines.append(f"{'':<26}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}")
    for name, key, scale in (
        ("time to first token, ms", "ttft_seconds", 1e3),
        ("inter-token, ms", "inter_token_seconds", 1e3),
        ("between pieces, ms", "between_pieces_seconds", 1e3),
        ("end to end, s", "end_to_end_seconds", 1.0),
    ):
        row = found[key]
        shown = [f"{value * scale:.2f}" for value in row.values()] if row else ["-"] * 5
        lines.append(f"{name:<26}" + "".join(f"{cell:>10}" for cell in shown))
    client = found["client"]
    busy = client["cpu_of_a_core"]
    lines.append(
        f"this client: {busy:.0%} of a core, its timers late by {client['late_seconds_p99'] * 1e3:.2f} "
        f"ms (p99), {client['late_seconds_max'] * 1e3:.2f} ms at most"
    )
    if busy > 0.8:
        lines.append("this client was busy nearly all the time: the server may be faster than shown")
    elif client["late_seconds_p99"] > 0.02:
        lines.append("other work kept this client from its clock: times may be so much too long")
    return lines


def plot(run: Run, title: str, process: str, found: dict[str, Any]) -> str:
    """The picture as SVG."""
    good = [record for record in run.records if record.error is None]
    seconds: list[float] = []
    weights: list[float] = []
    for record in good:
        each = record.tokens / max(len(record.chunks), 1)  # tokens a piece
        seconds += [chunk - run.begin for chunk in record.chunks]
        weights += [each] * len(record.chunks)
    return draw(
        title,
        f"{process}; {len(good)} requests, {found['requests_per_second']:.2f} requests/s, "
        f"{found['output_tokens_per_second']:.0f} output tokens/s, {found['failed']} failed",
        [record.ttft for record in good],
        [mean for record in good if (mean := record.per_token) is not None],
        [record.end - record.arrival for record in good],
        seconds,
        weights,
        run.seconds,
    )
