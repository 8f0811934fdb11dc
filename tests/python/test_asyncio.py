"""asyncio: one completion queue for every pair of engine and loop; nothing polls, no thread waits."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

import orlop
from conftest import tiny

long = dict(max_tokens=400, ignore_eos=True)


def test_iteration_and_result(engine):
    async def main():
        request = engine.async_generate("The capital of France is", max_tokens=24, temperature=0)
        texts = [output.text async for output in request]
        assert request.done and await request.aget() is None
        other = engine.async_generate("The capital of France is", max_tokens=24, temperature=0)
        assert (await other.aresult()).text == "".join(texts)
        return "".join(texts)

    expected = engine.generate("The capital of France is", max_tokens=24, temperature=0).text
    assert asyncio.run(main()) == expected


def test_many_at_once_in_one_thread(tiny_engine):
    expected = [
        tiny_engine.generate(tokens=[3 + i], max_tokens=12, seed=i).tokens for i in range(40)
    ]

    async def one(i):
        request = tiny_engine.async_generate(tokens=[3 + i], max_tokens=12, seed=i)
        return (await request.aresult()).tokens

    async def main():
        threads = threading.active_count()
        tasks = [asyncio.ensure_future(one(i)) for i in range(40)]
        await asyncio.sleep(0)
        assert threading.active_count() == threads
        assert len(tiny_engine._queues._by_loop) == 1
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == expected
    gc.collect()
    assert len(tiny_engine._queues._by_loop) == 0


def test_the_loop_stays_free(engine):
    async def main():
        ticks, task = 0, asyncio.ensure_future(engine.async_generate("Hi", **long).aresult())
        start = time.monotonic()
        while not task.done():
            await asyncio.sleep(0.005)
            ticks += 1
        return ticks / (time.monotonic() - start)

    assert asyncio.run(main()) > 20


def test_waiting_uses_no_cpu():
    """While a request waits for pages that another one holds, its loop sleeps."""
    with orlop.Engine(
        tiny / "llama", max_context=512, kv_bytes=8_000_000, threads=1, max_running_seqs=1
    ) as engine:

        async def main():
            engine.async_generate(tokens=[5], max_tokens=1).close()
            before = time.thread_time()
            request = engine.async_generate(tokens=[5], max_tokens=1)
            await request.aresult()
            idle = engine._queues.current(engine._handle)[0]
            waiting = asyncio.ensure_future(idle.wait(10**9, asyncio.get_running_loop()))
            await asyncio.sleep(0.5)
            waiting.cancel()
            return time.thread_time() - before

        assert asyncio.run(main()) < 0.1


def test_timeout_loses_nothing(engine):
    async def main():
        request = engine.async_generate("Hello", max_tokens=40, ignore_eos=True, seed=1)
        while not request.done:
            try:
                await asyncio.wait_for(request.aget(), 0.001)
            except asyncio.TimeoutError:
                pass
        return request.tokens

    assert asyncio.run(main()) == engine.generate(
        "Hello", max_tokens=40, ignore_eos=True, seed=1).tokens


def test_cancelled_task_and_cancelled_request(engine):
    async def main():
        request = engine.async_generate("Hello", **long)
        task = asyncio.ensure_future(request.aresult())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not request.done
        request.cancel()
        assert (await request.aresult()).finish_reason == "cancelled"

    asyncio.run(main())


def test_two_waiters_are_refused(engine):
    async def main():
        request = engine.async_generate(tokens=[500] * 1500, max_tokens=2)
        first = asyncio.ensure_future(request.aget())
        await asyncio.sleep(0.01)
        with pytest.raises(orlop.BusyError):
            await request.aget()
        assert (await first) is not None

    asyncio.run(main())


def test_several_loops_in_several_threads(tiny_engine):
    expected = tiny_engine.generate(tokens=[9], max_tokens=30, seed=4).tokens
    failures: list[object] = []

    async def main():
        for _ in range(5):
            results = await asyncio.gather(
                *(
                    tiny_engine.async_generate(tokens=[9], max_tokens=30, seed=4).aresult()
                    for _ in range(6)
                )
            )
            failures.extend(r for r in results if r.tokens != expected)

    def work():
        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures


def test_loop_closed_with_live_requests(engine):
    requests = []

    async def main():
        requests.append(engine.async_generate("Hello", max_tokens=60, ignore_eos=True, seed=1))
        await requests[0].aget()

    asyncio.run(main())
    request = requests.pop()
    expected = engine.generate("Hello", max_tokens=60, ignore_eos=True, seed=1).tokens
    # What one loop began another one, and plain code, may go on with.
    asyncio.run(_take_one(request))
    assert request.result().tokens == expected


async def _take_one(request):
    assert await request.aget() is not None


def test_submitted_outside_of_a_loop(engine):
    request = engine.async_generate("Hello", max_tokens=60, ignore_eos=True, seed=1)
    expected = engine.generate("Hello", max_tokens=60, ignore_eos=True, seed=1).tokens

    async def main():
        try:  # cut short at first: what its thread gets is not lost
            await asyncio.wait_for(request.aget(), 0.0001)
        except asyncio.TimeoutError:
            pass
        return (await request.aresult()).tokens

    assert asyncio.run(main()) == expected


def test_close_wakes_waiters(model_path):
    from conftest import small

    async def main():
        engine = orlop.Engine(model_path, **small)
        task = asyncio.ensure_future(engine.async_generate("Hello", **long).aresult())
        late = engine.async_generate("Hello", **long)
        await asyncio.sleep(0.1)
        engine.close()
        assert (await task).finish_reason == "cancelled"
        await asyncio.sleep(0.05)
        assert (await late.aresult()).finish_reason == "cancelled"

    asyncio.run(asyncio.wait_for(main(), 30))


def test_engines_come_and_go_in_one_loop():
    """Nothing of a dropped engine stays registered with the loop."""

    async def main():
        loop = asyncio.get_running_loop()
        before = len(loop._selector.get_map())
        for _ in range(5):
            engine = orlop.Engine(tiny / "llama", max_context=64, kv_bytes=2_000_000, threads=1)
            await engine.async_generate(tokens=[5], max_tokens=2).aresult()
            del engine
            gc.collect()
            await asyncio.sleep(0.01)
        return len(loop._selector.get_map()) - before

    assert asyncio.run(main()) == 0
