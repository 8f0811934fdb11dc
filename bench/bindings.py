"""What each binding costs beside C: a poll that finds nothing, requests a second, bytes left behind.

  ORLOP_BUILD=build python3 bench/bindings.py [--requests 1000] [--tokens 16] [--polls 200000] [--rounds 3] [LANGUAGE ...]

The programs (bindings.c, bindings_python.py, bindings/java/bench.sh, bindings/rust/bench.sh) run in turn, several
rounds, on the tiny llama checkpoint, so that the binding and not the model is measured. Printed: the medians,
and each language's requests a second as a share of C's, round by round. Exit 1 when a target is missed and
--check is given.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LANGUAGES = ("c", "python", "java", "rust")
POLL_NS = {"c": 100, "python": 200, "java": 150, "rust": 150}
SHARE = 0.9


def program(language, build, folder):
    if language == "c":
        binary = folder / "bindings"
        subprocess.run(["cc", "-O2", "-std=gnu11", f"-I{ROOT}/include", ROOT / "bench/bindings.c", "-o", binary, f"-L{build}",
                        "-lorlop", f"-Wl,-rpath,{build}"], check=True)
        return [binary]
    if language == "python":
        return [sys.executable, ROOT / "bench/bindings_python.py"]
    return ["bash", ROOT / "bindings" / language / "bench.sh"]


def environment(build, folder):
    """The Python package as it lies in the source, with the extension of the build folder."""
    native = list((build / "python").glob("_native*.so"))
    env = dict(os.environ, ORLOP_BUILD=str(build))
    if native:
        package = folder / "orlop"
        package.mkdir()
        for file in [*(ROOT / "python/orlop").glob("*"), *native]:
            (package / file.name).symlink_to(file)
        env["PYTHONPATH"] = str(folder)
    return env


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--requests", type=int, default=1000)
    p.add_argument("--tokens", type=int, default=16)
    p.add_argument("--polls", type=int, default=200_000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    p.add_argument("languages", nargs="*", metavar="LANGUAGE", help="default: all; C is always measured")
    args = p.parse_args()
    if unknown := [name for name in args.languages if name not in LANGUAGES]:
        p.error(f"no such language: {', '.join(unknown)}")
    wanted = [name for name in LANGUAGES if not args.languages or name == "c" or name in args.languages]
    build = pathlib.Path(os.environ.get("ORLOP_BUILD") or ROOT / "build").resolve()
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        env = environment(build, folder)
        commands = {language: program(language, build, folder) for language in wanted}
        for _ in range(args.rounds):
            for language in list(commands):
                command = [*commands[language], ROOT / "tests/data/tiny/llama", args.requests, args.tokens, args.polls]
                r = subprocess.run([str(c) for c in command], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
                lines = [line for line in r.stdout.splitlines() if line.startswith("{")]
                if r.returncode or not lines:
                    why = (r.stderr.strip() or r.stdout.strip() or "it printed nothing").splitlines()[-1]
                    if r.returncode:
                        sys.exit(f"{language}: status {r.returncode}: {why}")
                    print(f"SKIP {language}: {why}")
                    del commands[language]
                    continue
                results.setdefault(language, []).append(json.loads(lines[-1]))
    missed = []
    print(f"{'':8}{'poll ns':>9}{'requests/s':>12}{'of C':>8}{'bytes left/request':>20}")
    for language in commands:
        rounds = results[language]
        poll, rate, left = (statistics.median(r[key] for r in rounds) for key in ("poll_ns", "requests_per_s", "bytes_left_per_request"))
        share = statistics.median(r["requests_per_s"] / c["requests_per_s"] for r, c in zip(rounds, results["c"]))
        print(f"{language:8}{poll:9.1f}{rate:12.1f}{share:8.1%}{left:20.1f}")
        if poll > POLL_NS[language]:
            missed.append(f"{language}: a poll of {poll:.1f} ns; {POLL_NS[language]} are wanted")
        if share < SHARE:
            missed.append(f"{language}: {share:.1%} of C's requests; {SHARE:.0%} are wanted")
        if left > 0:
            missed.append(f"{language}: {left:.1f} bytes left behind by a request")
    for line in missed:
        print("missed:", line)
    return 1 if missed and args.check else 0


sys.exit(main())
