"""The twelve behaviours of tests/behaviours/behaviours.txt in Python, each a test of that name."""

from __future__ import annotations

import asyncio
import itertools
import logging
import pathlib
import threading
import time

import pytest

import orlop

root = pathlib.Path(__file__).resolve().parents[2]
words = root / "tests" / "behaviours"
tiny = root / "tests" / "data" / "tiny" / "llama"


def engine_of(**more):
    return orlop.Engine(tiny, **{"compute": "fp32", "threads": 2} | more)


def submit(engine, i, tokens, **more):
    """Request `i`: prompt, seed and so answer differ from one to the next."""
    prompt = [3 + (i + 1) * (k + 7) % 120 for k in range(3 + i % 6)]
    return engine.async_generate(
        tokens=prompt, max_tokens=tokens, ignore_eos=True, seed=i, temperature=1.0, **more
    )


def alone(engine, i, tokens):
    """What request `i` answers when nothing else runs."""
    result = submit(engine, i, tokens).result()
    assert len(result.tokens) == tokens and result.finish_reason == "length"
    return result.tokens


def settles(engine):
    """Pages come back a moment after the last output was taken."""
    end = time.monotonic() + 10
    while engine.stats["pages_used"] and time.monotonic() < end:
        time.sleep(0.005)
    return engine.stats["pages_used"] == 0


def test_golden_stream(model_path):
    prompt, text = ((words / name).read_text() for name in ("golden_prompt.txt", "golden_text.txt"))
    with orlop.Engine(model_path, compute="fp32", threads=2, max_context=512) as engine:
        request = engine.async_generate(prompt, temperature=0, max_tokens=48)
        pieces = [output.text for output in request if output.text]
        assert len(pieces) > 1
        assert len(text) > 50 and "".join(pieces) == text
        assert len(request.tokens) == 48
        assert request.finish_reason == "length"


def test_cancel():
    # The answer pauses while nobody reads, so 400 tokens cannot be done before the cancel.
    with engine_of(output_bytes=64) as engine:
        request = submit(engine, 1, 400)
        first = request.get()
        assert first.tokens and first.finish_reason is None
        assert engine.stats["pages_used"] > 0
        request.cancel()
        result = request.result()
        assert result.finish_reason == "cancelled" and 1 <= len(result.tokens) < 400
        request.cancel()
        request.cancel()
        assert request.get() is None and request.done
        assert settles(engine)


def test_timeout():
    with engine_of(scheduling="fcfs", max_running_seqs=1) as engine:
        # Samples of 400 tokens have the one seat before the second request, which has nothing to give.
        first = submit(engine, 1, 400, n=32)
        request = submit(engine, 2, 16)
        assert request.get(0) is None and not request.done
        began = time.monotonic()
        assert request.get(0.005) is None and not request.done
        assert time.monotonic() - began >= 0.005
        first.close()
        assert len(request.result().tokens) == 16
        late = submit(engine, 2, 16, deadline=1e-6)
        with pytest.raises(orlop.DeadlineError):
            late.result()
        assert late.finish_reason == "error" and len(late.tokens) < 16


def test_overflow_error_text():
    with engine_of() as engine:
        with pytest.raises(orlop.ContextOverflowError, match="600") as caught:
            engine.async_generate(tokens=[5 + i % 100 for i in range(600)])
        assert "512" in str(caught.value)


def test_unknown_key():
    with pytest.raises(orlop.InvalidArgumentError, match='"threads"'):
        orlop.Engine(tiny, thread=2)


def test_drop_order():
    with engine_of() as engine:
        want = alone(engine, 7, 32)
    for order in itertools.permutations("eqr"):  # engine, queue (of an event loop), request

        async def in_a_loop():
            engine = engine_of()
            request = submit(engine, 7, 32)
            native, queue = engine._handle, request._queue
            assert queue is not None
            for place, what in enumerate(order):
                if what == "e":
                    native.close()  # the handle alone: Engine.close cancels what runs
                    assert engine.closed
                elif what == "q":
                    if "r" in order[place:] and place < 2:
                        assert (await request.aget()).tokens
                    queue.close_soon()
                    await asyncio.sleep(0)
                    del queue
                elif place:
                    while await request.aget() is not None:
                        pass
                    assert request.tokens == want and request.finish_reason == "length"
                    request.close()
                else:
                    request.close()

        asyncio.run(in_a_loop())
    # The objects alone: a request keeps what it needs, and a closed engine cancels with a last output.
    engine = engine_of()
    request = submit(engine, 7, 32)
    del engine
    assert request.result().tokens == want
    engine = engine_of(output_bytes=64)
    request = submit(engine, 7, 400)
    engine.close()
    assert request.result().finish_reason == "cancelled"


