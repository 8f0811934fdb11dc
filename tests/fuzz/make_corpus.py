#!/usr/bin/env python3
"""Seeds and dictionaries for the fuzz targets: make_corpus.py FOLDER writes FOLDER/TARGET/* and
FOLDER/TARGET.dict. Everything is made here or taken from tests/data; nothing binary is kept."""

import hashlib
import json
import struct
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


# ---- safetensors ----


def safetensors(tensors, metadata=None, pad=8):
    """tensors: {name: (dtype, bytes an element, shape)}"""
    sizes, header, at = {}, {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, width, shape) in tensors.items():
        size = width
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % pad)
    return struct.pack("<Q", len(head)) + head + bytes(i % 251 for i in range(at))


def safetensors_seeds():
    yield safetensors({})
    yield safetensors({"a": ("F32", 4, [2, 3])}, {"format": "pt"})
    yield safetensors({"s": ("BF16", 2, []), "m": ("F16", 2, [1, 2, 3, 4])})
    yield safetensors({"odd": ("F16", 2, [1]), "next": ("F32", 4, [1])}, pad=1)
    yield safetensors({"i": ("I64", 8, [1])})
    layers = {}
    for i in range(2):
        for part, shape in (("q_proj", [8, 8]), ("k_proj", [4, 8]), ("norm", [8])):
            layers[f"model.layers.{i}.{part}.weight"] = ("BF16", 2, shape)
    yield safetensors(layers, {"format": "pt"})


# ---- GGUF ----

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
         I64: "q", F64: "d"}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
          10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
          20: (32, 18), 30: (1, 2)}


def value(kind, v):
    if kind == STR:
        return text(v)
    if kind == ARR:
        inner, items = v
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, i) for i in items)
    return struct.pack("<" + CODES[kind], v)


def gguf(keys, tensors=(), version=3, alignment=32):
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, kind, v in keys:
        out += text(name) + struct.pack("<I", kind) + value(kind, v)
    at, data = 0, b""
    for name, dims, kind in tensors:
        elems, size = BLOCKS[kind]
        n = 1
        for d in dims:
            n *= d
        size = n // elems * size
        data += b"\0" * (at - len(data)) + bytes(size)
        out += text(name) + struct.pack("<I", len(dims))
        out += b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, at)
        at += -(-size // alignment) * alignment
    out += b"\0" * (-len(out) % alignment) + data
    return out + b"\0" * (-len(out) % alignment)


def model_keys(arch):
    return [
        ("general.architecture", STR, arch),
        ("general.name", STR, "Tiny"),
        (arch + ".block_count", U32, 2),
        (arch + ".context_length", U32, 64),
        (arch + ".embedding_length", U32, 32),
        (arch + ".feed_forward_length", U32, 64),
        (arch + ".attention.head_count", U32, 4),
        (arch + ".attention.head_count_kv", U32, 2),
        (arch + ".attention.layer_norm_rms_epsilon", F32, 1e-5),
        (arch + ".rope.freq_base", F32, 10000.0),
        ("tokenizer.ggml.model", STR, "gpt2"),
        ("tokenizer.ggml.tokens", ARR, (STR, ["a", "b", "<|im_end|>", "<s>"])),
        ("tokenizer.ggml.token_type", ARR, (I32, [1, 1, 3, 3])),
        ("tokenizer.ggml.merges", ARR, (STR, ["a b"])),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.chat_template", STR, "{{ messages }}"),
    ]


def gguf_seeds():
    for arch in ("llama", "qwen2", "qwen3"):
        yield gguf(model_keys(arch), [("token_embd.weight", [32, 4], 8), ("output_norm.weight", [32], 0)])
    yield gguf([])
    yield gguf([], version=2)
    yield gguf([(f"k{k}", k, 1) for k in CODES] + [("s", STR, "x")])
    yield gguf([(f"a{k}", ARR, (k, [1, 0, 1])) for k in CODES] + [("s", ARR, (STR, ["", "xy"]))])
    yield gguf([], [(f"t{k}", [256, 1, 1, 2], k) for k in BLOCKS])
    yield gguf([("general.alignment", U32, 8)], [("x", [3], 0), ("y", [2, 2], 30)], alignment=8)
    llama = model_keys("llama")
    yield gguf(llama + [("llama.rope.scaling.type", STR, "yarn"),
                        ("llama.rope.scaling.factor", F32, 4.0),
                        ("llama.rope.scaling.original_context_length", U32, 16),
                        ("llama.rope.scaling.attn_factor", F32, 0.5),
                        ("llama.attention.key_length", U32, 16),
                        ("llama.attention.value_length", U32, 16),
                        ("llama.attention.sliding_window", U32, 8),
                        ("llama.rope.dimension_count", U32, 8),
                        ("llama.vocab_size", U32, 4),
                        ("general.sampling.temp", F32, 0.7),
                        ("general.sampling.top_k", I32, 20)])
    yield gguf(llama, [("rope_freqs.weight", [4], 0), ("output.weight", [32, 4], 3)])


# ---- JSON of a folder ----


def config_seeds():
    for path in sorted((DATA / "tiny").glob("*/*config.json")):
        yield path.read_bytes()
    for row in json.loads((DATA / "rope.json").read_text())["rows"]:
        yield json.dumps(row["config"]).encode()
    yield b'{"weight_map":{"a":"x.safetensors","b":"model-00001-of-00002.safetensors"}}'
    yield b'{"chat_template":[{"name":"default","template":"{{ x }}"},{"name":"t","template":""}]}'
    yield b'{"chat_template":"{{ messages }}"}'
    yield json.dumps({"temperature": 0.6, "top_p": 0.9, "top_k": 50, "min_p": 0.1, "do_sample": True,
                      "repetition_penalty": 1.1, "eos_token_id": [1, 2]}).encode()
    qwen = json.loads((DATA / "tiny/qwen2/config.json").read_text())
    qwen.update(use_sliding_window=True, sliding_window=16, max_window_layers=1)
    yield json.dumps(qwen).encode()
    del qwen["layer_types"]
    yield json.dumps(qwen).encode()


# ---- tokenizers and templates ----


def byte_alphabet():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(extra)) for b in range(256)]


