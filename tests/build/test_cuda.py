"""The device "cuda" on a machine without a GPU, or without the plugin: a typed error that says what is missing.

ORLOP_CUDA_BUILD names a build folder made with -Dcuda=enabled; scripts/test.sh makes one where nvcc is.
"""
import os
import pathlib
import re
import shutil

import pytest

from conftest import ROOT, run

TINY = ROOT / "tests/data/tiny/llama"
PROGRAM = """
#include <orlop/orlop.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char** argv) {
  orlop_engine* engine = NULL;
  orlop_error error = {.struct_size = sizeof error};
  int status = argc < 2 ? 1 : orlop_engine_create(argv[1], strlen(argv[1]), &engine, &error);
  printf("%d %s", status, error.message);
  orlop_engine_release(engine);
  return 0;
}
"""


def compiled(folder, build):
    (folder / "program.c").write_text(PROGRAM)
    run("cc", "-std=c99", f"-I{ROOT}/include", folder / "program.c", "-o", folder / "program", f"-L{build}", "-lorlop")
    return folder / "program"


def create(program, build, device, **environment):
    """Status and message of an engine's creation; the processor works after it."""
    config = f'{{"model": "{TINY}", "kv_bytes": 1000000, "threads": 1, "device": "%s"}}'
    env = {k: v for k, v in os.environ.items() if k != "ORLOP_CUDA_LIBRARY"}
    env.update(LD_LIBRARY_PATH=str(build), **environment)
    assert run(program, config % "cpu", env=env).stdout.startswith("0 ")
    status, message = run(program, config % device, env=env).stdout.split(" ", 1)
    return int(status), message


def test_a_build_without_it(build, tmp_path):
    status, message = create(compiled(tmp_path, build), build, "cuda:1")
    assert status == -5 and message == 'device "cuda:1": this build has no CUDA backend'


@pytest.fixture(scope="module")
def cuda_build():
    named = os.environ.get("ORLOP_CUDA_BUILD")
    if not named:
        pytest.skip("ORLOP_CUDA_BUILD names no build with -Dcuda=enabled")
    return pathlib.Path(named)


def library(folder, name, code):
    (folder / f"{name}.c").write_text(code)
    run("cc", "-shared", "-fPIC", folder / f"{name}.c", "-o", folder / f"{name}.so")
    return str(folder / f"{name}.so")


def test_without_the_plugin(cuda_build, tmp_path):
    lone = tmp_path / "lone"
    lone.mkdir()
    for file in cuda_build.glob("liborlop.so*"):
        if file.is_file():
            shutil.copy(file, lone, follow_symlinks=False)
    program = compiled(tmp_path, cuda_build)
    for environment in ({}, {"ORLOP_CUDA_LIBRARY": "/nowhere/liborlop_cuda.so"}):
        status, message = create(program, lone, "cuda", **environment)
        assert status == -5 and message.startswith('device "cuda": the CUDA backend cannot be loaded: ')
        assert "liborlop_cuda.so" in message
    # A relative path is none: nothing is loaded from the working folder.
    status, message = create(program, lone, "cuda", ORLOP_CUDA_LIBRARY="liborlop_cuda.so")
    assert status == -5 and "cannot be loaded" in message


def test_a_plugin_of_another_build(cuda_build, tmp_path):
    program = compiled(tmp_path, cuda_build)
    other = library(tmp_path, "other", 'static const char* p[100] = {"0.0-other"}; const void* orlop_cuda_plugin(void) { return p; }')
    none = library(tmp_path, "none", "int nothing;")
    for path, words in ((other, "of another build (0.0-other; this is "), (none, "of another build (unknown; this is ")):
        status, message = create(program, cuda_build, "cuda", ORLOP_CUDA_LIBRARY=path)
        assert status == -5 and words in message


def test_the_plugin_without_a_gpu(cuda_build, tmp_path):
    if pathlib.Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU: bench/cuda/run.sh tests it")
    plugin = cuda_build / "src/backend/liborlop_cuda.so"
    status, message = create(compiled(tmp_path, cuda_build), cuda_build, "cuda", ORLOP_CUDA_LIBRARY=str(plugin))
    assert status == -5 and message.startswith("cuda: no usable GPU: ")
    assert "driver" in message


def test_the_plugin_needs_no_library_of_cuda(cuda_build):
    needed = run("readelf", "-d", cuda_build / "src/backend/liborlop_cuda.so").stdout
    libraries = {line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line}
    assert all(not name.startswith(("libcu", "libnv")) for name in libraries), libraries
    # What it shows is its one entry.
    shown = run("nm", "-D", "--defined-only", cuda_build / "src/backend/liborlop_cuda.so").stdout.split()
    assert "orlop_cuda_plugin" in shown


def test_the_plugin_inside(build, cuda_build, tmp_path):
    """-Dstatic_cuda=true: a program of one file that opens no plugin. What differs is compiled, the rest taken."""
    folder = tmp_path / "inside"
    run("meson", "setup", folder, ROOT, "--buildtype=release", "-Dcuda=enabled", "-Dstatic_cuda=true", "-Dtests=false",
        f"-Dkernels_from={build.resolve()}", f"-Dplugin_from={cuda_build.resolve()}")
    kernels = [p.relative_to(build) for p in build.glob("src/backend/liborlop_backend_*.a")]
    mine = [folder / name for name in ["liborlop_backend.a", "src/backend/liborlop_cuda.a", *kernels]]
    run("ninja", "-C", folder, *(p.relative_to(folder) for p in mine))
    runtime = re.search(r"\S*/libcudart_static\.a", (folder / "build.ninja").read_text()).group()
    rooms = [cuda_build / f"liborlop_{room}.a" for room in ["api", "engine", "model", "format", "text", "ops", "base"]]
    (tmp_path / "program.c").write_text(PROGRAM)
    run("c++", "-xc", "-std=c99", "-DORLOP_STATIC", f"-I{ROOT}/include", tmp_path / "program.c", "-xnone", "-o", tmp_path / "alone",
        "-Wl,--start-group", *rooms, *mine, "-Wl,--end-group", runtime, "-lpcre2-8", "-lutf8proc", "-lsodium", "-ldl", "-lrt", "-pthread")
    if pathlib.Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU: what is said without one is not tested")
    status, message = create(tmp_path / "alone", tmp_path, "cuda", ORLOP_CUDA_LIBRARY="/nowhere/liborlop_cuda.so")
    assert status == -5 and message.startswith("cuda: no usable GPU: ")
