#!/usr/bin/env python3
"""Writes the tables of docs/configuration.md from the code; --check only says whether they are current.

What a key takes and its default are read from src/api/config.cc and config.h, the fields of a request from
include/orlop/orlop.h, the variables from the sources. What they mean is said here, in ENGINE, REQUEST and
ENVIRONMENT: a key without a text, and a text without its key, is an error.
"""
import argparse
import pathlib
import re
import sys

DOCUMENT = "docs/configuration.md"

# key: what it means, or (default as the reader meets it, what it means) where the code's own initial value
# only says "not given".
ENGINE = {
    "model": ("required", "a checkpoint folder (config.json, safetensors, tokenizer.json) or a .gguf file"),
    "model_offset": ("0", "where in the file of `model` its bytes begin, a multiple of 64: for a model that lies inside another file, such as the running program ([edge.md](edge.md))"),
    "model_bytes": ("to the file's end", "how many bytes of it are the model; a file that is shorter is refused"),
    "device": "where the model runs; `\"guard\"` is the processor's slowest kernels over memory that nothing else can touch: for tests of the engine",
    "deterministic": "true: a request's tokens depend on its own prompt, parameters and seed, not on what runs beside it. false, on `cuda`: faster; only equal batches give equal bits. The CPU needs no choice: it is always so",
    "load": "`\"mmap\"`: weights are memory-mapped. `\"read\"`: files are read into memory, for files that may be truncated or replaced while the engine runs",
    "compute": ("`\"auto\"`", "how products are computed: `\"fp32\"`, `\"bf16\"` (activations rounded to bf16, float32 sums), `\"int8\"` (activations of the feed-forward layers and the head in int8, one scale per 32 elements; attention's projections, float and fp8 weights take bf16) or `\"a8\"` (activations of the feed-forward layers in int8, one scale per token; attention's projections and the head take bf16; for weights of 8 or 4 bits, GGUF's types are computed as in `int8`). Weights keep the format of the file, unless `quant` says otherwise. `\"auto\"`: `a8` where the weights were made for it (`quant: \"a8w8\"`, W8A8 checkpoints), else the backend's choice for this machine; shown in the startup facts"),
    "quant": ("`\"none\"`", "`\"none\"`: weights as the checkpoint holds them, quantized or not. `\"iq\"`: float weights (f32, f16, bf16) are quantized while they load, without calibration, as the next four keys say; norms and biases stay float. `\"a8w8\"`: int8 weights with a scale per channel, and `compute` `\"a8\"` unless given. `\"gptq\"`, `\"awq\"`, `\"fp8\"`, `\"compressed-tensors\"`: as `\"none\"`, and a checkpoint of another kind is refused"),
    "quant_bits": ("8", "of `iq`: 8, or 4. With 4 the embedding and the head take 8 bits and the same groups, symmetric: their rows are looked up and compared, not summed over"),
    "quant_granularity": ("`\"group\"`", "of `iq`: weights that share a scale: `\"group\"`, runs of `quant_group_size` along the input, or `\"per_channel\"`, all of an output channel (`\"sub-channel\"` and `\"per-channel\"` are understood)"),
    "quant_group_size": ("32", "of `iq` with groups. A float32 scale per group (asymmetric: and a minimum): 32 costs a bit more a weight than `per_channel` (asymmetric: two)"),
    "quant_symmetric": ("by bits", "of `iq`: no minimum beside the scale. Default: true with 8 bits, false with 4. Scales of 4 bits are searched for the least squared error; groups that lie on a grid of 16 steps already, such as dequantized Q4_1, keep it"),
    "kv_dtype": ("`\"auto\"`", "what the KV cache stores; `\"int8\"` and `\"uint4\"`: values with a scale per token and head; keys with a scale per channel once their 16 tokens are complete (on a GPU, int8: 32 where `block_size` is a multiple of it), until then bf16. `\"auto\"`: fp32 where `compute` is fp32, else bf16"),
    "block_size": "tokens a KV page: 8, or a multiple of 16; with `kv_dtype` `int8` and `uint4` a multiple of 16",
    "kv_bytes": ("derived", "bytes of the KV cache, what running sequences keep beside their pages (`int8`, `uint4`) included; at least a page of each cache group. Derived: what `max_running_seqs` sequences of `max_context` tokens can use, at most `kv_fraction` of the memory that is left. Pages take real memory once they are used; on `cuda` at once. With `n_gpu_layers` GPU and processor together: each has its layers' part of every page"),
    "kv_fraction": ("by device", "the part of the memory that the KV cache may take where `kv_bytes` is not given: on the CPU of what the weights leave (default 0.25), on `cuda` of what is free once weights, workspace and a real step of the largest size are there (default 0.9). With `n_gpu_layers` of each: the one that holds fewer tokens decides"),
    "n_gpu_layers": ("all", "layers on the GPU, the last of the model; those before them and the lookup of tokens run on the processor, the head and sampling always on the GPU: for models larger than the card ([cuda.md](cuda.md#models-larger-than-the-card)). More than the model has: all. With device `\"cpu\"` only 0 is allowed; `\"guard\"` stands for a GPU, for tests"),
    "max_running_seqs": "sequences that hold pages at once; each of the `n` samples of a request is one",
    "max_waiting": "sequences that may wait for their first step; one more is refused with QUEUE_FULL",
    "max_context": ("derived", "tokens of one sequence, prompt and output; at most the model's positions. Derived: the model's positions, or what the KV cache holds if that is less"),
    "step_tokens": ("512; `cuda`: 2,048, but 512 where `n_gpu_layers` leaves layers to the processor", "tokens that one step computes at most; a longer prompt is computed in chunks"),
    "chunked_prefill": "false: `step_tokens`, unless given, is `max_context` plus `max_running_seqs` (at most 65,536), so that a prompt is computed in one step and everything else waits for it; give `max_context`, for the workspace grows with it. A prompt is still cut where `step_tokens` is smaller, or where others fill the step",
    "itl_target_ms": "milliseconds between the tokens of running streams: prefill chunks shrink so that a step keeps it, as measured on this machine. 0: off, for throughput",
    "scheduling": ("`\"fair\"`", "which of the waiting sequences goes first: `\"fair\"`: by arrival, priority and prompt length, so that short prompts need not wait for long ones and nothing starves; `\"fcfs\"`: by arrival and priority"),
    "enable_prefix_cache": "computed pages are kept after their request, and prompts that begin with the same tokens (and `cache_salt`) take them. Pages that the cache alone holds are given up as soon as others need them",
    "enable_guided_decoding": "true: the tables of the vocabulary that guides need are made while the model loads; guides work without it too, then the first one waits for them (some milliseconds for a vocabulary of 50,000)",
    "enable_cpu_prefix_swap": "a second tier of the prefix cache: evicted pages go to host memory and come back",
    "cpu_prefix_bytes": ("1 GiB", "bytes of that tier; left out it is at most half of the available memory, and more than the available memory is refused"),
    "output_bytes": "output of a request that may lie untaken; then it pauses until its consumer reads. At least one token is always delivered",
    "threads": "compute threads. 0: from the machine, within the process's affinity and CPU quota, a thread a physical core",
    "debug_poison": "freed KV pages are overwritten with NaN, for tests",
    "debug_plan_ahead": "the next step is planned while one runs",
    "debug_run_ahead": ("by device", "the next step is started before the tokens that one draws are known here: on `cuda`, which keeps it busy, and on `guard`. The same tokens either way"),
}
ANY_TEXT = {"model": "a path", "device": "a name"}
RESERVED = {"dtype"}  # known, so that it is not taken for a misspelling, and refused

