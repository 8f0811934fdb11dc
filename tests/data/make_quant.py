"""Makes tests/data/quant/*: tiny quantized checkpoints, packed by the programs that users pack with.

    python tests/data/make_quant.py      (from the repository root; see the versions below)

Each folder is one random Llama of one layer. Its matrices are rounded to codes here and packed by the
package named below; golden.bin holds the logits of transformers in float32 on weights that the same
package dequantizes (with scales widened to float32 first, so that nothing is rounded on the way). The
format of golden.bin is told in pack_golden.py.

    gptq-*     GPTQModel 7.7.0 (TorchLinear.pack, its v1/v2 conversion, dequantize_weight)
    autogptq-* AutoGPTQ 0.7.1 (qlinear_cuda.QuantLinear.pack), dequantized by GPTQModel's reader
    awq-*      AutoAWQ 0.2.9 (WQLinear_GEMM.from_linear), dequantize_gemm
    ct-*       compressed-tensors 0.20.1, written by llm-compressor 0.14.0.1 (oneshot, save_pretrained)
    fp8-*      the layout of transformers' FineGrainedFP8Config, written here with torch's float8 type
"""
import functools
import importlib.util
import json
import pathlib
import shutil
import struct
import sys
import types

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

here = pathlib.Path(__file__).parent / "quant"
PROMPTS = ([3, 17, 42, 5, 61, 8, 8, 30, 2, 11, 55, 23], [9, 1, 33, 60])


