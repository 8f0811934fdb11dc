"""JSON schemas for property tests, each with a way to draw instances that are valid by construction and
written as the grammar writes them: keys in the schema's order, others after them."""

import json
import re

from hypothesis import strategies as st

TEXT = st.text(max_size=8)
NAMES = st.one_of(st.sampled_from(["a", "ab", "b", "id", "näme", 'q"\\', "n\n", ""]), st.text(max_size=4))
PATTERNS = [r"^[a-z]+$", r"^\d{2,4}$", r"b", r"^a.c", r"\w x?\d", r"[\"\\/]x$", r"^(ab|c)*$", r"^[^a-c]{1,3}$",
            r"^\p{L}+$", r"^$|^x", r"é+"]
FORMATS = {
    "date": st.dates().map(str),
    "time": st.times().map(lambda t: t.strftime("%H:%M:%S") + "Z"),
    "date-time": st.datetimes().map(lambda t: t.isoformat() + "+01:30"),
    "uuid": st.uuids().map(str),
    "duration": st.sampled_from(["P1Y2M3DT4H5M6S", "P12W", "PT0S", "P1M", "P2DT3H"]),
    "ipv4": st.ip_addresses(v=4).map(str),
    "ipv6": st.ip_addresses(v=6).map(str),
    "email": st.from_regex(r"[a-z0-9+]{1,8}(\.[a-z]{1,5})?@[a-z]{1,9}\.(com|org)", fullmatch=True),
    "uri": st.from_regex(r"https?://[a-z]{1,9}\.org(:[0-9]{2})?(/[a-z%]?)?(/%2F[a-z]{0,3})?(\?q=[a-z]*)?(#x)?", fullmatch=True)
             .filter(lambda u: "%" not in u.replace("%2F", "")),
}


def written(value):
    """Whether numbers lie within the digits that the grammar offers."""
    if isinstance(value, float):
        text = repr(value)
        return "inf" not in text and "nan" not in text and "e+308" not in text
    return not isinstance(value, int) or abs(value) < 10**20


ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-10**6, 2**64 - 1), TEXT,
              st.floats(-1e18, 1e18)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6)


def annotated(draw, schema):
    if draw(st.integers(0, 5)) == 0:
        schema[draw(st.sampled_from(["title", "description", "$comment"]))] = draw(TEXT)
    return schema


@st.composite
def strings(draw):
    kind = draw(st.sampled_from(["any", "length", "pattern", "both", "format"]))
    schema = {"type": "string"}
    if kind == "format":
        schema["format"] = draw(st.sampled_from(sorted(FORMATS)))
        return schema, FORMATS[schema["format"]]
    instance = TEXT
    if kind in ("pattern", "both"):
        schema["pattern"] = draw(st.sampled_from([p for p in PATTERNS if r"\p" not in p]))
        # ECMA's \d is ASCII; its $ is the end alone, not before a last line feed; its . no line's end.
        instance = st.from_regex(re.compile(schema["pattern"], re.ASCII)).filter(lambda t: not t.endswith("\n"))
        instance = instance.filter(lambda t: not any(c in t for c in "\r\u2028\u2029"))
    if kind in ("length", "both"):
        least = draw(st.integers(0, 3))
        most = draw(st.one_of(st.none(), st.integers(least, 12)))
        if draw(st.booleans()):
            schema["minLength"] = least
        else:
            least = 0
        if most is not None:
            schema["maxLength"] = most
        if kind == "length":
            return schema, st.text(min_size=least, max_size=8 if most is None else most)
        # What a pattern and a length leave may be little: what fits is taken.
        example = draw(st.lists(instance, min_size=3, max_size=3))
        fits = [t for t in example if least <= len(t) <= (10**9 if most is None else most)]
        return schema, st.sampled_from(fits) if fits else None
    return schema, instance


