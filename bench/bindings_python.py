"""bindings_python.py TINY_MODEL REQUESTS TOKENS POLLS: what the Python binding costs, one line of JSON."""
import ctypes
import gc
import json
import statistics
import sys
import time

import orlop

IN_FLIGHT, ROUNDS = 64, 11


class MallInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def in_use(libc=ctypes.CDLL(None)):
    """Bytes that malloc and Python's own allocator have given out, all arenas of the latter counted by its blocks."""
    libc.mallinfo2.restype = MallInfo
    for _ in range(2):
        gc.collect()
    return libc.mallinfo2().uordblks


def batch(engine, requests, tokens):
    """Requests a second: the list form keeps as many in flight as the engine takes, at most 64 here."""
    prompts = [[1 + i % 100, 2, 3, 4] for i in range(requests)]
    begin, count = time.perf_counter(), 0
    running = []
    waiting = iter(prompts)
    for prompt in waiting:
        running.append(engine.async_generate(tokens=prompt, max_tokens=tokens, temperature=0, ignore_eos=True))
        if len(running) == IN_FLIGHT:
            break
    # First come, first served: the oldest ends first, and each that ends makes room for one more.
    running.reverse()
    while running:
        request = running.pop()
        count += len(request.result().tokens)
        request.close()
        prompt = next(waiting, None)
        if prompt is not None:
            running.insert(0, engine.async_generate(tokens=prompt, max_tokens=tokens, temperature=0, ignore_eos=True))
    assert count == requests * tokens
    return requests / (time.perf_counter() - begin)


def poll_ns(model, polls):
    """Nanoseconds of a look at a request whose turn has not come."""
    with orlop.Engine(model, threads=1, max_running_seqs=1, scheduling="fcfs") as engine:
        before = [engine.async_generate(tokens=[1, 2, 3, 4], max_tokens=500, ignore_eos=True) for _ in range(IN_FLIGHT)]
        request = engine.async_generate(tokens=[1, 2, 3, 4], max_tokens=500, ignore_eos=True)
        each, rounds, get = max(1, polls // ROUNDS), [], request.get
        for _ in range(ROUNDS):
            begin = time.perf_counter_ns()
            for _ in range(each):
                get(0)
            rounds.append((time.perf_counter_ns() - begin) / each)
        assert request.status.state == "waiting", f"{polls} polls took too long: the request's turn came"
        for r in [request, *before]:
            r.close()
    return statistics.median(rounds)


def left(engine, requests, tokens):
    grown = []
    batch(engine, requests, tokens)
    for _ in range(5):
        before = in_use(), sys.getallocatedblocks()
        batch(engine, requests, tokens)
        time.sleep(0.02)
        # A block of Python's allocator counts as 64 bytes: it has no count of bytes.
        grown.append((in_use() - before[0] + 64 * (sys.getallocatedblocks() - before[1])) / requests)
    return max(0.0, min(grown))


def main():
    model, requests, tokens, polls = sys.argv[1], *map(int, sys.argv[2:])
    poll = poll_ns(model, polls)
    with orlop.Engine(model, threads=2, max_context=512, kv_bytes=16_000_000) as engine:
        batch(engine, requests, tokens)
        rate = statistics.median(batch(engine, requests, tokens) for _ in range(5))
        print(json.dumps({"language": "python", "poll_ns": round(poll, 1), "requests_per_s": round(rate, 1),
                          "bytes_left_per_request": round(left(engine, requests, tokens), 1)}))


main()
