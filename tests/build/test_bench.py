"""bench/cpu_peers.py: what its report counts, leaves out and says."""
import json
import sys

import pytest

from conftest import ROOT, run

SCRIPT = ROOT / "bench/cpu_peers.py"


def raw(figures, products=(900, 1000)):
    """figures: (peer, compute, test, value, GB/s, cores that others used)."""
    facts = {f"l1b|int4|{peer}|{compute}": {"weight_bytes": 10**9, "products": list(products), "resident_limit": 700.0}
             for peer, compute, *_ in figures}
    return {"threads": 2, "rounds": 1, "failed": [], "facts": facts, "figures": [
        {"model": "l1b", "weights": "int4", "peer": peer, "compute": compute, "test": test, "value": value, "round": i,
         "read_gbs": gbs, "int8_gops": 1000, "bf16_gflops": None, "others": others}
        for i, (peer, compute, test, value, gbs, others) in enumerate(figures)]}


def report(tmp_path, data):
    file = tmp_path / "raw.json"
    file.write_text(json.dumps(data))
    return run(sys.executable, SCRIPT, "--report", file).stdout


def test_ratios_limits_and_goals(tmp_path):
    out = report(tmp_path, raw([
        ("orlop", "int8", "decode 1", 48.0, 60.0, 0.0), ("orlop", "int8", "decode 1", 50.0, 60.0, 0.0),
        ("orlop", "int8", "decode 1", 52.0, 60.0, 0.0),
        ("llama.cpp", "", "decode 1", 30.0, 60.0, 0.0), ("openvino", "", "decode 1", 25.0, 60.0, 0.0),
        ("orlop", "int8", "resident", 650.0, 60.0, 0.0), ("llama.cpp", "", "resident", 600.0, 60.0, 0.0)]))
    assert "50.0 (48.0 to 52.0)" in out and "83.3% of 60" in out  # 60 GB/s over 10^9 bytes
    assert "1.67 x llama.cpp, 2.00 x openvino" in out
    assert "at least 1.5 x llama.cpp: 1.67 met" in out and "80% of the limit: 83.3% met" in out
    assert "92.9% of 700" in out and "at most 1 x best: 1.08 SHORT" in out
    assert "goals: 2 met, 1 short" in out


def test_nothing_is_left_out_unsaid(tmp_path):
    out = report(tmp_path, raw([
        ("orlop", "int8", "decode 1", 50.0, 60.0, 0.0), ("orlop", "int8", "decode 1", 29.0, 34.0, 0.0),
        ("orlop", "int8", "decode 1", 20.0, 60.0, 0.9), ("llama.cpp", "", "decode 1", 10.0, 34.0, 0.0),
        ("openvino", "", "decode 1", 5.0, 34.0, 0.5)]))
    # the peers have figures of slow memory only, so that is what is compared
    assert "29.0 " in out and "1 disturbed left out" in out and "1 with fast memory left out: 50.0" in out
    assert "2.90 x llama.cpp" in out and "all disturbed; slow memory" in out


def test_memory_of_one_speed(tmp_path):
    figures = [("orlop", "int8", "decode 1", 50.0, 60.0, 0.0), ("orlop", "int8", "decode 1", 29.0, 34.0, 0.0),
               ("llama.cpp", "", "decode 1", 25.0, 58.0, 0.0), ("llama.cpp", "", "decode 1", 15.0, 33.0, 0.0)]
    out = report(tmp_path, raw(figures))
    assert "2.00 x llama.cpp" in out and "1 with slow memory left out: 29.0" in out
    out = report(tmp_path, raw(figures[:1] + figures[3:]))
    assert "fast memory" in out and "slow memory" in out  # nothing in common: both are named


def test_what_failed_is_told(tmp_path):
    data = raw([("orlop", "int8", "prefill", 100.0, 60.0, 0.0)])
    data["failed"] = [{"model": "l1b", "weights": "int4", "peer": "openvino", "what": "speed", "round": 2, "error": "no such file"}]
    out = report(tmp_path, data)
    assert "failed: l1b int4 openvino speed, round 2: no such file" in out and "1.15 x openvino: not measured" in out


@pytest.mark.parametrize("arguments", [[], ["--names", "l1b"]])
def test_nothing_to_measure(arguments):
    r = run(sys.executable, SCRIPT, *arguments, ok=False)
    assert r.returncode == 2 and "nothing to measure" in r.stderr
