"""JSON Schema guides: which texts they take, what they refuse, and that whatever a model writes under one
validates with jsonschema. Property tests on generated schemas: tests/text/test_json_schema.py."""

from __future__ import annotations

import json

import pytest

import orlop

jsonschema = pytest.importorskip("jsonschema")

person = {
    "$defs": {"person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "b\n", "é"]}, "maxItems": 3},
            "parent": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "null"}]},
        },
        "required": ["name", "parent"],
        "additionalProperties": False,
    }},
    "$ref": "#/$defs/person",
}

# Every one of them ends soon, whatever is chosen at random.
schemas = {
    "integer": {"type": "integer", "exclusiveMinimum": -17, "maximum": 123456789},
    "multiple": {"type": "integer", "multipleOf": 37},
    "number": {"type": "number", "minimum": -0.125, "exclusiveMaximum": 31.5},
    "any number": {"type": "number"},
    "enum": {"enum": ["x", "xy", 3, 2.5, None, {"k": [True]}]},
    "string": {"type": "string", "minLength": 3, "maxLength": 6},
    "pattern": {"type": "string", "pattern": r"^[\p{L}\d\"\\]{2,5}$"},
    "pattern and length": {"type": "string", "pattern": r"^\w+( \w+)*$", "maxLength": 12},
    **{f: {"type": "string", "format": f} for f in ("date", "time", "date-time", "uuid", "ipv4", "ipv6")},
    "mail": {"type": "string", "format": "email", "maxLength": 30},
    "uri": {"type": "string", "format": "uri", "maxLength": 40},
    "list": {"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}],
             "items": {"type": "integer", "minimum": 5, "maximum": 95}, "minItems": 1, "maxItems": 6},
    "map": {"type": "object", "patternProperties": {"^[a-c]{1,3}$": {"type": "boolean"}},
            "additionalProperties": False, "minProperties": 1, "maxProperties": 3},
    "union": {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer", "maximum": 9, "minimum": 0}},
         "required": ["kind", "x"], "additionalProperties": False},
        {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"], "additionalProperties": False},
    ]},
    "nullable": {"allOf": [{"type": ["string", "null"]}, {"maxLength": 2}], "type": ["null", "string", "integer"]},
}


def holds(schema, value):
    cls = jsonschema.Draft202012Validator
    cls(schema, format_checker=cls.FORMAT_CHECKER).validate(value)


@pytest.mark.parametrize("name", schemas)
def test_what_a_model_writes_validates(engine, name):
    """At this temperature all that is allowed is about as likely."""
    schema = schemas[name]
    if r"\p" not in schema.get("pattern", ""):  # which Python's re does not know
        jsonschema.Draft202012Validator.check_schema(schema)
    guide = {"json_schema": schema}
    running = [engine.async_generate("JSON:", guide=guide, max_tokens=150, temperature=80.0, seed=seed) for seed in range(4)]
    ended = 0
    for request in running:
        text = request.result().text
        taken, complete = orlop.guide_check(guide, text)
        assert taken == len(text.encode())
        if complete:
            ended += 1
            value = json.loads(text)
            if r"\p" in schema.get("pattern", ""):
                assert 2 <= len(value) <= 5
            else:
                holds(schema, value)
    assert ended == len(running)


def test_a_recursive_schema(engine):
    guide = {"json_schema": json.dumps(person)}
    for seed in range(3):
        text = engine.generate("A person:", guide=guide, max_tokens=300, temperature=1.0, seed=seed).text
        taken, complete = orlop.guide_check(guide, text)
        assert taken == len(text.encode())
        if complete:
            holds(person, json.loads(text))


def test_guide_check():
    guide = {"json_schema": person}
    good = {"name": "Ann", "age": 3, "tags": ["b\n"], "parent": {"name": "B", "parent": None}}
    for indent in (None, 1, 2, 4):
        text = json.dumps(good, ensure_ascii=False, indent=indent)
        assert orlop.guide_check(guide, text) == (len(text.encode()), True)
    compact = json.dumps(good, separators=(",", ":"))
    assert orlop.guide_check(guide, compact) == (len(compact), True)
    for bad, at in (('{"age": 3', 2), ('{"name": ""', 10), ('{"name": "Ann", "age": 151', 25), ('{"name":"Ann","tags":["c"', 23),
                    ('{"name":"Ann"}', 13), ('{"name":"Ann","name"', 15)):
        assert orlop.guide_check(guide, bad) == (at, False), bad


@pytest.mark.parametrize("schema, error, words", [
    ({"properties": {"a": {"uniqueItems": True}}}, orlop.UnsupportedError, "/properties/a/uniqueItems: not supported: "),
    ({"items": {"not": {}}}, orlop.UnsupportedError, "/items/not: not supported: "),
    ({"minLenght": 1}, orlop.UnsupportedError, "did you mean minLength?"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, orlop.UnsupportedError, "/oneOf: not supported: "),
    ({"$ref": "#"}, orlop.InvalidArgumentError, "/$ref: a schema that refers to itself"),
    ({"$ref": "#/$defs/x"}, orlop.InvalidArgumentError, "leads nowhere"),
    ({"type": "text"}, orlop.InvalidArgumentError, "/type: must be"),
    (False, orlop.InvalidArgumentError, "no value is valid"),
])
def test_refused(schema, error, words):
    with pytest.raises(error, match=".*") as told:
        orlop.guide_check({"json_schema": schema}, "")
    assert words in str(told.value)
