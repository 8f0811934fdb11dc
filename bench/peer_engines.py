"""What cpu_peers.py measures: processes, and one class an engine. Each measurement yields (test, value, process)."""
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
PREFILL = 512
PROMPT = "The capital of France is"
MEMORY_TOKENS = 1024  # of the KV budget when memory is measured


# ---- processes

def busy():
    """Seconds of processor time that anyone has used since the machine started, stolen time included."""
    fields = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Finished:
    """A process that ran to its end: output, seconds to its first byte, memory in MB, cores that others used."""

    def __init__(self, command, deadline=900):
        before, own, begin = busy(), resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        p = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        timer = threading.Timer(deadline, p.kill)
        timer.start()
        self.first, errors, parts = None, [], []
        reader = threading.Thread(target=lambda: errors.append(p.stderr.read()))
        reader.start()
        watch = threading.Thread(target=self._watch, args=(p.pid,))
        self.rss = self.peak = 0.0
        self._over = threading.Event()
        watch.start()
        while piece := os.read(p.stdout.fileno(), 1 << 16):
            if self.first is None and piece.strip():
                self.first = time.perf_counter() - begin
            parts.append(piece)
        reader.join()
        self._over.set()
        watch.join()
        p.wait()
        timer.cancel()
        self.seconds = time.perf_counter() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
        self.others = max(0.0, (busy() - before - used) / max(self.seconds, 0.01))
        self.output = b"".join(parts).decode(errors="replace")
        if p.returncode:
            raise RuntimeError(f"{command[0]} ended with status {p.returncode}: " +
                               " ".join(errors[0].decode(errors="replace")[-600:].split()))

    def _watch(self, pid):
        """Memory in MB: what the process had in its last quarter, and the most that it ever had."""
        samples = []
        while not self._over.wait(0.02):
            try:
                lines = open(f"/proc/{pid}/status").read().splitlines()
            except OSError:
                break
            fields = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
            if "VmRSS" in fields:
                samples.append(int(fields["VmRSS"]) * 1.024e-3)
                self.peak = int(fields["VmHWM"]) * 1.024e-3
        self.rss = max(samples[len(samples) * 3 // 4:], default=0.0)


# ---- engines

class Orlop:
    peer = "orlop"

    def __init__(self, args, model, keys, compute, lengths):
        self.args, self.model, self.lengths, self.compute = args, model, lengths, compute
        self.options = ["--threads", args.threads]
        for key, value in {**keys, **({"compute": compute} if compute else {})}.items():
            self.options += ["--" + key.replace("_", "-"), value]
        self.facts = None

    def bench(self, *more):
        done = Finished([self.args.orlop, "bench", self.model, "--json", *self.options, *more])
        out = json.loads(done.output)
        self.facts = out["engine"]
        self.compute = self.facts.get("compute", self.compute)
        return out["results"], done

    def speed(self):
        prompt, gen = self.lengths
        rows, done = self.bench("--prompt", PREFILL, "--gen", 2, "--batch", 1, "--repeat", 2)
        yield "prefill", rows[0]["prefill_tokens_per_second_runs"][-1], done
        batches = ",".join(map(str, self.args.batches))
        rows, done = self.bench("--prompt", prompt, "--gen", gen, "--batch", batches, "--repeat", 1)
        for row in rows:
            yield f"decode {row['batch']}", row["decode_tokens_per_second"], done

    def memory(self):
        if not self.facts:
            self.bench("--prompt", 16, "--gen", 2, "--batch", 1, "--repeat", 1)
        budget = MEMORY_TOKENS * 2 * 2 * self.facts["layers"] * self.facts["kv_heads"] * self.facts["head_dim"]  # bf16
        _, done = self.bench("--prompt", 128, "--gen", 128, "--batch", 1, "--repeat", 1, "--kv-bytes", budget)
        yield "resident", done.rss, done
        yield "peak", done.peak, done
        self.resident_limit = (self.facts["weight_bytes"] + budget) / 1e6 + 64

    def start(self):
        done = Finished([self.args.orlop, "run", self.model, PROMPT, "-q", "-n", 2, "-t", 0, *self.options])
        yield "first token", done.first, done


class Llama:
    peer, compute = "llama.cpp", ""

    def __init__(self, args, file, lengths):
        self.args, self.file, self.lengths = args, file, lengths
        self.common = ["-m", file, "-t", args.threads]
        self.facts = {"weight_bytes": os.path.getsize(file)}

    def tool(self, name):
        return pathlib.Path(self.args.llama) / name

    def bench(self, prompt, gen):
        done = Finished([self.tool("llama-bench"), *self.common, "-p", prompt, "-n", gen, "-r", 1, "-fa", 1,
                         "-o", "json"])
        return json.loads(done.output), done

    def speed(self):
        prompt, gen = self.lengths
        rows, done = self.bench(PREFILL, 0)
        yield "prefill", rows[0]["avg_ts"], done
        context = max(512, max(self.args.batches) * (prompt + gen))
        done = Finished([self.tool("llama-batched-bench"), *self.common, "-npp", prompt, "-ntg", gen, "-npl",
                         ",".join(map(str, self.args.batches)), "-c", context, "-b", 2048, "-fa", "on",
                         "--output-format", "jsonl"])
        for line in done.output.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                yield f"decode {row['pl']}", float(row["speed_tg"]), done

    def memory(self):
        _, done = self.bench(128, 128)
        yield "resident", done.rss, done
        yield "peak", done.peak, done

    def start(self):
        done = Finished([self.tool("llama-completion"), *self.common, "-p", PROMPT, "-n", 2, "--temp", 0, "-no-cnv",
                         "--no-warmup", "--no-display-prompt"])
        yield "first token", done.first, done


class OpenVino:
    peer, compute = "openvino", ""

    def __init__(self, args, folder, lengths):
        self.args, self.folder, self.lengths = args, folder, lengths
        self.facts = {"weight_bytes": sum(f.stat().st_size for f in pathlib.Path(folder).glob("openvino_model.bin"))}

    def child(self, job, batches=()):
        spec = {"folder": str(self.folder), "threads": self.args.threads, "job": job, "lengths": self.lengths,
                "batches": list(batches), "text": PROMPT}
        done = Finished([self.args.openvino, HERE / "peer_engines.py", json.dumps(spec)])
        return [json.loads(line) for line in done.output.splitlines() if line.startswith("[")], done

    def speed(self):
        for job, batches in (("prefill", ()), ("decode", self.args.batches)):
            rows, done = self.child(job, batches)
            for test, value in rows:
                yield test, value, done

    def memory(self):
        _, done = self.child("memory", (1,))
        yield "resident", done.rss, done
        yield "peak", done.peak, done

    def start(self):
        _, done = self.child("start")
        yield "first token", done.first, done


def openvino_child(spec):
    """This file as a program, in the interpreter that has openvino_genai. The pipeline is stepped by hand: decode is
    timed over the steps in which every sequence yields a token."""
    import numpy
    import openvino
    import openvino_genai as genai

    schedule = genai.SchedulerConfig()
    schedule.cache_size = 1
    schedule.max_num_seqs = 64
    schedule.max_num_batched_tokens = PREFILL
    schedule.enable_prefix_caching = False
    pipe = genai.ContinuousBatchingPipeline(spec["folder"], schedule, "CPU", {"INFERENCE_NUM_THREADS": spec["threads"]})
    number = [0]

    def run(prompts, tokens):
        """Seconds to the first token, then tokens a second from the step that completed everyone's first one."""
        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = tokens + len(prompts) + 1, True, False
        handles = []
        begin = time.perf_counter()
        for ids in prompts:
            number[0] += 1
            handles.append(pipe.add_request(number[0], openvino.Tensor(numpy.array([ids], dtype=numpy.int64)), config))
        counts, first, base, rate = [0] * len(handles), None, None, None
        while pipe.has_non_finished_requests():
            pipe.step()
            at = time.perf_counter()
            for i, handle in enumerate(handles):
                while handle.can_read():
                    counts[i] += sum(len(o.generated_ids) for o in handle.read().values())
            total = sum(counts)
            if first is None and total:
                first = at - begin
            if base is None and all(counts):
                base = (at, total)
            elif base and total - base[1] == tokens * len(handles):
                rate = (total - base[1]) / (at - base[0])
        return first, rate

    def ids(count, seed):
        chance = random.Random(seed)
        return [chance.randrange(1000, 48000) for _ in range(count)]

    prompt, gen = (128, 128) if spec["job"] == "memory" else spec["lengths"]
    if spec["job"] == "start":
        tokens = pipe.get_tokenizer().encode(spec["text"]).input_ids.data[0].tolist()
        run([tokens], 1)
        print("first", flush=True)
    elif spec["job"] == "prefill":
        run([ids(PREFILL, 1)], 1)
        print(json.dumps(["prefill", PREFILL / run([ids(PREFILL, 2)], 1)[0]]), flush=True)
    for batch in spec["batches"]:
        print(json.dumps([f"decode {batch}", run([ids(prompt, 100 + i) for i in range(batch)], gen)[1]]), flush=True)


if __name__ == "__main__":
    openvino_child(json.loads(sys.argv[1]))
