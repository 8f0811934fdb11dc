"""dequantize_gguf.py MODEL.gguf FOLDER: the weights of a Llama GGUF file in float32, as a folder.

Values come from the PyPI package gguf (its own dequantization), so that nothing of this repository is
part of the base that accuracy is measured from. The tokenizer is taken over through
transformers' reader of GGUF files. Needs gguf, numpy, safetensors, transformers (and torch for it).
"""
import json
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import save_file

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    if stem.startswith("blk."):
        _, layer, part = stem.split(".")
        return f"model.layers.{layer}.{NAMES[part]}.{ending}"
    return f"{NAMES[stem]}.{ending}"


def halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a head in GGUF's order (rotary pairs side by side) -> pairs half a head apart."""
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def main() -> None:
    source, target = sys.argv[1], pathlib.Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(source)

    def key(name: str):
        field = reader.fields.get(name)
        return None if field is None else field.contents()

    arch = key("general.architecture")
    if arch != "llama":
        sys.exit(f"{source}: architecture {arch}; only llama is known here")
    heads, kv_heads = key("llama.attention.head_count"), key("llama.attention.head_count_kv")
    tensors = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        value = value.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        if ".attn_q." in tensor.name:
            value = halves(value, heads)
        elif ".attn_k." in tensor.name:
            value = halves(value, kv_heads)
        tensors[hf_name(tensor.name)] = np.ascontiguousarray(value)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": key("llama.embedding_length"),
        "intermediate_size": key("llama.feed_forward_length"),
        "num_hidden_layers": key("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": key("llama.context_length"),
        "rms_norm_eps": float(key("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": float(key("llama.rope.freq_base") or 10000.0),
        "vocab_size": int(tensors["model.embed_tokens.weight"].shape[0]),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": key("tokenizer.ggml.bos_token_id"),
        "eos_token_id": key("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
    }
    (target / "config.json").write_text(json.dumps(config, indent=1))
    from transformers import AutoTokenizer

    path = pathlib.Path(source).resolve()
    AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name).save_pretrained(target)
    if key("tokenizer.ggml.pre") == "smollm":  # which transformers' reader does not know
        tokenizer = json.loads((target / "tokenizer.json").read_text())
        digits = {"type": "Digits", "individual_digits": True}
        tokenizer["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [digits, tokenizer["pre_tokenizer"]],
        }
        (target / "tokenizer.json").write_text(json.dumps(tokenizer))


if __name__ == "__main__":
    main()
