"""Generation: streaming, results, stops, logprobs, cancelling, many threads."""

from __future__ import annotations

import gc
import math
import random
import threading
import time

import pytest

import orlop

question = [{"role": "user", "content": "What is the capital of France?"}]


def test_streaming_adds_up(engine):
    request = engine.async_generate("The capital of France is", max_tokens=24, temperature=0)
    texts, tokens = [], []
    for output in request:
        texts.append(output.text)
        tokens += output.tokens
        assert request.text == "".join(texts) and request.tokens == tokens
    assert request.done and request.get() is None and request.finish_reason == "length"
    assert len(tokens) == 24 and len(texts) > 1
    result = request.result()
    assert result.text == "".join(texts) == str(result) and result.tokens == tokens
    assert result.text.startswith(" Paris")
    status = result.status
    assert (status.state, status.prompt_tokens, status.generated_tokens) == ("done", 5, 24)
    assert 0 <= status.queued <= status.ttft <= status.total < 60
    assert status.tokens_per_second > 0


def test_split_code_points(engine):
    text = "日本語 ñ 🙂🙃"
    ids = engine.encode(text)
    assert len(ids) > len(text)  # several tokens a code point
    for token in ids:
        request = engine.async_generate("x", max_tokens=1, logit_bias={token: 1e4}, temperature=0)
        for output in request:
            output.text.encode()  # no lone surrogate
        assert request.tokens == [token]


def test_messages(engine):
    result = engine.chat(question, max_tokens=40, temperature=0)
    assert "Paris" in result.text and "<|im_end|>" not in result.text
    assert result.finish_reason == "stop" and result.stop_token is not None
    assert engine.generate(question, max_tokens=40, temperature=0).tokens == result.tokens
    ids = engine.apply_chat_template(question, tokenize=True)
    assert engine.generate(tokens=ids, max_tokens=40, temperature=0).tokens == result.tokens
    shown = engine.generate(question, max_tokens=40, temperature=0, keep_special=True)
    assert shown.tokens == result.tokens


def test_batch_keeps_order(engine):
    prompts = ["The capital of France is", "1, 2, 3, 4, 5,", "Once upon a time"]
    results = engine.generate(prompts, max_tokens=8, temperature=0)
    alone = [engine.generate(p, max_tokens=8, temperature=0) for p in prompts]
    assert [r.text for r in results] == [r.text for r in alone]
    assert engine.generate([]) == []
    ids = [engine.encode(p) for p in prompts]
    assert [r.tokens for r in engine.generate(ids, max_tokens=8, temperature=0)] == [
        r.tokens for r in alone
    ]
    chats = engine.generate([question, question], max_tokens=4, temperature=0)
    assert chats[0].tokens == chats[1].tokens


def test_batch_larger_than_the_queue():
    from conftest import tiny

    with orlop.Engine(
        tiny / "llama", max_context=64, kv_bytes=2_000_000, max_waiting=4, max_running_seqs=2
    ) as engine:
        held = []
        with pytest.raises(orlop.QueueFullError):
            for _ in range(500):
                held.append(engine.async_generate(tokens=[5], max_tokens=60, ignore_eos=True))
        for request in held:
            request.close()
        settle(engine)
        submitted = None  # what was cancelled before its first step may still be on the list
        while submitted is None:
            try:
                submitted = engine.async_generate(tokens=[5], max_tokens=1)
            except orlop.QueueFullError:
                time.sleep(0.01)
        submitted.result()
        results = engine.generate([[5 + i] for i in range(60)], max_tokens=3, ignore_eos=True)
        assert [len(r.tokens) for r in results] == [3] * 60


def test_one_bad_prompt_ends_the_batch(tiny_engine):
    with pytest.raises(ValueError):
        tiny_engine.generate([[5], [5000], [6]], max_tokens=2)
    settle(tiny_engine)


def settle(engine):
    """Until nothing runs: pages are back."""
    end = time.monotonic() + 10
    busy = ("pages_used", "requests_running", "requests_waiting")
    while any((stats := engine.stats)[name] for name in busy):
        assert time.monotonic() < end, stats
        time.sleep(0.01)


