"""Several samples of a prompt, the prefix cache and its salts, deadlines, priorities, statistics."""

from __future__ import annotations

import asyncio
import time

import pytest

import orlop
from conftest import tiny

text = "The history of the lighthouse is long, and its keepers were many. " * 6


@pytest.fixture
def fresh():
    """A tiny engine of its own: nothing is cached yet."""
    with orlop.Engine(tiny / "llama", kv_bytes=8_000_000, threads=1) as engine:
        yield engine


def test_samples_equal_requests_alone(engine):
    prompt = "Three names for a cat:"
    result = engine.generate(prompt, n=5, seed=40, max_tokens=12, temperature=1.0, logprobs=1)
    assert [s.index for s in result.samples] == [0, 1, 2, 3, 4]
    assert result.status.generated_tokens == sum(len(s.tokens) for s in result.samples)
    assert result.status.seed == 40
    for sample in result.samples:
        alone = engine.generate(
            prompt, seed=40 + sample.index, max_tokens=12, temperature=1.0, logprobs=1
        )
        assert (sample.tokens, sample.text) == (alone.tokens, alone.text) == (
            alone.samples[0].tokens, str(sample))
        assert sample.logprobs == alone.logprobs and sample.finish_reason == alone.finish_reason
        assert [sample.top_logprobs[i] for i in range(len(sample.tokens))] == [
            alone.top_logprobs[i] for i in range(len(alone.tokens))
        ]
    assert len({s.text for s in result.samples}) > 1
    assert (result.text, result.tokens) == (result.samples[0].text, result.samples[0].tokens)


def test_samples_stream_with_their_index(engine):
    request = engine.async_generate("Once", n=3, seed=1, max_tokens=10, temperature=1.0)
    texts, ends = ["", "", ""], []
    for out in request:
        texts[out.index] += out.text
        assert request.texts == texts
        if out.finish_reason:
            ends.append(out.index)
            assert request.done == (len(ends) == 3)
    assert sorted(ends) == [0, 1, 2] and request.result().samples[2].text == texts[2]

    async def walk():
        return [s.text async for s in engine.async_generate("Once", n=2, seed=1, max_tokens=4)]

    assert len(asyncio.run(walk())) >= 2


def test_prompt_logprobs_come_once(engine):
    result = engine.generate("One two three four", n=3, seed=1, max_tokens=2, prompt_logprobs=0)
    alone = engine.generate("One two three four", max_tokens=0, prompt_logprobs=0)
    assert result.prompt_logprobs == alone.prompt_logprobs


@pytest.mark.parametrize("n", [0, 129, -1])
def test_sample_counts(tiny_engine, n):
    with pytest.raises(orlop.InvalidArgumentError, match="n"):
        tiny_engine.generate(tokens=[1, 2], n=n)


def test_cached_tokens_show(model_path):
    with orlop.Engine(model_path, compute="bf16", max_context=1024, threads=2) as engine:
        count = len(engine.encode(text))
        hit = (count - 1) // 16 * 16
        first = engine.generate(text, max_tokens=8, temperature=0, logprobs=0)
        again = engine.generate(text, max_tokens=8, temperature=0, logprobs=0)
        assert (first.status.cached_tokens, again.status.cached_tokens) == (0, hit)
        assert (first.tokens, first.logprobs) == (again.tokens, again.logprobs)
        # Prompt logprobs over a cached prefix are computed.
        scored = engine.generate(text, max_tokens=0, prompt_logprobs=0)
        assert len(scored.prompt_logprobs) == count and all(p < 0 for p in scored.prompt_logprobs[1:])
        salted = engine.generate(text, max_tokens=8, temperature=0, logprobs=0, cache_salt="of mine")
        assert salted.status.cached_tokens == 0 and salted.logprobs == first.logprobs
        twice = engine.generate(text, max_tokens=8, temperature=0, cache_salt="of mine")
        assert twice.status.cached_tokens == hit
        stats = engine.stats
        assert stats["prefix_hit_tokens"] >= 2 * hit and stats["pages_cached"] > 0


