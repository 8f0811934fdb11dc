"""The public headers compile alone, clean, in every language version and compiler that they promise."""
import pytest

from conftest import ROOT, compilers, run

C = ["-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Wstrict-prototypes", "-Werror"]
CXX = ["-pedantic-errors", "-Wall", "-Wextra", "-Wshadow", "-Werror"]


def compiles(tmp_path, compiler, suffix, source, arguments):
    file = tmp_path / f"use{suffix}"
    file.write_text(source)
    run(compiler, *arguments, f"-I{ROOT}/include", "-c", file, "-o", tmp_path / "use.o")


@pytest.mark.parametrize("compiler", compilers("gcc", "clang"))
@pytest.mark.parametrize("more", [[], ["-DORLOP_STATIC"], ["-std=c11"], ["-Wpadded"]], ids=lambda m: "".join(m) or "c99")
def test_c(tmp_path, compiler, more):
    # -Wpadded: a struct of the ABI has no hole, so zeroing it and setting fields sets every byte.
    compiles(tmp_path, compiler, ".c", '#include "orlop/orlop.h"\nint use(void) { return ORLOP_OK; }\n', C + more)


@pytest.mark.parametrize("compiler", compilers("g++", "clang++"))
@pytest.mark.parametrize("header", sorted(p.name for p in (ROOT / "include/orlop").glob("*.h*")))
@pytest.mark.parametrize("more", [["-std=c++17"], ["-std=c++20"], ["-std=c++17", "-fno-exceptions", "-fno-rtti"]], ids="".join)
def test_cxx(tmp_path, compiler, header, more):
    compiles(tmp_path, compiler, ".cc", f'#include "orlop/{header}"\nint use() {{ return ORLOP_OK; }}\n', CXX + more)


def test_every_header_is_installed_and_small():
    build = (ROOT / "meson.build").read_text()
    for header in (ROOT / "include/orlop").iterdir():
        assert f"'include/orlop/{header.name}'" in build, header.name
        assert header.suffix == ".h" or header.read_text().count("\n") < 500, header.name


@pytest.mark.parametrize("compiler", compilers("gcc", "clang"))
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.c")), ids=lambda p: p.name)
def test_c_examples(tmp_path, compiler, example):
    run(compiler, *C, f"-I{ROOT}/include", "-c", example, "-o", tmp_path / "e.o")


@pytest.mark.parametrize("compiler", compilers("g++", "clang++"))
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.cc")), ids=lambda p: p.name)
def test_cxx_examples(tmp_path, compiler, example):
    run(compiler, "-std=c++17", *CXX, f"-I{ROOT}/include", "-c", example, "-o", tmp_path / "e.o")
