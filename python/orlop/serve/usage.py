"""Token counts of an answer."""

from __future__ import annotations

from typing import Any

from .runtime import Job


def usage(job: Job) -> dict[str, Any]:
    statuses = [request.status for request in job.requests]
    prompt = sum(s.prompt_tokens for s in statuses)
    generated = sum(s.generated_tokens for s in statuses)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": sum(s.cached_tokens for s in statuses)},
    }
