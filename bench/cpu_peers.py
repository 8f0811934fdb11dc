#!/usr/bin/env python3
"""cpu_peers.py: orlop beside llama.cpp and OpenVINO GenAI, and all of them beside the limits of the machine.

    python3 bench/cpu_peers.py --gguf MODEL.gguf --llama BIN
    python3 bench/cpu_peers.py --models FOLDER --names smol,l1b --gguf MODEL.gguf --llama BIN --openvino PYTHON

Peers are given by path and none is needed: BIN is the folder of llama-bench, llama-batched-bench and
llama-completion, PYTHON an interpreter that can import openvino_genai. FOLDER holds, for each NAME, what there is
of: NAME (a Hugging Face folder), NAME-bf16.gguf, NAME-q8_0.gguf, NAME-q4_0.gguf, NAME-ov-fp16, NAME-ov-int8 and
NAME-ov-int4 (OpenVINO folders). orlop quantizes NAME as it loads it; with --orlop-gguf it takes the same GGUF files
as llama.cpp. A --gguf file is measured as it is.

Every measurement is a process of its own. The entries of a case (a model in one weight format) run one after
another, once a round, round after round, so that what else the machine does hits all alike. Before and after each
process probe.c measures the limits: bytes read from memory a second and the rates of int8 and bf16 products.

  decode    cannot exceed  batch x bandwidth / bytes of the weights, nor rate of products / (2 x multiplications)
  prefill   cannot exceed  rate of products / (2 x multiplications of a token in the layers' matrices)

Memory has two speeds on some machines, for seconds at a time. A figure is of fast memory if both probes read --fast
GB/s or more, else of slow memory. Figures bound by memory are judged within one speed: the fast one if everyone has
figures of it. A process during which others took more than a tenth of a core is left out where there are others. All
figures are in the raw JSON (--json), which --report prints again. They are medians, with the extremes beside them.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

from peer_engines import HERE, Finished, Llama, OpenVino, Orlop

ORLOP_WEIGHTS = {  # keys of the engine's configuration
    "int4": {"quant": "iq", "quant_bits": 4, "quant_granularity": "group", "quant_group_size": 64, "quant_symmetric": "true"},
    "int8": {"quant": "iq", "quant_bits": 8, "quant_granularity": "per_channel"},
    "bf16": {},
}
GGUF = {"int4": "q4_0", "int8": "q8_0", "bf16": "bf16"}
OPENVINO = {"int4": "int4", "int8": "int8", "bf16": "fp16"}

# What must be reached: model, weights, test: times whom, at least; then the share of the limit.
GOALS = {
    ("l1b", "int4", "decode 1"): ("llama.cpp", 1.5, 0.8),
    ("l1b", "int8", "decode 1"): ("llama.cpp", 1.8, 0.8),
    ("l1b", "bf16", "decode 1"): ("llama.cpp", 1.15, 0.8),
    ("l1b", "int4", "decode 4"): ("openvino", 1.7, None),
    ("l1b", "int4", "decode 8"): ("openvino", 1.4, None),
    ("l1b", "int4", "decode 16"): ("openvino", 1.25, None),
    ("l1b", "int4", "decode 32"): ("openvino", 1.25, None),
    **{("l1b", "int8", f"decode {b}"): ("openvino", 1.25, None) for b in (4, 8, 16, 32)},
    ("l1b", "int4", "prefill"): ("openvino", 1.15, 0.6),
    ("l1b", "int8", "prefill"): ("openvino", 1.15, 0.6),
    ("l1b", "bf16", "prefill"): ("best", 1.0, 0.85),
    ("smol", "int4", "prefill"): ("openvino", 1.1, None),
    ("smol", "int4", "decode 1"): ("llama.cpp", 1.5, None),
    ("smol", "int4", "decode 32"): ("openvino", 1.2, None),
    ("gguf", "as shipped", "prefill"): ("llama.cpp", 4.0, None),
    ("gguf", "as shipped", "decode 1"): ("llama.cpp", 2.4, None),
    ("gguf", "as shipped", "decode 32"): ("llama.cpp", 3.5, None),
    ("gguf", "as shipped", "first token"): ("llama.cpp", 0.7, None),
    **{(m, w, "resident"): ("best", 1.0, None) for m in ("l1b", "smol") for w in GGUF},
    ("gguf", "as shipped", "resident"): ("best", 1.0, None),
}
SMALLER = ("first token", "resident")  # tests in which less is better


# ---- cases

class Case:
    """A model in one weight format, and who computes it."""

    def __init__(self, args, model, weights, orlop, lengths, gguf=None, openvino=None, keys=None):
        self.model, self.weights, self.products = model, weights, layer_multiplications(args, orlop)
        print(f"{model} {weights}: orlop takes {os.path.basename(orlop)}" +
              "".join(f", {k} {v}" for k, v in (keys or {}).items()))
        computes = args.compute or (["bf16"] if weights == "bf16" else [None] if model == "gguf" else ["int8"])
        self.entries = [Orlop(args, orlop, keys or {}, c, lengths) for c in computes]
        if args.llama and gguf and os.path.exists(gguf):
            self.entries.append(Llama(args, gguf, lengths))
        elif args.llama:
            print(f"{model} {weights}: no {gguf} for llama.cpp")
        if args.openvino and openvino and os.path.exists(openvino):
            self.entries.append(OpenVino(args, openvino, lengths))
        elif args.openvino and openvino:
            print(f"{model} {weights}: no {openvino} for OpenVINO")


def layer_multiplications(args, model):
    """[a token's multiplications in the layers' matrices, the same with the head], or None. (Of the head a prompt needs
    one row.)"""
    try:
        tensors = json.loads(Finished([args.orlop, "inspect", model, "--json"]).output)["tensors"]
    except (KeyError, ValueError, RuntimeError):
        return None
    layers = head = 0
    for t in tensors:
        if len(t["shape"]) != 2:
            continue
        size = t["shape"][0] * t["shape"][1]
        if any(word in t["name"] for word in ("token_embd", "embed_tokens", "lm_head")) or t["name"] == "output.weight":
            head = size
        else:
            layers += size
    return [layers, layers + head] if layers else None


def all_cases(args):
    cases = []
    for name in args.names.split(",") if args.models else []:
        folder = pathlib.Path(args.models)
        lengths = (128, 32) if name == "smol" else (32, 16)
        for weights in args.weights.split(","):
            gguf = folder / f"{name}-{GGUF[weights]}.gguf"
            orlop, keys = (gguf, {}) if args.orlop_gguf else (folder / name, dict(ORLOP_WEIGHTS[weights]))
            if keys:
                keys.update(pair.split("=", 1) for pair in (getattr(args, weights) or "").split(",") if pair)
            cases.append(Case(args, name, weights, orlop, lengths, gguf, folder / f"{name}-ov-{OPENVINO[weights]}", keys))
    for file in args.gguf or []:
        cases.append(Case(args, "gguf", "as shipped", file, (128, 32), file))
    return cases


def measure(args, cases, raw):
    with tempfile.TemporaryDirectory() as folder:
        probe = build_probe(pathlib.Path(folder))
        for r in range(args.rounds):
            for case in cases:
                say(f"round {r + 1}, {case.model} {case.weights}")
                for i in range(len(case.entries)):  # everyone goes first once
                    measure_entry(args, case, case.entries[(r + i) % len(case.entries)], raw, r + 1,
                                  lambda: json.loads(Finished([probe, args.threads]).output))
                if args.json:
                    pathlib.Path(args.json).write_text(json.dumps(raw) + "\n")


def measure_entry(args, case, entry, raw, number, probe):
    begin, seen = time.perf_counter(), []
    where = {"model": case.model, "weights": case.weights, "peer": entry.peer, "round": number}
    before = probe()
    for what in args.what.split(","):
        try:
            for test, value, done in getattr(entry, what)():
                after = probe()
                limits = {**after, "read_gbs": min(before["read_gbs"], after["read_gbs"])}
                raw["figures"].append({**where, "compute": entry.compute or "", "test": test, "value": value,
                                       "others": round(done.others, 2), **limits})
                seen.append(f"{test} {value:.4g}" + ("*" if done.others > 0.1 else "") +
                            ("" if limits["read_gbs"] < args.fast else "!"))
                before = after
        except (RuntimeError, ValueError, KeyError, TypeError, OSError) as error:
            say(f"  {entry.peer}, {what}: FAILED: {error}")
            raw["failed"].append({**where, "what": what, "error": str(error)})
    facts = {"weight_bytes": (entry.facts or {}).get("weight_bytes"), "products": case.products,
             "resident_limit": getattr(entry, "resident_limit", None)}
    raw["facts"]["|".join([case.model, case.weights, entry.peer, entry.compute or ""])] = facts
    say(f"  {entry.peer} {entry.compute or ''} ({time.perf_counter() - begin:.0f} s): " + ", ".join(seen))


def build_probe(folder):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise SystemExit("error: no C compiler for bench/probe.c")
    Finished([compiler, "-O2", "-pthread", HERE / "probe.c", "-o", folder / "probe"])
    return folder / "probe"


def say(words):
    print(words, file=sys.stderr, flush=True)


# ---- the report

def middle(values, digits=1):
    low, high = min(values), max(values)
    words = f"{statistics.median(values):.{digits}f}"
    return words if len(values) == 1 else f"{words} ({low:.{digits}f} to {high:.{digits}f})"


def limit_of(test, compute, facts, figures):
    """What the machine lets a test reach, as the rounds of these figures probed it; None where that is unknown."""
    probed = lambda key: statistics.median(f[key] for f in figures) if all(f.get(key) for f in figures) else None
    rate = probed("bf16_gflops" if compute == "bf16" else "int8_gops" if compute in ("int8", "a8") else "none")
    if test == "prefill":
        return rate * 1e9 / 2 / facts["products"][0] if rate and facts["products"] else None
    if test.startswith("decode") and facts["weight_bytes"]:
        batch = int(test.split()[1])
        read = batch * probed("read_gbs") * 1e9 / facts["weight_bytes"]
        most = rate * 1e9 / 2 / facts["products"][1] if rate and facts["products"] else None
        return read if batch == 1 or not most else min(read, most)
    return facts["resident_limit"] if test == "resident" else None


def undisturbed(figures):
    """Those figures that count, and words on the others."""
    quiet = [f for f in figures if f["others"] <= 0.1]
    if not quiet:
        return figures, ["all disturbed"]
    return quiet, [f"{len(figures) - len(quiet)} disturbed left out"] if len(quiet) < len(figures) else []


def of_one_speed(rows, fast):
    """The rows' figures of the memory's fast state, if all have some, else of the slow one where they have some."""
    quick = all(any(f["read_gbs"] >= fast for f in kept) for kept, _ in rows.values())
    chosen = {}
    for who, (kept, words) in rows.items():
        same = [f for f in kept if (f["read_gbs"] >= fast) == quick]
        others = [f["value"] for f in kept if (f["read_gbs"] >= fast) != quick]
        if not same:
            words = words + ["fast memory"]
        elif not others:
            words = words + ([] if quick else ["slow memory"])
        else:
            words = words + [f"{len(others)} with {'slow' if quick else 'fast'} memory left out: {middle(others)}"]
        chosen[who] = (same or kept, words)
    return chosen


def report(raw, fast):
    figures, short, met = raw["figures"], [], 0
    for key in ("read_gbs", "int8_gops", "bf16_gflops"):
        values = [f[key] for f in figures if f.get(key)]
        if values:
            print(f"{key}: {middle(values)}" + (f", {sum(v < fast for v in values)} of {len(values)} figures below {fast:g}"
                                                if key == "read_gbs" else ""))
    seen = []
    for f in figures:
        if (place := (f["model"], f["weights"])) not in seen:
            seen.append(place)
    for model, weights in seen:
        print(f"\n{model}, {weights}")
        mine = [f for f in figures if (f["model"], f["weights"]) == (model, weights)]
        tests = []
        for f in mine:
            if f["test"] not in tests:
                tests.append(f["test"])
        for test in tests:
            unit = "s" if test == "first token" else "MB" if test in ("resident", "peak") else "tokens/s"
            print(f"  {test}, {unit}:")
            digits = 3 if unit == "s" else 1
            rows = {}
            for f in mine:
                if f["test"] == test and f["value"] is not None:
                    rows.setdefault((f["peer"], f["compute"]), []).append(f)
            rows = {who: undisturbed(of) for who, of in rows.items()}
            if test.startswith("decode"):
                rows = of_one_speed(rows, fast)
            value = {who: statistics.median(f["value"] for f in kept) for who, (kept, _) in rows.items()}
            better = min if test in SMALLER + ("peak",) else max
            peers = {who[0]: v for who, v in value.items() if who[0] != "orlop"}
            for who, (kept, words) in rows.items():
                line = f"    {' '.join(who).strip():16s} {middle([f['value'] for f in kept], digits):28s}"
                facts = raw["facts"].get("|".join([model, weights, *who]), {})
                most = limit_of(test, who[1], facts, kept) if facts.get("weight_bytes") else None
                if most:
                    line += f" {value[who] / most:6.1%} of {most:.0f}"
                if who[0] == "orlop" and peers:
                    line += "; " + ", ".join(f"{value[who] / v:.2f} x {peer}" for peer, v in peers.items())
                print(line + "".join(f"; {w}" for w in words))
            goal = GOALS.get((model, weights, test))
            mine_best = [v for who, v in value.items() if who[0] == "orlop"]
            if not goal or not mine_best:
                continue
            whom, times, share = goal
            other = better(peers.values()) if whom == "best" and peers else peers.get(whom)
            best = better(mine_best)
            if other is None:
                print(f"    goal: {times:g} x {whom}: not measured")
            else:
                reached = best / other <= times if test in SMALLER else best / other >= times
                met += reached
                print(f"    goal: {'at most' if test in SMALLER else 'at least'} {times:g} x {whom}: {best / other:.2f}"
                      f" {'met' if reached else 'SHORT'}")
                if not reached:
                    short.append(f"{model} {weights} {test}: {best / other:.2f} x {whom}, not {times:g}")
            if share:
                who = next(w for w, v in value.items() if w[0] == "orlop" and v == best)
                facts = raw["facts"]["|".join([model, weights, *who])]
                most = limit_of(test, who[1], facts, rows[who][0])
                if most:
                    met += best / most >= share
                    print(f"    goal: {share:.0%} of the limit: {best / most:.1%} {'met' if best / most >= share else 'SHORT'}")
                    if best / most < share:
                        short.append(f"{model} {weights} {test}: {best / most:.1%} of the limit, not {share:.0%}")
    print(f"\ngoals: {met} met, {len(short)} short")
    for words in short:
        print(f"  short: {words}")
    for f in raw["failed"]:
        print(f"  failed: {f['model']} {f['weights']} {f['peer']} {f['what']}, round {f['round']}: {f['error'][:300]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", metavar="FOLDER", help="where the models of --names lie")
    parser.add_argument("--names", default="l1b,smol")
    parser.add_argument("--weights", default="int4,int8,bf16", help="formats of those models")
    parser.add_argument("--gguf", action="append", metavar="FILE", help="a file to be measured as it is; may be given again")
    parser.add_argument("--orlop", default="orlop", help="the orlop command")
    parser.add_argument("--llama", metavar="BIN", help="the folder of llama.cpp's tools")
    parser.add_argument("--openvino", metavar="PYTHON", help="an interpreter with openvino_genai")
    parser.add_argument("--orlop-gguf", action="store_true", help="orlop takes the GGUF files, too")
    for bits in ("int4", "int8"):
        parser.add_argument("--" + bits, metavar="KEY=VALUE,...", help=f"keys of orlop's configuration for {bits} weights, "
                            "beside " + ", ".join(f"{k}={v}" for k, v in ORLOP_WEIGHTS[bits].items()))
    parser.add_argument("--compute", action="append", help="a setting of orlop's; may be given again (default: int8, and "
                        "bf16 for bf16 weights; the machine's own for --gguf)")
    parser.add_argument("--what", default="speed,memory,start", help="any of these (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", default="1,4,8,16,32", type=lambda t: [int(b) for b in t.split(",")])
    parser.add_argument("--fast", type=float, default=45.0, help="GB/s from which memory counts as fast (default 45)")
    parser.add_argument("--json", metavar="FILE", help="all figures, raw")
    parser.add_argument("--report", metavar="FILE", help="print the report of a raw file; measures nothing")
    args = parser.parse_args()
    if args.report:
        return report(json.loads(pathlib.Path(args.report).read_text()), args.fast)
    if not (args.models or args.gguf):
        parser.error("nothing to measure: give --models or --gguf")
    raw = {"threads": args.threads, "rounds": args.rounds, "load_before": os.getloadavg()[0], "command": sys.argv[1:],
           "figures": [], "failed": [], "facts": {}}
    print(f"{args.threads} threads, {args.rounds} rounds, load {raw['load_before']:.2f} before", flush=True)
    measure(args, all_cases(args), raw)
    report(raw, args.fast)
    if not raw["figures"]:
        raise SystemExit("error: nothing could be measured")


if __name__ == "__main__":
    main()
