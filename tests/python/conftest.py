"""The tests use the installed package, the demo model and the tiny checkpoints of tests/data."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

import orlop

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
tiny = root / "tests" / "data" / "tiny"

if device := os.environ.get("ORLOP_TEST_DEVICE"):  # the one that test engines run on
    _init = orlop.Engine.__init__

    def _init_there(self, model, **config):
        _init(self, model, **config | {"device": config.get("device") or device})

    orlop.Engine.__init__ = _init_there


def pytest_collection_modifyitems(config, items):
    """On a device named by hand (guard: reference kernels) only the tiny checkpoints run."""
    if device:
        large = [item for item in items if "model_path" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]


def _model_path() -> pathlib.Path:
    named = os.environ.get("ORLOP_TEST_MODEL") or os.environ.get("ORLOP_MODEL")
    if named:
        return pathlib.Path(named)
    cache = pathlib.Path(os.environ.get("ORLOP_CACHE") or root / ".cache")
    return cache / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def model_path() -> str:
    path = _model_path()
    if not path.is_file():
        pytest.fail(f"the demo model is not at {path}: run scripts/fetch_model.py (make demo does)")
    return str(path)


# Small pools: many engines live in one test run.
small = {"max_context": 2048, "kv_bytes": 160_000_000, "threads": 2}


@pytest.fixture(scope="session")
def engine(model_path):
    with orlop.Engine(model_path, compute="bf16", **small) as engine:
        yield engine


@pytest.fixture(scope="session")
def engine_int8(model_path):
    with orlop.Engine(model_path, compute="int8", **small) as engine:
        yield engine


@pytest.fixture(scope="session")
def tiny_engine():
    """A random model that answers at once: for what does not depend on a model's words."""
    with orlop.Engine(tiny / "llama", max_context=512, kv_bytes=8_000_000, threads=1) as engine:
        yield engine


@pytest.fixture(scope="session")
def golden():
    return json.loads((here / "data" / "smollm2.json").read_text())


@pytest.fixture
def run_python(model_path):
    """Runs a script in a process of its own; the script finds the paths in MODEL and TINY."""

    def run(script: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"MODEL": model_path, "TINY": str(tiny / "llama")} | env,
        )

    return run
