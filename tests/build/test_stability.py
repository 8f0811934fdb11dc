"""What a program compiled against an older release, or a host of an unusual kind, may rely on.

The ABI's description (stability/orlop.abi, for libabigail) may gain; a change or a loss fails with words.
After an addition: ORLOP_WRITE_ABI=1 python3 -m pytest tests/build/test_stability.py -k description
"""
import os
import platform
import re
import shutil
import subprocess

import pytest

from conftest import ROOT, run

HERE = ROOT / "tests/build/stability"
HEADER = (ROOT / "include/orlop/orlop.h").read_text()
TINY = ROOT / "tests/data/tiny/llama"
DESCRIPTION = HERE / "orlop.abi"
wide = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the sizes are of 64-bit machines")
abigail = pytest.mark.skipif(not (shutil.which("abidw") and shutil.which("abidiff")), reason="libabigail's abidw and abidiff are not installed")


# ---- the description ----

def described(header, folder):
    """The description of the library that `header` declares, made from a library of empty functions."""
    (folder / "orlop").mkdir(parents=True)
    (folder / "orlop/orlop.h").write_text(header)
    plain = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    functions = re.findall(r"^ORLOP_API ([^;]*);", plain, flags=re.M)
    assert len(functions) > 20
    source = folder / "empty.c"
    source.write_text('#include "orlop/orlop.h"\n' + "".join(f + " { for (;;); }\n" for f in functions))
    library = folder / "liborlop.so"
    # c2x: parameters need no names.
    run("cc", "-std=c2x", "-g", "-O0", "-shared", "-fPIC", f"-I{folder}", source, "-Wl,-soname,liborlop.so.1", "-o", library)
    out = folder / "orlop.abi"
    run("abidw", "--headers-dir", folder / "orlop", "--no-comp-dir-path", "--no-corpus-path", "--no-show-locs",
        "--type-id-style", "hash", "--no-elf-needed", "--out-file", out, library)
    return out


def compared(old, new):
    """(whether a program built for `old` runs with `new`, abidiff's words)"""
    r = run("abidiff", "--no-show-locs", old, new, ok=False)
    assert not r.returncode & 3, f"abidiff failed: {r.stdout}{r.stderr}"
    if not r.returncode & 4:
        return True, r.stdout
    # A struct that starts with struct_size grows at its end: libabigail reports its size, and the members
    # that came. Everything else that it reports is a change.
    said = [line.strip() for line in r.stdout.splitlines() if line.strip()]
    allowed = re.compile(
        r"Functions changes summary|Variables changes summary|Added function|\d+ Added functions?:|\d+ functions? with some"
        r"|\[A\] |\[C\] '?function |parameter \d+ of type .* has sub-type changes|in pointed to type |in unqualified underlying type |underlying type "
        r"|type size changed from|\d+ data member insertions?:|'[^']+( \*)?', at offset \d+ \(in bits\)|type size hasn't changed"
        r"|details were reported earlier|in referenced type |.*\btypedef changed:")
    bad = [line for line in said if not allowed.match(line)]
    for old_size, new_size in re.findall(r"type size changed from (\d+) to (\d+)", r.stdout):
        if int(new_size) < int(old_size):
            bad.append(f"a struct shrank from {old_size} to {new_size} bits")
    bad += inserted_within(r.stdout)
    return not bad, r.stdout + "\nchanges, not additions:\n" + "\n".join(bad)


def inserted_within(report):
    """Members that came before the former end of their struct, or into one of unchanged size."""
    bad, size = [], None
    for line in report.splitlines():
        if m := re.search(r"type size changed from (\d+) to", line):
            size = int(m[1])
        elif "type size hasn't changed" in line:
            size = 1 << 60
        elif (m := re.search(r"'([^']+)', at offset (\d+) \(in bits\)", line)) and size is not None and int(m[2]) < size:
            bad.append(f"'{m[1]}' came at bit {m[2]}, within the former struct")
    return bad


@wide
@abigail
def test_description_is_kept(tmp_path):
    now = described(HEADER, tmp_path / "now")
    if os.environ.get("ORLOP_WRITE_ABI"):
        DESCRIPTION.write_text(now.read_text())
    fine, words = compared(DESCRIPTION, now)
    assert fine, words
    assert run("abidiff", now, now).returncode == 0


