"""The command `orlop`, run as users run it."""

from __future__ import annotations

import atexit
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import orlop
from conftest import here, tiny

command = [sys.executable, "-m", "orlop"]
# Small pools, so that the many processes of these tests start quickly.
few = ["--max-context", "1024", "--threads", "2", "--compute", "bf16"]
# Where chats of these tests keep their history.
_state = tempfile.mkdtemp(prefix="orlop-state-")
atexit.register(shutil.rmtree, _state, ignore_errors=True)


def run(*args, stdin=None, timeout=120, code=0):
    done = subprocess.run(
        [*command, *map(str, args)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_installed_script(model_path):
    script = pathlib.Path(sys.executable).parent / "orlop"
    done = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == f"orlop {orlop.__version__}\n"


def test_run_streams_text_and_facts(model_path):
    done = run("run", model_path, "The capital", "of France is", "-n", 12, "-t", 0, *few)
    assert done.stdout.startswith(" Paris")
    for word in ("kernels", "threads", "weights", "KV cache", "compute", "ready in", "tokens/s"):
        assert word in done.stderr
    quiet = run("run", model_path, "The capital of France is", "-n", 12, "-t", 0, "-q", *few)
    assert quiet.stdout == done.stdout and quiet.stderr == ""
    piped = run("run", model_path, "-", "-n", 12, "-t", 0, "-q", *few,
                stdin="The capital of France is")
    assert piped.stdout == done.stdout
    stopped = run("run", model_path, "1, 2, 3, 4, 5,", "-n", 24, "-t", 0, "--stop", ", 9", "-q", *few)
    assert stopped.stdout.rstrip().endswith("8")


def test_run_is_reproducible(model_path):
    args = ("run", model_path, "Once", "-n", 20, "-t", 1, "--seed", 5, "-q", *few)
    assert run(*args).stdout == run(*args).stdout


def test_chat_one_shot(model_path):
    done = run("chat", model_path, "What is the capital of France?", "-t", 0, "-q", *few)
    assert "Paris" in done.stdout and done.stdout.endswith("\n") and done.stderr == ""
    assert "<|" not in done.stdout
    piped = run("chat", model_path, "-", "-t", 0, "-q", *few, stdin="What is the capital of France?")
    assert piped.stdout == done.stdout


def test_chat_is_calm_where_the_model_states_nothing(model_path):
    calm = "chat     temperature 0.7, top_p 0.9 (the model states none)"
    assert calm in run("chat", model_path, "Hello", "-n", 4, *few).stderr
    assert calm not in run("chat", model_path, "Hello", "-n", 4, "-t", 1, *few).stderr


def test_chat_from_a_pipe_has_history(model_path):
    lines = "What is the capital of France?\n\nRepeat what you said.\n"
    done = run("chat", model_path, "-t", 0, "-n", 24, "-q", *few, stdin=lines)
    one = run("chat", model_path, "What is the capital of France?", "-t", 0, "-n", 24, "-q", *few)
    assert done.stdout.startswith(one.stdout)
    second = done.stdout[len(one.stdout) :]
    alone = run("chat", model_path, "Repeat what you said.", "-t", 0, "-n", 24, "-q", *few)
    assert second.strip() and second != alone.stdout  # it saw the first turn


def test_long_conversations_forget_their_beginning(model_path):
    lines = "Tell me about ships in one sentence.\n" * 8
    done = run("chat", model_path, "-t", 0, "-n", 24, "-q", "--max-context", 160, stdin=lines)
    assert "forgetting its oldest turn" in done.stderr


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, *args, **env):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.environ.update({"TERM": "dumb", "XDG_STATE_HOME": _state} | env)
            os.execv(sys.executable, [*command, *map(str, args)])
        self.pid, self.seen, self.taken = pid, "", 0

    def read(self, until=None, seconds=60.0):
        """Output up to and with the next `until`; without it, until the program ends."""
        end, start = time.monotonic() + seconds, self.taken
        while until is None or until not in self.seen[start:]:
            left = end - time.monotonic()
            assert left > 0, f"no {until!r} in {self.seen[start:]!r}"
            if not select.select([self.fd], [], [], left)[0]:
                continue
            try:
                data = os.read(self.fd, 4096)
            except OSError:
                data = b""
            if not data:
                assert until is None, self.seen
                break
            self.seen += data.decode(errors="replace")
        found = self.seen.index(until, start) + len(until) if until else len(self.seen)
        self.taken = found
        return self.seen[start:found]

    def send(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        self.read()
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        assert "Traceback" not in self.seen, self.seen
        return os.waitstatus_to_exitcode(status)


def test_chat_on_a_terminal(model_path):
    chat = Terminal("chat", model_path, "-t", 0, *few)
    chat.read("ready in")
    chat.read("> ")
    chat.send("What is the capital of France?\n")
    assert "Paris" in chat.read("tokens/s")
    chat.read("> ")
    time.sleep(0.5)  # until input() sleeps: Python looks for signals only from there on
    chat.send("\x03")  # at the prompt: a hint, not the end
    chat.read("leaves)")
    chat.read("> ")
    chat.send("Write a very long story about a ship, with many chapters.\n")
    chat.read("\n")
    time.sleep(0.7)
    before = time.monotonic()
    chat.send("\x03")  # stops the answer
    chat.read("ended by cancelled")
    assert time.monotonic() - before < 5
    chat.read("> ")
    chat.send("/reset\n")
    chat.read("> ")
    chat.send("What is the capital of France?\n")
    assert "Paris" in chat.read("tokens/s")
    chat.read("> ")
    chat.send("\x04")
    assert chat.end() == 0


def test_chat_exit_word(model_path):
    chat = Terminal("chat", model_path, "-q", *few)
    chat.read("> ")
    chat.send("/exit\n")
    assert chat.end() == 0


def test_ctrl_c_ends_run_quietly(model_path):
    process = subprocess.Popen(
        [*command, "run", model_path, "Once", "-n", "900", "--ignore-eos", *few],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in err


def test_broken_pipe_is_silent(model_path):
    process = subprocess.Popen(
        [*command, "run", model_path, "Once", "-n", "900", "--ignore-eos", "-q", *few],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    process.stdout.read(5)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(30) == 141
    process.stderr.close()


def test_closed_and_full_streams(model_path):
    shell = [f"{sys.executable} -m orlop inspect '{model_path}' >/dev/full"]
    done = subprocess.run(["sh", "-c", *shell], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("orlop: error: ")
    assert done.stderr.count("\n") == 1 and "space" in done.stderr
    for closed in ("<&-", ">&-", "2>&-"):
        line = f"{sys.executable} -m orlop run '{model_path}' A -n 2 {' '.join(few)} {closed}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
        assert done.returncode == 0 and "Traceback" not in done.stderr + done.stdout, done


def test_errors_are_one_line(model_path, tmp_path):
    missing = run("run", tmp_path / "no.gguf", "x", code=1)
    assert missing.stderr.startswith("orlop: error: ") and missing.stderr.count("\n") == 1
    assert "no.gguf" in missing.stderr
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(open(model_path, "rb").read(5000))
    for name in ("inspect", "bench"):
        done = run(name, cut, code=1)
        assert done.stderr.startswith("orlop: error: ") and done.stderr.count("\n") == 1
    done = run("run", tiny / "llama", "x", "-q", code=1)
    assert "tokenizer" in done.stderr
    done = run("run", model_path, "x", "--compute", "int3", "-q", code=1)
    assert "compute" in done.stderr
    done = run("eval", model_path, tmp_path / "no.txt", "-q", *few, code=1)
    assert "no.txt" in done.stderr
    (tmp_path / "bad.json").write_text("[{}]")
    done = run("eval", model_path, "--reference", tmp_path / "bad.json", "-q", *few, code=1)
    assert "bad.json" in done.stderr


def test_usage_errors(model_path, tmp_path):
    run(code=2)
    run("dance", code=2)
    run("run", model_path, code=2)
    run("run", model_path, "x", "--threads", "0", code=2)
    run("run", model_path, "x", "-n", "many", code=2)
    assert "--top-p" in run("run", model_path, "x", "--top-p", 7, code=2).stderr
    assert "reference" in run("eval", model_path, code=2).stderr
    run("bench", model_path, "--batch", "0", code=2)
    (tmp_path / "a").write_text("a")
    run("eval", model_path, tmp_path / "a", "-q", *few, code=2)


def test_inspect(model_path):
    done = run("inspect", model_path)
    for word in ("token_embd.weight", "q4_1", "llama", "im_start", "byte_bpe"):
        assert word.lower() in done.stdout.lower()
    found = json.loads(run("inspect", model_path, "--json").stdout)
    assert found == orlop.inspect(model_path)
    assert "tensors" not in json.loads(run("inspect", model_path, "--json", "--no-tensors").stdout)
    assert "model-00004" in run("inspect", tiny / "llama-sharded").stdout


def test_eval(model_path, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The orlop is the lowest deck of a ship, above the hold. " * 30)
    done = run(
        "eval", model_path, text, "--tokens", 200, "--reference", here / "data" / "smollm2.json",
        "--json", "-q", *few,
    )
    found = json.loads(done.stdout)
    assert found["compute"] == "bf16"
    assert found["perplexity"]["tokens"] == 200 and 1 < found["perplexity"]["perplexity"] < 100
    assert found["agreement"]["tokenized"] == 10
    assert found["agreement"]["mean_logprob_error"] <= 0.03
    words = run("eval", model_path, text, "--tokens", 200, "-q", *few).stdout
    assert f"perplexity {found['perplexity']['perplexity']:.4f}" in words


def test_bench(model_path):
    done = run(
        "bench", model_path, "--batch", "1,2", "--prompt", 32, "--gen", 4, "--repeat", 2,
        "--json", "-q", *few,
    )
    found = json.loads(done.stdout)
    assert [row["batch"] for row in found["results"]] == [1, 2]
    for row in found["results"]:
        assert row["prefill_tokens_per_second"] > 0 and row["decode_tokens_per_second"] > 0
        assert len(row["decode_tokens_per_second_runs"]) == 2
    assert found["engine"]["compute"] in ("bf16", "int8", "fp32")
    table = run("bench", model_path, "--prompt", 16, "--gen", 2, "--repeat", 1, "-q", *few).stdout
    assert len(table.splitlines()) == 3 and table.startswith("compute bf16")
    run("bench", model_path, "--gen", 1, code=2)


def test_log_option(model_path):
    done = run("run", model_path, "x", "-n", 1, "-q", "--log", "info", *few)
    assert "orlop: INFO: " in done.stderr


def test_progress_on_a_terminal(model_path):
    """Drawn and wiped; the text that follows is clean."""
    show = Terminal("run", model_path, "The capital of France is", "-n", 3, "-t", 0, *few)
    assert show.end() == 0
    assert " Paris" in show.seen and "ready in" in show.seen


def test_progress_lines(capsys, monkeypatch):
    from orlop.cli import common

    clock = iter([0.0, 0.5, 1.5, 2.0, 5.0])
    monkeypatch.setattr(common.time, "monotonic", lambda: next(clock))
    progress = common._Progress()
    for done in (0, 25, 50, 100):
        progress(done * 10**6, 10**8)
    progress.close()
    assert capsys.readouterr().err.splitlines() == [
        "loading:  25% of 100.0 MB", "loading: 100% of 100.0 MB"]
