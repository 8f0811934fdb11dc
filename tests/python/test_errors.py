"""Typed errors, logging, facts of the module."""

from __future__ import annotations

import ast
import builtins
import json
import logging
import math
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import orlop
from conftest import here, root, tiny


def test_codes_are_those_of_the_header():
    header = (root / "include" / "orlop" / "orlop.h").read_text()
    codes = {
        name: int(code)
        for name, code in re.findall(r"#define ORLOP_E_(\w+) \((-\d+)\)", header)
    }
    assert len(codes) == 13
    for name, code in codes.items():
        words = "".join(part.capitalize() for part in name.split("_"))
        cls = getattr(orlop, words + ("Error" if not words.endswith("Error") else ""))
        assert cls.code == code and issubclass(cls, orlop.Error)
        assert type(orlop.errors.from_code(code, "x")) is cls
    unknown = orlop.errors.from_code(-99, "x")
    assert type(unknown) is orlop.Error and unknown.code == -99
    assert issubclass(orlop.InvalidArgumentError, ValueError)
    assert issubclass(orlop.OutOfMemoryError, MemoryError)
    assert issubclass(orlop.IoError, OSError)
    assert issubclass(orlop.DeadlineError, TimeoutError)


def test_missing_model(tmp_path):
    with pytest.raises(orlop.NotFoundError, match="nothing.gguf") as caught:
        orlop.Engine(tmp_path / "nothing.gguf")
    assert caught.value.code == -2
    with pytest.raises(orlop.NotFoundError, match="nothing.gguf"):
        orlop.inspect(tmp_path / "nothing.gguf")


def test_configuration_keys(model_path):
    with pytest.raises(orlop.InvalidArgumentError, match="max_contxt.*max_context"):
        orlop.Engine(model_path, max_contxt=5)
    with pytest.raises(orlop.InvalidArgumentError, match="compute"):
        orlop.Engine(model_path, compute="bf17")
    with pytest.raises(orlop.InvalidArgumentError, match="threads"):
        orlop.Engine(model_path, threads=-1)
    for value in (math.nan, math.inf, 10**400, -(2**64)):
        with pytest.raises(orlop.InvalidArgumentError, match="^threads must be"):
            orlop.Engine(model_path, threads=value)
    with pytest.raises(orlop.InvalidArgumentError, match="^compute holds a lone surrogate"):
        orlop.Engine(model_path, compute="\ud800")
    for value in (object(), b"4", [4]):
        with pytest.raises(TypeError, match="^threads must be a str, a bool or a number, not "):
            orlop.Engine(model_path, threads=value)
    with pytest.raises(orlop.InvalidArgumentError, match="quant.*is not quantized by awq"):
        orlop.Engine(model_path, quant="awq")


def test_arguments_are_named(engine):
    class Odd:
        def __fspath__(self):
            return b"model.gguf"

    for value in (5, b"abc", None, Odd()):
        kind = "bytes" if isinstance(value, Odd) else type(value).__name__
        with pytest.raises(TypeError, match=f"^model must be a str or an os.PathLike.*not {kind}"):
            orlop.Engine(value)
        with pytest.raises(TypeError, match=f"^path must be a str or an os.PathLike.*not {kind}"):
            orlop.inspect(value)
    with pytest.raises(TypeError, match="^progress must be callable, not int"):
        orlop.Engine("model.gguf", progress=3)
    for value in (None, b"x", 5):
        with pytest.raises(TypeError, match=f"^text must be a str, not {type(value).__name__}"):
            engine.encode(value)
    for name in ("add_special", "parse_special"):
        with pytest.raises(TypeError, match=f"^{name} must be True or False, not NoneType"):
            engine.encode("x", **{name: None})
    with pytest.raises(TypeError, match="^skip_special must be True or False, not int"):
        engine.decode([5], skip_special=1)
    for value in (None, 5, "abc"):
        with pytest.raises(TypeError, match="^tokens must be a list of token ids, not "):
            engine.decode(value)
        with pytest.raises(TypeError, match="^messages must be a list of dict, not "):
            engine.apply_chat_template(value)
    chat = [{"role": "user", "content": "hi"}]
    with pytest.raises(TypeError, match="^tools must be a list of dict, not int"):
        engine.async_generate(messages=chat, tools=5)
    with pytest.raises(TypeError, match="^template_vars must be a dict, not int"):
        engine.async_generate(messages=chat, template_vars=5)
    with pytest.raises(TypeError, match="^messages: .*object"):
        engine.async_generate(messages=[{"role": "user", "content": object()}])


