"""Completions, embeddings, tokenize and models."""

from __future__ import annotations

import base64
import struct

import openai
import pytest

start = "The capital of France is"
greedy = dict(temperature=0, max_tokens=8)


def complete(client, server, prompt=start, **params):
    return client.completions.create(model=server.model, prompt=prompt, **params)


def ids_of(server, text):
    return server.post("/tokenize", {"prompt": text}).json()["tokens"]


def test_prompts_of_every_kind(client, server):
    other = "One, two, three,"
    text, more = (complete(client, server, p, **greedy).choices[0].text for p in (start, other))
    assert "Paris" in text and text != more
    ids, more_ids = ids_of(server, start), ids_of(server, other)
    assert complete(client, server, ids, **greedy).choices[0].text == text
    for prompts in ([start, other], [ids, more_ids]):
        answer = complete(client, server, prompts, **greedy)
        assert [c.text for c in answer.choices] == [text, more]
        assert [c.index for c in answer.choices] == [0, 1]
        assert answer.usage.prompt_tokens == len(ids) + len(more_ids)
        assert answer.usage.completion_tokens == 16


def test_prompts_times_n(client, server):
    params = dict(n=2, seed=5, temperature=1.2, max_tokens=8)
    answer = complete(client, server, [start, "Once"], **params)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    texts = [""] * 4
    for chunk in complete(client, server, [start, "Once"], **params, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [c.text for c in answer.choices]
    alone = complete(client, server, "Once", seed=6, temperature=1.2, max_tokens=8)
    assert alone.choices[0].text == texts[3]


def test_default_length_is_16(client, server):
    answer = complete(client, server, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16 and answer.choices[0].finish_reason == "length"


def test_stream_with_usage(client, server):
    options = {"include_usage": True}
    chunks = list(complete(client, server, **greedy, stream=True, stream_options=options))
    text = "".join(c.choices[0].text for c in chunks if c.choices)
    assert text == complete(client, server, **greedy).choices[0].text
    assert chunks[-1].usage.completion_tokens == 8 and chunks[-1].choices == []
    assert chunks[-2].choices[0].finish_reason == "length"


def test_logprobs(client, server):
    choice = complete(client, server, **greedy, logprobs=2).choices[0]
    table = choice.logprobs
    assert "".join(table.tokens) == choice.text and len(table.token_logprobs) == 8
    for token, logprob, row, offset in zip(
        table.tokens, table.token_logprobs, table.top_logprobs, table.text_offset
    ):
        assert len(row) == 2 and row[token] == logprob == max(row.values())
        assert choice.text[offset:].startswith(token)
    streamed = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for chunk in complete(client, server, **greedy, logprobs=2, stream=True):
        if chunk.choices[0].logprobs:
            for name in streamed:
                streamed[name] += getattr(chunk.choices[0].logprobs, name)
    assert streamed == {name: getattr(table, name) for name in streamed}


def test_echo(client, server):
    plain = complete(client, server, **greedy).choices[0].text
    assert complete(client, server, **greedy, echo=True).choices[0].text == start + plain
    ids = ids_of(server, start)
    assert complete(client, server, ids, **greedy, echo=True).choices[0].text == start + plain
    streamed = "".join(
        c.choices[0].text for c in complete(client, server, **greedy, echo=True, stream=True)
    )
    assert streamed == start + plain
    only = complete(client, server, temperature=0, max_tokens=0, echo=True, logprobs=1).choices[0]
    assert only.text == start and only.finish_reason == "length"
    assert len(only.logprobs.tokens) == len(ids) and "".join(only.logprobs.tokens) == start
    assert only.logprobs.token_logprobs[0] is None and only.logprobs.top_logprobs[0] is None
    assert all(p < 0 for p in only.logprobs.token_logprobs[1:])
    both = complete(client, server, **greedy, echo=True, logprobs=1).choices[0]
    values = both.logprobs.token_logprobs[1 : len(ids)]
    assert values == pytest.approx(only.logprobs.token_logprobs[1:], abs=1e-4)
    assert "".join(both.logprobs.tokens) == both.text
    for token, offset in zip(both.logprobs.tokens, both.logprobs.text_offset):
        assert both.text[offset:].startswith(token)
    many = complete(client, server, n=2, seed=1, max_tokens=4, echo=True, logprobs=0)
    assert all(c.text.startswith(start) for c in many.choices)
    assert all(len(c.logprobs.tokens) == len(ids) + 4 for c in many.choices)


def test_logprobs_of_bytes(client, server):
    """Tokens that are parts of a code point are written by their bytes, and nothing is lost."""
    text = "🙂🙃"
    choice = complete(client, server, text, max_tokens=0, echo=True, logprobs=0).choices[0]
    assert choice.text == text and any(t.startswith("bytes:\\x") for t in choice.logprobs.tokens)
    raw = b"".join(
        bytes.fromhex(t.removeprefix("bytes:").replace("\\x", "")) if t.startswith("bytes:") else t.encode()
        for t in choice.logprobs.tokens
    )
    assert raw.decode() == text
    assert choice.logprobs.text_offset[0] == 0 and max(choice.logprobs.text_offset) <= 1


def test_refused(client, server):
    for params, param in (
        (dict(best_of=3), "best_of"),
        (dict(suffix="x"), "suffix"),
        (dict(max_tokens=0), "max_tokens"),
        (dict(logprobs=21), "logprobs"),
        (dict(prompt=""), "prompt"),
        (dict(prompt=[]), "prompt"),
        (dict(prompt=["a", [1]], n=2, logprobs=True), "logprobs"),
        (dict(prompt=[1, "a"]), "prompt"),
        (dict(prompt=[99_999_999]), "prompt"),
        (dict(prompt=["a"] * 200, n=100), "prompt"),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            complete(client, server, **params)
        assert error.value.param == param, (params, error.value.body)


def test_tokenize(server):
    answer = server.post("/tokenize", {"prompt": start, "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert "".join(answer["token_strs"]) == start and answer["max_model_len"] == 2048
    back = server.post("/detokenize", {"tokens": answer["tokens"]}).json()
    assert back == {"prompt": start}
    assert server.post("/tokenize", {}).status_code == 400
    assert server.post("/detokenize", {"tokens": [10**8]}).status_code == 400


def test_models(client, server):
    (model,) = client.models.list().data
    assert model.id == server.model and model.object == "model" and model.owned_by == "orlop"
    assert client.models.retrieve(server.model).id == server.model
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("gpt/4o")
    assert error.value.code == "model_not_found"


def test_embeddings(client, server):
    texts = ["A cat sat on the mat.", "A kitten lay on the rug.", "Interest rates rose sharply."]
    answer = client.embeddings.create(model=server.model, input=texts)
    vectors = [item.embedding for item in answer.data]
    assert [item.index for item in answer.data] == [0, 1, 2]

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b))

    assert all(len(v) == 576 and dot(v, v) == pytest.approx(1, abs=1e-4) for v in vectors)
    assert dot(vectors[0], vectors[1]) > dot(vectors[0], vectors[2])
    assert answer.usage.prompt_tokens == sum(len(ids_of(server, t)) for t in texts)
    # The client asks for base64 by itself; both forms agree.
    plain = client.embeddings.create(model=server.model, input=texts[0], encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(vectors[0], abs=1e-6)
    coded = server.post(
        "/v1/embeddings", {"input": ids_of(server, texts[0]), "encoding_format": "base64"}
    ).json()["data"][0]["embedding"]
    assert list(struct.unpack("<576f", base64.b64decode(coded))) == pytest.approx(vectors[0], abs=1e-6)
    last = client.embeddings.create(model=server.model, input=texts[0], extra_body={"pooling": "last"})
    assert last.data[0].embedding != vectors[0]
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(model=server.model, input="x", dimensions=64)
    assert error.value.param == "dimensions"