# Fields of orlop_generate_params that belong together: (default, range and meaning).
REQUEST = {
    ("text", "tokens", "messages"): ("required", "the prompt, exactly one of the three; `messages` is a JSON array of `{role, content}`, or an object with `messages`, `tools` and variables for the template"),
    ("max_tokens",): ("until the context is full", "0: compute the prompt only"),
    ("min_tokens",): ("0", "at most `max_tokens`; stops and end-of-turn tokens are held off before this many tokens"),
    ("temperature",): ("1", "0 to 1,000,000; 0 (and below 1e-6): greedy, the lowest id wins a tie. A checkpoint whose generation_config says `do_sample: false` makes 0 the default"),
    ("top_k",): ("0", "≥ 0; 0: off"),
    ("top_p",): ("1", "0 to 1; 1: off, 0: the best token only"),
    ("min_p",): ("0", "0 to 1; 0: off"),
    ("repetition_penalty",): ("1", "above 0 to 1,000,000; 1: off; over prompt and output"),
    ("presence_penalty", "frequency_penalty"): ("0", "−2 to 2; over the output"),
    ("logit_bias",): ("none", "pairs of token and bias, added to the logit; −infinity forbids the token; several entries of one token add up"),
    ("seed",): ("drawn", "any 64-bit number; a drawn one is reported by `orlop_get_status` and reproduces the output"),
    ("stop",): ("none", "up to 256 strings of up to 4,096 bytes that end the output and are not part of it"),
    ("stop_tokens",): ("none", "token ids that end the output"),
    ("logprobs",): ("off", "0: of each chosen token; N: the N best as well; −1: the whole vocabulary. Raw: before penalties, masks and temperature"),
    ("prompt_logprobs",): ("off", "the same for prompt tokens, each given those before it"),
    ("n",): ("1", "samples of the prompt, 1 to 128. The prompt is computed once; sample i equals the request of one sample with seed + i, and its outputs bear `index` i"),
    ("guide", "guide_source"): ("none", "what the output must be: any JSON object, a JSON Schema, a regular expression, a GBNF grammar, one of a list, tool calls; see [embedding.md](embedding.md#guides-chat-output-embeddings)"),
    ("embedding",): ("none", "the prompt's hidden states, pooled (their mean, or the last token's), instead of generated text"),
    ("queue", "tag"): ("none", "the completion queue that is told of new output, and what it then answers. Bindings that bring an event loop set them themselves"),
    ("cache_salt",): ("none", "text of up to 1,024 bytes that does not begin with a NUL: prefixes are shared within equal salts only, so that nobody can find out by timing what others asked"),
    ("deadline_us",): ("0", "microseconds from submission after which the request ends with `ORLOP_E_DEADLINE`, waiting or running. 0: none. In Python `deadline`, in seconds; in C++ `deadline`, a duration"),
    ("priority",): ("0", "−100 to 100: higher goes first. A level counts as ten seconds of waiting, so nothing starves"),
}
FLAGS = {
    "ORLOP_GENERATE_IGNORE_EOS": "end-of-turn tokens do not stop",
    "ORLOP_GENERATE_SEEDED": "`seed` is given; bindings set it with the seed",
    "ORLOP_GENERATE_NO_BOS": "text prompt: the model's BOS token is not added",
    "ORLOP_GENERATE_PLAIN": "text prompt: control tokens spelled in the text stay plain text",
    "ORLOP_GENERATE_KEEP_SPECIAL": "output text shows control tokens",
}
ENVIRONMENT = {
    "ORLOP_CUDA_LIBRARY": "the absolute path of the CUDA backend (liborlop_cuda.so), where it does not lie beside the library; of builds with that backend",
    "ORLOP_ISA": "forces an instruction set of the kernels: {isa}; an unknown one, or one that the processor lacks, is refused when an engine is created",
}