def test_stop_strings(engine):
    free = engine.generate("1, 2, 3, 4, 5,", max_tokens=24, temperature=0)
    assert " 8, 9" in free.text
    for stop, cut in ((", 9", free.text.split(", 9")[0]), (["zzz", "8"], free.text.split("8")[0])):
        request = engine.async_generate("1, 2, 3, 4, 5,", max_tokens=24, temperature=0, stop=stop)
        seen = ""
        for output in request:
            seen += output.text
            assert cut.startswith(seen)  # nothing of the stop string ever shows
        result = request.result()
        assert result.text == cut and result.finish_reason == "stop"
        assert result.stop_index == (0 if isinstance(stop, str) else 1)
        assert result.stop_token is None


def test_stop_tokens_and_min_tokens(engine):
    free = engine.generate("1, 2, 3, 4, 5,", max_tokens=12, temperature=0)
    token = free.tokens[5]
    first = free.tokens.index(token)
    cut = engine.generate("1, 2, 3, 4, 5,", max_tokens=12, temperature=0, stop_token_ids=[token])
    assert cut.finish_reason == "stop" and cut.stop_token == token
    assert cut.tokens[:first] == free.tokens[:first] and len(cut.tokens) <= first + 1
    held = engine.generate(question, max_tokens=30, min_tokens=30, temperature=0)
    assert len(held.tokens) == 30


def test_logprobs(tiny_engine):
    ids = [5, 6, 7, 8]
    result = tiny_engine.generate(
        tokens=ids, max_tokens=5, ignore_eos=True, temperature=0, logprobs=3, prompt_logprobs=2
    )
    assert len(result.logprobs) == 5 and result.top_logprobs.shape == (5, 3)
    assert len(result.prompt_logprobs) == 4 and result.prompt_top_logprobs.shape == (4, 2)
    for i, token in enumerate(result.tokens):
        row = result.top_logprobs[i]
        assert row[0] == (token, result.logprobs[i])
        assert row == sorted(row, key=lambda e: -e[1])
    assert result.prompt_logprobs[0] == 0 and all(x < 0 for x in result.prompt_logprobs[1:])
    off = tiny_engine.generate(tokens=ids, max_tokens=2)
    assert off.logprobs is None and off.top_logprobs is None and off.prompt_logprobs is None
    chosen = tiny_engine.generate(tokens=ids, max_tokens=2, logprobs=0, ignore_eos=True)
    assert len(chosen.logprobs) == 2 and chosen.top_logprobs is None


def test_all_logprobs(tiny_engine):
    result = tiny_engine.generate(
        tokens=[5, 6], max_tokens=3, ignore_eos=True, temperature=0, logprobs=-1, prompt_logprobs=-1
    )
    assert result.top_logprobs.shape == (3, 131)
    view = result.top_logprobs.by_token(0)
    assert view.shape == (131,) and view.format == "f"
    values = view.tolist()
    assert math.isclose(math.fsum(map(math.exp, values)), 1, abs_tol=1e-5)
    assert values[result.tokens[0]] == result.logprobs[0] == max(values)
    assert [result.top_logprobs.by_token(-1)[t] for t in result.tokens[2:]] == result.logprobs[2:]
    with pytest.raises(IndexError):
        result.top_logprobs[3]
    with pytest.raises(ValueError):
        result.top_logprobs.by_token(0, 100)
    assert len(result.top_logprobs[2]) == 131
    assert result.prompt_top_logprobs.by_token(1)[6] == result.prompt_logprobs[1]


def test_get_with_timeouts(engine):
    request = engine.async_generate("Hello", max_tokens=400, ignore_eos=True)
    assert request.get(0) is None and not request.done
    start = time.monotonic()
    while (output := request.get(0.01)) is None:
        assert time.monotonic() - start < 30
    assert output.tokens
    request.close()
    with pytest.raises(orlop.ShutdownError):
        request.get()
    assert "closed" in repr(request)
    request.close()
    request.cancel()


def test_cancel(engine):
    request = engine.async_generate("Hello", max_tokens=1500, ignore_eos=True)
    request.get()
    request.cancel()
    request.cancel()
    start = time.monotonic()
    result = request.result()
    assert time.monotonic() - start < 5
    assert result.finish_reason == "cancelled" and 1 <= len(result.tokens) < 1500
    assert request.status.state == "cancelled"
    settle(engine)


def test_cancel_during_prefill(engine):
    request = engine.async_generate(tokens=[500] * 2000, max_tokens=10)
    time.sleep(0.05)
    request.cancel()
    assert request.result().finish_reason == "cancelled"
    settle(engine)


