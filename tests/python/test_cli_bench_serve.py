"""orlop bench serve: against a server whose times are known, then against orlop's own."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import subprocess
import threading
import time
import xml.etree.ElementTree

import pytest

from orlop.cli import bench_load, bench_plot, bench_report, bench_serve
from orlop.cli.bench_client import Address, Client, Events, HttpError
from test_cli import command, few, run


class Server:
    """A server of OpenAI's API in which every token takes its time: a word is a token."""

    def __init__(self, first=0.05, gap=0.01, per_piece=1, usage=True, fault=None, width=7):
        self.first, self.gap, self.per_piece, self.usage = first, gap, per_piece, usage
        self.fault, self.width = fault, width  # width: bytes of an HTTP chunk
        self.bodies, self.arrivals, self.keys, self.sent = [], [], [], []
        self.running = self.most = self.connections = 0

    def __enter__(self):
        ready = threading.Event()

        async def main():
            self.loop = asyncio.get_running_loop()
            self.stop = asyncio.Event()
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=512)
            self.url = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
            ready.set()
            await self.stop.wait()
            server.close()

        self.thread = threading.Thread(target=lambda: asyncio.run(main()))
        self.thread.start()
        ready.wait()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join()

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while line := await reader.readline():
                headers = {}
                while (header := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if not await self.answer(line.split()[1].decode(), headers, body, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def answer(self, path, headers, body, writer):
        if path.endswith("/v1/models"):
            text = json.dumps({"data": [{"id": "words"}]})
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
            return True
        self.arrivals.append(time.perf_counter())
        self.keys.append(headers.get("authorization"))
        body = json.loads(body)
        self.bodies.append(body)
        if self.fault and (done := self.fault(len(self.bodies), writer)) is not None:
            return done
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.stream(path, body, writer)
        finally:
            self.running -= 1
        return True

    async def stream(self, path, body, writer):
        chat = "chat" in path
        text = body["messages"][0]["content"] if chat else body["prompt"]
        total = body.get("max_tokens", 5)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        if chat:
            self.send(writer, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        await asyncio.sleep(self.first)
        sent = []
        self.sent.append(sent)
        for begin in range(0, total, self.per_piece):
            if begin:
                await asyncio.sleep(self.gap * self.per_piece)
            sent.append(time.perf_counter())
            words = "word " * min(self.per_piece, total - begin)
            self.send(writer, {"choices": [{"delta": {"content": words}} if chat else {"text": words}]})
        end = {"choices": [{"delta": {}, "text": "", "finish_reason": "length"}]}
        self.send(writer, end)
        if self.usage and body["stream_options"]["include_usage"]:
            usage = {"prompt_tokens": len(text.split()) + 3, "completion_tokens": total}
            self.send(writer, {"choices": [], "usage": usage})
        self.send(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")

    def send(self, writer, event):
        data = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
        for at in range(0, len(data), self.width):  # events are cut anywhere
            part = data[at : at + self.width]
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))


def bench(url, *args, code=0):
    return json.loads(run("bench", "serve", url, "--json", "-q", *args, code=code).stdout)


def test_closed_loop_times_are_right():
    with Server(first=0.4, gap=0.03) as server:
        found = bench(server.url, "--requests", 24, "--concurrency", 6, "--prompt-tokens", 50,
                      "--gen-tokens", 11)
    assert found["requests"] == 24 and found["failed"] == 0 and found["errors"] == {}
    assert found["tokens_counted_by"] == "usage" and found["model"] == "words"
    assert found["output_tokens"] == found["pieces"] == 24 * 11
    assert found["prompt_tokens_mean"] == 50  # the three that the server adds are found out
    # How much longer than asked the server slept is the machine's affair, but it noted the times.
    sent = server.sent[2:]
    gaps = sorted(b - a for times in sent for a, b in zip(times, times[1:]))
    means = sorted((times[-1] - times[0]) / 10 for times in sent)
    waits = sorted(times[0] - begin for times, begin in zip(sent, server.arrivals[2:]))
    for key, true, near in (("ttft_seconds", waits, 0.1), ("inter_token_seconds", means, 0.01),
                            ("between_pieces_seconds", gaps, 0.01)):
        row = found[key]
        assert row["p50"] <= row["p90"] <= row["p99"] <= row["max"]
        assert row["p50"] == pytest.approx(true[len(true) // 2], rel=0.2, abs=near), (key, row)
        assert row["mean"] == pytest.approx(sum(true) / len(true), rel=0.2, abs=near), (key, row)
    assert found["end_to_end_seconds"]["mean"] == pytest.approx(
        found["ttft_seconds"]["mean"] + 10 * found["inter_token_seconds"]["mean"], rel=0.05, abs=0.01)
    assert server.most == 6
    assert found["seconds"] >= 4 * (0.4 + 10 * 0.03) * 0.95
    assert found["output_tokens_per_second"] == pytest.approx(24 * 11 / found["seconds"])
    assert found["requests_per_second"] == pytest.approx(24 / found["seconds"])
    assert 1 <= server.connections <= 6 + 1  # kept alive


def test_pieces_of_several_tokens():
    """Time per token is the stream's over the server's count; without one, pieces count."""
    with Server(per_piece=4) as server:
        found = bench(server.url, "--requests", 4, "--gen-tokens", 41)
        assert found["pieces"] == 4 * 11 and found["output_tokens"] == 4 * 41
        assert found["inter_token_seconds"]["p50"] == pytest.approx(
            found["between_pieces_seconds"]["mean"] / 4, rel=0.2)
        assert found["between_pieces_seconds"]["p50"] >= 0.039
        server.usage = False
        found = bench(server.url, "--requests", 4, "--gen-tokens", 41)
        assert found["tokens_counted_by"] == "pieces" and found["output_tokens"] == 4 * 11
        assert found["prompt_tokens_mean"] is None
        said = run("bench", "serve", server.url, "--requests", 2, "-q").stdout
        assert "counted by pieces of the streams" in said


def test_poisson_arrivals_do_not_wait():
    with Server(first=0.4) as server:
        found = bench(server.url, "--rate", 50, "--requests", 40, "--gen-tokens", 2, "--seed", 3)
        assert found["failed"] == 0 and server.most > 10  # far more than would fit one after another
        gaps = [b - a for a, b in zip(server.arrivals[2:], server.arrivals[3:])]
        assert 0.5 < sum(gaps) < 3  # 39 gaps of 20 ms on average


def test_the_poisson_process():
    times = bench_load.poisson(20.0, random.Random(1))
    drawn = [next(times) for _ in range(20_000)]
    gaps = [b - a for a, b in zip([0.0, *drawn], drawn)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.05, rel=0.03)
    assert sum(gap > 0.05 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.015)
    again = bench_load.poisson(20.0, random.Random(1))
    assert [next(again) for _ in range(100)] == drawn[:100]


def test_chat_and_ranges_and_fields():
    with Server(first=0.0, gap=0.0) as server:
        found = bench(server.url + "/v1/chat/completions", "--requests", 30, "--seed", 5,
                      "--prompt-tokens", "20-40", "--gen-tokens", "2-6", "--api-key", "k",
                      "--body", '{"temperature": 0}', "--model", "m")
        assert found["api"] == "chat" and found["failed"] == 0
        bodies = server.bodies[2:]
        assert {body["model"] for body in bodies} == {"m"}
        assert all(body["temperature"] == 0 and body["ignore_eos"] is True for body in bodies)
        wanted = [body["max_tokens"] for body in bodies]
        assert set(wanted) == {2, 3, 4, 5, 6} and sum(wanted) == found["output_tokens"]
        sizes = [len(body["messages"][0]["content"].split()) + 3 for body in bodies]
        assert 20 <= min(sizes) < 25 and 35 < max(sizes) <= 40
        assert set(server.keys) == {"Bearer k"}
        texts = [body["messages"][0]["content"] for body in bodies]
        first = list(server.bodies)
        server.bodies.clear()
        bench(server.url, "--api", "chat", "--requests", 30, "--seed", 5, "--prompt-tokens", "20-40",
              "--gen-tokens", "2-6")
        # The same seed asks the same, in whatever order the requests arrive.
        assert sorted(texts) == sorted(b["messages"][0]["content"] for b in server.bodies[2:])
        assert first[0]["max_tokens"] == 1


def test_prompts_from_a_file(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('"a text"\n\n{"prompt": "b c", "max_tokens": 3, "temperature": 0.5}\n')
    with Server(first=0.0, gap=0.0) as server:
        found = bench(server.url, "--prompts", file, "--requests", 5, "--concurrency", 1)
        assert [body["prompt"] for body in server.bodies] == ["a text", "b c", "a text", "b c", "a text"]
        assert [body.get("max_tokens") for body in server.bodies] == [None, 3, None, 3, None]
        assert server.bodies[1]["temperature"] == 0.5 and "ignore_eos" not in server.bodies[0]
        assert found["requests"] == 5
        assert bench(server.url, "--prompts", file)["requests"] == 2
        file.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
        assert bench(server.url, "--prompts", file, "--gen-tokens", 4)["api"] == "chat"
        assert server.bodies[-1]["max_tokens"] == 4
    for text, words in (("{", "line 1: not JSON"), ("[]", "must be a text or an object"), ("", "no prompts"),
                        ('{"prompt": "a", "messages": []}', "must be a text or")):
        file.write_text(text)
        assert words in run("bench", "serve", "127.0.0.1:9", "--prompts", file, code=1).stderr
    file.write_text('"a"\n{"messages": []}\n')
    assert "lines without" in run("bench", "serve", "x", "--prompts", file, code=2).stderr


def reply(status, text):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def test_errors_by_kind():
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

    def fault(number, writer):
        kind = (number - 3) % 8  # the first two are for the size of prompts
        if number < 3 or kind == 0:
            return None
        if kind == 1:
            writer.write(reply("429 Too Many", json.dumps({"error": {"message": "queue full"}})))
            return True
        if kind == 2:
            writer.write(reply("500 Oh", "<h1>no JSON</h1>"))
            return True
        if kind == 3:
            writer.write(stream + b'data: {"error": {"message": "broke"}}\n\n')
        elif kind == 4:
            writer.write(stream + b'data: {"choices": [{"text": "a"}]}\n\n')  # no [DONE]
        elif kind == 5:
            writer.write(stream + b"data: [DONE]\n\n")
        elif kind == 6:
            writer.write(b"SSH-2.0\r\n\r\n")
        else:
            writer.write(stream.replace(b"\r\n\r\n", b"\r\nContent-Length: 99\r\n\r\n"))
        return False

    with Server(first=0.0, gap=0.0, fault=fault) as server:
        found = bench(server.url, "--requests", 16, "--concurrency", 1, code=1)
        server.bodies.clear()
        said = run("bench", "serve", server.url, "--requests", 8, "-q", code=1).stdout
    kinds = found["errors"]
    assert found["requests"] == 16 and found["failed"] == 14 and set(kinds.values()) == {2}
    for words in ("HTTP 429: queue full", "HTTP 500: <h1>no JSON</h1>", "error in the stream: broke",
                  "the stream ended without [DONE]", "no output", "no HTTP response: 'SSH-2.0'",
                  "the server closed the connection"):
        assert words in kinds, kinds
    assert "x HTTP 429: queue full" in said and "failed" in said


def test_servers_that_are_not_there(tmp_path):
    done = run("bench", "serve", "127.0.0.1:9", code=1)
    assert done.stderr.startswith("orlop: error: http://127.0.0.1:9: ") and done.stderr.count("\n") == 1
    with Server(first=5.0) as server:
        done = run("bench", "serve", server.url, "--timeout", 0.2, "--requests", 2, code=1)
        assert "no end within 0.2 s" in done.stderr


def test_ctrl_c_shows_the_figures_so_far():
    with Server(first=0.0, gap=0.02) as server:
        process = subprocess.Popen(
            [*command, "bench", "serve", server.url, "--requests", "1000", "--gen-tokens", "5", "-q"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        while len(server.bodies) < 40 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "interrupted" in out and "Traceback" not in err
    assert "time to first token" in out


def test_many_streams_do_not_overload_the_client():
    """256 at once, 25 tokens a second each: the client has time to spare, its clock is not late."""
    with Server(first=1.0, gap=0.04, width=1000) as server:
        found = bench(server.url, "--requests", 256, "--concurrency", 256, "--gen-tokens", 40)
    assert found["failed"] == 0 and server.most == 256
    assert found["output_tokens"] == 256 * 40
    assert found["client"]["cpu_of_a_core"] < 0.8, found["client"]


def test_the_table_and_the_picture(tmp_path):
    file = tmp_path / "load.svg"
    with Server() as server:
        done = run("bench", "serve", server.url, "--requests", 12, "--gen-tokens", 6, "--plot", file)
    for words in ("12 requests in ", "0 failed", "requests/s", "output tokens/s", "time to first token, ms",
                  "inter-token, ms", "between pieces, ms", "end to end, s", "p50", "p90", "p99",
                  "counted by the server's usage; 1.00 pieces a token", "8 requests at any time",
                  "this client: "):
        assert words in done.stdout, words
    text = file.read_text()
    root = xml.etree.ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and "NaN" not in text and "inf" not in text
    titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    for title in ("Time to first token", "Time between tokens", "End to end", "Output tokens a second"):
        assert title in titles
    assert sum(title.startswith("p50 ") and ", p99 " in title for title in titles) == 3
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") + titles[0].count("http") * 2
    assert "No such file" in run("bench", "serve", "x", "--plot", tmp_path / "no" / "a.svg", code=1).stderr


def test_pictures_of_odd_loads():
    for ttft, each, whole, seconds, weights, end in (
        ([], [], [], [], [], 0.0),
        ([0.0], [], [0.0], [0.0], [1.0], 0.0),
        ([0.5] * 3, [0.01] * 3, [1.0] * 3, [0.5, 1.0], [1.0, 2.0], 1.0),
        ([1e-6, 1e3], [1e-7, 5.0], [1e-6, 1e4], [1e4], [1.0], 1e4),
    ):
        text = bench_plot.draw("<&>", "x", ttft, each, whole, seconds, weights, end)
        xml.etree.ElementTree.fromstring(text)
        assert "nan" not in text and "inf" not in text


def test_steps_and_percentiles():
    for high in (1e-9, 0.7, 1, 3, 9.99, 10, 12345.6, 1e12):
        found = bench_plot.steps(high)
        assert found[0] == 0 and high * 0.5 < found[-1] <= high * 1.001 and 3 <= len(found) <= 6
    assert bench_plot.percentile([1.0], 0.99) == 1.0
    assert bench_plot.percentile([0.0, 10.0], 0.5) == 5.0
    assert bench_plot.percentile(list(map(float, range(101))), 0.9) == 90.0


def test_figures_of_nothing():
    run_ = bench_load.Run([], 1.0, 1.0, 0.0, [], True)
    found = bench_report.figures(run_)
    assert found["ttft_seconds"] is None and found["failed"] == 0
    assert "interrupted" in bench_report.table(found)[0]
    records = [bench_load.Record(0.0, error=f"kind {i}", end=1.0) for i in range(50)]
    found = bench_report.figures(bench_load.Run(records, 0.0, 1.0, 0.0, [], False))
    assert len(found["errors"]) == 21 and found["errors"]["others"] == 30


def test_events_are_taken_apart_anywhere():
    stream = b": ping\r\n\r\ndata: a\r\n\r\nevent: x\ndata:b\ndata: c\n\n\n\n"
    stream += b"data: \xc3\xa9\n\nid: 1\n\ndata: left"
    for width in range(1, len(stream)):
        found = []
        events = Events(lambda data, now: found.append((data, now)))
        for at in range(0, len(stream), width):
            events(stream[at : at + width], at)
        assert [data for data, _ in found] == [b"a", b"b\nc", "é".encode()]


def test_addresses():
    for url, text, path in (
        ("localhost:8000", "http://localhost:8000", ""),
        ("http://a", "http://a", ""),
        ("https://a/x/", "https://a", "/x"),
        ("http://[::1]:80/v1", "http://[::1]", "/v1"),
    ):
        address = Address.parse(url)
        assert (str(address), address.path) == (text, path)
    for url in ("ftp://a", "http://", "http://a?b=1", "http://u:p@a", "http://a:b"):
        with pytest.raises(ValueError):
            Address.parse(url)
    target = bench_serve._target
    for url, given, api, path in (
        ("http://a", None, "completions", ""),
        ("http://a/v1/", None, "completions", ""),
        ("http://a/v1/chat/completions", None, "chat", ""),
        ("http://a/x/v1/completions", None, "completions", "/x"),
        ("http://a/x", "chat", "chat", "/x"),
    ):
        found, address = target(url, given, [])
        assert (found, address.path) == (api, path)


def test_usage_and_forms(tmp_path):
    from orlop.cli import _parser

    assert _parser().parse_args(["bench", "serve", "http://a", "--rate", "2"]).url == "http://a"
    assert _parser().parse_args(["bench", "./serve"]).model == "./serve"
    assert "orlop bench serve" in run("bench", "--help").stdout
    assert "usage: orlop bench serve" in run("bench", "serve", "--help").stdout
    for args, words in (
        ((), "required: URL"),
        (("a", "--rate", "1", "--concurrency", "2"), "give one"),
        (("a", "--prompt-tokens", "0"), "must be 1 to"),
        (("a", "--prompt-tokens", "9-3"), "the lower end first"),
        (("a", "--gen-tokens", "many"), "must be N or A-B"),
        (("a", "--body", "[]"), "must be a JSON object"),
        (("a", "--rate", "0"), "must be above 0"),
        (("ftp://a",), "must be http or https"),
        (("http://a/v1/completions", "--api", "chat"), "the URL is that of completions"),
        (("a", "--api-key", "k\r\nHost: b"), "printable ASCII"),
    ):
        assert words in run("bench", "serve", *args, code=2).stderr


def test_a_cancelled_request_closes_its_connection():
    async def main(url):
        client = Client(Address.parse(url))
        body = {"prompt": "a b", "max_tokens": 1000, "stream_options": {"include_usage": True}}
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(
                client.request("POST", "/v1/completions", body, lambda data, now: None), 0.2
            )
        assert not client._free
        response = await client.request("GET", "/v1/models")
        assert response.status == 200 and len(client._free) == 1
        client.close()

    with Server(gap=0.001) as server:
        asyncio.run(main(server.url))


def test_a_connection_that_the_server_closed_meanwhile():
    """Is noticed, and the request goes over a new one."""

    async def main():
        count = 0

        async def serve(reader, writer):
            nonlocal count
            count += 1
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply("200 OK", "hi"))
            await asyncio.sleep(0.05)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = Client(Address.parse(f"127.0.0.1:{port}"))
        for wait in (0.0, 0.2, 0.0):
            assert (await client.request("GET", "/")).body == b"hi"
            await asyncio.sleep(wait)
        server.close()
        with pytest.raises((HttpError, OSError)):
            for _ in range(3):
                await client.request("GET", "/")
        return count

    assert asyncio.run(main()) >= 2


# -- orlop's own server --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(model_path):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    process = subprocess.Popen(
        [*command, "serve", model_path, "--port", "0", *few],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
    assert found, "orlop serve did not start"
    yield found.group()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_the_server_of_orlop(served, api):
    found = bench(served, "--api", api, "--requests", 6, "--concurrency", 3, "--gen-tokens", "4-9",
                  "--prompt-tokens", 60)
    assert found["failed"] == 0 and found["requests"] == 6, found["errors"]
    assert found["tokens_counted_by"] == "usage" and 4 <= found["output_tokens_mean"] <= 9
    assert found["prompt_tokens_mean"] == pytest.approx(60, rel=0.1)
    assert 0 < found["ttft_seconds"]["p50"] <= found["end_to_end_seconds"]["max"] <= found["seconds"]
    assert found["inter_token_seconds"]["p50"] > 0


def test_errors_of_the_server_of_orlop(served, tmp_path):
    file = tmp_path / "prompts"
    file.write_text('{"prompt": "a", "max_tokens": 2}\n{"prompt": "a", "temperature": -5}\n')
    found = bench(served, "--prompts", file, "--requests", 4, code=1)
    assert found["failed"] == 2
    (kind,) = found["errors"]
    assert kind.startswith("HTTP 400: ") and "temperature" in kind
