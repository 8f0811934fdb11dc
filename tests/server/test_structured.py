"""Structured output and tools through the official client."""

from __future__ import annotations

import enum
import json
import re
from typing import Annotated

import jsonschema
import openai
import pydantic
import pytest


class Color(enum.Enum):
    red = "red"
    green = "green"


class Ship(pydantic.BaseModel, extra="forbid"):
    name: str = pydantic.Field(max_length=20)
    masts: int = pydantic.Field(ge=0, le=9)
    color: Color
    crew: list[Annotated[str, pydantic.Field(max_length=12)]] = pydantic.Field(max_length=3)
    wreck: bool


question = [{"role": "user", "content": "Describe a sailing ship in JSON."}]
weather = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
clock = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {
            "type": "object",
            "properties": {"zone": {"type": "integer", "minimum": -12, "maximum": 14}},
            "required": ["zone"],
            "additionalProperties": False,
        },
    },
}
ask = [{"role": "user", "content": "What is the weather in Paris?"}]


def chat(client, server, messages=question, **params):
    params = {"max_tokens": 400, "seed": 3} | params
    return client.chat.completions.create(model=server.model, messages=messages, **params)


def test_a_pydantic_model(client, server):
    for seed in range(3):
        answer = client.chat.completions.parse(
            model=server.model, messages=question, response_format=Ship, seed=seed, max_tokens=600
        )
        ship = answer.choices[0].message.parsed
        assert isinstance(ship, Ship) and 0 <= ship.masts <= 9
        assert answer.choices[0].finish_reason == "stop"


def test_a_stream_of_a_pydantic_model(client, server):
    with client.chat.completions.stream(
        model=server.model, messages=question, response_format=Ship, seed=1, max_tokens=600
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Ship) and "content.delta" in kinds


def test_json_object(client, server):
    answer = chat(client, server, response_format={"type": "json_object"}, temperature=0)
    choice = answer.choices[0]
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)
    else:
        assert choice.message.content.lstrip().startswith("{")


def test_random_samples_fit_a_schema(client, server):
    """Hot sampling: it is the guide that makes them fit."""
    schema = Ship.model_json_schema()
    form = {"type": "json_schema", "json_schema": {"name": "ship", "strict": True, "schema": schema}}
    answer = chat(client, server, response_format=form, temperature=1.4, n=4, max_tokens=400)
    for choice in answer.choices:  # all strings are bounded, further keys are not allowed: they end
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), schema)


def test_the_guided_extras(client, server):
    def text(**extra):
        return chat(client, server, temperature=1.5, extra_body=extra).choices[0].message.content

    assert re.fullmatch(r"[A-Z]{3}-\d{4}", text(guided_regex=r"[A-Z]{3}-\d{4}"))
    assert text(guided_choice=["left", "right"]) in ("left", "right")
    assert re.fullmatch("(ab)+c", text(guided_grammar='root ::= ("ab")+ "c"'))
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
              "required": ["n"], "additionalProperties": False}  # fmt: skip
    for given in (schema, json.dumps(schema)):
        assert 0 <= json.loads(text(guided_json=given))["n"] <= 99
    completed = client.completions.create(
        model=server.model, prompt="My favourite:", max_tokens=20,
        extra_body={"guided_choice": ["red", "green"]},
    )  # fmt: skip
    assert completed.choices[0].text in ("red", "green")


@pytest.mark.parametrize("stream", [False, True])
def test_guides_that_cannot_be_served(client, server, stream):
    for extra, param in (
        ({"guided_regex": "(a"}, "guided_regex"),
        ({"guided_grammar": "root = 5"}, "guided_grammar"),
        ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json"),
        ({"guided_json": "{"}, "guided_json"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "string", "format": "no-such"}},
                }
            },
            "response_format",
        ),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, server, stream=stream, extra_body=extra)
        assert error.value.param == param, error.value.body


def calls_of(answer):
    return answer.choices[0].message.tool_calls


