"""The built library: what it exports, how it is marked, and that its ABI is the committed one."""
import re

import pytest

from conftest import ROOT, flags, run

HEADER = (ROOT / "include/orlop/orlop.h").read_text()
DECLARED = set(re.findall(r"ORLOP_API[^;(]*?\b(orlop_\w+)\(", HEADER))


def library(installed):
    found = [p for p in installed[0].rglob("liborlop.so.*") if not p.is_symlink()]
    assert len(found) == 1, found
    return found[0]


def test_exports_are_the_declared_functions(installed):
    lines = run("nm", "-D", "--defined-only", library(installed)).stdout.splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines}
    assert len(DECLARED) == HEADER.count("\nORLOP_API ") > 20
    assert names - {"ORLOP_1"} == DECLARED


def test_marks(installed):
    dynamic = run("readelf", "-d", library(installed)).stdout
    assert "[liborlop.so.1]" in dynamic
    assert "NODELETE" in dynamic
    assert "RUNPATH" not in dynamic and "RPATH" not in dynamic
    needed = set(re.findall(r"NEEDED.*\[(.*?)\]", dynamic))
    allowed = re.compile(r"lib(stdc\+\+|m|gcc_s|c|pthread|pcre2-8|utf8proc|sodium|dl)\.so|ld-linux")
    assert [n for n in needed if not allowed.match(n)] == []


def test_no_executable_stack_and_no_text_relocation(installed):
    assert not re.search(r"GNU_STACK.*RWE", run("readelf", "-lW", library(installed)).stdout)
    assert "TEXTREL" not in run("readelf", "-d", library(installed)).stdout


def abi_program():
    """A C program that prints every struct's layout and every constant of the header."""
    text = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
    out = ["#include <stddef.h>", "#include <stdio.h>", '#include "orlop/orlop.h"', "int main(void) {"]
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        out.append(f'  printf("struct {name} size %zu\\n", sizeof({name}));')
        for field in re.findall(r"(\w+)(?:\[\d+\])?;", body):
            out.append(f'  printf("  {field} at %zu size %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));')
    for name in re.findall(r"^#define (ORLOP_\w+) [^\n]*\d", text, flags=re.M):
        if "UNSET_F64" in name:
            out.append(f'  printf("{name} %g\\n", {name});')
        else:
            out.append(f'  printf("{name} %lld\\n", (long long){name});')
    for prototype in re.findall(r"^ORLOP_API ([^;]*);", text, flags=re.M):
        out.append('  puts("' + re.sub(r"\s+", " ", prototype).strip() + '");')
    return "\n".join(out + ["  return 0;", "}"]) + "\n"


@pytest.mark.skipif(__import__("platform").machine() not in ("x86_64", "aarch64"), reason="the description is of 64-bit machines")
def test_abi_is_the_committed_one(tmp_path):
    """abi.txt may gain lines (and ORLOP_ABI_MINOR with them); a changed or lost line needs a new major.

    After a permitted change: ORLOP_WRITE_ABI=1 python3 -m pytest tests/build -k abi
    """
    import os

    source = tmp_path / "abi.c"
    source.write_text(abi_program())
    run("cc", "-std=c99", f"-I{ROOT}/include", source, "-o", tmp_path / "abi")
    now = run(tmp_path / "abi").stdout
    committed = ROOT / "tests/build/abi.txt"
    if os.environ.get("ORLOP_WRITE_ABI"):
        committed.write_text(now)
    assert now.count("\n") > 150
    assert now == committed.read_text()


@pytest.mark.parametrize("way", ["shared", "static"])
@pytest.mark.parametrize("source,compiler,standard", [("generate.c", "cc", "-std=c99"), ("generate.cc", "c++", "-std=c++17")])
def test_pkg_config(installed, tmp_path, way, source, compiler, standard):
    prefix, _ = installed
    binary = tmp_path / "generate"
    if way == "shared":
        libdir = next(prefix.rglob("liborlop.so")).parent
        arguments = flags(installed, "--cflags", "--libs") + [f"-Wl,-rpath,{libdir}"]
    else:
        # Where a folder has both, the linker takes the shared one; here it finds the archive alone.
        archive = next(prefix.rglob("liborlop.a"))
        (tmp_path / archive.name).symlink_to(archive)
        arguments = [f"-L{tmp_path}" if a == f"-L{archive.parent}" else a for a in flags(installed, "--cflags", "--libs", "--static")]
    run(compiler, standard, "-Wall", "-Wextra", "-Werror", ROOT / "examples" / source, "-o", binary, *arguments)
    assert ("liborlop" in run("ldd", binary).stdout) == (way == "shared")
    r = run(binary, "/nonexistent.gguf", "hello", ok=False)
    assert r.returncode == 1
    assert "/nonexistent.gguf" in r.stderr