@st.composite
def integers(draw):
    schema = {"type": "integer"}
    low = draw(st.one_of(st.none(), st.integers(-10**6, 10**6)))
    high = draw(st.one_of(st.none(), st.integers(0, 10**4).map(lambda d: (low or 0) + d)))
    step = draw(st.one_of(st.just(1), st.integers(2, 120), st.sampled_from([1000, 2500])))
    if low is not None:
        open_ = draw(st.booleans())
        schema["exclusiveMinimum" if open_ else "minimum"] = low - open_
    if high is not None:
        open_ = draw(st.booleans())
        schema["exclusiveMaximum" if open_ else "maximum"] = high + open_
    if step > 1:
        schema["multipleOf"] = step
    first = -(-(low if low is not None else (high or 0) - 10**9) // step)
    last = (high if high is not None else first * step + 10**9) // step
    if first > last:
        return schema, None
    return schema, st.integers(first, last).map(lambda k: k * step)


@st.composite
def numbers(draw):
    schema = {"type": "number"}
    bound = st.one_of(st.integers(-1000, 1000), st.floats(-1000, 1000).map(lambda x: round(x, 3)))
    low = draw(st.one_of(st.none(), bound))
    high = draw(st.one_of(st.none(), bound.filter(lambda h: low is None or h > low + 0.01)))
    if low is not None:
        schema["minimum"] = low
    if high is not None:
        schema["maximum"] = high
    if not len(schema) - 1:
        return schema, st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers()).filter(written)
    low, high = (None if x is None else float(x) for x in (low, high))
    instance = st.floats(low, high, allow_nan=False, allow_infinity=False)
    return schema, instance.filter(lambda x: "e" not in repr(x) and abs(x) < 1e15)


@st.composite
def listed(draw):
    values = draw(st.lists(ANY, min_size=1, max_size=4))
    if len(values) == 1 and draw(st.booleans()):
        return {"const": values[0]}, st.just(values[0])
    unique = {json.dumps(v, sort_keys=True): v for v in values}
    return {"enum": list(unique.values())}, st.sampled_from(values)


def simple():
    return st.one_of(strings(), integers(), numbers(), listed(),
                     st.just(({"type": "boolean"}, st.booleans())), st.just(({"type": "null"}, st.none())),
                     st.just(({}, ANY)), st.just((True, ANY)), st.just((False, None)))


@st.composite
def arrays(draw, inner):
    schema, prefix, instance = {"type": "array"}, [], None
    if draw(st.booleans()):
        prefix = draw(st.lists(inner, min_size=1, max_size=3))
        schema["prefixItems"] = [s for s, _ in prefix]
    instance = ANY
    if draw(st.booleans()):
        schema["items"], instance = draw(inner)
    reach = next((i for i, (_, x) in enumerate(prefix) if x is None), len(prefix))
    longest = reach if reach < len(prefix) or instance is None else len(prefix) + 3
    least = draw(st.integers(0, 3))
    if draw(st.booleans()):
        schema["minItems"] = least
    else:
        least = 0
    if draw(st.booleans()):
        schema["maxItems"] = draw(st.integers(least, 5))
        longest = min(longest, schema["maxItems"])
    if longest < least:
        return schema, None
    sizes = st.integers(least, longest)
    return schema, sizes.flatmap(lambda n: st.tuples(
        *(prefix[i][1] if i < len(prefix) else instance for i in range(n))).map(list))