def check(call):
    tool = {"get_weather": weather, "get_time": clock}[call.function.name]
    jsonschema.validate(json.loads(call.function.arguments), tool["function"]["parameters"])


def test_a_required_call(client, server):
    for seed in range(3):
        answer = chat(
            client, server, ask, tools=[weather, clock], tool_choice="required", seed=seed,
            temperature=1.3, parallel_tool_calls=False,
        )  # fmt: skip
        assert answer.choices[0].finish_reason == "tool_calls"
        (call,) = calls_of(answer)
        assert call.type == "function" and call.id.startswith("call_")
        check(call)
        assert answer.choices[0].message.content is None


def test_a_named_call(client, server):
    choice = {"type": "function", "function": {"name": "get_time"}}
    answer = chat(client, server, ask, tools=[weather, clock], tool_choice=choice)
    assert {call.function.name for call in calls_of(answer)} == {"get_time"}
    for call in calls_of(answer):
        check(call)


def test_streamed_calls_say_the_same(client, server):
    params = dict(tools=[weather, clock], tool_choice="required", temperature=0)
    whole = chat(client, server, ask, **params)
    calls: dict[int, dict] = {}
    reason, pieces = None, 0
    for chunk in chat(client, server, ask, **params, stream=True):
        choice = chunk.choices[0]
        reason = choice.finish_reason or reason
        for delta in choice.delta.tool_calls or []:
            call = calls.setdefault(delta.index, {"id": None, "name": None, "arguments": ""})
            if delta.id:
                assert call["id"] is None
                call["id"], call["name"] = delta.id, delta.function.name
            call["arguments"] += delta.function.arguments or ""
            pieces += 1
    assert reason == "tool_calls" and pieces > len(calls) + 1
    assert [(c["name"], c["arguments"]) for c in calls.values()] == [
        (c.function.name, c.function.arguments) for c in calls_of(whole)
    ]
    assert len({c["id"] for c in calls.values()}) == len(calls)


def test_pydantic_tools(client, server):
    class GetWeather(pydantic.BaseModel):
        city: str = pydantic.Field(max_length=20)

    answer = client.chat.completions.parse(
        model=server.model, messages=ask, tools=[openai.pydantic_function_tool(GetWeather)],
        tool_choice="required", max_tokens=400, seed=1, parallel_tool_calls=False,
    )  # fmt: skip
    for call in calls_of(answer):
        assert isinstance(call.function.parsed_arguments, GetWeather)


def test_tools_that_are_not_called(client, server):
    plain = chat(client, server, ask, temperature=0, max_tokens=20)
    none = chat(client, server, ask, temperature=0, max_tokens=20, tools=[weather], tool_choice="none")
    assert none.choices[0].message.content == plain.choices[0].message.content
    auto = chat(client, server, ask, temperature=0, max_tokens=100, tools=[weather])
    for call in calls_of(auto) or []:
        check(call)
    assert calls_of(auto) or auto.choices[0].message.content


def test_a_conversation_with_results(client, server):
    answer = chat(client, server, ask, tools=[weather], tool_choice="required", temperature=0)
    call = calls_of(answer)[0]
    messages = [
        *ask,
        answer.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "17 degrees, rain"},
    ]
    final = chat(client, server, messages, tools=[weather], tool_choice="none", max_tokens=30)
    assert final.choices[0].message.content


def test_guided_decoding_can_be_off(model_path):
    import conftest

    with conftest.serving(model_path, *conftest.small, "--enable-guided-decoding", "false") as s:
        for extra in (
            {"response_format": {"type": "json_object"}},
            {"guided_regex": "a"},
            {"tools": [weather], "tool_choice": "required"},
        ):
            body = {"messages": ask, "max_tokens": 2} | extra
            answer = s.post("/v1/chat/completions", body)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "guided_disabled"
        body = {"messages": ask, "max_tokens": 2, "tools": [weather]}
        assert s.post("/v1/chat/completions", body).status_code == 200
