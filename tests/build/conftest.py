"""Checks of what surrounds the code: headers, exported symbols, installation, examples, documents.

ORLOP_BUILD names the build folder (default build), ORLOP_TEST_MODEL the demo model's file.
"""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command, ok=True, **options):
    """Runs a command without stdin; returns the finished process, its output as text."""
    r = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True, timeout=600, **options)
    if ok:
        assert r.returncode == 0, f"{' '.join(map(str, command))}\n{r.stdout}\n{r.stderr}"
    return r


@pytest.fixture(scope="session")
def build():
    folder = pathlib.Path(os.environ.get("ORLOP_BUILD") or ROOT / "build")
    assert (folder / "build.ninja").exists(), f"{folder} is no build folder: run `make build` first"
    return folder


@pytest.fixture(scope="session")
def model():
    path = pathlib.Path(os.environ.get("ORLOP_TEST_MODEL") or ROOT / ".cache/SmolLM2-135M-Instruct.Q4_1.gguf")
    if not path.exists():
        pytest.skip("the demo model is not there (scripts/fetch_model.py)")
    return path


@pytest.fixture(scope="session")
def installed(build, tmp_path_factory):
    """The library installed under a prefix of its own: (prefix, environment for pkg-config)."""
    dest = tmp_path_factory.mktemp("dest")
    run("meson", "install", "-C", build, "--no-rebuild", "--tags", "runtime,devel", "--destdir", dest)
    pc = list(dest.rglob("orlop.pc"))
    assert len(pc) == 1, f"expected one orlop.pc under {dest}: {pc}"
    prefix = next(l.split("=", 1)[1] for l in pc[0].read_text().splitlines() if l.startswith("prefix="))
    env = dict(os.environ, PKG_CONFIG_PATH=str(pc[0].parent))
    return dest / prefix.lstrip("/"), env


def flags(installed, *arguments):
    prefix, env = installed
    return run("pkg-config", f"--define-variable=prefix={prefix}", *arguments, "orlop", env=env).stdout.split()


def compilers(*names):
    """Those of the C or C++ compilers that this machine has."""
    return [n for n in names if shutil.which(n)]