def test_no_cache():
    with orlop.Engine(
        tiny / "llama", kv_bytes=8_000_000, threads=1, enable_prefix_cache=False
    ) as engine:
        for _ in range(2):
            assert engine.generate(tokens=[3] * 80, max_tokens=4).status.cached_tokens == 0
        assert engine.stats["pages_cached"] == 0


def test_salts_are_text(tiny_engine):
    with pytest.raises(TypeError, match="cache_salt"):
        tiny_engine.generate(tokens=[1], cache_salt=b"x")
    with pytest.raises(orlop.InvalidArgumentError, match="cache_salt"):
        tiny_engine.generate(tokens=[1], cache_salt="x" * 1025)


def test_deadlines(fresh):
    busy = [fresh.async_generate(tokens=[i, 5], max_tokens=500, ignore_eos=True) for i in range(8)]
    start = time.monotonic()
    request = fresh.async_generate(tokens=[7, 7], max_tokens=500, ignore_eos=True, deadline=0.002)
    with pytest.raises(orlop.DeadlineError) as caught:
        request.result()
    assert time.monotonic() - start < 30
    assert isinstance(caught.value, TimeoutError) and isinstance(caught.value, orlop.Error)
    assert caught.value.code == -13 and request.status.state == "failed"
    assert all(len(r.result().tokens) == 500 for r in busy)
    assert fresh.generate(tokens=[7, 7], max_tokens=5, ignore_eos=True, deadline=60).tokens
    for wrong in (0, -1, float("nan")):
        with pytest.raises(orlop.InvalidArgumentError, match="deadline"):
            fresh.generate(tokens=[1], deadline=wrong)
    with pytest.raises(TypeError, match="deadline"):
        fresh.generate(tokens=[1], deadline="soon")


def test_priorities():
    with orlop.Engine(
        tiny / "llama", kv_bytes=8_000_000, threads=1, max_running_seqs=1
    ) as engine:
        first = engine.async_generate(tokens=[1, 2], max_tokens=400, ignore_eos=True)
        low = engine.async_generate(tokens=[1, 2], max_tokens=4, ignore_eos=True, priority=-100)
        high = engine.async_generate(tokens=[1, 2], max_tokens=4, ignore_eos=True, priority=100)
        slow, quick = low.result().status.total, high.result().status.total
        assert quick < slow
        first.close()
        with pytest.raises(orlop.InvalidArgumentError, match="priority"):
            engine.generate(tokens=[1], priority=101)


def test_statistics(fresh):
    before = fresh.stats
    assert before["steps"] == 0 and before["pages_free"] == before["pages_total"]
    fresh.generate(tokens=[4] * 50, max_tokens=20, ignore_eos=True)
    until = time.monotonic() + 20
    while fresh.stats["steps"] < 20 and time.monotonic() < until:  # the last step ends
        time.sleep(0.001)
    stats = fresh.stats
    assert (stats["prompt_tokens"], stats["generated_tokens"]) == (50, 20)
    parts = [stats[f"{part}_seconds"] for part in ("plan", "forward", "sample", "commit")]
    assert all(part > 0 for part in parts) and sum(parts) <= stats["step_seconds"]
    assert 0 < stats["last_step_seconds"] <= stats["step_seconds"]
    assert stats["pages_used"] == 0 < stats["pages_cached"]


def test_shared_pages_show(fresh):
    request = fresh.async_generate(tokens=[4] * 65, n=3, max_tokens=400, ignore_eos=True)
    until = time.monotonic() + 20
    while (stats := fresh.stats)["pages_shared"] == 0 and time.monotonic() < until:
        time.sleep(0.0005)
    assert stats["pages_shared"] == 64 // 16  # the prompt's, held by three samples
    request.cancel()
    request.result()
    until = time.monotonic() + 20
    while fresh.stats["pages_shared"] and time.monotonic() < until:
        time.sleep(0.001)
    assert fresh.stats["pages_shared"] == 0