def tokenizer_seeds():
    letters = byte_alphabet()
    vocab = {c: i for i, c in enumerate(letters)}
    for piece in ("he", "ll", "Ġw", "hell"):
        vocab[piece] = len(vocab)
    special = {"id": len(vocab), "content": "<s>", "special": True, "lstrip": False,
               "rstrip": False, "single_word": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    bpe = {
        "version": "1.0",
        "added_tokens": [special],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                  "byte_fallback": False, "vocab": vocab,
                  "merges": ["h e", "l l", "Ġ w", "he ll"]},
    }
    yield json.dumps(bpe).encode()
    split = {"type": "Split", "pattern": {"Regex": r"\p{L}+|\p{N}{1,3}|\s+|."},
             "behavior": "Isolated", "invert": False}
    bpe["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, dict(byte_level, use_regex=False)]}
    bpe["normalizer"] = {"type": "NFC"}
    bpe["model"]["merges"] = [["h", "e"], ["l", "l"]]
    bpe["model"]["ignore_merges"] = True
    yield json.dumps(bpe).encode()
    bpe["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, byte_level]}
    yield json.dumps(bpe).encode()
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    pieces += ["▁", "h", "e", "l", "▁h", "he"]
    yield json.dumps({
        "version": "1.0",
        "added_tokens": [dict(special, id=i, content=pieces[i]) for i in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [], "special_tokens": {
                               "<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "vocab": {p: i for i, p in enumerate(pieces)}, "merges": ["▁ h", "h e"]},
    }, ensure_ascii=False).encode()


def template_seeds():
    yield b"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    yield b"{%- if tools is defined and tools -%}{{ tools | tojson(indent=2) }}{%- else %}none{% endif %}"
    yield b"{% set ns = namespace(n=0) %}{% for x in range(3) %}{% set ns.n = ns.n + loop.index %}{% endfor %}{{ ns.n }}"
    yield b"{% macro f(a, b=1) %}{{ a ~ b }}{% endmacro %}{{ f('x') }}{{ [1,2,3][1:] | join(', ') }}"
    yield b"{{ raise_exception('no') if messages | length == 0 else messages[-1].content.split('</think>')[0].strip() }}"
    yield b"{# c #}{{ 'a' in 'abc' and not 1 == 2.5 or none is none }}{{ {'k': (1, -2 // 3 ** 2 % 4)} }}"
    yield b"{% for k, v in {'a': 1}.items() if v > 0 %}{{ loop.first }}{{ k | upper }}{% else %}e{% endfor %}"
    yield b"{% filter upper %}{{ strftime_now('%d %b %Y') }}{% endfilter %}{% generation %}x{% endgeneration %}"


def state_seeds():
    for signed in (0, 1):
        fields = [("model", "00" * 32), ("kv_dtype", "bf16")]
        head = b"orlopKV\n" + struct.pack("<3I", 1, signed, len(fields))
        for pair in fields:
            for text in pair:
                head += struct.pack("<H", len(text)) + text.encode()
        head += struct.pack("<2I8i", 4, 8, *range(8)) + struct.pack("<I", 2)
        head += struct.pack("<QIQI", 6, 0, 3, 1) + b"page-0page-1abc"
        yield head + hashlib.blake2b(head, digest_size=32).digest() + b"s" * 32 * signed


def quant_seeds():
    def seed(config, tensors, n=32, k=64, tail=b""):
        file = safetensors({"m." + name: t for name, t in tensors.items()})
        file = file[: len(file) - len(tail)] + tail
        return bytes((n - 1, k - 1)) + json.dumps(config).encode() + b"\n" + file

    idx = struct.pack("<64i", *(i % 2 for i in range(64)))
    for bits, version in ((2, "gptq"), (3, "gptq_v2"), (4, "gptq"), (8, "gptq_v2")):
        tensors = {"qweight": ("I32", 4, [2 * bits, 32]), "qzeros": ("I32", 4, [2, bits]),
                   "scales": ("F32", 4, [2, 32])}
        config = {"quant_method": "gptq", "bits": bits, "group_size": 32,
                  "checkpoint_format": version}
        yield seed(config, tensors)
        yield seed(config | {"desc_act": True}, tensors | {"g_idx": ("I32", 4, [64])}, tail=idx)
    yield seed({"quant_method": "awq", "bits": 4, "group_size": 32},
               {"qweight": ("I32", 4, [64, 4]), "qzeros": ("I32", 4, [2, 4]),
                "scales": ("F32", 4, [2, 32])})
    yield seed({"quant_method": "fp8", "weight_block_size": [16, 32]},
               {"weight": ("F8_E4M3", 1, [32, 64]), "weight_scale_inv": ("F32", 4, [2, 2])})
    yield seed({"quant_method": "fp8"},
               {"weight": ("F8_E4M3", 1, [32, 64]), "weight_scale": ("F32", 4, [])})

    def group(weights, **more):
        return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, **more}}}

    grouped = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    packed = {"weight_packed": ("I32", 4, [32, 8]), "weight_scale": ("F32", 4, [32, 2])}
    yield seed(group(grouped), packed)
    yield seed(group(grouped | {"symmetric": False}),
               packed | {"weight_zero_point": ("I32", 4, [4, 2])})
    yield seed(group(grouped | {"actorder": "group"}),
               packed | {"weight_g_idx": ("I32", 4, [64])}, tail=idx)
    channel = {"num_bits": 8, "type": "int", "strategy": "channel"}
    yield seed(group(channel, input_activations={"num_bits": 8, "dynamic": True}),
               {"weight": ("I8", 1, [32, 64]), "weight_scale": ("F32", 4, [32, 1])})
    yield seed(group({"num_bits": 8, "type": "float", "strategy": "block",
                      "block_structure": [16, 32]}),
               {"weight": ("F8_E4M3", 1, [32, 64]), "weight_scale": ("F32", 4, [2, 2])})


def chat_output_seeds():
    call = '{"name": "f", "arguments": {"a": [1, -0.5e3, "\\u00e9</tool_call>", null, true]}}'
    other = '{"arguments": {"city": "Oslo"}, "name": "get_weather"}'
    texts = [
        (1, f"<think>\nHm.\n</think>\n\nSee:\n<tool_call>\n{call}\n</tool_call>\n<tool_call>\n{other}\n</tool_call><|im_end|>"),
        (1, f"<tool_call><tool_call>{call}<tool_call>{other} x"),
        (1, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}", "id": 7, "name": "g"}</tool_call>'),
        (2, f"<|python_tag|>{call}; {other};<|eot_id|>"),
        (2, f"Look. <|python_tag|>{call}"),
        (3, f"[{call}, {other}]\n"),
        (3, f"{call}\n{other}"),
        (3, '{"answer": 42}'),
    ]
    for i, (kind, words) in enumerate(texts):
        for flags in (16, 16 | 32 | 4, 4 | 8):
            yield bytes((kind | flags, i)) + words.encode()


def regex_seeds():
    for i, pattern in enumerate((
            r"^(?:[a-z0-9._%+-]+)@(?<host>[a-z0-9-]+\.)+[a-z]{2,}$", r"(a+)+b|c{1,999999999}",
            r"(^|,)x?(y*$|z{2,}?)|^$", r"[^\d\w\s\p{L}\u00e0-\u00ff\x41\]-]+", r"\ud83d\ude00\u{1F600}\0\cA",
            r"(?P<a>\p{Script=Greek}|\P{Lu}|\p{Emoji})*", "((((a|b)?c)*d){2,3}|)", "é[à-ü]{,}{x")):
        yield bytes([i]) + pattern.encode()


def gbnf_seeds():
    yield b'root ::= item ("," item)* # c\nitem ::= "a\\n" | [^a-z\\]]{2,5} | . |\n  x-1_Y?\nx-1_Y ::= ""\n'
    yield 'root ::= (\r\n "\\x41\\u00e9\\U0001F600é" [à-ü]+ {2} # c\r\n | ( ) )\r\n | "b"'.encode()
    yield b'root ::= root "a" | "b"'


def guide_seeds():
    # op | with << 3: 0 literal, 1 characters, 2 sequence, 3 choice, 4 repeat, 5 call, 6 define, 7 swap
    def op(code, value=0):
        return code | value << 3

    walk = bytes([255, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])
    yield bytes([op(0, 2), op(4, 0), 4, op(1, 3), 6, op(2, 2)]) + walk  # (ab){0,5} and characters
    yield bytes([op(0, 0), op(5, 0), op(0, 1), op(2, 3), op(0, 4), op(3, 2), op(6, 0), op(5, 0)]) + walk  # nesting
    yield bytes([op(5, 1), op(0, 2), op(2, 2), op(0, 0), op(3, 2), op(6, 1), op(5, 1)]) + walk  # left recursion
    yield bytes([op(0, 0), op(4, 5), 2, op(4, 24), op(0, 1), op(2, 2), op(4, 2), 6]) + walk  # counts in counts
    yield bytes([op(1, 7), 7, op(4, 0), 7, op(0, 6), op(2, 2)]) + walk  # any text of a length
    yield bytes([op(1, 3), 7, op(4, 24), 0, op(5, 2), op(3, 2), op(6, 2), op(5, 2), op(5, 2), op(2, 2)]) + walk


def guide_source_seeds():
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/v"}}},
              "required": ["a"], "additionalProperties": False,
              "$defs": {"v": {"anyOf": [{"type": "integer", "minimum": 0}, {"enum": ["b", None]}]}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    yield bytes([1])
    yield bytes([2]) + json.dumps(schema).encode()
    yield from (bytes([3]) + s[1:] for s in regex_seeds())
    yield from (bytes([4]) + s for s in gbnf_seeds())
    yield bytes([5]) + b'["aab", "a", ""]'
    for form in ("hermes", "llama3", "json"):
        yield bytes([6]) + json.dumps({"tools": [tool], "format": form, "tool_choice": "required",
                                       "parallel": False}).encode()


def schema_seeds():
    node = {"type": "object", "properties": {"v": {"type": "integer"}, "c": {"items": {"$ref": "#"}}},
            "required": ["v"], "additionalProperties": False}
    yield from (json.dumps(s).encode() for s in (
        {}, True, node, {"enum": ["a", "ab", 1, 2.0, None, [{"k": "é"}]]},
        {"type": ["string", "null"], "minLength": 1, "maxLength": 3, "pattern": "^[a-z]+$"},
        {"type": "string", "format": "date", "title": "t"}, {"type": "string", "format": "uri", "maxLength": 30},
        {"type": "integer", "minimum": -12, "exclusiveMaximum": 3456, "multipleOf": 7},
        {"type": "number", "exclusiveMinimum": -0.5, "maximum": 10.25},
        {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}], "items": False, "minItems": 1},
        {"type": "array", "items": [True], "additionalItems": {"type": "boolean"}, "maxItems": 4},
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 3}},
         "additionalProperties": {"type": "string"}, "minProperties": 1, "maxProperties": 3},
        {"oneOf": [{"type": "integer"}, {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
                   {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]},
        {"allOf": [{"anyOf": [{"minimum": 1}, {"maxLength": 2}]}, {"$ref": "#/$defs/a~1b%20"}],
         "$defs": {"a/b ": {"type": ["integer", "string"], "nullable": True}}},
    ))


