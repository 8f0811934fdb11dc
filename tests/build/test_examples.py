"""The larger examples do what their first lines say: one epoll loop for many, JSON of a schema, Ctrl-C."""
import json
import os
import select
import signal
import subprocess
import time

import pytest

from conftest import ROOT, run


@pytest.fixture
def example(tmp_path, build, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build))

    def compiled(name):
        source = ROOT / "examples" / name
        compiler = ["c++", "-std=c++17"] if source.suffix == ".cc" else ["cc", "-std=c99"]
        run(*compiler, f"-I{ROOT}/include", source, "-o", tmp_path / source.stem, f"-L{build}", "-lorlop")
        return tmp_path / source.stem

    return compiled


def test_json(example, model):
    answer = json.loads(run(example("json.c"), model, 'Mary "M." \\ Smith was born in 1950.').stdout)
    assert list(answer) == ["name", "born", "alive"]
    assert isinstance(answer["born"], int) and isinstance(answer["alive"], bool)


def test_batch(example, model, tmp_path):
    """Each answer is what the question gets alone."""
    questions = [f"Name {n} colours." for n in ("two", "three", "four", "five", "six")]
    (tmp_path / "prompts.txt").write_text("\n".join(questions))
    program = example("batch.cc")
    answers = run(program, model, tmp_path / "prompts.txt").stdout.strip().split("\n\n> ")
    assert len(answers) == len(questions)
    assert all(question in answer for question, answer in zip(questions, answers))
    (tmp_path / "one.txt").write_text(questions[3])
    alone = run(program, model, tmp_path / "one.txt").stdout.strip()
    assert alone == "> " + answers[3] and len(alone) > len(questions[3]) + 10
    wrong = run(program, tmp_path / "none.gguf", tmp_path / "one.txt", ok=False)
    assert wrong.returncode == 1 and "none.gguf" in wrong.stderr


def read_until(pipe, words, seconds=120):
    seen, end = b"", time.monotonic() + seconds
    while not words(seen):
        assert select.select([pipe], [], [], max(0, end - time.monotonic()))[0], seen
        piece = os.read(pipe.fileno(), 4096)
        assert piece, seen
        seen += piece
    return seen


def test_ctrl_c_ends_the_answer_and_not_the_program(example, model):
    p = subprocess.Popen([example("chat.c"), model, '"threads": 1'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        read_until(p.stdout, lambda s: s.endswith(b"> "))
        p.stdin.write(b"Write a very long story about a king, in many chapters.\n")
        p.stdin.flush()
        read_until(p.stdout, lambda s: len(s) > 5)  # the answer has begun
        p.send_signal(signal.SIGINT)
        seen = read_until(p.stdout, lambda s: s.endswith(b"\n> "))
        assert b" [stopped]\n" in seen
        p.stdin.write(b"Hi\n")
        p.stdin.close()
        rest = p.stdout.read()
        assert p.wait(120) == 0 and len(rest) > 10 and b"[stopped]" not in rest
        assert p.stderr.read() == b""
    finally:
        p.kill()
        p.wait()
        p.stdout.close()
        p.stderr.close()