def steps_of(prompt, **config):
    with orlop.Engine(tiny / "llama", kv_bytes=8_000_000, threads=1, **config) as engine:
        before = engine.stats["steps"]
        engine.generate(tokens=prompt, max_tokens=0)
        time.sleep(0.05)
        return engine.stats["steps"] - before, engine.info["limits"]


def test_whole_prompts():
    prompt = [i % 100 for i in range(250)]
    assert steps_of(prompt, step_tokens=64)[0] == 4
    steps, limits = steps_of(prompt, chunked_prefill=False, max_context=256, max_running_seqs=4)
    assert (steps, limits["step_tokens"]) == (1, 260)
    steps, limits = steps_of(prompt, chunked_prefill=False, step_tokens=100)
    assert (steps, limits["step_tokens"]) == (3, 100)


def test_settings_are_reported():
    with orlop.Engine(
        tiny / "llama", kv_bytes=8_000_000, threads=1, scheduling="fcfs", itl_target_ms=12.5,
        output_bytes=4096, enable_cpu_prefix_swap=True, cpu_prefix_bytes=300_000,
    ) as engine:
        info = engine.info
        assert info["scheduling"] == "fcfs" and info["prefix_cache"] is True
        assert info["limits"]["itl_target_ms"] == 12.5 and info["limits"]["output_bytes"] == 4096
        assert info["host_tier_bytes"] == 300_000 and engine.stats["host_pages_total"] > 0
        assert info["kv"]["tokens"] > 0 and info["kv"]["bytes"] <= 8_000_000
    with pytest.raises(orlop.OutOfMemoryError, match="cpu_prefix_bytes"):
        orlop.Engine(tiny / "llama", enable_cpu_prefix_swap=True, cpu_prefix_bytes=2**50)


def test_the_second_tier_brings_pages_back():
    """A cache of few pages: what was evicted comes from host memory, with the same bits."""
    with orlop.Engine(
        tiny / "llama", kv_bytes=300_000, threads=1, debug_poison=True,
        enable_cpu_prefix_swap=True, cpu_prefix_bytes=4_000_000,
    ) as engine:
        prompts = [[(i + k) % 100 for k in range(200)] for i in range(8)]
        want = [engine.generate(tokens=p, max_tokens=8, logprobs=0, temperature=0) for p in prompts]
        got = [engine.generate(tokens=p, max_tokens=8, logprobs=0, temperature=0) for p in prompts]
        assert [(r.tokens, r.logprobs) for r in got] == [(r.tokens, r.logprobs) for r in want]
        stats = engine.stats
        assert stats["host_pages_out"] > 0 and 0 < stats["host_pages_used"]
        assert stats["host_pages_used"] <= stats["host_pages_total"]


def test_slow_consumers_pause_alone():
    with orlop.Engine(
        tiny / "llama", kv_bytes=8_000_000, threads=1, output_bytes=200
    ) as engine:
        want = engine.generate(tokens=[9, 9], max_tokens=400, ignore_eos=True, seed=3).tokens
        slow = engine.async_generate(tokens=[9, 9], max_tokens=400, ignore_eos=True, seed=3)
        until = time.monotonic() + 20
        while engine.stats["requests_paused"] != 1 and time.monotonic() < until:
            time.sleep(0.001)
        assert engine.stats["requests_paused"] == 1 and slow.status.generated_tokens < 400
        assert len(engine.generate(tokens=[8], max_tokens=20, ignore_eos=True).tokens) == 20
        assert slow.result().tokens == want


@pytest.mark.parametrize("kv_dtype", ["fp16", "int8", "uint4", "bf16"])
def test_kv_types(model_path, kv_dtype):
    with orlop.Engine(
        model_path, compute="bf16", kv_dtype=kv_dtype, max_context=512, kv_bytes=20_000_000
    ) as engine:
        kv = engine.info["kv"]
        assert kv["dtype"] == kv_dtype and kv["bytes"] <= 20_000_000 and kv["tokens"] > 400
        result = engine.generate("The capital of France is", max_tokens=12, temperature=0)
        assert result.text.startswith(" Paris")