def tiny(width=128, ffn=192):
    torch.manual_seed(7)
    config = LlamaConfig(
        hidden_size=width, intermediate_size=ffn, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, vocab_size=64, max_position_embeddings=256,
        initializer_range=0.15, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def linears(model):
    return [(n, m) for n, m in model.named_modules()
            if isinstance(m, torch.nn.Linear) and n != "lm_head"]


def golden(folder, weights, source):
    """weights: {module: float32 [n, k]} as the package dequantizes them."""
    # Made in float32: a model cast to bfloat16 and back has rounded rotary frequencies.
    model = LlamaForCausalLM(source.config).float().eval()
    model.load_state_dict({k: v.float() for k, v in source.state_dict().items()})
    with torch.no_grad():
        for name, module in linears(model):
            assert weights[name].shape == module.weight.shape and weights[name].dtype == torch.float32
            module.weight.copy_(weights[name])
    with open(folder / "golden.bin", "wb") as out, torch.no_grad():
        out.write(struct.pack("<i", len(PROMPTS)))
        for ids in PROMPTS:
            logits = model(torch.tensor([ids])).logits[0].numpy()
            out.write(struct.pack("<iii", len(ids), logits.shape[1], 0))
            out.write(np.array(ids, "<i4").tobytes() + logits.astype("<f4").tobytes())


def write(name, model, tensors, quantization):
    """A folder with the model's other tensors as they are and its matrices as `tensors`."""
    folder = here / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kept = {k: v for k, v in model.state_dict().items() if not k.endswith("proj.weight")}
    save_file({k: v.contiguous().clone() for k, v in (kept | tensors).items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads(model.config.to_json_string(use_diff=False))
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings",
            "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "rms_norm_eps",
            "hidden_act", "model_type")
    config = {k: config[k] for k in keys} | {"architectures": ["LlamaForCausalLM"]}
    config["rope_theta"] = 10000.0
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


def round_to_codes(weight, bits, group, symmetric, g_idx):
    """scales, zeros [n, groups] (float32, float16 values) and the weights on that grid."""
    n, k = weight.shape
    groups = (k + group - 1) // group
    top = 2**bits - 1
    scales, zeros = torch.zeros(n, groups), torch.zeros(n, groups)
    for g in range(groups):
        part = weight[:, g_idx == g].float()
        if symmetric:
            scales[:, g] = part.abs().amax(1) / (top / 2)
            zeros[:, g] = (top + 1) / 2
        else:
            low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
            scales[:, g] = (high - low) / top
            zeros[:, g] = torch.round(-low / (high - low) * top)
    # 1 at least: the older GPTQ packer stores the zero point less 1 and has no room for -1.
    zeros = zeros.clamp(min=1, max=top)
    scales = scales.half().float()
    s, z = scales[:, g_idx], zeros[:, g_idx]
    codes = torch.clamp(torch.round(weight.float() / s) + z, 0, top)
    return scales, zeros, s * (codes - z)


def order(k, group, mixed):
    g_idx = torch.arange(k) // group
    if mixed:  # what act-order leaves: groups of `group` columns each, in no order
        g_idx = g_idx[torch.randperm(k, generator=torch.Generator().manual_seed(k))]
    return g_idx.int()


def gptq(name, bits, group_size, symmetric, mixed, version, packer, width=128, ffn=192):
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.quantization.config import FORMAT, QuantizeConfig
    from gptqmodel.utils.model import (convert_gptq_v1_to_v2_format_module,
                                       convert_gptq_v2_to_v1_format_module)

    model, tensors, weights = tiny(width, ffn), {}, {}
    for module, linear in linears(model):
        n, k = linear.weight.shape
        group = k if group_size < 0 else group_size
        g_idx = order(k, group, mixed)
        scales, zeros, grid = round_to_codes(linear.weight.data, bits, group, symmetric, g_idx)
        on_grid = torch.nn.Linear(k, n, bias=False)
        on_grid.weight.data = grid
        made = TorchLinear(bits=bits, group_size=group_size, sym=symmetric, desc_act=mixed,
                           in_features=k, out_features=n, format=FORMAT.GPTQ_V2).eval()
        if packer == "gptqmodel":
            made.pack(on_grid, scales.clone(), zeros.clone(), g_idx.clone(), workers=1)
            if version == 1:
                config = QuantizeConfig(bits=bits, group_size=group_size, sym=symmetric)
                convert_gptq_v2_to_v1_format_module(made, config)
        else:
            old = autogptq()(bits, group, k, n, False, weight_dtype=torch.float16)
            on_grid.weight.data = grid.half().float()
            old.pack(on_grid, scales.clone(), zeros.clone(), g_idx.clone())
            for part in ("qweight", "qzeros", "scales", "g_idx"):
                setattr(made, part, getattr(old, part).clone().int() if part != "scales"
                        else old.scales.half())
        for part in ("qweight", "qzeros", "scales", "g_idx"):
            tensors[f"{module}.{part}"] = getattr(made, part).clone()
        tensors[f"{module}.scales"] = tensors[f"{module}.scales"].half()
        if version == 1:
            convert_gptq_v1_to_v2_format_module(made, bits, torch.int32)
        made.scales = made.scales.float()
        made.post_init()
        weights[module] = made.dequantize_weight().T.float().contiguous()
        assert torch.allclose(weights[module], grid, atol=2e-3), (name, module)
    folder = write(name, model, tensors, {
        "quant_method": "gptq", "bits": bits, "group_size": group_size, "desc_act": mixed,
        "sym": symmetric, "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
        "pack_dtype": "int32", "lm_head": False,
    })
    golden(folder, weights, tiny(width, ffn))


@functools.cache
def autogptq():
    """AutoGPTQ's packer alone: the package as a whole asks for an older transformers."""
    spec = importlib.util.find_spec("auto_gptq")
    root = pathlib.Path(spec.submodule_search_locations[0])
    path = root / "nn_modules" / "qlinear" / "qlinear_cuda.py"
    for name in ("auto_gptq", "auto_gptq.nn_modules", "auto_gptq.nn_modules.qlinear"):
        sys.modules.setdefault(name, types.ModuleType(name))
    source = path.read_text()
    module = types.ModuleType("auto_gptq_qlinear_cuda")
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module.QuantLinear


def awq(name, group_size):
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    model, tensors, weights = tiny(), {}, {}
    for module, linear in linears(model):
        n, k = linear.weight.shape
        g_idx = order(k, group_size, False)
        scales, zeros, grid = round_to_codes(linear.weight.data, 4, group_size, False, g_idx)
        on_grid = torch.nn.Linear(k, n, bias=False)
        on_grid.weight.data = grid
        made = WQLinear_GEMM.from_linear(on_grid, 4, group_size, False, scales.T.contiguous(),
                                         zeros.T.contiguous())
        for part in ("qweight", "qzeros", "scales"):
            tensors[f"{module}.{part}"] = getattr(made, part)
        weights[module] = dequantize_gemm(made.qweight, made.qzeros, made.scales.float(), 4,
                                          group_size).T.contiguous()
        assert torch.allclose(weights[module], grid, atol=1e-6), (name, module)
    folder = write(name, model, tensors, {
        "quant_method": "awq", "bits": 4, "group_size": group_size, "zero_point": True,
        "version": "gemm", "modules_to_not_convert": None,
    })
    golden(folder, weights, tiny())


def compressed(name, scheme):
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier

    folder = here / name
    shutil.rmtree(folder, ignore_errors=True)
    source = here / "source"
    tiny().save_pretrained(source)
    model = LlamaForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    if isinstance(scheme, str):
        recipe = QuantizationModifier(targets="Linear", scheme=scheme, ignore=["lm_head"])
    else:
        recipe = QuantizationModifier(config_groups={"group_0": scheme}, ignore=["lm_head"])
    oneshot(model=model, recipe=recipe)
    model.save_pretrained(folder, save_compressed=True)
    shutil.rmtree(source)
    for extra in folder.glob("*"):
        if extra.name not in ("config.json", "model.safetensors"):
            extra.unlink()
    saved = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    [group] = config["config_groups"].values()
    form = group.pop("format", None) or config["format"]
    settings = QuantizationScheme(**group)
    weights = {}
    for module, _ in linears(tiny()):
        state = {k[len(module) + 1:]: v for k, v in saved.items() if k.startswith(module + ".")}
        state["weight_scale"] = state["weight_scale"].float()
        made = BaseCompressor.get_value_from_registry(form).decompress(state, settings)
        weights[module] = made["weight"].float().contiguous()
    golden(folder, weights, tiny())


def fp8(name, block):
    model, tensors, weights = tiny(), {}, {}
    for module, linear in linears(model):
        w = linear.weight.data.float()
        n, k = w.shape
        bn, bk = block or (n, k)
        scale = torch.zeros((n + bn - 1) // bn, (k + bk - 1) // bk)
        codes = torch.zeros(n, k, dtype=torch.float8_e4m3fn)
        made = torch.zeros(n, k)
        for i in range(scale.shape[0]):
            for j in range(scale.shape[1]):
                rows, columns = slice(i * bn, (i + 1) * bn), slice(j * bk, (j + 1) * bk)
                scale[i, j] = w[rows, columns].abs().max() / 448
                part = (w[rows, columns] / scale[i, j]).to(torch.float8_e4m3fn)
                codes[rows, columns] = part
                made[rows, columns] = part.float() * scale[i, j]
        tensors[f"{module}.weight"] = codes
        if block:
            tensors[f"{module}.weight_scale_inv"] = scale
        else:
            tensors[f"{module}.weight_scale"] = scale.reshape(())
        weights[module] = made
    config = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    if block:
        config |= {"weight_block_size": list(block), "modules_to_not_convert": ["lm_head"]}
    folder = write(name, model, tensors, config)
    golden(folder, weights, tiny())


def int_weights(bits, symmetric, group):
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric,
               "strategy": "group" if group else "channel"}
    if group:
        weights["group_size"] = group
    return {"targets": ["Linear"], "weights": weights}


ALL = {
    "gptq-4-sym-v1-order": lambda n: gptq(n, 4, 32, True, True, 1, "gptqmodel"),
    "gptq-4-asym-v2": lambda n: gptq(n, 4, 64, False, False, 2, "gptqmodel"),
    "gptq-3-asym-v2": lambda n: gptq(n, 3, 32, False, False, 2, "gptqmodel"),
    "gptq-8-asym-v1": lambda n: gptq(n, 8, -1, False, False, 1, "gptqmodel"),
    "autogptq-2-sym-v1": lambda n: gptq(n, 2, 32, True, False, 1, "autogptq"),
    "autogptq-3-asym-order-v1": lambda n: gptq(n, 3, 64, False, True, 1, "autogptq"),
    "autogptq-4-asym-v1": lambda n: gptq(n, 4, 128, False, False, 1, "autogptq", ffn=256),
    "awq-4": lambda n: awq(n, 32),
    "ct-w4a16-g32": lambda n: compressed(n, int_weights(4, True, 32)),
    "ct-w4a16-asym-g64": lambda n: compressed(n, int_weights(4, False, 64)),
    "ct-w8a16-channel": lambda n: compressed(n, int_weights(8, True, 0)),
    "ct-w8a8": lambda n: compressed(n, "W8A8"),
    "ct-fp8-dynamic": lambda n: compressed(n, "FP8_DYNAMIC"),
    "ct-fp8-block": lambda n: compressed(n, "FP8_BLOCK"),
    "fp8-block": lambda n: fp8(n, (128, 128)),
    "fp8-tensor": lambda n: fp8(n, None),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in sys.argv[1:] or ALL:
        ALL[each](each)
        print("made", each)
