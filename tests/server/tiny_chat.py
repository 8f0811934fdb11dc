"""A tiny random chat model with a byte tokenizer and a Hermes/Qwen template: for what does not depend on a
model's words. Its samples are random bytes, which no test of words would bring."""

from __future__ import annotations

import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

specials = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
words = ("<think>", "</think>", "<tool_call>", "</tool_call>")
template = """{%- if tools %}<|im_start|>system
# Tools
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
For each call return json within <tool_call></tool_call>:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if thinking %}<think>
{% endif %}{% endif %}"""


def _bytes_to_unicode() -> dict[int, str]:
    """The printable alphabet that byte-level tokenizers write bytes in (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    out = {byte: chr(byte) for byte in plain}
    rest = [byte for byte in range(256) if byte not in out]
    return out | {byte: chr(256 + i) for i, byte in enumerate(rest)}


def make(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    dim, inner, layers, heads, kv_heads, head = 64, 96, 2, 4, 2, 16
    vocab = 264
    alphabet = _bytes_to_unicode()
    names = {alphabet[byte]: byte for byte in range(256)}
    added = [
        {"id": 256 + i, "content": text, "special": text in specials, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False}
        for i, text in enumerate(specials + words)
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": names, "merges": [], "unk_token": None},
    }
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": dim,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head, "vocab_size": vocab,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
        "bos_token_id": None, "eos_token_id": 258,
    }  # fmt: skip
    rng = np.random.default_rng(7)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * 0.12).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": matrix(vocab, dim),
        "model.norm.weight": np.ones(dim, np.float32),
        "lm_head.weight": matrix(vocab, dim),
    }
    for i in range(layers):
        at = f"model.layers.{i}."
        weights |= {
            at + "self_attn.q_proj.weight": matrix(heads * head, dim),
            at + "self_attn.k_proj.weight": matrix(kv_heads * head, dim),
            at + "self_attn.v_proj.weight": matrix(kv_heads * head, dim),
            at + "self_attn.o_proj.weight": matrix(dim, heads * head),
            at + "mlp.gate_proj.weight": matrix(inner, dim),
            at + "mlp.up_proj.weight": matrix(inner, dim),
            at + "mlp.down_proj.weight": matrix(dim, inner),
            at + "input_layernorm.weight": np.ones(dim, np.float32),
            at + "post_attention_layernorm.weight": np.ones(dim, np.float32),
        }
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "eos_token": "<|im_end|>", "add_bos_token": False})
    )
    return folder