def test_dropped_requests_give_their_pages_back(engine):
    for _ in range(5):
        engine.async_generate("Hello", max_tokens=1500, ignore_eos=True)
    gc.collect()
    settle(engine)


def test_a_newcomer_joins(engine):
    long = engine.async_generate("Once upon a time", max_tokens=600, ignore_eos=True)
    long.get()
    short = engine.generate("The capital of France is", max_tokens=4, temperature=0)
    assert short.text.startswith(" Paris")
    assert long.status.state == "running"
    long.close()


def test_one_consumer_at_a_time(engine):
    request = engine.async_generate("Hello", max_tokens=1000, ignore_eos=True)
    busy, stop = [], threading.Event()

    def consume():
        try:
            while not stop.is_set() and request.get(5) is not None:
                pass
        except orlop.BusyError as error:
            busy.append(error)

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    request.cancel()
    stop.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(busy) <= 2 and all(e.code == -8 for e in busy)


def test_many_threads(tiny_engine):
    expected = {
        seed: tiny_engine.generate(tokens=[seed % 100 + 3], seed=seed, max_tokens=9).tokens
        for seed in range(20)
    }
    failures: list[object] = []

    def work(number):
        chance = random.Random(number)
        try:
            for _ in range(60):
                seed = chance.randrange(20)
                request = tiny_engine.async_generate(
                    tokens=[seed % 100 + 3], seed=seed, max_tokens=9
                )
                what = chance.randrange(4)
                if what == 0:
                    request.cancel()
                elif what == 1:
                    request.get(0)
                    continue  # dropped
                result = request.result()
                if result.finish_reason != "cancelled" and result.tokens != expected[seed]:
                    failures.append((seed, result.tokens))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    settle(tiny_engine)


def test_the_interpreter_runs_while_we_wait(engine):
    """The lock is given up: another thread counts on while this one waits and encodes."""
    count, stop = [0], threading.Event()

    def spin():
        while not stop.is_set():
            count[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=spin)
    thread.start()
    start = time.monotonic()
    engine.generate(tokens=[500] * 1500, max_tokens=1)
    seconds = time.monotonic() - start
    stop.set()
    thread.join()
    assert count[0] > 100 * seconds


def test_close_ends_requests(model_path):
    from conftest import small

    engine = orlop.Engine(model_path, **small)
    with engine:
        request = engine.async_generate("Hello", max_tokens=1500, ignore_eos=True)
        request.get()
        untouched = engine.async_generate("Hello", max_tokens=1500, ignore_eos=True)
    assert engine.closed
    assert request.result().finish_reason == "cancelled"
    assert untouched.result().finish_reason == "cancelled"
    engine.close()
    for call in (
        lambda: engine.async_generate("x"),
        lambda: engine.encode("x"),
        lambda: engine.info,
        lambda: engine.stats,
        lambda: engine.apply_chat_template(question),
    ):
        with pytest.raises(orlop.ShutdownError, match="closed"):
            call()


def test_requests_outlive_the_engine_object(model_path):
    from conftest import small

    request = orlop.Engine(model_path, **small).async_generate("The capital of France is",
                                                               max_tokens=4, temperature=0)
    gc.collect()
    assert request.result().text.startswith(" Paris")


def test_pipeline(model_path):
    from conftest import small

    with orlop.pipeline(model_path=model_path, quant="none", device="cpu", **small) as pipe:
        one = pipe("The capital of France is", max_tokens=4, temperature=0)
        assert one.text.startswith(" Paris")
        two = pipe(["The capital of France is", "1, 2, 3,"], max_tokens=4, temperature=0)
        assert two[0].text == one.text and "4" in two[1].text
    with orlop.pipeline(model_path, chat=True, compute="bf16", **small) as pipe:
        assert "Paris" in pipe(["What is the capital of France?"], max_tokens=40, temperature=0)[0].text


def test_info_and_stats(engine, model_path):
    info = engine.info
    assert info["vocab"] == 49152 and info["limits"]["max_context"] == 2048
    before = engine.stats
    engine.generate("Hello", max_tokens=3, ignore_eos=True)
    after = engine.stats
    assert after["generated_tokens"] - before["generated_tokens"] == 3
    assert after["requests_finished"] - before["requests_finished"] == 1
    assert after["step_seconds"] > before["step_seconds"]