class Mismatch(Exception):
    pass


def agree(what, code, texts):
    """The names in the code and those with a text are the same."""
    code, texts = set(code), set(texts)
    if code - texts:
        raise Mismatch(f"{what} without a text in {pathlib.Path(__file__).name}: {', '.join(sorted(code - texts))}")
    if texts - code:
        raise Mismatch(f"{what} with a text that the code does not know: {', '.join(sorted(texts - code))}")


def cell(text):
    return text.replace("|", "\\|")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cell(c) for c in row) + " |" for row in rows])


def count(text):
    """An integer expression of the code: 65536, 10'000'000, int64_t{1} << 50."""
    text = text.replace("'", "").strip()
    shift = re.fullmatch(r"int64_t\{1\} << (\d+)", text)
    return 1 << int(shift[1]) if shift else 2147483647 if text == "int_max" else int(text)


def shown(n):
    for power, unit in ((30, "GiB"), (20, "MiB")):
        if n >= 1 << power and n % (1 << power) == 0 and n < 1 << (power + 10):
            return f"{n >> power} {unit}"
    if n == 2147483647:
        return "2^31 − 1"
    if n >= 1 << 40 and n & (n - 1) == 0:
        return f"2^{n.bit_length() - 1}"
    return f"{n:,}"


def branches(apply):
    """key: the code that reads it, of the chain of `if (key == "…")` in apply()."""
    parts = re.split(r'(?:else )?if \(key == "(\w+)"\) \{', apply)
    return dict(zip(parts[1::2], parts[2::2]))


