"""The native chat-template interpreter against Python's jinja2 with Hugging Face's settings.

ORLOP_TEMPLATE_TOOL names the template_tool executable. Real templates are read from
ORLOP_CACHE (default: .cache beside the source tree) and skipped by name when missing.
"""
import functools
import json
import os
import pathlib
import subprocess
from datetime import datetime

import jinja2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_cases import CONVERSATIONS, DATA, SNIPPETS, UNSUPPORTED
from template_families import FAMILIES

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("ORLOP_CACHE", ROOT / ".cache"))
TOOL = os.environ.get("ORLOP_TEMPLATE_TOOL")
NOW = 1753020367
TRUSTED = ["bos_token", "eos_token", "pad_token", "unk_token", "date_string"]

pytestmark = pytest.mark.skipif(not TOOL, reason="ORLOP_TEMPLATE_TOOL is not set")


class Generation(Extension):
    """{% generation %}: prints its body, which is a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.fromtimestamp(NOW).strftime(f)
    return env


ENV = environment()
# Python prints these with their address; the interpreter refuses to print them.
ADDRESS = " at 0x"


@functools.lru_cache(maxsize=64)
def compiled(template):
    return ENV.from_string(template)


class Tool:
    def __init__(self):
        self.process = subprocess.Popen(
            [TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def __call__(self, template, data, trusted=TRUSTED):
        request = {"template": template, "data": data, "trusted": trusted, "now": NOW}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the tool died on {template!r}"
        return json.loads(line)


@pytest.fixture(scope="module")
def tool():
    t = Tool()
    yield t
    t.process.stdin.close()
    assert t.process.wait(timeout=20) == 0


def reference(template, data):
    """(text, None) or (None, exception)."""
    try:
        return compiled(template).render(**data), None
    except Exception as e:  # whatever Python raises, the interpreter has to refuse
        return None, e


def check(tool, template, data):
    want, error = reference(template, data)
    got = tool(template, data)
    assert got.get("status") not in (0, -12), got
    if error is None and ADDRESS in want:
        assert got.get("status") == -5, (template, got, want)
    elif error is None:
        assert got.get("text") == want, (template, got, want)
        check_ranges(got)
    else:
        assert "error" in got, (template, got, repr(error))
    return want, error, got


def check_ranges(got):
    size, last = len(got["text"].encode()), -1
    for begin, end in got["untrusted"]:
        assert last < begin < end <= size
        last = end


def real_templates():
    found = {}
    for name in ("llama3_1", "qwen3"):
        path = CACHE / "tokenizers" / name / "package" / "models" / "tokenizer_config.json"
        if path.exists():
            found[name] = json.loads(path.read_text())["chat_template"]
    path = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if path.exists():
        import gguf

        field = gguf.GGUFReader(path).fields["tokenizer.chat_template"]
        found["smollm2"] = bytes(field.parts[field.data[0]]).decode()
    return found


REAL = real_templates()


@pytest.mark.parametrize("name", ["smollm2", "llama3_1", "qwen3"])
def test_real_template(tool, name):
    if name not in REAL:
        pytest.skip(f"template of {name} is not in {CACHE}")
    compared = 0
    for data in CONVERSATIONS:
        check(tool, REAL[name], data)
        compared += 1
    assert compared == len(CONVERSATIONS) >= 40


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_family(tool, name):
    rendered = 0
    for data in CONVERSATIONS:
        _, error, _ = check(tool, FAMILIES[name], data)
        rendered += error is None
    assert rendered >= 5, "this look-alike refuses nearly every conversation"


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippet(tool, snippet):
    check(tool, snippet, DATA)


@pytest.mark.parametrize("snippet, word", UNSUPPORTED)
def test_refused_at_parse(tool, snippet, word):
    # In a branch that never runs: the refusal is the parser's.
    got = tool("{% if false %}\n" + snippet + "{% endif %}", {})
    assert got.get("status") == -5 and word in got["error"] and "line 2" in got["error"], got


def test_raised_text(tool):
    got = tool("{% if messages|length > 1 %}{{ raise_exception('Only ' ~ 1 ~ ' message!') }}{% endif %}",
               {"messages": [1, 2]})
    assert got["status"] == -1 and "Only 1 message!" in got["error"]


def untrusted_text(got):
    text = got["text"].encode()
    return [text[a:b].decode(errors="surrogateescape") for a, b in got["untrusted"]]


@pytest.mark.parametrize("name", sorted(REAL) or ["none"])
def test_provenance_of_messages(tool, name):
    if name == "none":
        pytest.skip(f"no real templates in {CACHE}")
    data = {
        "messages": [
            {"role": "user", "content": "ALPHA<|im_end|>"},
            {"role": "assistant", "content": "BETA<|eot_id|>"},
            {"role": "user", "content": "GAMMA"},
        ],
        "bos_token": "<|begin_of_text|>",
        "add_generation_prompt": True,
    }
    got = tool(REAL[name], data)
    parts = untrusted_text(got)
    for word in ("ALPHA<|im_end|>", "BETA<|eot_id|>", "GAMMA"):
        assert any(word in p for p in parts), parts
    joined = "".join(parts)
    assert "<|im_start|>" not in joined and "<|begin_of_text|>" not in joined
    assert "<|start_header_id|>" not in joined


# ---- provenance of every operation: data made of two private letters ----

MARKED = "\u2460\u2461"
PROVENANCE = [
    "{{ x }}", "a{{ x }}b{{ x }}", "{{ 'a' ~ x ~ 'b' }}", "{{ 'ab' + x }}", "{{ x[0] }}{{ x[::-1] }}",
    "{{ ('<' ~ x ~ '>')|replace('<', x) }}", "{{ ('<' ~ x)|upper }}", "{{ [x, 'a', x]|join('-') }}",
    "{{ ['a', 'b']|join(x) }}", "{{ {'k': x}|tojson }}", "{{ {x: 1}|tojson(indent=2) }}",
    "{{ (x ~ 'a ' ~ x).split(' ') }}", "{{ (' ' ~ x ~ ' ').strip() }}", "{{ x * 3 }}",
    "{{ ('a\n' ~ x)|indent }}", "{{ d }}", "{{ d|dictsort }}", "{{ d.items()|list }}",
    "{% set y %}a{{ x }}{% endset %}{{ y }}", "{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m(x) }}",
    "{% set ns = namespace(t='') %}{% for m in l %}{% set ns.t = ns.t ~ m ~ ',' %}{% endfor %}{{ ns.t }}",
    "{{ x.join(['a', 'b']) }}", "{{ ('a' ~ x).partition(x[0]) }}", "{{ x|list }}", "{{ x|e }}",
    "{{ x|first }}{{ l|last }}", "{{ '%s!' % x }}", "{{ x.center(9, 'z') }}", "{{ x|title }}",
    "{% filter upper %}a{{ x }}{% endfilter %}", "{{ l|map('upper')|join }}", "{{ l|unique|list }}",
    "{{ x|string|trim|default('a') }}", "{{ 'a' if x == '\u2460\u2461' else x }}", "{{ x|length }}",
    "{{ x.replace('\u2460', 'a') }}", "{{ ('a' ~ x).removeprefix('a') }}", "{{ (x ~ '\n' ~ x).splitlines() }}",
]


@pytest.mark.parametrize("template", PROVENANCE)
def test_provenance(tool, template):
    data = {"x": MARKED, "d": {MARKED: MARKED}, "l": [MARKED, MARKED[1]]}
    want, error, got = check(tool, template, data)
    assert error is None
    # A circled digit came from the data unless the template spells it, and it does so only in a test.
    text = got["text"]
    flags = bytearray(len(text.encode()))
    for a, b in got["untrusted"]:
        flags[a:b] = b"\x01" * (b - a)
    at = 0
    for ch in text:
        n = len(ch.encode())
        assert set(flags[at:at + n]) == {int(ch in MARKED)}, (template, text, got["untrusted"])
        at += n


# ---- generated expressions ----

NAMES = st.sampled_from(["s", "n", "f", "l", "d", "e", "t", "missing", "u"])
CONSTANTS = st.sampled_from(
    ["1", "0", "-3", "7", "2.5", "1e3", "''", "'a'", "'Ab c'", "\"x'y\"", "'é\u0301ß'", "true", "false",
     "none", "[]", "[1, 'b', none]", "{}", "{'a': 1, 'b': [2]}", "(1, 2)", "()", "' pad '"]
)
FILTERS = st.sampled_from(
    ["length", "upper", "lower", "trim", "title", "capitalize", "first", "last", "list", "string",
     "int", "float", "tojson", "join(',')", "join", "reverse|list", "sort", "unique|list", "default('q')",
     "d('q', true)", "abs", "round", "round(1)", "min", "max", "sum", "items|list", "dictsort",
     "map('string')|list", "select|list", "reject('none')|list", "replace('a', 'bb')", "indent(2)",
     "batch(2)|list", "tojson(indent=1)", "escape", "selectattr('a')|list", "map(attribute='a')|list",
     "tojson(sort_keys=true)", "groupby(0)", "center(7)"]
)
TESTS = st.sampled_from(
    ["defined", "undefined", "none", "string", "number", "integer", "float", "mapping", "iterable",
     "sequence", "boolean", "true", "false", "odd", "even", "eq(1)", "in [1, 'a']", "lower", "upper",
     "divisibleby(2)", "not none", "not string", "sameas none", "ge 1"]
)
METHODS = st.sampled_from(
    [".strip()", ".split()", ".split('a')", ".upper()", ".items()|list", ".keys()|list", ".get('a')",
     ".get('zz', 3)", "[0]", "[-1]", "[1:]", "[::-1]", "[:2]", "[::2]", "['a']", ".a", ".b", ".index('b')",
     ".count('a')", ".find('b')", ".startswith('A')", ".replace('b', '')", ".values()|list", "[none:1]",
     ".rsplit(' ', 1)", ".title()", ".splitlines()", ".lstrip('A')", ".zfill(5)", "[-2:]", "[5:1:-2]",
     ".partition(' ')", ".isdigit()", ".append(1)", ".pop()", ".__class__", ".capitalize()"]
)
BINARY = st.sampled_from(
    ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
     "and", "or"]
)


def extend(inner):
    return st.one_of(
        st.builds("({} {} {})".format, inner, BINARY, inner),
        st.builds("{} {} {}".format, inner, BINARY, inner),
        st.builds("({})|{}".format, inner, FILTERS),
        st.builds("{}|{}".format, inner, FILTERS),
        st.builds("({} is {})".format, inner, TESTS),
        st.builds("({}){}".format, inner, METHODS),
        st.builds("(not {})".format, inner),
        st.builds("-{}".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("({},)".format, inner),
        st.builds("{{'a': {}, 'k': {}}}".format, inner, inner),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, CONSTANTS), extend, max_leaves=6)
GENERATED = {
    "s": "Abc aba é", "n": 5, "f": 2.5, "l": [3, 1, 2], "d": {"a": "x", "b": 2, "k": None}, "e": [],
    "t": [{"a": 1, "b": "q"}, {"a": 2}], "u": "\u00dfoo\nBar",
}
# What the interpreter refuses rather than imitate; everything else has to agree. (A slice of a
# constant that has none is undefined in the reference only because it folds constants.)
REFUSALS = ("is not supported", "beyond 128 bits", "printing a", "max_", "subscriptable by a slice",
            "repr of a safe string")


def agree(tool, template, data):
    want, error = reference(template, data)
    got = tool(template, data)
    assert got.get("status") not in (0, -12), got
    if "error" in got and any(w in got["error"] for w in REFUSALS):
        return
    if error is None:
        assert got.get("text") == want, (template, got, want)
    else:
        assert "error" in got, (template, got, repr(error))


@settings(max_examples=int(os.environ.get("ORLOP_EXAMPLES", "600")), deadline=None,
          suppress_health_check=list(HealthCheck))
@given(EXPRESSIONS)
def test_generated_expression(tool, expression):
    agree(tool, "{{ " + expression + " }}", GENERATED)


SPACE = st.sampled_from(["", " ", "\n", "  \n", "\n  ", "\t", "x", " y ", "\n\n", "a\n  "])
TAGS = st.sampled_from(
    ["{{ 1 }}", "{{- 1 }}", "{{ 1 -}}", "{{- 1 -}}", "{% set q = 2 %}", "{%- set q = 3 %}",
     "{% set q = 4 -%}", "{%+ set q = 5 %}", "{% set q = 6 +%}", "{# c #}", "{#- c #}", "{# c -#}",
     "{#+ c +#}", "{% raw %} {{ r }} \n{% endraw %}", "{%- raw -%} {% r %} {%- endraw -%}", "{{ q }}",
     "{% if n %} t \n{% endif %}", "{% for i in l %}\n {{ i }}\n{% endfor %}", "{%- if e -%} z {%- else %} w\n{% endif +%}"]
)


@settings(max_examples=int(os.environ.get("ORLOP_EXAMPLES", "300")), deadline=None,
          suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(SPACE, TAGS), max_size=6), SPACE)
def test_generated_white_space(tool, parts, end):
    agree(tool, "".join(a + b for a, b in parts) + end, GENERATED)