def test_damaged_files(model_path, tmp_path):
    whole = open(model_path, "rb").read()
    for size in (0, 3, 4, 100, 5_000_000, len(whole) - 1):
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(whole[:size])
        with pytest.raises(orlop.BadFormatError, match="cut.gguf"):
            orlop.Engine(cut)
    folder = tmp_path / "folder"
    shutil.copytree(tiny / "llama", folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(orlop.BadFormatError, match="config.json"):
        orlop.Engine(folder)
    (folder / "config.json").unlink()
    with pytest.raises(orlop.Error, match="config.json"):
        orlop.Engine(folder)


def test_progress_and_its_errors(model_path):
    seen = []
    with orlop.Engine(model_path, progress=lambda *p: seen.append(p), max_context=64):
        pass
    assert seen and all(done <= total for done, total in seen if total)
    assert seen[-1][0] == seen[-1][1] > 0

    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop

    with pytest.raises(Stop):
        orlop.Engine(model_path, progress=stop, max_context=64)


def test_inspect(model_path):
    found = orlop.inspect(model_path)
    assert found["kind"] == "gguf" and found["parameters"] > 130_000_000
    assert sum(row["bytes"] for row in found["formats"].values()) == found["tensor_bytes"]
    assert "im_start" in found["chat_template"]
    assert len(found["tensors"]) == sum(row["tensors"] for row in found["formats"].values())
    sharded = orlop.inspect(tiny / "llama-sharded")
    assert sharded["kind"] == "hugging_face" and len(sharded["files"]) == 4


def test_module():
    assert orlop.__version__ == orlop._native.version()
    assert re.fullmatch(r"\d+\.\d+\.\d+", orlop.__version__)
    assert orlop.feature("no such thing") == 0
    for name in orlop.__all__:
        assert getattr(orlop, name) is not None
    package = orlop.__path__[0]
    stub = pathlib.Path(package, "_native.pyi").read_text()
    # Every name of the annotations is imported: a type checker sees types, not Any.
    names = {n.id for n in ast.walk(ast.parse(stub)) if isinstance(n, ast.Name)}
    exec(stub, found := {})
    assert names <= set(found) | set(dir(builtins))
    for word in ("class Engine", "class Request", "class Output", "def get(self"):
        assert word in stub
    assert pathlib.Path(package, "py.typed").is_file()
    for thing in (orlop.Engine, orlop.Engine.async_generate, orlop.Request.get, orlop.inspect):
        assert thing.__doc__


def test_logging(caplog, tiny_engine):
    def load():
        orlop.Engine(tiny / "llama", max_context=64, kv_bytes=1_000_000).close()

    caplog.set_level(logging.DEBUG, logger="orlop")
    load()
    assert not caplog.records  # silent until asked
    orlop.set_log_level("info")
    try:
        load()
    finally:
        orlop.set_log_level(None)  # delivers what is queued
    records = [r for r in caplog.records if r.name == "orlop"]
    assert any("KV cache" in r.getMessage() for r in records)
    assert all(r.levelno >= logging.INFO for r in records)
    caplog.clear()
    orlop.set_log_level(logging.ERROR)
    load()
    orlop.set_log_level(None)
    orlop.set_log_level(None)
    assert not caplog.records
    with pytest.raises(ValueError, match="level"):
        orlop.set_log_level("loud")
    with pytest.raises(TypeError):
        orlop.set_log_level(True)


def test_log_handlers_may_change_the_level(run_python):
    """None and "debug" from within a handler, on the log's own thread and on others."""
    done = run_python("""
import logging, os, threading, time, orlop

class Restart(logging.Handler):
    seen = 0
    def emit(self, record):
        Restart.seen += 1
        orlop.set_log_level(None)
        orlop.set_log_level("debug")

def load():
    orlop.Engine(os.environ["TINY"], max_context=64, kv_bytes=1_000_000).close()

logger = logging.getLogger("orlop")
logger.addHandler(Restart())
logger.setLevel(logging.DEBUG)
logger.propagate = False
orlop.set_log_level("debug")
for _ in range(5):
    load()
end = time.monotonic() + 20
while Restart.seen < 5 and time.monotonic() < end:
    time.sleep(0.01)
assert Restart.seen >= 5, Restart.seen
for _ in range(3):  # the handler's lock is held by this thread while the other may want it
    load()
    logger.info("from the main thread")
orlop.set_log_level(None)
names = [t.name for t in threading.enumerate()]
# The handler's last call may have started the flow again; never are there two threads.
assert names.count("orlop-log") <= 1, names
print("done")
""")
    assert done.returncode == 0 and done.stdout == "done\n" and done.stderr == "", done


def test_log_stop_does_not_wait_for_a_stuck_handler(run_python):
    """The caller holds a lock that the handler wants: one wait, then the call returns."""
    done = run_python("""
import logging, os, threading, time, orlop

lock, entered, after = threading.Lock(), threading.Event(), threading.Event()

class Locked(logging.Handler):
    def emit(self, record):
        entered.set()
        with lock:
            pass
        after.set()

logger = logging.getLogger("orlop")
logger.addHandler(Locked())
logger.propagate = False
with lock:
    orlop.set_log_level("debug")
    logger.setLevel(logging.DEBUG)
    orlop.Engine(os.environ["TINY"], max_context=64, kv_bytes=1_000_000).close()
    assert entered.wait(20)
    start = time.monotonic()
    orlop.set_log_level(None)
    assert time.monotonic() - start < 15
    assert not after.is_set()
orlop.set_log_level(None)  # now it ends
assert after.is_set() and "orlop-log" not in [t.name for t in threading.enumerate()]
print("done")
""")
    assert done.returncode == 0 and done.stdout == "done\n" and done.stderr == "", done


def test_a_log_handler_that_raises_costs_one_line(run_python):
    done = run_python("""
import logging, os, orlop

class Bad(logging.Handler):
    seen = 0
    def emit(self, record):
        Bad.seen += 1
        raise KeyError("handler")

logger = logging.getLogger("orlop")
logger.addHandler(Bad())
logger.setLevel(logging.DEBUG)
logger.propagate = False
orlop.set_log_level("debug")
orlop.Engine(os.environ["TINY"], max_context=64, kv_bytes=1_000_000).close()
orlop.set_log_level(None)
print(Bad.seen)
""")
    assert done.returncode == 0 and int(done.stdout) > 1
    assert done.stderr.count("KeyError: 'handler'") == int(done.stdout)


def test_readme_style_program(model_path):
    """The five lines that a user begins with."""
    program = (
        "import orlop, sys\n"
        "engine = orlop.Engine(sys.argv[1], compute='bf16')\n"
        "question = [{'role': 'user', 'content': 'What is the capital of France?'}]\n"
        "for output in engine.async_generate(messages=question, temperature=0):\n"
        "    print(output.text, end='', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, model_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "Paris" in done.stdout and done.stderr == ""


def test_goldens_are_what_they_say():
    assert len(json.loads((here / "data" / "smollm2.json").read_text())) == 10
    assert json.loads((here / "data" / "smollm2_ppl.json").read_text())["tokens"] == 1024