def values(code):
    """The strings that a value is compared with, in the order of the message that lists them."""
    compared = set(re.findall(r'\b(?:s|kind) [!=]= "([^"]+)"', code))
    listed = re.search(r'must be ([\w, -]+?), got', code)
    words = re.split(r", | or ", listed[1]) if listed else []
    return [w for w in words if w in compared] + sorted(compared - set(words))


def engine_rows(root):
    source = (root / "src/api/config.cc").read_text()
    header = (root / "src/api/config.h").read_text()
    keys = re.findall(r'"(\w+)"', re.search(r"known_keys = \{(.*?)\};", source, re.S)[1])
    agree("engine keys", set(keys) - RESERVED, ENGINE)
    initial = dict(re.findall(r"^  [\w:<>]+ (\w+)(?: = (.*?))?;", header, re.M))
    read = branches(re.search(r"^void apply\(.*?^}", source, re.S | re.M)[0])
    quant = re.search(r"^QuantOptions quant_options\(.*?^}", source, re.S | re.M)[0]
    rows = []
    for key in ENGINE:  # the order of this table: what belongs together
        code = quant if key.startswith("quant") else read[key]
        if key == "quant":
            takes = [f'"{v}"' for v in values(quant.split("int8_activations")[0])]
        elif key == "quant_bits":
            takes = sorted({n for s in re.findall(r'"quant_bits", \*bits, \{([\d, ]+)\}', quant) for n in s.split(", ")}, key=int)
        elif key == "quant_group_size":
            takes = re.search(r'"quant_group_size", \*group, \{([\d, ]+)\}', quant)[1].split(", ")
        elif key == "quant_granularity":
            takes = ['"group"', '"per_channel"']
            if 's != "per_channel" && s != "group"' not in quant:
                raise Mismatch("quant_granularity: its values are read otherwise than this script knows")
        elif key == "quant_symmetric" or "flag_of(" in code:
            takes = None
        elif key in ANY_TEXT:
            takes = ANY_TEXT[key]
        elif (span := re.search(r"integer_of\(k, v, (.+?), ([^;]+?)\)\)?;", code)):
            takes = f"{shown(count(span[1]))} to {shown(count(span[2]))}"
        elif (span := re.search(r"must be a number of (\d+) to (\d+)", code)):
            takes = f"{shown(int(span[1]))} to {shown(int(span[2]))}"
        elif (span := re.search(r"must be a number above (\d+), at most (\d+)", code)):
            takes = f"above {span[1]} to {span[2]}"
        else:
            takes = [f'"{v}"' for v in values(code)]
            if len(takes) < 2:
                raise Mismatch(f"{key}: what it takes is not found in src/api/config.cc")
        if takes is None:
            takes = "true, false"
        elif isinstance(takes, list):
            takes = ", ".join(f"`{t}`" if t.startswith('"') else t for t in takes)
        entry = ENGINE[key]
        if isinstance(entry, tuple):
            default, text = entry
        else:
            member = re.search(r"\bc\.(\w+) = ", code)[1]
            default, text = initial[member], entry
            if re.fullmatch(r'".*"', default):
                default = f"`{default}`"
            elif "::" in default:
                default = f'`"{default.split("::")[1]}"`'
            elif default not in ("true", "false"):
                default = shown(count(default))
        rows.append((f"`{key}`", takes, default, text))
    return rows


