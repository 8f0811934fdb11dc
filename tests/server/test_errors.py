"""Errors: OpenAI's form, the right status, also for streams."""

from __future__ import annotations

import json
import socket
import time

import openai
import pytest

import conftest

message = [{"role": "user", "content": "Hi"}]
chat_path, text_path = "/v1/chat/completions", "/v1/completions"


def error_of(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json" and answer.headers["x-request-id"]
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return error


wrong = [
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"min_p": -0.1}, "min_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 1.5}, "top_k"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
    ({"seed": 2**64}, "seed"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop": [5]}, "stop[0]"),
    ({"stop_token_ids": ["a"]}, "stop_token_ids"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
    ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"logprobs": 5}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"priority": 101}, "priority"),
    ({"cache_salt": 5}, "cache_salt"),
    ({"cache_salt": "\0x"}, "cache_salt"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "other"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"guided_choice": []}, "guided_choice"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [5]}, "messages[0]"),
    ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"model": 5}, "model"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields, param", wrong, ids=[json.dumps(f)[:40] for f, _ in wrong])
def test_a_wrong_field_is_named(server, fields, param, stream):
    body = {"messages": message, "max_tokens": 2, "stream": stream} | fields
    if "stream" in fields:
        body["stream"] = fields["stream"]
    error = error_of(server.post(chat_path, body), 400)
    assert error["param"] == param and error["type"] == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True])
def test_context_overflow_names_both_counts(server, stream):
    body = {"messages": [{"role": "user", "content": "word " * 3000}], "stream": stream}
    error = error_of(server.post(chat_path, body), 400)
    assert error["code"] == "context_length_exceeded" and error["param"] == "messages"
    assert "2048" in error["message"] and "30" in error["message"]
    body = {"prompt": list(range(100, 2300)), "stream": stream}
    error = error_of(server.post(text_path, body), 400)
    assert error["code"] == "context_length_exceeded" and error["param"] == "prompt"
    assert "2200" in error["message"] and "2048" in error["message"]


def test_the_client_sees_typed_errors(client, server):
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="gpt-4o", messages=message)
    assert error.value.code == "model_not_found" and error.value.param == "model"
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(
            model=server.model, messages=[{"role": "user", "content": "word " * 3000}], stream=True
        )
    assert error.value.code == "context_length_exceeded"


def test_bodies_that_are_no_json(tiny_server):
    deep = b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for raw in (b"", b"{", b"[]", b"null", b'{"prompt": NaN}', b"\xff\xfe{}", b'{"prompt": "\\ud800"}',
                b'{"prompt": "\xff"}', deep, b'{"n": ' + b"9" * 5000 + b"}"):  # fmt: skip
        error_of(tiny_server.http.post(text_path, content=raw), 400)


def test_no_chat_template(tiny_server):
    error = error_of(tiny_server.post(chat_path, {"messages": message}), 400)
    assert error["code"] == "no_chat_template"


def test_paths_and_methods(tiny_server):
    assert error_of(tiny_server.http.get("/v1/nothing"), 404)["code"] == "not_found"
    assert error_of(tiny_server.http.get(text_path), 405)["code"] == "method_not_allowed"
    assert error_of(tiny_server.http.get("/v1/models/"), 404)


def test_head_limit(tiny_server):
    """A head without an end is not kept; large ordinary ones are taken."""
    for line in (b"x-long: ", b"GET /"):
        with socket.create_connection(("127.0.0.1", tiny_server.port)) as sock:
            first = b"" if line.startswith(b"GET") else b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
            with pytest.raises(ConnectionError):
                sock.sendall(first + line)
                for _ in range(200):
                    sock.sendall(b"x" * 100_000)
                    time.sleep(0.001)
    fine = {"x-long": "y" * 100_000}
    assert tiny_server.http.get("/health", headers=fine).status_code == 200
    body = {"prompt": [[5]], "user": "x" * 3_000_000, "max_tokens": 1}
    for _ in range(2):  # twice on one connection
        assert tiny_server.post(text_path, body).status_code == 200


def test_body_limit(model_path):
    with conftest.serving(conftest.tiny, *conftest.smaller, "--max-body-bytes", 2000, "--max-n", 2) as s:
        big = {"prompt": "x" * 3000}
        assert error_of(s.post(text_path, big), 413)["code"] == "body_too_large"

        def parts():
            for _ in range(30):
                yield b" " * 100

        assert error_of(s.http.post(text_path, content=parts()), 413)  # no length is stated
        assert error_of(s.post(text_path, {"prompt": [5], "n": 3}), 400)["param"] == "n"
        assert s.post(text_path, {"prompt": [5], "n": 2}).status_code == 200


endless = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True}


@pytest.mark.parametrize("stream", [False, True])
def test_queue_full(model_path, stream):
    options = ("--max-running-seqs", 1, "--max-waiting", 1)
    with conftest.serving(model_path, *conftest.small, *options) as s:
        with s.http.stream("POST", text_path, json=endless):
            body = {"prompt": ["y", "z", "w"], "max_tokens": 1, "stream": stream}
            answer = s.post(text_path, body)
            error = error_of(answer, 429)
            assert error["code"] == "queue_full" and answer.headers["retry-after"]
        s.idle()  # the prompts that did get in were cancelled
        assert s.stats()["requests"]["rejected"] == 1


def test_too_many_requests(model_path):
    with conftest.serving(model_path, *conftest.small, "--max-requests", 1) as s:
        with s.http.stream("POST", text_path, json=endless):
            assert error_of(s.post(text_path, {"prompt": "x"}), 429)["code"] == "queue_full"
        s.idle()
        assert s.post(text_path, {"prompt": "x", "max_tokens": 1}).status_code == 200