STATS_END = "} orlop_stats;"
CHANGES = {
    "a function is gone": ("ORLOP_API const char* orlop_version(void);", "", "orlop_version"),
    "a function returns another type": ("ORLOP_API uint32_t orlop_abi_version(void);", "ORLOP_API uint64_t orlop_abi_version(void);", "return type changed"),
    "a parameter is wider": ("orlop_queue_wait(orlop_queue*, int64_t timeout_us", "orlop_queue_wait(orlop_queue*, int32_t timeout_us", "parameter 2"),
    "a parameter is added": ("orlop_queue_fd(const orlop_queue*)", "orlop_queue_fd(const orlop_queue*, int32_t more)", "parameter 2"),
    "a member is gone": ("  uint64_t steps; ", "  // ", "steps"),
    "a member has another type": ("  uint64_t preemptions;", "  uint32_t preemptions;", "preemptions"),
    "a member comes in the middle": ("  uint64_t preemptions;", "  uint64_t preemptions, between;", "between"),
    "the error's text is longer": ("message[504]", "message[1016]", "message"),
}


@wide
@abigail
@pytest.mark.parametrize("what", CHANGES)
def test_changes_fail_with_words(what, tmp_path):
    before, after, word = CHANGES[what]
    assert before in HEADER
    fine, words = compared(described(HEADER, tmp_path / "old"), described(HEADER.replace(before, after), tmp_path / "new"))
    assert not fine, words
    assert word in words


@wide
@abigail
@pytest.mark.parametrize("what", ["function", "member"])
def test_additions_pass(what, tmp_path):
    if what == "function":
        before = "ORLOP_API const char* orlop_version(void);"
        new = HEADER.replace(before, before + "\nORLOP_API int32_t orlop_more(orlop_engine*, int32_t);")
    else:
        new = HEADER.replace(STATS_END, "  uint64_t more;\n  double and_more;\n" + STATS_END)
    assert new != HEADER
    fine, words = compared(described(HEADER, tmp_path / "old"), described(new, tmp_path / "new"))
    assert fine, words
    assert "Added function" in words or "data member insertion" in words


# ---- old programs ----