def request_rows(root):
    header = (root / "include/orlop/orlop.h").read_text()
    body = re.search(r"typedef struct orlop_generate_params \{(.*?)^\}", header, re.S | re.M)[1]
    fields = re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", body, flags=re.S))
    plumbing = {"struct_size", "flags", "reserved"}
    lengths = {f for f in fields if f.startswith("n_") or f.endswith("_len")}
    agree("request fields", set(fields) - plumbing - lengths, {f for group in REQUEST for f in group})
    agree("request flags", re.findall(r"#define (ORLOP_GENERATE_\w+)", header), FLAGS)
    rows = [(", ".join(f"`{f}`" for f in group), default, text) for group, (default, text) in REQUEST.items()]
    return rows + [(f"`{flag}`", "off", text) for flag, text in FLAGS.items()]


def built(root):
    """The sources that the build files name."""
    for room in sorted((root / "src").iterdir()):
        named = (room / "meson.build").read_text() if (room / "meson.build").exists() else ""
        yield from (f for f in sorted(room.rglob("*.cc")) if f"{f.relative_to(room)}" in named)


def environment_rows(root):
    found, names = set(), []
    for file in built(root):
        text = file.read_text()
        found |= set(re.findall(r'getenv\("(\w+)"\)', text))
        if (listed := re.search(r"is none of ((?:\w+, )+\w+)\"", text)):
            names = listed[1].split(", ")
    agree("environment variables", found, ENVIRONMENT)
    split = names.index("neon")
    x86, arm = names[:split], names[:1] + names[split:]
    listed = f"{', '.join(f'`{n}`' for n in x86)}; on ARM {', '.join(f'`{n}`' for n in arm)}"
    return [(f"`{v}`", text.format(isa=listed)) for v, text in ENVIRONMENT.items()]


def document(root, text):
    """`text` with its tables made anew."""
    tables = {
        "engine": table(("key", "takes", "default", "meaning"), engine_rows(root)),
        "request": table(("field", "default", "range and meaning"), request_rows(root)),
        "environment": table(("variable", "meaning"), environment_rows(root)),
    }
    for name, made in tables.items():
        begin, end = f"<!-- made by scripts/configuration_docs.py: {name} -->", "<!-- end -->"
        if text.count(begin) != 1:
            raise Mismatch(f"{DOCUMENT}: holds no place for the table {name}")
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{made}\n{end}{rest.split(end, 1)[1]}"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if the document is not current")
    args = parser.parse_args()
    path = args.root / DOCUMENT
    old = path.read_text()
    try:
        new = document(args.root, old)
    except Mismatch as e:
        sys.exit(f"error: {e}")
    if new == old:
        return
    if args.check:
        changed = [line for line in new.splitlines() if line not in old.splitlines()]
        sys.exit(f"error: {DOCUMENT} is not current; run scripts/configuration_docs.py. Its lines should be:\n" + "\n".join(changed))
    path.write_text(new)


if __name__ == "__main__":
    main()
