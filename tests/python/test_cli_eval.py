"""orlop eval with models and reference files that are not as they should be."""

from __future__ import annotations

import json
import math
import shutil

import gguf
import pytest

from test_cli import few, run

options = ["-q", *few]


@pytest.fixture(scope="module")
def scaled(model_path, tmp_path_factory):
    """The demo model with its last norm, and so all logits, times a factor."""
    path = tmp_path_factory.mktemp("scaled") / "scaled.gguf"
    shutil.copy(model_path, path)
    norm = next(t for t in gguf.GGUFReader(path).tensors if t.name == "output_norm.weight")
    weights, offset = norm.data.copy(), int(norm.data_offset)
    del norm

    def scale(factor):
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write((weights * weights.dtype.type(factor)).tobytes())
        return path

    return scale


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The orlop is the lowest deck of a ship, above the hold.")
    return path


@pytest.fixture
def reference(tmp_path):
    path = tmp_path / "reference.json"

    def write(content):
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


good = {"text": "The capital", "ids": [504, 3575], "prompt_logprobs": [-11.5], "greedy": [282],
        "greedy_margin": [1]}


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} in {text}")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("factor", [1e3, 1e30])
def test_huge_logits(scaled, text, reference, factor):
    path = scaled(factor)
    done = run("eval", path, text, *options)
    assert done.stdout.startswith("perplexity inf (beyond a double: exp of ")
    found = strict(run("eval", path, text, "--json", *options).stdout)["perplexity"]
    assert found["perplexity"] is None and found["mean_nll"] > 700
    assert "null" in run("eval", "--help").stdout
    found = strict(run("eval", path, "--reference", reference([good]), "--json", *options).stdout)
    assert found["agreement"]["mean_logprob_error"] > 100


def test_a_model_of_nan(scaled, text, reference):
    path = scaled(math.nan)
    for words in ((text,), (text, "--json"), ("--reference", reference([good]), "--json")):
        done = run("eval", path, *words, *options, code=1)
        assert done.stdout == ""
        assert done.stderr == (
            "orlop: error: prompt_logprobs: the model's logits after token 0 are no numbers\n"
        )
        assert done.stderr.count("\n") == 1


def test_json_has_no_infinity():
    from orlop.cli.eval import _exp, _json_safe

    assert _json_safe({"a": [math.inf, 1.5, {"b": -math.inf}], "c": "inf"}) == {
        "a": [None, 1.5, {"b": None}], "c": "inf"}
    assert _exp(1e4) == math.inf and _exp(0.0) == 1.0


@pytest.mark.parametrize("value", ["nan", "inf", "wide"])
def test_margins_are_numbers(value):
    done = run("eval", "none.gguf", "--reference", "none.json", "--margin", value, code=2)
    assert "--margin" in done.stderr and value in done.stderr


@pytest.mark.parametrize("content, words", [
    ("[", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("NaN", "NaN is not a JSON number"),
    ({}, "must be a JSON array"),
    ([], "must be a JSON array"),
    ([good, 5], "entry 1: must be an object, not a number"),
    ([{"text": "x", "ids": [1]}], "entry 0: lacks prompt_logprobs, greedy, greedy_margin"),
    ([good | {"text": 5}], "entry 0: text must be a string, not a number"),
    ([good | {"text": "\ud800"}], "entry 0: text holds a lone surrogate"),
    ([good, good | {"ids": [1, "x"]}], 'entry 1: ids[1] must be a token id, got "x"'),
    ([good | {"ids": 3}], "entry 0: ids must be an array, not a number"),
    ([good | {"ids": None}], "entry 0: ids must be an array, not null"),
    ([good | {"ids": [504, -1]}], "entry 0: ids[1] must be a token id, got -1"),
    ([good | {"ids": [504, 1.5]}], "entry 0: ids[1] must be a token id, got 1.5"),
    ([good | {"ids": [True, 5]}], "entry 0: ids[0] must be a token id, got true"),
    ([good | {"ids": [504, 2**31]}], "entry 0: ids[1] must be a token id, got 2147483648"),
    ([good | {"ids": [504, 49152]}], "entry 0: ids[1] is 49152, but the model's vocabulary has"),
    ([good | {"ids": []}], "entry 0: ids is empty"),
    ([good | {"greedy": {}}], "entry 0: greedy must be an array, not an object"),
    ([good | {"greedy": [[5]]}], "entry 0: greedy[0] must be a token id, got [5]"),
    ([good | {"prompt_logprobs": [None]}],
     "entry 0: prompt_logprobs[0] must be a finite number, got null"),
    (json.dumps([good]).replace("-11.5", "1e999"),
     "entry 0: prompt_logprobs[0] must be a finite number, got Infinity"),
    ([good | {"prompt_logprobs": [10**400]}],
     "entry 0: prompt_logprobs[0] must be a finite number"),
    ([good | {"prompt_logprobs": []}],
     "entry 0: prompt_logprobs must have 1 values for 2 of ids, got 0"),
    ([good | {"greedy_margin": "x"}], "entry 0: greedy_margin must be an array, not a string"),
    ([good | {"greedy_margin": ["x"]}],
     'entry 0: greedy_margin[0] must be a finite number, got "x"'),
    ([good | {"greedy_margin": [1, 2]}],
     "entry 0: greedy_margin must have 1 values for 1 of greedy, got 2"),
    ([good | {"greedy": [5] * 2000, "greedy_margin": [1] * 2000}],
     "entry 0: ids and greedy have 2002 tokens, but the context holds 1024"),
])
def test_malformed_references(model_path, reference, content, words):
    done = run("eval", model_path, "--reference", reference(content), *options, code=1)
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith("orlop: error: ") and "reference.json: " in done.stderr
    assert words in done.stderr


def test_a_good_reference(model_path, reference):
    done = run("eval", model_path, "--reference", reference([good]), *options)
    assert "token ids agree: 1 of 1" in done.stdout