def sizes():
    table = {}
    for line in (HERE / "sizes.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            release, name, size = line.split()
            table.setdefault(release, {})[name] = int(size)
    return table


def built(build, source, folder, *more, compiler="cc", standard="-std=gnu11", name="program"):
    """A program linked with the library of the build folder."""
    binary = folder / name
    run(compiler, standard, "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", *more, source, "-o", binary, f"-L{build}",
        "-lorlop", f"-Wl,-rpath,{build}")
    return binary


@wide
def test_sizes_of_today_are_in_the_table(tmp_path):
    table = sizes()
    newest = list(table)[-1]
    major, minor = (re.search(rf"#define ORLOP_ABI_{part} (\d+)", HEADER)[1] for part in ("MAJOR", "MINOR"))
    assert f"{major}.{minor}" == newest
    names = re.findall(r"^\} (orlop_\w+);", HEADER, flags=re.M)
    source = tmp_path / "sizes.c"
    source.write_text('#include <stdio.h>\n#include "orlop/orlop.h"\nint main(void) {\n' +
                      "".join(f'  printf("{n} %zu\\n", sizeof({n}));\n' for n in names) + "}\n")
    run("cc", f"-I{ROOT}/include", source, "-o", tmp_path / "sizes")
    now = dict(line.split() for line in run(tmp_path / "sizes").stdout.splitlines())
    assert {n: int(s) for n, s in now.items()} == table[newest]
    # What a release had, the next has, at least as large.
    for old, new in zip(list(table), list(table)[1:]):
        for name, size in table[old].items():
            assert table[new][name] >= size


@wide
def test_programs_of_every_release_run(build, tmp_path):
    program = built(build, HERE / "old_structs.c", tmp_path)
    for release, size in sizes().items():
        order = ["orlop_stats", "orlop_generate_params", "orlop_output", "orlop_request_info"]
        if "orlop_state_params" in size:
            order += ["orlop_state_params", "orlop_state_info"]
        r = run(program, TINY, *[size[n] for n in order], ok=False)
        assert r.returncode == 0, f"ABI {release}: status {r.returncode}\n{r.stderr}"


# ---- symbols ----

def test_archive_takes_only_names_of_its_own(build):
    """Everything global in the static archive is orlop_*, in namespace orlop, or a template's or inline
    function's weak copy (which programs share)."""
    archive = build / "liborlop.a"
    if not archive.exists():
        pytest.skip("the static library is not built here")
    names = set()
    for line in run("nm", "--defined-only", "--extern-only", archive).stdout.splitlines():
        part = line.split()
        if len(part) == 3 and part[1] not in "VWuvw":
            names.add(part[2])
    assert "orlop_engine_create" in names
    # _ZN5orlop, and what belongs to a name there: _ZTVN5orlop, _ZNK5orlop, _ZGVZN5orlop...
    own = re.compile(r"orlop_|_Z(\w{0,4}?)(N[KVrRO]*)?5orlop|_Z\w*?N[KVrRO]*(5orlop|12orlop_engine|13orlop_request|11orlop_queue|12orlop_buffer)|_ZN(K)?\d+orlop_")
    foreign = sorted(n for n in names if not own.match(n))
    assert foreign == []


# ---- hosts ----

def quiet(program, *arguments, seconds=60, **environment):
    r = subprocess.run([str(program), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=seconds, env=dict(os.environ, **environment))
    assert r.returncode == 0, f"status {r.returncode}\n{r.stdout}\n{r.stderr}"
    assert r.stderr == ""
    return r.stdout


def test_a_thousand_loads(build, tmp_path):
    loader = tmp_path / "loader"
    run("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-DLOADS_ITSELF", f"-I{ROOT}/include", HERE / "host.c", "-o", loader, "-ldl")
    print(quiet(loader, "load", TINY, build / "liborlop.so"))


@pytest.mark.parametrize("when", ["before", "after"])
def test_forks(build, tmp_path, when):
    quiet(built(build, HERE / "host.c", tmp_path), when, TINY)


def test_beside_jemalloc(build, tmp_path):
    where = run("sh", "-c", "PATH=$PATH:/sbin:/usr/sbin; ldconfig -p | sed -n 's/.*libjemalloc.so.2.* => //p' | head -n 1").stdout.strip()
    if not where:
        pytest.skip("libjemalloc2 is not installed")
    program = built(build, HERE / "host.c", tmp_path)
    quiet(program, "answer", TINY, LD_PRELOAD=where)
    quiet(program, "after", TINY, LD_PRELOAD=where)


HOSTS = {
    "own libstdc++": ("g++", ["-static-libstdc++", "-static-libgcc"]),
    "clang++": ("clang++", []),
    "libc++": ("clang++", ["-stdlib=libc++"]),
}


@pytest.mark.parametrize("host", HOSTS)
def test_beside_another_standard_library(build, tmp_path, host):
    """A C++ host that brings its own copy throws, catches and prints while the library does the same inside."""
    compiler, options = HOSTS[host]
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    if host == "libc++":
        probe = tmp_path / "probe.cc"
        probe.write_text("#include <string>\nint main() { return int(std::string().size()); }\n")
        if run(compiler, *options, probe, "-o", tmp_path / "probe", ok=False).returncode:
            pytest.skip("clang's libc++ is not installed")
    program = built(build, HERE / "host.cc", tmp_path, *options, compiler=compiler, standard="-std=c++17")
    if host == "own libstdc++":
        assert "__cxa_throw" in run("nm", program).stdout.replace(" U __cxa_throw", "")
    assert "0 failures" in quiet(program, TINY)


def test_in_a_jvm_beside_other_native_libraries(build, tmp_path):
    java = ROOT / "bindings/java"
    tools = f'source "{java}/jdk.sh"; '
    jdk = run("bash", "-c", tools + "find_jdk || true").stdout.strip()
    if not jdk:
        pytest.skip("no JDK of version 22 or later")
    have = run("sh", "-c", "PATH=$PATH:/sbin:/usr/sbin; ldconfig -p").stdout
    if "libz.so.1" not in have:
        pytest.skip("zlib is not installed")
    run("bash", "-c", tools + f'compile_java "{jdk}" "{tmp_path}" "{java}"/src/main/java/io/orlop/*.java "{HERE}/Beside.java"')
    assert "0 failures" in quiet(f"{jdk}/bin/java", "-Xmx256m", "--enable-native-access=ALL-UNNAMED", f"-Dorlop.library={build}/liborlop.so",
                                 "-cp", tmp_path, "Beside", TINY)
