"""Keys, hosts, origins, metrics, the document and the page."""

from __future__ import annotations

import re

import conftest
import httpx
import pytest

body = {"prompt": [5, 6], "max_tokens": 1}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("# ours\nfirst-key\n\nsecond-key\n")
    options = ("--api-key-file", path, "--api-key", "third-key", "--cors-origin", "https://app.example")
    with conftest.serving(conftest.tiny, *conftest.smaller, *options) as server:
        yield server


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def test_keys(keyed):
    for key in ("first-key", "second-key", "third-key"):
        assert keyed.post("/v1/completions", body, headers=bearer(key)).status_code == 200
    for headers in ({}, bearer("first-ke"), bearer("first-keyy"), bearer("# ours"), {"authorization": "first-key"},
                    {"authorization": "Basic first-key"}):  # fmt: skip
        answer = keyed.post("/v1/completions", body, headers=headers)
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
    for path in ("/v1/models", "/stats", "/metrics", "/nothing"):
        assert keyed.http.get(path).status_code == 401, path
        assert keyed.http.get(path, headers=bearer("first-key")).status_code in (200, 404), path
    for path in ("/health", "/openapi.json", "/"):
        assert keyed.http.get(path).status_code == 200, path
    assert "first-key" not in "".join(keyed.lines) and '"Authorization: Bearer' in "".join(keyed.lines)


def test_cors(keyed):
    ours = {"origin": "https://app.example"} | bearer("first-key")
    answer = keyed.post("/v1/completions", body, headers=ours)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    asking = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    answer = keyed.http.options("/v1/completions", headers=asking)
    assert answer.status_code == 204 and "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    for origin in ("https://evil.example", "null", "https://app.example.evil.example"):
        answer = keyed.post("/v1/completions", body, headers=bearer("first-key") | {"origin": origin})
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
        answer = keyed.http.options("/v1/completions", headers=asking | {"origin": origin})
        assert "access-control-allow-origin" not in answer.headers and answer.status_code >= 400


def test_own_page_may_ask(tiny_server):
    answer = tiny_server.post("/v1/completions", body, headers={"origin": tiny_server.url})
    assert answer.status_code == 200 and "access-control-allow-origin" not in answer.headers


def test_host_header(tiny_server):
    """A name that an attacker's DNS points at 127.0.0.1 is refused."""
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "", "a b", "[::1"):
        answer = tiny_server.http.get("/health", headers={"host": host})
        assert answer.status_code in (400, 403), (host, answer.status_code)
    for host in ("localhost", f"localhost:{tiny_server.port}", "127.0.0.1", "[::1]:80", "LOCALHOST"):
        assert tiny_server.http.get("/health", headers={"host": host}).status_code == 200, host
    with conftest.serving(
        conftest.tiny, *conftest.smaller, "--allowed-host", "model.example"
    ) as server:
        assert server.http.get("/health", headers={"host": "model.example"}).status_code == 200
        assert server.http.get("/health", headers={"host": "evil.example"}).status_code == 403


def test_request_ids(tiny_server):
    given = tiny_server.http.get("/health", headers={"x-request-id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    bad = tiny_server.http.get("/health", headers={"x-request-id": "a b\tc"})
    assert re.fullmatch("[0-9a-f]{32}", bad.headers["x-request-id"])


def metrics(server):
    out = {}
    for line in server.http.get("/metrics").text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            out[name] = float(value)
    return out


def test_metrics(tiny_server):
    text = tiny_server.http.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    before = metrics(tiny_server)
    ask = {"prompt": [[5, 6, 7]], "max_tokens": 10, "ignore_eos": True}
    for _ in range(3):
        assert tiny_server.post("/v1/completions", ask).status_code == 200
    tiny_server.post("/v1/completions", {"prompt": 5})
    tiny_server.http.get("/some/path/%00")
    after = metrics(tiny_server)

    def grown(name):
        return after[name] - before.get(name, 0)

    assert grown('orlop_http_requests_total{endpoint="/v1/completions",status="200"}') == 3
    assert grown('orlop_http_requests_total{endpoint="/v1/completions",status="400"}') == 1
    assert grown('orlop_http_requests_total{endpoint="other",status="404"}') == 1
    assert grown("orlop_prompt_tokens_total") == 9 and grown("orlop_generated_tokens_total") == 30
    assert grown('orlop_requests_finished_total{reason="length"}') == 3
    assert grown("orlop_time_to_first_token_seconds_count") == 3
    assert grown("orlop_inter_token_latency_seconds_count") <= 27
    assert grown("orlop_request_latency_seconds_count") == 3
    for name in ("orlop_kv_pages_used", "orlop_prefix_hit_tokens_total", "orlop_preemptions_total",
                 "orlop_requests_waiting", 'orlop_step_part_seconds_total{part="forward"}',
                 "orlop_server_cpu_seconds_total"):  # fmt: skip
        assert name in after
    assert after["orlop_up"] == 1
    # Histograms: cumulative, and the last bucket is the count.
    buckets = [v for k, v in after.items() if k.startswith("orlop_request_latency_seconds_bucket")]
    assert buckets == sorted(buckets) and buckets[-1] == after["orlop_request_latency_seconds_count"]


def test_page_and_its_policy(tiny_server):
    answer = tiny_server.http.get("/")
    assert answer.status_code == 200
    if answer.headers["content-type"].startswith("text/html"):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "connect-src 'self'" in policy
        assert "unsafe" not in policy and "*" not in policy and "http" not in policy
    assert tiny_server.http.get("/page/../stats.py").status_code == 404
    assert tiny_server.http.get("/page/..%2fstats.py").status_code == 404


def test_stats(tiny_server):
    stats = tiny_server.stats()
    assert stats["state"] == "ready" and stats["engine"]["block_size"] == 16
    assert {"requests", "latency", "live", "stats", "model", "uptime"} <= set(stats)
    with tiny_server.http.stream(
        "POST",
        "/v1/completions",
        json={"prompt": [5, 6], "max_tokens": 450, "ignore_eos": True, "stream": True},
    ):
        with httpx.Client(base_url=tiny_server.url) as other:
            live = other.get("/stats").json()["live"]
    assert len(live) <= 1 and all(job["endpoint"] == "/v1/completions" for job in live)
