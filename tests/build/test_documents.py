"""Documents and examples do what they say: code blocks are run, links lead somewhere.

Every code block bears a comment in the line before its fence: `<!-- run -->`, or `<!-- not run: why -->`.
What is run: `sh` by bash (MODEL stands for the model's file), `python` by Python, `c` and `cpp` compiled
against the build, `java` by the source launcher, `rust` by cargo; those four are whole programs, run with the
model and a question. `json` is an engine's configuration where it has the key "model"; else it is JSON.
Each runs in a folder that holds the demo model under its own name, the examples as app.c and app.cc, and
`orlop` on PATH.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from conftest import ROOT, run
from documents import BLOCKS, CLIENT, DOCUMENTS, SERVER, blocks_of

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTION = "Name three colours."
TO_RUN = [b for b in BLOCKS if b.marked and not b.not_run and b.marker != SERVER]


@pytest.fixture
def folder(tmp_path, build, model):
    (tmp_path / NAME).symlink_to(model)
    for name in ["examples", "tests", "bench"]:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "app.c").symlink_to(ROOT / "examples/generate.c")
    (tmp_path / "app.cc").symlink_to(ROOT / "examples/generate.cc")
    return tmp_path


@pytest.fixture(scope="session")
def environment(build, installed, tmp_path_factory):
    """That of a user who installed the library and the package."""
    bin = tmp_path_factory.mktemp("bin")
    (bin / "orlop").write_text(f'#!/bin/sh\nexec {sys.executable} -m orlop "$@"\n')
    (bin / "orlop").chmod(0o755)
    _, pkg_config = installed
    pc = pkg_config["PKG_CONFIG_PATH"]
    prefix = next(l.split("=", 1)[1] for l in open(f"{pc}/orlop.pc").read().splitlines() if l.startswith("prefix="))
    path = f"{bin}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    return dict(os.environ, PATH=path, LD_LIBRARY_PATH=str(build), PKG_CONFIG_PATH=pc,
                PKG_CONFIG_SYSROOT_DIR=pc.split(prefix)[0], ORLOP_BUILD=str(build))


def compiled(folder, build, source, name="program"):
    compiler = ["c++", "-std=c++17"] if source.suffix == ".cc" else ["cc", "-std=c99"]
    run(*compiler, f"-I{ROOT}/include", source, "-o", folder / name, f"-L{build}", "-lorlop", "-pthread")
    return folder / name


@pytest.fixture(scope="session")
def java(tmp_path_factory):
    """(java, folder of the binding's classes), with a JDK that has the foreign function interface."""
    homes = [os.environ.get("JAVA_HOME", ""), *sorted(str(p) for p in pathlib.Path("/usr/lib/jvm").glob("*"))]
    for home in homes:
        javac = shutil.which(f"{home}/bin/javac") if home else None
        found = javac and re.search(r"javac (\d+)", run(javac, "-version").stdout)
        if found and int(found[1]) >= 22:
            break
    else:
        pytest.skip("no JDK of version 22 or newer")
    classes = tmp_path_factory.mktemp("classes")
    sources = [s for s in (ROOT / "bindings/java").rglob("*.java") if "main/java" in str(s)]
    run(javac, "-d", classes, *sources)
    return f"{home}/bin/java", classes


@pytest.fixture(scope="session")
def crate(tmp_path_factory):
    """A package that depends on the binding; blocks become its programs."""
    if not shutil.which("cargo"):
        pytest.skip("cargo is not installed")
    crate = tmp_path_factory.mktemp("crate")
    (crate / "src/bin").mkdir(parents=True)
    (crate / "Cargo.toml").write_text(
        '[package]\nname = "blocks"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n'
        f'[dependencies]\norlop = {{ path = "{ROOT}/bindings/rust/orlop" }}\n')
    return crate


def free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return s.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture(scope="session")
def server(tmp_path_factory, environment, model):
    """The first block that serves, running, on the port that the documents name."""
    block = next(b for b in BLOCKS if b.marker == SERVER)
    if not free(8000):
        pytest.skip("port 8000 is in use")
    folder = tmp_path_factory.mktemp("server")
    (folder / NAME).symlink_to(model)
    process = subprocess.Popen(["bash", "-c", block.code], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        for _ in range(600):
            assert process.poll() is None, process.stdout.read().decode()
            try:
                urllib.request.urlopen("http://127.0.0.1:8000/health", timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise AssertionError("the server did not become ready")
        yield block
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def run_json(block, folder, environment):
    value = json.loads(block.code)
    if not isinstance(value, dict) or "model" not in value:
        return "JSON"
    program = "import json, sys, orlop; c = json.load(sys.stdin); orlop.Engine(c.pop('model'), **c).close(); print('ready')"
    r = subprocess.run([sys.executable, "-c", program], input=block.code, capture_output=True, text=True,
                       timeout=120, cwd=folder, env=environment)
    assert r.returncode == 0, r.stderr
    return r.stdout


@pytest.mark.parametrize("block", TO_RUN, ids=lambda b: b.name)
def test_block(request, folder, build, environment, block):
    if block.marker == CLIENT:
        request.getfixturevalue("server")
    model = folder / NAME
    options = {"cwd": folder, "env": environment}
    before = set(folder.iterdir())
    if block.language == "sh":
        code = re.sub(r"\bMODEL\b", NAME, block.code)
        output = run("bash", "-euo", "pipefail", "-c", code, **options).stdout
        output += " ".join(p.name for p in set(folder.iterdir()) - before)  # a compiler says nothing
    elif block.language == "python":
        output = run(sys.executable, "-c", block.code, **options).stdout
    elif block.language == "json":
        output = run_json(block, folder, environment)
    elif block.language in ("c", "cpp"):
        source = folder / {"c": "block.c", "cpp": "block.cc"}[block.language]
        source.write_text(block.code)
        output = run(compiled(folder, build, source), model, QUESTION, **options).stdout
    elif block.language == "java":
        program, classes = request.getfixturevalue("java")
        (folder / "Main.java").write_text(block.code)
        output = run(program, "-cp", classes, "--enable-native-access=ALL-UNNAMED",
                     f"-Dorlop.library={build}/liborlop.so", "Main.java", model, QUESTION, **options).stdout
    elif block.language == "rust":
        crate = request.getfixturevalue("crate")
        name = re.sub(r"\W", "_", block.name).lower()
        (crate / f"src/bin/{name}.rs").write_text(block.code)
        output = run("cargo", "run", "--quiet", "--offline", "--bin", name, "--", model, QUESTION,
                     cwd=crate, env=dict(environment, CARGO_TARGET_DIR=str(crate / "target"), ORLOP_LIB_DIR=str(build))).stdout
    else:
        raise AssertionError(f"nothing here runs {block.language}: mark it <!-- not run: why -->")
    assert output.strip()


def test_serving_blocks_serve(server):
    assert server.code.strip()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_every_block_is_run_or_says_why_not(document):
    bare = [f"{b.document}:{b.line} ({b.language})" for b in BLOCKS if b.document == str(document.relative_to(ROOT)) and not b.marked]
    assert not bare, f"mark them <!-- run --> or <!-- not run: why -->: {', '.join(bare)}"


def test_blocks_are_counted(capsys):
    served = [b for b in BLOCKS if b.marker == SERVER]
    languages = collections.Counter(b.language for b in TO_RUN + served)
    not_run = [b for b in BLOCKS if b.not_run]
    with capsys.disabled():
        print(f"\ncode blocks: {len(BLOCKS)}; run {sum(languages.values())} "
              f"({', '.join(f'{n} {language}' for language, n in sorted(languages.items()))}); not run {len(not_run)}")
    assert len(BLOCKS) == sum(languages.values()) + len(not_run)
    assert {b.language for b in TO_RUN if b.document == "README.md"} >= {"sh", "c", "cpp", "python"}
    assert len(served) <= 1


def test_blocks_are_found_wherever_they_stand():
    text = "a\n```sh\nls\n```\n<!-- run -->\n~~~\nx\n```\n~~~\n1. b\n\n   <!-- not run: it takes hours -->\n   ```python\n   if x:\n     y\n   ```\n```json\n{}"
    found = blocks_of("d.md", text)
    assert [(b.line, b.language, b.marked) for b in found] == [
        (2, "sh", False), (6, "text", True), (13, "python", True), (17, "json", False)]
    assert found[1].code == "x\n```\n" and found[2].code == "if x:\n  y\n" and found[2].not_run == "it takes hours"
    assert not blocks_of("d.md", "<!-- not run: -->\n```sh\nls\n```")[0].marked  # no reason


def test_examples_answer_alike(folder, build, environment, model):
    """C, C++ and Python stream one greedy answer each: the same."""
    answers = []
    for name in ["generate.c", "generate.cc", "chat.py"]:
        source = ROOT / "examples" / name
        command = [sys.executable, source] if source.suffix == ".py" else [compiled(folder, build, source)]
        answers.append(run(*command, model, QUESTION, cwd=folder, env=environment).stdout.strip())
    assert len(answers[0]) > 5
    assert answers[1:] == answers[:1] * 2


def test_chat_example_keeps_the_conversation(folder, build, environment, model):
    program = compiled(folder, build, ROOT / "examples/chat.c")
    turns = 'Say "yes" or "no\\never".\n\nWhich one?\n'
    r = subprocess.run([program, model, '"threads": 2'], input=turns, capture_output=True, text=True, timeout=600, env=environment)
    assert r.returncode == 0, r.stderr
    assert r.stdout.count("> ") >= 4  # two turns, an empty line and the end
    wrong = subprocess.run([program, model, '"no_such_key": 2'], input="", capture_output=True, text=True, timeout=60, env=environment)
    assert wrong.returncode == 1 and "no_such_key" in wrong.stderr


def anchors(text):
    """The fragments that a forge gives the headings of a document."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", h).strip().lower()).replace(" ", "-") for h in heads}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links(document):
    dead = []
    for target, fragment in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", document.read_text()):
        if "://" in target:
            continue
        file = document.parent / target if target else document
        if not file.exists() or (fragment and file.suffix == ".md" and fragment not in anchors(file.read_text())):
            dead.append(f"{target}#{fragment}")
    assert dead == []


def test_every_document_is_in_the_index():
    index = (ROOT / "docs/README.md").read_text()
    missing = [d.name for d in (ROOT / "docs").glob("*.md") if d.name != "README.md" and f"]({d.name})" not in index]
    assert missing == []


def test_make_targets_in_documents_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {t for d in DOCUMENTS for t in re.findall(r"`make ([a-z]+)", d.read_text())}
    assert named <= targets, named - targets


def test_commands_of_the_numbers_exist():
    """What docs/numbers.md says to run is there: scripts, make targets, bench programs, tests by name."""
    lines = (ROOT / "docs/numbers.md").read_text().splitlines()
    rows = [row for row, after in zip(lines, [*lines[1:], ""]) if row.startswith("| ") and not after.startswith("|---")]
    commands = [row.rsplit("|", 2)[1] for row in rows]
    assert len(commands) > 15
    meson = "\n".join(p.read_text() for p in (ROOT / "tests").rglob("meson.build"))
    for command in commands:
        found = re.findall(r"\bbench/[\w.]+", command)
        assert all((ROOT / f).exists() for f in found), command
        programs = re.findall(r"build/tests/\w+/(\w+)", command)
        programs += re.search(r"meson test -C build ([\w -]+)", command)[1].split() if "meson test" in command else []
        for p in programs:  # a bench program is named after its source
            source = p.removeprefix("bench_").replace("cuda_", "cuda/")
            assert (ROOT / f"bench/{source}.cc").exists() if p.startswith("bench_") else f"'{p}'" in meson, command
        assert found or programs or re.search(r"`(make|orlop) |the same", command), command