def test_sixty_four_at_once():
    with engine_of() as engine:
        want = [alone(engine, i, 24) for i in range(64)]
        assert want[0] != want[1]

        async def all_at_once():
            requests = [submit(engine, i, 24) for i in range(64)]
            assert len({id(request._queue) for request in requests}) == 1
            assert requests[0]._queue is not None
            return await asyncio.wait_for(asyncio.gather(*(r.aresult() for r in requests)), 60)

        assert [result.tokens for result in asyncio.run(all_at_once())] == want
        assert settles(engine)


def test_eight_threads():
    with engine_of() as engine:
        want = [alone(engine, i, 40) for i in range(8)]
        wrong, counts = [], [[0, 0] for _ in range(8)]

        def work(first):
            try:
                for turn in range(24):
                    i = (first + turn) % 8
                    with submit(engine, i, 40) as request:
                        if turn % 3 == 2:
                            request.cancel()
                        result = request.result()
                    cancelled = result.finish_reason == "cancelled"
                    assert turn % 3 == 2 or not cancelled
                    assert result.tokens == want[i][: len(result.tokens) if cancelled else 40]
                    counts[first][cancelled] += 1
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert wrong == []
        assert all(done >= 16 and done + cancelled == 24 for done, cancelled in counts)
        assert settles(engine)


def test_bad_file(tmp_path, model_path):
    def refused(path, *kinds):
        with pytest.raises(kinds) as caught:
            orlop.Engine(path)
        assert str(path) in str(caught.value)

    refused(tmp_path / "none.gguf", orlop.NotFoundError)
    empty, noise, cut = (tmp_path / f"{name}.gguf" for name in ("empty", "noise", "cut"))
    empty.write_bytes(b"")
    refused(empty, orlop.BadFormatError, orlop.IoError)
    noise.write_bytes(bytes(i * i * 7 % 251 for i in range(65536)))
    refused(noise, orlop.BadFormatError)
    with open(model_path, "rb") as file:
        cut.write_bytes(file.read(400_000))
    refused(cut, orlop.BadFormatError, orlop.IoError)
    folder = tmp_path / "cut-weights"
    folder.mkdir()
    (folder / "config.json").write_bytes((tiny / "config.json").read_bytes())
    weights = (tiny / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) * 3 // 4])
    refused(folder, orlop.BadFormatError, orlop.IoError)
    with engine_of() as engine:
        assert len(alone(engine, 3, 8)) == 8


def test_log_sink(monkeypatch):
    class Sink(logging.Handler):
        def __init__(self):
            super().__init__()
            self.lines = []

        def emit(self, record):
            self.lines.append(record.getMessage())
            raise RuntimeError("the sink fails")

    faults = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    logger, sink = logging.getLogger("orlop"), Sink()
    level = logger.level
    logger.addHandler(sink)
    logger.setLevel(logging.DEBUG)
    try:
        orlop.set_log_level("debug")
        with engine_of() as engine:
            assert len(alone(engine, 4, 8)) == 8
        orlop.set_log_level(None)  # delivers what is queued
        count = len(sink.lines)
        assert count > 0 and all(sink.lines)
        assert len(faults) == count
        with engine_of():
            pass
        assert len(sink.lines) == count
        orlop.set_log_level("error")
        with engine_of():
            pass
        orlop.set_log_level(None)
        assert len(sink.lines) == count  # nothing went wrong
    finally:
        orlop.set_log_level(None)
        logger.removeHandler(sink)
        logger.setLevel(level)


def test_release_twice():
    engine = engine_of()
    request = submit(engine, 1, 4)
    for _ in range(2):
        request.close()
    request.cancel()
    with pytest.raises(orlop.ShutdownError, match="closed"):
        request.get()
    for _ in range(2):
        engine.close()
    assert engine.closed
    for use in (lambda: submit(engine, 1, 4), lambda: engine.stats, lambda: engine.encode("a")):
        with pytest.raises(orlop.ShutdownError, match="closed"):
            use()


def test_exit_with_live_requests(run_python):
    script = """
import os, orlop
engine = orlop.Engine(os.environ["TINY"], compute="fp32", threads=2)
running = [engine.async_generate(tokens=[3 + i, 4, 5], max_tokens=480, ignore_eos=True, seed=i)
           for i in range(64)]
"""
    for _ in range(3):
        done = run_python(script, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
