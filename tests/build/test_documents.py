"""Documents and examples do what they say: marked code blocks are run, links lead somewhere.

A block is run when the line before its fence is the comment `<!-- run -->`: `sh` by a shell, `python` by
Python, `c` and `cpp` compiled against the build and run with the model and a question. Each runs in a
folder that holds the demo model under its own name, the examples and the .venv on PATH.
"""
import os
import re
import sys

import pytest

from conftest import ROOT, run

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^<!-- run -->\n```(\w+)\n(.*?)^```", re.M | re.S)
BLOCKS = [(d.name, i, language, code) for d in DOCUMENTS for i, (language, code) in enumerate(BLOCK.findall(d.read_text()))]
QUESTION = "Name three colours."


@pytest.fixture
def folder(tmp_path, build, model):
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(model)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def environment(build):
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    return dict(os.environ, PATH=path, LD_LIBRARY_PATH=str(build))


def compiled(folder, build, source, name="program"):
    compiler = ["c++", "-std=c++17"] if source.suffix == ".cc" else ["cc", "-std=c99"]
    run(*compiler, f"-I{ROOT}/include", source, "-o", folder / name, f"-L{build}", "-lorlop")
    return folder / name


@pytest.mark.parametrize("document,index,language,code", BLOCKS, ids=[f"{b[0]}-{b[1]}-{b[2]}" for b in BLOCKS])
def test_block(folder, build, document, index, language, code):
    model = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    options = {"cwd": folder, "env": environment(build)}
    if language == "sh":
        r = run("bash", "-euo", "pipefail", "-c", code, **options)
    elif language == "python":
        r = run(sys.executable, "-c", code, **options)
    else:
        source = folder / {"c": "block.c", "cpp": "block.cc"}[language]
        source.write_text(code)
        r = run(compiled(folder, build, source), model, QUESTION, **options)
    assert r.stdout.strip(), r.stderr


def test_blocks_were_found():
    assert {b[2] for b in BLOCKS if b[0] == "README.md"} >= {"sh", "c", "cpp", "python"}


def test_examples_answer_alike(folder, build, model):
    """C, C++ and Python stream one greedy answer each: the same."""
    answers = []
    for name in ["generate.c", "generate.cc", "chat.py"]:
        source = ROOT / "examples" / name
        command = [sys.executable, source] if source.suffix == ".py" else [compiled(folder, build, source)]
        answers.append(run(*command, model, QUESTION, cwd=folder, env=environment(build)).stdout.strip())
    assert len(answers[0]) > 5
    assert answers[1:] == answers[:1] * 2


def test_chat_example_keeps_the_conversation(folder, build, model):
    import subprocess

    program = compiled(folder, build, ROOT / "examples/chat.c")
    turns = 'Say "yes" or "no\\never".\n\nWhich one?\n'
    r = subprocess.run([program, model, '"threads": 2'], input=turns, capture_output=True, text=True, timeout=600, env=environment(build))
    assert r.returncode == 0, r.stderr
    assert r.stdout.count("> ") >= 4  # two turns, an empty line and the end
    wrong = subprocess.run([program, model, '"no_such_key": 2'], input="", capture_output=True, text=True, timeout=60, env=environment(build))
    assert wrong.returncode == 1 and "no_such_key" in wrong.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links(document):
    text = document.read_text()
    dead = [t for t in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if "://" not in t and not (document.parent / t).exists()]
    assert dead == []


def test_make_targets_in_documents_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {t for d in DOCUMENTS for t in re.findall(r"`make ([a-z]+)", d.read_text())}
    assert named <= targets, named - targets
