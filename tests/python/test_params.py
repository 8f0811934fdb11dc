"""Parameters: names, types and ranges are checked before anything runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orlop

prompt = [5, 6, 7]

integers = ("max_tokens", "min_tokens", "top_k", "seed", "logprobs", "prompt_logprobs", "n")
numbers = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
flags = ("ignore_eos", "add_bos", "parse_special", "keep_special")


def submit(engine, **params):
    params.setdefault("max_tokens", 2)
    with engine.async_generate(tokens=prompt, **params) as request:
        return request.result()


def test_unknown_names_the_nearest(tiny_engine):
    with pytest.raises(TypeError, match="'temperatur'.*'temperature'"):
        submit(tiny_engine, temperatur=1.0)
    with pytest.raises(TypeError, match="unknown parameter 'zzz'; known are:.*max_tokens"):
        submit(tiny_engine, zzz=1)
    with pytest.raises(TypeError, match="'max_token'.*'max_tokens'"):  # not even None
        submit(tiny_engine, max_token=None)
    with pytest.raises(TypeError, match="not both"):
        submit(tiny_engine, stop_tokens=[5], stop_token_ids=[5])


@pytest.mark.parametrize("name", integers)
@pytest.mark.parametrize("value", [True, 1.0, "1", b"1", [1], math.nan])
def test_integers_refuse_other_types(tiny_engine, name, value):
    with pytest.raises(TypeError, match=f"{name} must be an integer"):
        submit(tiny_engine, **{name: value})


@pytest.mark.parametrize("name", numbers)
@pytest.mark.parametrize("value", [True, "1", b"1", [1.0], 1j])
def test_numbers_refuse_other_types(tiny_engine, name, value):
    with pytest.raises(TypeError, match=f"{name} must be a number"):
        submit(tiny_engine, **{name: value})


@pytest.mark.parametrize("name", numbers)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e300, -1e308, 10**400])
def test_numbers_refuse_what_is_no_number(tiny_engine, name, value):
    with pytest.raises(orlop.InvalidArgumentError, match=name) as caught:
        submit(tiny_engine, **{name: value})
    assert isinstance(caught.value, ValueError) and caught.value.code == -1


@pytest.mark.parametrize("name", flags)
@pytest.mark.parametrize("value", [0, 1, "yes", 1.0])
def test_flags_are_booleans(tiny_engine, name, value):
    with pytest.raises(TypeError, match=f"{name} must be True or False"):
        submit(tiny_engine, **{name: value})


@pytest.mark.parametrize(
    "name, value",
    [
        ("max_tokens", -1),
        ("max_tokens", 2**32 - 1),  # the mark for "unset" must not slip through
        ("max_tokens", 2**32),
        ("max_tokens", 2**64 + 5),
        ("min_tokens", -1),
        ("min_tokens", 2**32),
        ("top_k", -1),
        ("top_k", -(2**31)),
        ("top_k", 2**31),
        ("seed", -1),
        ("seed", 2**64),
        ("logprobs", -2),
        ("logprobs", 2**31),
        ("prompt_logprobs", -2),
        ("n", -1),
        ("n", 2**32),
        ("n", 0),
        ("temperature", -0.1),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.0),
        ("presence_penalty", -2.1),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", 2.1),
        ("stop", "\ud800"),
        ("stop_token_ids", [131]),  # the vocabulary has 131
        ("stop_tokens", [131]),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [2**31]),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {131: 1.0}),
        ("logit_bias", {2**31: 1.0}),
        ("logit_bias", {3: math.nan}),
        ("logit_bias", {3: math.inf}),
        ("logit_bias", {3: 1e39}),  # no float32
    ],
)
def test_values_out_of_range_name_the_field(tiny_engine, name, value):
    with pytest.raises(ValueError, match=name):
        submit(tiny_engine, **{name: value})


@pytest.mark.parametrize(
    "name, value",
    [
        ("stop", 5),
        ("stop", b"x"),
        ("stop", [5]),
        ("stop_token_ids", 5),
        ("stop_token_ids", "5"),
        ("stop_token_ids", ["5"]),
        ("stop_token_ids", [True]),
        ("logit_bias", [(3, 1.0)]),
        ("logit_bias", {"3": 1.0}),
        ("logit_bias", {3: "1"}),
        ("logit_bias", {True: 1.0}),
    ],
)
def test_wrong_containers_name_the_field(tiny_engine, name, value):
    with pytest.raises(TypeError, match=name):
        submit(tiny_engine, **{name: value})


def test_stops_are_checked(engine):
    for bad in ("", ["a", ""], ["x"] * 1000, "x" * 10_000):
        with pytest.raises(ValueError, match="stop"):
            engine.async_generate("x", stop=bad)
    assert engine.generate("x", stop=[], max_tokens=1).finish_reason == "length"


def test_none_is_the_default(tiny_engine):
    params = dict.fromkeys(integers[1:] + numbers + flags + ("stop", "stop_token_ids", "logit_bias"))
    assert len(submit(tiny_engine, **params).tokens) <= 2


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_seed_is_used_and_reported(tiny_engine, seed):
    first = submit(tiny_engine, seed=seed, max_tokens=20, temperature=1.0, ignore_eos=True)
    again = submit(tiny_engine, seed=seed, max_tokens=20, temperature=1.0, ignore_eos=True)
    assert first.tokens == again.tokens and len(first.tokens) == 20
    assert first.status.seed == seed


def test_drawn_seed_reproduces(tiny_engine):
    kept = dict(max_tokens=20, temperature=1.0, ignore_eos=True)
    first, second = submit(tiny_engine, **kept), submit(tiny_engine, **kept)
    assert first.status.seed != second.status.seed
    assert submit(tiny_engine, seed=first.status.seed, **kept).tokens == first.tokens


def test_indexable_and_numpy_numbers(tiny_engine):
    np = pytest.importorskip("numpy")
    result = submit(
        tiny_engine,
        max_tokens=np.int64(3),
        temperature=np.float32(0),
        stop_token_ids=np.array([130], dtype=np.int32),
        logit_bias={np.int64(130): np.float64("-inf")},
        ignore_eos=True,
    )
    assert len(result.tokens) == 3
    ids = np.array(prompt, dtype=np.int64)
    greedy = dict(max_tokens=3, temperature=0)
    assert tiny_engine.generate(tokens=ids, **greedy).tokens == submit(tiny_engine, **(greedy)).tokens


def test_prompt_forms(tiny_engine, engine):
    for bad in (
        {},
        {"prompt": "a", "tokens": [1]},
        {"tokens": [1], "messages": [{"role": "user", "content": "x"}]},
        {"prompt": 5},
        {"prompt": b"text"},
        {"prompt": {"role": "user"}},
        {"tokens": 5},
        {"tokens": "abc"},
        {"tokens": [1.5]},
        {"tokens": [True]},
        {"messages": "hello"},
        {"prompt": "a", "tools": []},
        {"prompt": "a", "add_generation_prompt": True},
        {"messages": [{"role": "user", "content": "x"}], "template_vars": {"messages": []}},
        {"messages": [{"role": "user", "content": object()}]},
    ):
        with pytest.raises(TypeError):
            tiny_engine.async_generate(**bad)
    for bad in (
        {"tokens": []},
        {"tokens": [-1]},
        {"tokens": [131]},
        {"tokens": [2**31]},
        {"tokens": [2**70]},
    ):
        with pytest.raises(ValueError, match="tokens|prompt"):
            tiny_engine.async_generate(**bad)
    for bad in ({"prompt": ""}, {"prompt": "\udcff"}, {"messages": []}):
        with pytest.raises(ValueError):
            engine.async_generate(**bad)
    with pytest.raises(ValueError, match="surrogate"):
        engine.async_generate(messages=[{"role": "user", "content": "\udcff"}])
    with pytest.raises(ValueError, match="messages"):
        engine.async_generate(messages=[{"role": "user", "content": math.nan}])


def test_text_needs_a_tokenizer(tiny_engine):
    with pytest.raises(orlop.UnsupportedError, match="tokenizer"):
        tiny_engine.async_generate("text")
    with pytest.raises(orlop.UnsupportedError, match="tokenizer"):
        tiny_engine.encode("text")


def test_edges_work(tiny_engine):
    assert submit(tiny_engine, max_tokens=0).tokens == []
    assert submit(tiny_engine, max_tokens=0).finish_reason == "length"
    best = submit(tiny_engine, temperature=0, max_tokens=6, ignore_eos=True).tokens
    for same in ({"top_p": 0.0}, {"top_k": 1}, {"min_p": 1.0}):
        got = submit(tiny_engine, temperature=1.0, max_tokens=6, ignore_eos=True, **same)
        assert got.tokens == best, same
    free = dict(seed=3, temperature=1.0, max_tokens=20, ignore_eos=True)
    plain = submit(tiny_engine, **free).tokens
    assert submit(tiny_engine, top_k=0, top_p=1, min_p=0, repetition_penalty=1, **free).tokens == plain
    forbidden = submit(
        tiny_engine, logit_bias={best[0]: -math.inf}, temperature=0, ignore_eos=True, max_tokens=6
    )
    assert best[0] not in forbidden.tokens
    forced = submit(tiny_engine, logit_bias={9: 1000.0}, temperature=0, max_tokens=4)
    assert forced.tokens == [9] * 4


def test_context_overflow_has_both_counts(tiny_engine):
    with pytest.raises(orlop.ContextOverflowError, match="(?s)600.*512|512.*600") as caught:
        tiny_engine.async_generate(tokens=[5] * 600)
    assert caught.value.code == -7


# Whatever the value: it is refused in words or it works; never a wrap, a crash or a hang.
@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(integers + numbers + flags + ("stop", "stop_token_ids", "logit_bias", "x")),
    value=st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-5, 5)
    | st.floats()
    | st.text(max_size=4)
    | st.lists(st.integers(-3, 200), max_size=3)
    | st.dictionaries(st.integers(-3, 200), st.floats(), max_size=3),
)
def test_any_value(tiny_engine, name, value):
    try:
        result = submit(tiny_engine, **{"max_tokens": 1, name: value} if name != "max_tokens" else
                        {"max_tokens": min(value, 3) if type(value) is int else value})
    except (TypeError, ValueError, orlop.UnsupportedError) as error:
        assert name in str(error)
    else:
        assert result.finish_reason in ("stop", "length")


@pytest.mark.parametrize("timeout, error", [(-1, ValueError), (math.nan, ValueError),
                                            ("1", TypeError), (True, TypeError)])
def test_timeouts(tiny_engine, timeout, error):
    with tiny_engine.async_generate(tokens=prompt, max_tokens=1) as request:
        with pytest.raises(error, match="timeout"):
            request.get(timeout)
        assert request.get(math.inf) is not None
