"""No instruction beyond what the processor says it has.

Whole programs run under qemu's models of older processors: a Haswell (2013: AVX2, FMA, no AVX-512) and a
Nehalem (2008: no AVX at all), which die of any instruction that they lack; a program of a few such
instructions shows that they do. And the objects themselves are looked at: outside the kernels of an ISA
none holds a register or an instruction beyond the baseline.
"""
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys

import pytest

from conftest import ROOT, run

QEMU = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
qemu = pytest.mark.skipif(not QEMU, reason="qemu-x86_64 (qemu-user) is not installed")

# One instruction each, and whether Haswell and Nehalem have it.
INSTRUCTIONS = {
    "avx512f": ("vpaddd %zmm0, %zmm1, %zmm2", False, False),
    "avx512vnni": (".byte 0x62, 0xf2, 0x75, 0x48, 0x50, 0xd0", False, False),
    "avxvnni": (".byte 0xc4, 0xe2, 0x75, 0x50, 0xd0", False, False),
    "avx512bf16": (".byte 0x62, 0xf2, 0x76, 0x48, 0x52, 0xd0", False, False),
    "amx": (".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0", False, False),  # tilerelease
    "mask": ("kxnorw %k1, %k1, %k1", False, False),
    "avx2": ("vpaddd %ymm0, %ymm1, %ymm2", True, False),
    "fma": ("vfmadd231ps %ymm0, %ymm1, %ymm2", True, False),
    "f16c": ("vcvtph2ps %xmm0, %ymm2", True, False),
    "bmi2": ("bzhi %eax, %eax, %eax", True, False),
    "sse4.2": ("pcmpgtq %xmm0, %xmm1", True, True),
}


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    folder = tmp_path_factory.mktemp("control")
    cases = "".join(f'  if (!strcmp(word[1], "{name}")) {{ __asm__ volatile("{code.replace("%", "%%")}" ::: "eax", "memory"); return 0; }}\n'
                    for name, (code, *_) in INSTRUCTIONS.items())
    (folder / "control.c").write_text(f"#include <string.h>\nint main(int n, char** word) {{\n  (void)n;\n{cases}  return 1;\n}}\n")
    run("cc", "-O1", folder / "control.c", "-o", folder / "control")
    return folder / "control"


@x86
@qemu
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_qemu_stops_what_the_processor_lacks(control, name):
    for cpu, there in zip(("Haswell", "Nehalem"), INSTRUCTIONS[name][1:]):
        r = subprocess.run([QEMU, "-cpu", cpu, control, name], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        died = r.returncode in (-signal.SIGILL, 128 + signal.SIGILL)
        assert r.returncode == 0 if there else died, (cpu, r.returncode, r.stderr)


SCRIPT = """
import json, sys, orlop
model, tokens, options = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
with orlop.Engine(model, threads=2, max_context=128, kv_bytes=8_000_000, **options) as engine:
    results = [engine.generate(tokens=tokens, max_tokens=6, ignore_eos=True, prompt_logprobs=0, logprobs=3, **sampling)
               for sampling in ({"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": 5})]
    print(json.dumps([engine.info["kernels"], [[list(r.tokens), repr(r.logprobs), repr(r.prompt_logprobs)] for r in results]]))
"""
# The set-up of the C library and of Python's interpreter chooses by CPUID too.
OLDER = [("Haswell", "avx2", "cpu avx2,"), ("Nehalem", "ref", "cpu ref,")]


def answers(model, tokens, options, wrapper=(), **env):
    command = [*wrapper, sys.executable, "-c", SCRIPT, model, json.dumps(tokens), json.dumps(options)]
    return json.loads(run(*command, env=dict(os.environ, **env)).stdout)


@x86
@qemu
@pytest.mark.parametrize("cpu,isa,kernels", OLDER)
@pytest.mark.parametrize("options", [
    {"compute": "int8"},
    {"compute": "bf16", "kv_dtype": "int8"},
    {"compute": "fp32", "kv_dtype": "uint4"},
    {"compute": "int8", "quant": "iq", "quant_bits": 4, "kv_dtype": "fp16"},
], ids=lambda o: "-".join(map(str, o.values())))
def test_generation_on_an_older_processor(cpu, isa, kernels, options):
    """The bits that the same kernels give here; qemu would have stopped anything beyond them."""
    model = ROOT / "tests/data/tiny/llama"
    tokens = [1, 5, 9, 100, 77, 3, 3, 20] * 3
    there = answers(model, tokens, options, wrapper=[QEMU, "-cpu", cpu])
    assert there[0].startswith(kernels)
    here = answers(model, tokens, options, ORLOP_ISA=isa)
    assert here[0].startswith(kernels)
    assert there[1] == here[1]


@x86
@qemu
def test_demo_model_on_a_processor_of_2013(model):
    tokens = [504, 3575, 282, 4649, 314]  # The capital of France is
    there = answers(model, tokens, {}, wrapper=[QEMU, "-cpu", "Haswell"])
    assert there[0].startswith("cpu avx2,")
    assert there[1] == answers(model, tokens, {}, ORLOP_ISA="avx2")[1]


# ---- the objects

BEYOND = re.compile(r"%[yz]mm\d|%k[0-7]\b|%tmm|\tv[a-z]|\t(?:bzhi|pdep|pext|mulx|rorx|sarx|shlx|shrx|andn|blsr|blsi|lzcnt|popcnt|crc32|pshufb|pmulld|pmaddubsw|roundps|blendvps)\b")


def objects(build, kernels):
    """Object files of the library and the Python extension: those of ISA kernels, or all others."""
    found = [p for p in build.rglob("*.o") if not {"tests", "meson-private"} & set(p.relative_to(build).parts)]
    return [p for p in found if kernels == bool(re.search(r"liborlop_backend_\w+\.a\.p", str(p)))]


@x86
def test_baseline_objects_hold_baseline_instructions(build):
    baseline = objects(build, kernels=False)
    assert len(baseline) > 50
    assert any("python" in p.parts for p in baseline) and any("nanobind" in str(p) for p in baseline)
    for path in baseline:
        text = run("objdump", "-d", "--no-show-raw-insn", path).stdout
        lines = [line for line in text.splitlines() if BEYOND.search(line)]
        assert lines == [], f"{path}: {lines[:3]}"


@x86
def test_the_look_at_objects_can_fail(build):
    """The kernels do hold what the baseline must not."""
    for path in objects(build, kernels=True):
        assert BEYOND.search(run("objdump", "-d", "--no-show-raw-insn", path).stdout), path


def test_kernels_leave_nothing_for_others_to_link(build):
    """A function that is compiled for an ISA and could stand in for one of the baseline's: a weak symbol."""
    kernels = objects(build, kernels=True)
    assert len(kernels) >= 4
    for path in kernels:
        weak = [line for line in run("nm", "-C", "--defined-only", path).stdout.splitlines()
                if re.match(r"\S+ [WVu] ", line)]
        assert weak == [], f"{path}: {weak[:3]}"
