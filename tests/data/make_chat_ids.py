"""Writes tests/data/chat_ids.json: ids of conversations by transformers' apply_chat_template.

Run from the repository root after `make test` has fetched the tokenizers, in an environment with
transformers (made with 5.24) and gguf: python tests/data/make_chat_ids.py
"""
import json
import pathlib
import random

from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PIECES = [
    "Hello", " world", "What is 2+2?", "\n", "\n\n", "  ", " ", "\t", "é", "日本語", "🙂👍", "123", "45.678",
    "def f(x):\n    return x\n", "don't", "I'LL", "...", "?!", "<b>", "</s", "<|", "|>", "[INST", "http://a.b/c?d=e",
    "Ünïcödé", "\u00a0", "e\u0301", "{}", "\"quoted\"", "\\n", "a" * 40, "Ā", "\r\n", "x  y   z",
]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a place",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}


def conversation(rng, system):
    def text():
        return "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 9)))

    messages = [{"role": "system", "content": text()}] if system else []
    for _ in range(rng.randrange(1, 4)):
        messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
    if rng.random() < 0.7:
        messages.append({"role": "user", "content": text()})
    return messages


def main():
    cache = ROOT / ".cache"
    tokenizers = {
        "smollm2": AutoTokenizer.from_pretrained(cache, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf"),
        "llama3_1": AutoTokenizer.from_pretrained(cache / "tokenizers" / "llama3_1"),
        "qwen3": AutoTokenizer.from_pretrained(cache / "tokenizers" / "qwen3"),
    }
    # transformers' reader of GGUF leaves out what tokenizer.ggml.pre = "smollm" says.
    tokenizers["smollm2"].backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    rows = []
    for name, tokenizer in tokenizers.items():
        rng = random.Random(name)
        for i in range(60):
            data = {
                "messages": conversation(rng, system=i % 2 == 0),
                "add_generation_prompt": rng.random() < 0.7,
            }
            if name != "smollm2" and i % 5 == 0:
                data["tools"] = [TOOL]
            ids = tokenizer.apply_chat_template(
                data["messages"], tools=data.get("tools"), tokenize=True, return_dict=False,
                add_generation_prompt=data["add_generation_prompt"])
            rows.append({"tokenizer": name, "data": data, "ids": ids})
    path = ROOT / "tests" / "data" / "chat_ids.json"
    path.write_text("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n]\n")


main()
