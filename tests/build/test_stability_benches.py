"""The programs that measure the bindings run, on few requests; what they measure is not judged here, but that a
finished request leaves nothing behind in C is."""
import json
import os
import sys

from conftest import ROOT, run

TINY = ROOT / "tests/data/tiny/llama"


def test_requests_leave_nothing_behind_in_c(build, tmp_path):
    binary = tmp_path / "bindings"
    run("cc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", ROOT / "bench/bindings.c", "-o", binary,
        f"-L{build}", "-lorlop", f"-Wl,-rpath,{build}")
    measured = json.loads(run(binary, TINY, 300, 8, 11000).stdout)
    assert measured["language"] == "c"
    assert measured["bytes_left_per_request"] < 1
    assert measured["requests_per_s"] > 0 and measured["poll_ns"] > 0


def test_bindings_are_compared(build):
    # Python is there wherever these tests run with its extension built.
    which = ["python"] if list((build / "python").glob("_native*.so")) else ["c"]
    out = run(sys.executable, ROOT / "bench/bindings.py", "--requests", 100, "--tokens", 4, "--polls", 2000, "--rounds", 1, *which,
              env=dict(os.environ, ORLOP_BUILD=str(build))).stdout
    rows = {line.split()[0]: line.split() for line in out.splitlines() if "%" in line and not line.startswith("missed")}
    assert set(rows) == {"c", *which}
    assert rows["c"][3] == "100.0%"