@st.composite
def objects(draw, inner):
    named = draw(st.dictionaries(NAMES, inner, max_size=4))
    required = [k for k, (_, x) in named.items() if x is not None and draw(st.booleans())]
    schema = {"type": "object", "properties": {k: s for k, (s, _) in named.items()}}
    if required or draw(st.booleans()):
        schema["required"] = draw(st.permutations(required))
    extra = draw(st.sampled_from(["absent", False, True, "schema"]))
    other = ANY
    if extra == "schema":
        schema["additionalProperties"], other = draw(inner)
    elif extra != "absent":
        schema["additionalProperties"] = extra
        other = ANY if extra else None
    patterns = {}
    if draw(st.integers(0, 3)) == 0:  # keys that neither `properties` nor the other pattern has
        patterns = {r"^x-\d": draw(inner), r"^y[^\n]?z$": draw(inner)}
        schema["patternProperties"] = {k: s for k, (s, _) in patterns.items()}
    can = [k for k, (_, x) in named.items() if x is not None]

    @st.composite
    def instance(draw):
        out = {}
        for k in can:
            if k in required or draw(st.booleans()):
                out[k] = draw(named[k][1])
        for pattern, key in zip(patterns, ("x-1", "yz")):
            if patterns[pattern][1] is not None and key not in named and draw(st.booleans()):
                out[key] = draw(patterns[pattern][1])
        if other is not None:
            for k in draw(st.lists(NAMES, max_size=2, unique=True)):
                if k not in named and not k.startswith(("x-", "y")):
                    out[k] = draw(other)
        return out

    return schema, instance()


@st.composite
def combined(draw, inner):
    kind = draw(st.sampled_from(["anyOf", "oneOf", "allOf", "types", "nullable"]))
    if kind == "anyOf":
        some = draw(st.lists(inner, min_size=1, max_size=3))
        good = [x for _, x in some if x is not None]
        return {"anyOf": [s for s, _ in some]}, st.one_of(good) if good else None
    if kind == "oneOf":  # apart by type
        some = draw(st.lists(st.sampled_from([strings(), integers(), arrays(inner), objects(inner)]), min_size=1,
                             max_size=3, unique_by=id))
        some = [draw(s) for s in some]
        kinds = {s["type"] for s, _ in some}
        some = [next(p for p in some if p[0]["type"] == k) for k in sorted(kinds)]
        good = [x for _, x in some if x is not None]
        return {"oneOf": [s for s, _ in some]}, st.one_of(good) if good else None
    schema, instance = draw(inner)
    if kind == "allOf":
        if not isinstance(schema, dict):
            return {"allOf": [schema]}, instance
        keys = draw(st.lists(st.booleans(), min_size=len(schema), max_size=len(schema)))
        apart = {"properties", "patternProperties", "additionalProperties", "prefixItems", "items"}
        first = {k: v for (k, v), yes in zip(schema.items(), keys) if yes and k not in apart}
        rest = {k: v for k, v in schema.items() if k not in first}
        return draw(st.sampled_from([{**rest, "allOf": [first]}, {"allOf": [rest, first, first]}]))\
            if "allOf" not in rest else schema, instance
    if kind == "types":
        return {"type": ["string", "integer", "null"], "minimum": 3, "maxLength": 2},\
            st.one_of(st.none(), st.integers(3, 99), st.text(max_size=2))
    if isinstance(schema, dict) and isinstance(schema.get("type"), str):
        return {"anyOf": [schema, {"type": "null"}]},\
            st.none() if instance is None else st.one_of(st.none(), instance)
    return schema, instance


@st.composite
def recursive(draw, inner):
    """A tree: nodes with a value and children."""
    value, instance = draw(inner.filter(lambda pair: pair[1] is not None))
    node = {"type": "object", "properties": {"v": value, "c": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["v", "c"], "additionalProperties": False}
    tree = st.recursive(
        st.builds(lambda v: {"v": v, "c": []}, instance),
        lambda below: st.builds(lambda v, c: {"v": v, "c": c}, instance, st.lists(below, max_size=3)),
        max_leaves=4)
    return {"$defs": {"node": node}, "$ref": "#/$defs/node"}, tree


BODIES = st.recursive(simple(), lambda inner: st.one_of(arrays(inner), objects(inner), combined(inner)), max_leaves=6)


@st.composite
def schemas(draw):
    """(schema, strategy of valid instances or None when there are none)"""
    schema, instance = draw(st.one_of(BODIES, arrays(BODIES), objects(BODIES), recursive(BODIES)))
    return annotated(draw, dict(schema)) if isinstance(schema, dict) else schema, instance
