"""The same-bits rule: a request's tokens and logprobs depend on nothing but itself."""

from __future__ import annotations

import pytest

import orlop
from conftest import small

texts = [
    "The capital of France is",
    "Once upon a time, there was a little",
    "def fibonacci(n):\n",
    "1, 2, 3, 4, 5,",
    "Water boils at 100 degrees",
    "The orlop is the lowest deck of a ship. " * 20,
    "A",
    "In the beginning",
]
params = dict(
    max_tokens=12, temperature=0.8, seed=7, ignore_eos=True, logprobs=2, prompt_logprobs=1
)


def bits(result):
    """Everything that must be equal; floats compare bitwise but for zeros and NaN, which are none."""
    top, prompt_top = result.top_logprobs, result.prompt_top_logprobs
    return (
        result.text,
        result.tokens,
        result.logprobs,
        [top[i] for i in range(len(top))],
        result.prompt_logprobs,
        [prompt_top[i] for i in range(len(prompt_top))],
    )


@pytest.mark.parametrize("compute", ["bf16", "int8"])
def test_alone_in_a_batch_and_any_threads(model_path, compute):
    found = []
    for threads, step_tokens in ((1, 512), (2, 512), (3, 64)):
        with orlop.Engine(
            model_path,
            compute=compute,
            step_tokens=step_tokens,
            debug_poison=True,
            **small | {"threads": threads},
        ) as engine:
            found.append([bits(r) for r in engine.generate(texts, **params)])
            if threads == 2:
                found.append([bits(engine.generate(text, **params)) for text in texts])
    for other in found[1:]:
        assert other == found[0]
