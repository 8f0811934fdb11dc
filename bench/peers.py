#!/usr/bin/env python3
"""peers.py: orlop beside llama.cpp on one file, and both beside the limits of the machine.

    python3 bench/peers.py --model SmolLM2-135M-Instruct.Q4_1.gguf --llama llama.cpp/build/bin

Measured: prefill of 512 tokens, and decode at the given batch sizes after prompts of 128 tokens, in
tokens a second summed over the batch. Every engine runs as a process of its own, once a round, round after
round, so that what else the machine does hits all alike; each figure is the median of the rounds, with the
extremes beside it. llama.cpp is measured with its own llama-bench and llama-batched-bench (flash attention
on, f16 KV cache), orlop with `orlop bench`. Each round also measures the limits (probe.c):

  decode   cannot exceed  batch x read bandwidth / bytes of the weights
  prefill  cannot exceed  int8 operations a second / (2 x multiplications a token)

Run it on an otherwise idle machine; it prints the load it found.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PREFILL, PROMPT, GENERATED = 512, 128, 32


def output_of(command):
    r = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    if r.returncode:
        raise SystemExit(f"error: {command[0]} ended with status {r.returncode}:\n{r.stderr[-2000:]}")
    return r.stdout


class Orlop:
    def __init__(self, args, compute):
        self.name = "orlop " + (compute or "default")
        self.command = [args.orlop, "bench", args.model, "--json", "--threads", args.threads, "--repeat", 1]
        if compute:
            self.command += ["--compute", compute]

    def measure(self, batches):
        prefill = json.loads(output_of([*self.command, "--prompt", PREFILL, "--gen", 2, "--batch", 1]))
        decode = json.loads(output_of([*self.command, "--prompt", PROMPT, "--gen", GENERATED, "--batch", ",".join(map(str, batches))]))
        if self.name == "orlop default" and prefill["engine"].get("compute"):
            self.name = f"orlop {prefill['engine']['compute']} (default)"
        yield "prefill", prefill["results"][0]["prefill_tokens_per_second"]
        for row in decode["results"]:
            yield f"decode {row['batch']}", row["decode_tokens_per_second"]


class Llama:
    name = "llama.cpp"

    def __init__(self, args):
        self.folder, self.common = pathlib.Path(args.llama), ["-m", args.model, "-t", args.threads]

    def measure(self, batches):
        r = json.loads(output_of([self.folder / "llama-bench", *self.common, "-p", PREFILL, "-n", 0, "-r", 1, "-fa", 1, "-o", "json"]))
        yield "prefill", r[0]["avg_ts"]
        context = max(512, max(batches) * (PROMPT + GENERATED))
        lines = output_of([self.folder / "llama-batched-bench", *self.common, "-npp", PROMPT, "-ntg", GENERATED, "-npl", ",".join(map(str, batches)),
                           "-c", context, "-b", 2048, "-fa", "on", "--output-format", "jsonl"])
        for line in lines.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                yield f"decode {row['pl']}", float(row["speed_tg"])


def build_probe(folder):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise SystemExit("error: no C compiler for bench/probe.c")
    output_of([compiler, "-O2", "-pthread", HERE / "probe.c", "-o", folder / "probe"])
    return folder / "probe"


def layer_multiplications(args):
    """Multiplications a prompt token needs in the layers' matrices, or None. (Of the output matrix a prompt needs one row.)"""
    try:
        tensors = json.loads(output_of([args.orlop, "inspect", args.model, "--json"]))["tensors"]
    except (KeyError, ValueError, SystemExit):
        return None
    apart = ("token_embd", "embed_tokens", "lm_head", "position_embd")
    total = 0
    for t in tensors:
        if len(t["shape"]) == 2 and t["name"] != "output.weight" and not any(w in t["name"] for w in apart):
            total += t["shape"][0] * t["shape"][1]
    return total or None


def middle(values):
    return f"{statistics.median(values):9.1f}  ({min(values):.1f} to {max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--llama", help="the folder of llama-bench and llama-batched-bench")
    parser.add_argument("--orlop", default="orlop", help="the orlop command")
    parser.add_argument("--compute", action="append", help="a setting of orlop's; may be given again (default: the machine's)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", default="1", help="e.g. 1,4,8")
    parser.add_argument("--json", metavar="FILE", help="all figures, raw")
    args = parser.parse_args()
    batches = [int(b) for b in args.batches.split(",")]
    engines = [Orlop(args, c) for c in args.compute or [None]]
    if args.llama:
        engines.append(Llama(args))
    figures, limits = [{} for _ in engines], []
    print(f"{os.path.basename(args.model)}, {args.threads} threads, {args.rounds} rounds, load {os.getloadavg()[0]:.2f} before", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        probe = build_probe(pathlib.Path(folder))
        for r in range(args.rounds):
            limits.append(json.loads(output_of([probe, args.threads])))
            for engine, mine in zip(engines, figures):
                for test, value in engine.measure(batches):
                    mine.setdefault(test, []).append(value)
            print(f"  round {r + 1}: {limits[-1]['read_gbs']} GB/s; " +
                  "; ".join(f"{e.name} " + ", ".join(f"{t} {v[-1]:.1f}" for t, v in f.items()) for e, f in zip(engines, figures)), file=sys.stderr, flush=True)
    report(args, engines, figures, limits, batches)
    if args.json:
        raw = {"model": args.model, "threads": args.threads, "limits": limits, "figures": {e.name: f for e, f in zip(engines, figures)}}
        pathlib.Path(args.json).write_text(json.dumps(raw, indent=1) + "\n")


def report(args, engines, figures, limits, batches):
    bandwidth = statistics.median(l["read_gbs"] for l in limits)
    int8 = [l["int8_gops"] for l in limits if l["int8_gops"]]
    weights, products = os.path.getsize(args.model), layer_multiplications(args)
    most = {f"decode {b}": b * bandwidth * 1e9 / weights for b in batches}
    print(f"limits: {middle([l['read_gbs'] for l in limits]).strip()} GB/s read" + (f", {middle(int8).strip()} int8 GOPS" if int8 else ", no int8 peak on this machine"))
    if int8 and products:
        most["prefill"] = statistics.median(int8) * 1e9 / (2 * products)
    peer = next((f for e, f in zip(engines, figures) if isinstance(e, Llama)), None)
    for test in ["prefill", *(f"decode {b}" for b in batches)]:
        print(f"{test}, tokens/s:")
        for engine, mine in zip(engines, figures):
            line = f"  {engine.name:24s} {middle(mine[test])}"
            if test in most:
                line += f"  {statistics.median(mine[test]) / most[test]:6.1%} of the limit {most[test]:.0f}"
            if peer is not None and mine is not peer:
                line += f"  {statistics.median(mine[test]) / statistics.median(peer[test]):.2f} x llama.cpp"
            print(line)


if __name__ == "__main__":
    main()