WORDS = {
    "schema": ["type", "object", "string", "integer", "number", "array", "null", "properties", "required",
               "additionalProperties", "patternProperties", "$ref", "#/$defs/", "$defs", "anyOf", "oneOf", "allOf",
               "enum", "const", "items", "prefixItems", "additionalItems", "pattern", "format", "date-time",
               "ipv6", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
               "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems", "nullable",
               "1e300", "-1", "true", "false", "[a-z]{2,3}", "\\\\p{L}"],
    "chat_output": ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "<|im_end|>",
                    "<|eot_id|>", "name", "arguments", "parameters", "null", "true", "\\u00e9", "}}"],
    "quant": ["quant_method", "gptq", "awq", "fp8", "compressed-tensors", "bits", "group_size",
              "desc_act", "gptq_v2", "checkpoint_format", "config_groups", "weights", "num_bits",
              "strategy", "group", "channel", "block", "block_structure", "symmetric", "actorder",
              "m.qweight", "m.qzeros", "m.scales", "m.g_idx", "m.weight_packed", "m.weight_scale",
              "m.weight_zero_point", "m.weight_g_idx", "m.weight_shape", "m.weight", "I32", "I8",
              "F8_E4M3", "data_offsets", "-1", "null", "true"],
    "regex": ["(?:", "(?<n>", "(?=", "[^", "\\d", "\\w", "\\s", "\\b", "\\1", "\\p{L}", "\\P{Lu}",
              "\\p{Script=Han}", "\\u00e9", "\\ud83d\\ude00", "\\u{1F600}", "{1,999999999}", "{2,}?", "*?",
              "++", "^", "$", "|", "[[:alpha:]]", "\\xff"],
    "gbnf": ["root ::=", "::=", "\"", "[^", "{2,3}", "\\x41", "\\U0001F600", "\\ud83d", "<[1]>", "# c", "|", "(",
             ")", "*", "+", "?", ".", "\\]"],
    "guide": [],
    "guide_source": ["type", "object", "properties", "required", "additionalProperties", "$ref", "#/$defs/",
                     "$defs", "anyOf", "oneOf", "allOf", "enum", "const", "items", "prefixItems", "pattern",
                     "format", "date-time", "minimum", "multipleOf", "minLength", "tools", "tool_choice",
                     "hermes", "llama3", "json", "parallel", "function", "name", "parameters", "root ::= "],
    "state": ["orlopKV", "model", "kv_dtype"],
    "safetensors": ["__metadata__", "dtype", "shape", "data_offsets", "F32", "F16", "BF16", "I64",
                    "18446744073709551615", "[0,4]", "{}", "[]"],
    "gguf": ["GGUF", "general.alignment", "general.architecture", "llama", "qwen2", "qwen3",
             "rope_freqs.weight", "output.weight", "llama.rope.scaling.type", "yarn", "linear",
             "llama.rope.scaling.factor", "tokenizer.ggml.tokens", "split.count"],
    "config": ["architectures", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
               "Qwen3ForCausalLM", "rope_parameters", "rope_scaling", "rope_theta", "rope_type",
               "yarn", "llama3", "dynamic", "linear", "factor", "head_dim", "sliding_window",
               "use_sliding_window", "max_window_layers", "layer_types", "sliding_attention",
               "original_max_position_embeddings", "partial_rotary_factor", "weight_map",
               "chat_template", "1e308", "-1", "null", "true", "truncate", "attention_factor"],
    "tokenizer": ["ByteLevel", "Split", "Regex", "Sequence", "Digits", "NFC", "Replace", "Prepend",
                  "TemplateProcessing", "ByteFallback", "merges", "vocab", "added_tokens",
                  "special", "lstrip", "rstrip", "single_word", "normalized", "ignore_merges",
                  "\\u2581", "\\ud800", "(?=", "(?<!", "\\p{L}", "{1,99999}"],
    "template": ["{%", "%}", "{{", "}}", "{%-", "-%}", "{#", "for", "in", "endfor", "if", "elif",
                 "else", "endif", "set", "macro", "endmacro", "namespace", "is", "not", "defined",
                 "loop.", "messages", "|tojson", "|trim", "range(", "raise_exception(", "**", "//"],
}


def main():
    root = Path(sys.argv[1])
    for target, words in WORDS.items():
        folder = root / target
        folder.mkdir(parents=True, exist_ok=True)
        for i, seed in enumerate(globals()[target + "_seeds"]()):
            (folder / f"seed-{i:03}").write_bytes(seed)
        lines = ['"' + w.replace("\\", "\\\\").replace('"', '\\"') + '"\n' for w in words]
        if lines:  # the fuzzer refuses an empty one
            (root / (target + ".dict")).write_text("".join(lines))


main()
