"""docs/troubleshooting.md quotes messages that really come: each is made to happen here.

A case's words are looked for in the document and, with its numbers and paths in the place of the
document's, in the message.
"""
import os
import re
import subprocess
import sys
import threading
import time

import pytest

from conftest import ROOT, compilers, run

orlop = pytest.importorskip("orlop")
TEXT = (ROOT / "docs/troubleshooting.md").read_text()
TINY = ROOT / "tests/data/tiny/llama"
SMALL = {"max_context": 64, "threads": 1}


def cut(model, path):
    with open(model, "rb") as f:
        path.write_bytes(f.read(model.stat().st_size // 2))
    return path


def written(path, data):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def queue_is_full(model):
    with orlop.Engine(model, max_waiting=1, max_running_seqs=1, **SMALL) as engine:
        kept = [engine.async_generate("a", ignore_eos=True) for _ in range(10)]
        del kept


# What the document says, and what makes it happen: (engine, model, folder) → raises. Words with numbers or
# paths of the moment are compared without them.
LOADING = {
    "cannot be opened: No such file or directory": lambda m, d: orlop.Engine(d / "m.gguf"),
    "m.gguf: is empty": lambda m, d: orlop.Engine(written(d / "m.gguf", b"")),
    'm.gguf: is neither a checkpoint folder nor a GGUF file (no magic "GGUF")': lambda m, d: orlop.Engine(written(d / "m.gguf", b"version https://git-lfs.github.com/spec/v1\n" * 40)),
    'm.gguf: tensor "blk.15.attn_output.weight": bytes 47328768 to 47328768+207360 lie outside the 47395552 that exist': lambda m, d: orlop.Engine(cut(m, d / "m.gguf")),
    "config.json: is missing; a checkpoint folder needs it": lambda m, d: orlop.Engine(d),
    "neither model.safetensors nor model.safetensors.index.json is there": lambda m, d: orlop.Engine(written(d / "f/config.json", b'{"model_type": "llama"}').parent),
    'engine configuration: unknown key "thread"; did you mean "threads"?': lambda m, d: orlop.Engine(m, thread=2),
    "threads: must be an integer of 0 to 1024, got -1": lambda m, d: orlop.Engine(m, threads=-1),
    "max_context: 100000 is more than the model's 8192 positions": lambda m, d: orlop.Engine(m, max_context=100000),
    "kv_bytes: 1000 is less than one page of 368640 bytes": lambda m, d: orlop.Engine(m, kv_bytes=1000, kv_dtype="bf16", compute="bf16"),
    "bytes of KV cache: cpu: cannot allocate": lambda m, d: orlop.Engine(m, kv_bytes=1 << 49),
    "cpu_prefix_bytes: 35184372088832 bytes are more than the": lambda m, d: orlop.Engine(m, enable_cpu_prefix_swap=True, cpu_prefix_bytes=1 << 45),
    'device "nowhere"': lambda m, d: orlop.Engine(m, device="nowhere"),
}
REQUESTS = {
    "prompt: 101 tokens are more than the context of 64": lambda e: e.generate("a " * 100),
    "temperature: must be 0 to 1000000, got -1": lambda e: e.generate("a", temperature=-1),
    "its deadline has passed": lambda e: e.generate("a", deadline=1e-6),
    "back references (\\1) are not supported": lambda e: e.generate("a", guide={"regex": r"(a)\1"}),
    "/not: not supported: what does not match a schema is no grammar of moderate size": lambda e: e.generate("a", guide={"json_schema": {"not": {}}}),
    "ignore_eos: a guide says where the text ends": lambda e: e.generate("a", guide={"regex": "a"}, ignore_eos=True),
    "cache_salt: is needed where no key is given: the state serves that salt alone": lambda e: e.load_state(b"123"),
    "state: ends within its first bytes (3 bytes)": lambda e: e.load_state(b"123", cache_salt="x"),
}
MORE = {
    "max_waiting: 1 sequences wait already; at most 1 may": queue_is_full,
    "tokenizer.json is missing: this model takes prompts as token ids only and gives no text": lambda m: orlop.Engine(TINY).generate("x"),
    "stop: this model has no tokenizer; use stop_tokens": lambda m: orlop.Engine(TINY).generate([1, 2], stop="x"),
}


def check(words, make):
    assert words in TEXT
    with pytest.raises(Exception) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize("words", LOADING)
def test_loading(model, tmp_path, words):
    check(words, lambda: LOADING[words](model, tmp_path))


@pytest.fixture(scope="module")
def engine(model):
    with orlop.Engine(model, compute="bf16", **SMALL) as engine:
        yield engine


@pytest.mark.parametrize("words", REQUESTS)
def test_requests(engine, words):
    check(words, lambda: REQUESTS[words](engine))


@pytest.mark.parametrize("words", MORE)
def test_more(model, words):
    check(words, lambda: MORE[words](model))


def test_state_of_another_engine(engine, model):
    state = engine.save_state("hello world " * 10)
    with orlop.Engine(model, kv_dtype="fp16", compute="bf16", **SMALL) as other:
        check("state: kv_dtype is bf16, the engine's is fp16", lambda: other.load_state(state, cache_salt="x"))


def test_closed(model):
    engine = orlop.Engine(model, **SMALL)
    engine.close()
    check("this engine is closed", lambda: engine.generate("a"))


def test_instruction_set_that_is_missing(model):
    missing = [name for name in ["amx", "sve"] if not orlop.feature(name)]
    assert missing  # no processor has both
    assert 'ORLOP_ISA: this processor (or this build) has no "amx"' in TEXT
    r = subprocess.run([sys.executable, "-c", "import orlop, sys; orlop.Engine(sys.argv[1])", str(model)],
                       env=dict(os.environ, ORLOP_ISA=missing[0]), capture_output=True, text=True, timeout=60)
    assert f'ORLOP_ISA: this processor (or this build) has no "{missing[0]}"' in r.stderr


def test_forked_child(model, tmp_path):
    words = "this engine belongs to the parent process; create an engine after the fork"
    assert words in TEXT
    program = """
import orlop, os, sys
engine = orlop.Engine(sys.argv[1], max_context=64, threads=1)
if os.fork() == 0:
    try:
        engine.generate("a")
    except orlop.ShutdownError as e:
        print(e, flush=True)
        print(orlop.Engine(sys.argv[1], max_context=64, threads=1).generate("a", max_tokens=2).tokens, flush=True)
    os._exit(0)
os.wait()
print(len(engine.generate("a", max_tokens=2, ignore_eos=True).tokens))
"""
    lines = run(sys.executable, "-c", program, model).stdout.splitlines()
    assert lines[0] == words and lines[1].startswith("[") and lines[2] == "2"


def test_two_readers(model):
    words = "another thread takes this request's output"
    assert words in TEXT
    with orlop.Engine(model, max_running_seqs=1, threads=1) as engine:
        first = engine.async_generate("a", ignore_eos=True)
        second = engine.async_generate("a", ignore_eos=True)  # waits, and whoever reads it too
        reader = threading.Thread(target=second._handle.get)
        reader.start()
        try:
            for _ in range(500):
                try:
                    second._handle.get(0)
                except orlop.BusyError as e:
                    assert words in str(e)
                    break
                time.sleep(0.01)
            else:
                raise AssertionError("two readers at once were let through")
        finally:
            first.cancel()
            second.cancel()
            reader.join()


@pytest.mark.skipif(not compilers("cc"), reason="no C compiler")
def test_library_that_is_not_found(build, tmp_path):
    assert "error while loading shared libraries: liborlop.so.1" in TEXT
    run("cc", f"-I{ROOT}/include", ROOT / "examples/generate.c", "-o", tmp_path / "program", f"-L{build}", "-lorlop")
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    r = run(tmp_path / "program", "m", "q", ok=False, env=env)
    if r.returncode == 127:  # else it is installed on this system
        assert "error while loading shared libraries: liborlop.so.1" in r.stderr


def test_every_message_of_the_document_is_tried():
    """Rows of the tables for loading, requests and states whose message no case here makes happen."""
    tables = TEXT.split("## In the process")[0]
    messages = [m for m in re.findall(r"^\| (`.*?`.*?) \|", tables, re.M)]
    tried = [*LOADING, *REQUESTS, *MORE, "kv_dtype is bf16", 'ORLOP_ISA: this processor (or this build) has no "amx"']
    assert len(messages) >= 25
    assert [m for m in messages if not any(words in m for words in tried)] == []
