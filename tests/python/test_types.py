"""The package ships py.typed: its annotations hold under mypy --strict, with the stub of the extension."""
import pathlib
import shutil
import subprocess
import sys

import pytest

import orlop

pytest.importorskip("mypy")
SOURCES = pathlib.Path(__file__).resolve().parents[2] / "python/orlop"


def test_annotations_hold(tmp_path):
    shutil.copytree(SOURCES, tmp_path / "orlop", ignore=shutil.ignore_patterns("__pycache__", "_native*"))
    stub = pathlib.Path(orlop.__file__).with_name("_native.pyi")
    shutil.copy(stub, tmp_path / "orlop")
    assert (tmp_path / "orlop/py.typed").exists()
    r = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "orlop"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    assert r.returncode == 0, r.stdout + r.stderr
