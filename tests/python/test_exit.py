"""The end of the process: silent, quick and with the right status, whatever is still running."""

from __future__ import annotations

import textwrap

import pytest

prelude = """
import os, sys, threading, time, asyncio, atexit, gc
import orlop
def small(**more):
    return orlop.Engine(os.environ["MODEL"], max_context=1024, kv_bytes=50_000_000, threads=2, **more)
def start(engine):
    r = engine.async_generate("Once upon a time", max_tokens=900, ignore_eos=True)
    r.get()
    return r
"""

scripts = {
    "live request": "engine = small(); request = start(engine)",
    "only the request": "request = start(small())",
    "many requests": "engine = small(); requests = [start(engine) for _ in range(10)]",
    "a cycle": """
        engine = small()
        class Box: pass
        box = Box(); box.me = box; box.request = start(engine)
        """,
    "kept by a module": "import json; json.kept = start(small())",
    "kept by a builtin": "import builtins; builtins.kept = start(small())",
    "daemon thread in get": """
        request = start(small())
        threading.Thread(target=lambda: [None for _ in request], daemon=True).start()
        time.sleep(0.2)
        """,
    "daemon threads everywhere": """
        engine = small()
        def work():
            while True:
                with engine.async_generate("Hi", max_tokens=20) as r:
                    for output in r: pass
                engine.encode("some text " * 1000)
        for _ in range(6): threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        """,
    "daemon thread that loads": """
        def work():
            while True: small().close()
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.5)
        """,
    "plain thread": """
        engine = small()
        threading.Thread(target=lambda: engine.generate("Hi", max_tokens=30)).start()
        """,
    "atexit": """
        engine = small()
        @atexit.register
        def last():
            assert "Paris" in engine.generate("The capital of France is", max_tokens=3, temperature=0).text
            global kept
            kept = start(engine)
        """,
    "atexit from before the import": """
        engine = None
        for name in [m for m in sys.modules if m.startswith("orlop")]: pass
        atexit.register(lambda: start(small()))
        """,
    "asyncio": """
        async def main():
            engine = small()
            async for output in engine.async_generate("Hi", max_tokens=900, ignore_eos=True):
                break
            asyncio.ensure_future(engine.async_generate("Hi", max_tokens=900, ignore_eos=True).aresult())
            await asyncio.sleep(0.1)
        asyncio.run(main())
        """,
    "asyncio in a daemon thread": """
        engine = small()
        async def main():
            while True:
                await engine.async_generate("Hi", max_tokens=50, ignore_eos=True).aresult()
        threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
        time.sleep(0.3)
        """,
    "awaited through a thread": """
        request = start(small())
        async def main():
            try: await asyncio.wait_for(request.aget(), 0.00001)
            except asyncio.TimeoutError: pass
        asyncio.run(main())
        """,
    "a log with readers": """
        import logging
        logging.getLogger("orlop").addHandler(logging.NullHandler())
        logging.getLogger("orlop").propagate = False
        orlop.set_log_level("debug")
        request = start(small())
        """,
}


@pytest.mark.parametrize("name", scripts)
def test_silent(run_python, name):
    done = run_python(prelude + textwrap.dedent(scripts[name]), timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_exit_status_is_kept(run_python):
    done = run_python(prelude + "request = start(small()); sys.exit(7)", timeout=30)
    assert (done.returncode, done.stderr) == (7, "")
    done = run_python(prelude + "request = start(small()); os._exit(3)", timeout=30)
    assert (done.returncode, done.stderr) == (3, "")


def test_fork(run_python):
    script = """
    engine = small()
    request = start(engine)
    pid = os.fork()
    if pid == 0:
        for call in (request.get, lambda: engine.async_generate("x"), lambda: engine.encode("x"),
                     lambda: engine.info, lambda: request.status):
            try:
                call()
            except orlop.ShutdownError as error:
                assert "fork" in str(error)
            else:
                sys.exit(1)
        request.cancel(); request.close(); engine.close()
        # An engine of its own works.
        assert "Paris" in small().generate("The capital of France is", max_tokens=3, temperature=0).text
        sys.exit(5)   # with everything that a normal end does
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    more = len(request.tokens)
    assert request.get() is not None and len(request.tokens) > more   # the parent is unharmed
    request.cancel()
    assert request.result().finish_reason == "cancelled"
    """
    done = run_python(prelude + textwrap.dedent(script), timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_fork_while_threads_work(run_python):
    script = """
    engine = small()
    stop = False
    def work():
        while not stop:
            engine.generate("Hi", max_tokens=5)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads: t.start()
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            del engine
            gc.collect()
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    stop = True
    for t in threads: t.join()
    """
    done = run_python(prelude + textwrap.dedent(script), timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("how", ["request.get()", "engine.generate('Hi', max_tokens=1000)",
                                 "[None for _ in request]"])
def test_ctrl_c_interrupts_a_wait(run_python, how):
    script = f"""
    import signal
    # One sequence at a time: what comes second waits without end in sight.
    engine = small(max_running_seqs=1)
    first = engine.async_generate("Hi", max_tokens=1000, ignore_eos=True)
    request = engine.async_generate("Hi", max_tokens=1000, ignore_eos=True)
    first.get()
    threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT)).start()
    began = time.monotonic()
    try:
        {how}
    except KeyboardInterrupt:
        late = time.monotonic() - began - 0.3
        assert late < 0.5, late
        assert request.status.state == "waiting"
        print("interrupted")
    """
    done = run_python(prelude + textwrap.dedent(script), timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_waiting_costs_nothing(run_python):
    script = """
    engine = small(max_running_seqs=1)
    first = engine.async_generate("Hi", max_tokens=1000, ignore_eos=True)
    request = engine.async_generate("Hi", max_tokens=1000, ignore_eos=True)
    first.get()
    before = time.thread_time()
    assert request.get(1.0) is None
    used = time.thread_time() - before
    assert used < 0.05, used
    first.close(); request.close()
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(1)
    used = time.process_time() - before
    assert used < 0.02, used   # an idle engine sleeps
    """
    done = run_python(prelude + textwrap.dedent(script), timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
