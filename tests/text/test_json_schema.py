"""JSON Schema as grammar, against Python's jsonschema.

The schema_tool executable beside the one that ORLOP_TEMPLATE_TOOL names makes grammars, samples texts
of their rules, and feeds texts to their automata.
"""
import json
import os
import pathlib
import subprocess

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from schema_cases import ANY, schemas

BESIDE = os.environ.get("ORLOP_TEMPLATE_TOOL")
TOOL = BESIDE and pathlib.Path(BESIDE).with_name("schema_tool")
ROUNDS = int(os.environ.get("ORLOP_SCHEMA_ROUNDS", "150"))

pytestmark = pytest.mark.skipif(not TOOL, reason="ORLOP_TEMPLATE_TOOL is not set")
lasting = settings(max_examples=ROUNDS, deadline=None,
                   suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much,
                                          HealthCheck.data_too_large, HealthCheck.function_scoped_fixture])


class Tool:
    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, schema, **request):
        line = json.dumps({"schema": schema, **request}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"schema_tool ended with {self.process.wait()} on {line}"
        answer = json.loads(answer)
        assert answer.get("status") != 0, answer
        return answer

    def takes(self, schema, *texts):
        """Whether the whole of each text is taken."""
        answer = self(schema, texts=list(texts))
        assert "error" not in answer, answer
        return [taken == len(t.encode()) and complete
                for t, (taken, complete) in zip(texts, answer["accepted"], strict=True)]


@pytest.fixture(scope="module")
def tool():
    tool = Tool()
    yield tool
    tool.process.stdin.close()
    assert tool.process.wait() == 0


def validator(schema):
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def once(pairs):
    """Objects whose keys come once. What is not named may come twice; readers keep the last."""
    return dict(pairs)


@lasting
@given(schemas(), st.integers(0, 2**32), st.integers(20, 400))
def test_samples_validate(tool, case, seed, steps):
    schema, instance = case
    answer = tool(schema, samples=8, seed=seed, steps=steps)
    if "error" in answer:
        assert instance is None, answer  # has valid instances, so it must be a grammar
        return
    check = validator(schema)
    for text in answer["samples"]:
        value = json.loads(text, object_pairs_hook=once, parse_constant=lambda c: pytest.fail(c))
        for error in check.iter_errors(value):
            pytest.fail(f"{text}: {error.message}")
    assert all(tool.takes(schema, *answer["samples"]))


@lasting
@given(schemas(), st.data())
def test_valid_instances_are_taken(tool, case, data):
    schema, instance = case
    assume(instance is not None)
    value = data.draw(instance)
    validator(schema).validate(value)  # the test's own construction
    texts = [json.dumps(value, ensure_ascii=False, separators=s) for s in ((",", ":"), (", ", ": "))]
    texts += [json.dumps(value, ensure_ascii=False, indent=n) for n in (1, 2)]
    assert tool.takes(schema, *texts) == [True] * 4


def changed(value, data):
    """Something near the value."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        out = dict(value)
        key = data.draw(st.sampled_from(sorted(out)))
        how = data.draw(st.sampled_from(["drop", "change", "rename"]))
        old = out.pop(key)
        if how == "change":
            return {k: changed(v, data) if k == key else v for k, v in value.items()}
        if how == "rename":
            out[key + "x"] = old
        return out
    if isinstance(value, list) and value and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value) - 1))
        how = data.draw(st.sampled_from(["drop", "change", "twice"]))
        new = {"drop": [], "change": [changed(value[at], data)], "twice": [value[at]] * 2}[how] if how != "change" \
            else [changed(value[at], data)]
        return value[:at] + new + value[at + 1:]
    if isinstance(value, str) and data.draw(st.booleans()):
        return value + data.draw(st.text(max_size=2))
    if type(value) is int and data.draw(st.booleans()):
        return value + data.draw(st.integers(-200, 200))
    return data.draw(ANY)


@lasting
@given(schemas(), st.data())
def test_invalid_instances_are_refused(tool, case, data):
    schema, instance = case
    values = [data.draw(ANY)]
    if instance is not None:
        near = data.draw(instance)
        values += [changed(near, data) for _ in range(3)]
    check = validator(schema)
    bad = [v for v in values if not check.is_valid(v)]
    assume(bad)
    answer = tool(schema, texts=[json.dumps(v, ensure_ascii=False) for v in bad])
    if "error" in answer:
        assert instance is None, answer
        return
    for value, (taken, complete) in zip(bad, answer["accepted"], strict=True):
        note(json.dumps(value))
        assert not (complete and taken == len(json.dumps(value, ensure_ascii=False).encode()))


@lasting
@given(schemas(), st.sampled_from(["not", "if", "contains", "propertyNames", "unevaluatedProperties", "dependentSchemas",
                                   "unknownKeyword"]), st.data())
def test_unsupported_keywords_are_refused_wherever_they_are(tool, case, keyword, data):
    schema, _ = case
    assume(isinstance(schema, dict))
    places = []

    def walk(at, path):
        places.append((at, path))
        for key in ("items", "additionalProperties"):
            if isinstance(at.get(key), dict):
                walk(at[key], f"{path}/{key}")
        for key in ("properties", "patternProperties"):
            for name, one in at.get(key, {}).items():
                if isinstance(one, dict):
                    walk(one, f"{path}/{key}/" + name.replace("~", "~0").replace("/", "~1"))
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for i, one in enumerate(at.get(key, [])):
                if isinstance(one, dict):
                    walk(one, f"{path}/{key}/{i}")

    schema = json.loads(json.dumps(schema))
    walk(schema, "")
    at, path = data.draw(st.sampled_from(places))
    at[keyword] = {}
    answer = tool(schema)
    assert answer.get("error", "").startswith(f"{path}/{keyword}: not supported: "), answer


@lasting
@given(st.recursive(
    st.one_of(ANY, st.sampled_from(["#", "#/$defs/a", "#/items", "^a|b$", "string", "integer", "date", "(a+)+b"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(
        ["type", "enum", "const", "properties", "required", "additionalProperties", "patternProperties", "items",
         "prefixItems", "minItems", "maxItems", "minLength", "pattern", "format", "minimum", "maximum", "multipleOf",
         "anyOf", "oneOf", "allOf", "$ref", "$defs", "a", "nullable", "minProperties", "maxProperties"]), inner,
        max_size=4)), max_leaves=20))
def test_anything_is_a_grammar_or_a_typed_error(tool, schema):
    answer = tool(schema, samples=2, steps=50)
    if "error" in answer:
        assert answer["status"] in (-1, -5)
        assert answer["error"]


def test_a_model_of_pydantic(tool):
    pydantic = pytest.importorskip("pydantic")
    from datetime import date
    from enum import Enum
    from typing import Literal, Optional, Union

    class Colour(Enum):
        red = "red"
        blue = "blue"

    class Cat(pydantic.BaseModel):
        kind: Literal["cat"]
        lives: int = pydantic.Field(ge=1, le=9)

    class Dog(pydantic.BaseModel):
        kind: Literal["dog"]
        name: str = pydantic.Field(pattern=r"^[A-Z][a-z]+$", max_length=12)

    class Person(pydantic.BaseModel):
        name: str
        born: Optional[date] = None
        pets: list[Union[Cat, Dog]] = pydantic.Field(max_length=3)
        likes: dict[str, float] = {}
        colour: Colour = Colour.red
        best: Union[Cat, Dog] = pydantic.Field(discriminator="kind")
        parent: Optional["Person"] = None

    schema = Person.model_json_schema()
    person = Person(name="A \"b\"", born=date(2000, 2, 29), pets=[Cat(kind="cat", lives=9), Dog(kind="dog", name="Rex")],
                    likes={"tea": 0.5}, colour=Colour.blue, best=Dog(kind="dog", name="Rex"),
                    parent=Person(name="", pets=[], best=Cat(kind="cat", lives=1)))
    good = person.model_dump_json()
    assert tool.takes(schema, good, good.replace('"lives":9', '"lives":10'), good.replace("Rex", "rex"),
                      good.replace("02-29", "02-30"), good.replace("blue", "green")) == [True] + [False] * 4
    for text in tool(schema, samples=40)["samples"]:
        Person.model_validate_json(text)
