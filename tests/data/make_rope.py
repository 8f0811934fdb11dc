"""Writes rope.json: rotary frequencies as Hugging Face transformers computes them.

Run with torch and transformers 5.24 on CPU: python tests/data/make_rope.py > tests/data/rope.json
Each row: the keys of config.json that matter, the context the engine is loaded for, and what the
model's rotary embedding holds after a forward pass of that length: inv_freq [dim / 2], float32, and
the factor on cos and sin.
"""

import json

import torch
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

base = dict(
    architectures=["LlamaForCausalLM"],
    model_type="llama",
    hidden_size=512,
    intermediate_size=1024,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=2,
    vocab_size=128,
    max_position_embeddings=4096,
    rms_norm_eps=1e-5,
)


def new(**rope):
    return {"rope_parameters": rope}


def old(theta, **scaling):
    return {"rope_theta": theta, "rope_scaling": scaling or None}


llama31 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)
yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)
long = dict(max_position_embeddings=131072)
cases = [
    ("no rope keys", {}),
    ("default, old form", old(500000.0)),
    ("default, new form", new(rope_theta=1000000.0, rope_type="default")),
    ("default, head_dim 128", dict(head_dim=128, **new(rope_theta=10000.0, rope_type="default"))),
    ("default, odd theta", new(rope_theta=130000.5, rope_type="default")),
    ("linear, old form", old(10000.0, type="linear", factor=4.0)),
    ("linear, new form", new(rope_theta=500000.0, rope_type="linear", factor=2.5)),
    ("llama 3.1, old form", dict(long, head_dim=128, **old(500000.0, **llama31))),
    ("llama 3.1, new form", dict(long, **new(rope_theta=500000.0, **llama31))),
    ("llama 3.2", dict(long, **new(rope_theta=500000.0, **dict(llama31, factor=32.0)))),
    (
        "llama3, odd factors",
        new(rope_theta=10000.0, rope_type="llama3", factor=3.7, low_freq_factor=0.8,
            high_freq_factor=5.5, original_max_position_embeddings=256),
    ),
    ("yarn, old form", dict(long, head_dim=128, **old(1000000.0, **yarn))),
    ("yarn, old form, type", dict(long, **old(1000000.0, type="yarn", factor=4.0,
                                              original_max_position_embeddings=32768))),
    ("yarn, new form", dict(long, **new(rope_theta=1000000.0, **yarn))),
    ("yarn, no truncation", dict(long, **new(rope_theta=1000000.0, truncate=False, **yarn))),
    ("yarn, betas", dict(long, **new(rope_theta=10000.0, beta_fast=16, beta_slow=2.0, **yarn))),
    ("yarn, attention_factor", dict(long, **new(rope_theta=10000.0, attention_factor=1.5, **yarn))),
    ("yarn, mscale", dict(long, **new(rope_theta=10000.0, mscale=0.707, mscale_all_dim=1.3, **yarn))),
    ("yarn, mscale alone", dict(long, **new(rope_theta=10000.0, mscale=0.707, **yarn))),
    ("yarn, original context from max_position", new(rope_theta=10000.0, rope_type="yarn", factor=8.0)),
    ("yarn, factor null", dict(long, **new(rope_theta=10000.0, rope_type="yarn", factor=None,
                                           original_max_position_embeddings=8192))),
    ("yarn, factor 1", new(rope_theta=10000.0, rope_type="yarn", factor=1.0)),
    ("yarn, short context", new(rope_theta=10000.0, rope_type="yarn", factor=16.0,
                                original_max_position_embeddings=64)),
]
dynamic = new(rope_theta=10000.0, rope_type="dynamic", factor=2.0)
runs = [(name, keys, None) for name, keys in cases]
runs += [
    ("dynamic, within the trained context", dynamic, 1024),
    ("dynamic, at the trained context", dynamic, 4096),
    ("dynamic, beyond", dynamic, 6000),
    ("dynamic, far beyond", dynamic, 16384),
    ("dynamic, old form", dict(head_dim=128, **old(500000.0, type="dynamic", factor=4.0)), 9001),
]
# Rotation of a part of the head: Llama's own module cannot apply it, the function can compute it.
partial = [
    ("linear, partial", new(rope_theta=10000.0, rope_type="linear", factor=2.0,
                            partial_rotary_factor=0.5)),
    ("yarn, partial", dict(long, **new(rope_theta=10000.0, partial_rotary_factor=0.25, **yarn))),
]

rows = []
for name, keys, context in runs + [(n, k, "function") for n, k in partial]:
    config = LlamaConfig(**json.loads(json.dumps(dict(base, **keys))))
    if context == "function":
        inv_freq, scale = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config)
        context = None
    else:
        module = LlamaRotaryEmbedding(config)
        length = context or config.max_position_embeddings
        module(torch.zeros(1, dtype=torch.float32), torch.arange(length)[None])
        inv_freq, scale = module.inv_freq, module.attention_scaling
    assert inv_freq.dtype == torch.float32
    rows.append(
        {
            "name": name,
            "config": dict(base, **keys),
            "max_context": context or config.max_position_embeddings,
            "scale": float(scale),
            "inv_freq": [float(f"{v:.9g}") for v in inv_freq.tolist()],
        }
    )
made = f"make_rope.py with transformers {transformers.__version__}"
print(json.dumps({"made_by": made}) [:-1] + ', "rows": [')
print(",\n".join(json.dumps(r) for r in rows))
print("]}")
