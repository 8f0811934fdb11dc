"""The documents that scripts make from the code are current, and the scripts notice what is missing."""
import shutil
import sys

import pytest

from conftest import ROOT, run

CONFIGURATION = ROOT / "scripts/configuration_docs.py"


def test_configuration_is_current():
    run(sys.executable, CONFIGURATION, "--check")


@pytest.fixture
def copy(tmp_path):
    for name in ["src", "include", "docs"]:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.inl", "*.cu*"))
    return tmp_path


@pytest.mark.parametrize("file,old,new,words", [
    ("src/api/config.cc", '"threads",', '"threads", "sails",', "engine keys without a text in configuration_docs.py: sails"),
    ("src/api/config.cc", '"output_bytes",', "", "the code does not know: output_bytes"),
    ("src/api/config.cc", "integer_of(k, v, 0, 1024)", "integer_of(k, v, 0, 2048)", "0 to 2,048"),
    ("src/api/config.h", "int32_t block_size = 16", "int32_t block_size = 32", "| `block_size` | 8 to 256 | 32 |"),
    ("src/api/config.cc", 's == "uint4"', 's == "uint5"', '`"uint5"`'),
    ("include/orlop/orlop.h", "double top_p; ", "double top_q; double top_p; ", "request fields without a text in configuration_docs.py: top_q"),
    ("include/orlop/orlop.h", "#define ORLOP_GENERATE_PLAIN ", "#define ORLOP_GENERATE_FANCY ", "ORLOP_GENERATE_FANCY"),
    ("src/backend/cpu/isa.cc", 'getenv("ORLOP_ISA")', 'getenv("ORLOP_SPEED")', "environment variables without a text in configuration_docs.py: ORLOP_SPEED"),
    ("docs/configuration.md", "| `threads` |", "| `thread` |", "is not current"),
    ("docs/configuration.md", "configuration_docs.py: request", "configuration_docs.py: nothing", "holds no place for the table request"),
])
def test_configuration_notices(copy, file, old, new, words):
    path = copy / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    r = run(sys.executable, CONFIGURATION, copy, "--check", ok=False)
    assert r.returncode == 1 and words in r.stderr, r.stderr
    assert path.read_text() == text.replace(old, new)  # --check writes nothing


def test_configuration_is_written(copy):
    path = copy / "docs/configuration.md"
    text = path.read_text()
    path.write_text(text.replace("| 8 to 256 | 16 |", "| 9 to 99 | 12 |"))
    run(sys.executable, CONFIGURATION, copy)
    assert path.read_text() == text


BINDINGS = ROOT / "scripts/bindings_table.py"


def test_bindings_are_whole():
    """Every function of the header in every language, and the table of them current."""
    run(sys.executable, BINDINGS, "--check")


@pytest.fixture
def bindings(copy):
    ignore = shutil.ignore_patterns("target", "out", "__pycache__", "*.so")
    shutil.copytree(ROOT / "bindings", copy / "bindings", ignore=ignore)
    shutil.copytree(ROOT / "python", copy / "python", ignore=ignore)
    return copy


def test_bindings_lists_every_function(bindings):
    header = (ROOT / "include/orlop/orlop.h").read_text()
    table = (ROOT / "docs/bindings.md").read_text()
    assert table.count("| `orlop_") == header.count("\nORLOP_API ") > 30


@pytest.mark.parametrize("file,old,new,words", [
    ("include/orlop/orlop.h", "ORLOP_API int32_t orlop_get(", "ORLOP_API int32_t orlop_peek(orlop_request*);\nORLOP_API int32_t orlop_get(", "orlop_peek: has no names in bindings_table.py"),
    ("include/orlop/orlop.h", "ORLOP_API void orlop_cancel(", "ORLOP_API void orlop_stop(", "orlop_cancel: is no function of orlop.h"),
    ("include/orlop/orlop.hpp", "orlop_chat_render(", "orlop_chat_draw(", "orlop_chat_render: C++ does not call it"),
    ("include/orlop/orlop.hpp", " chat_render(", " chat_draw(", "orlop_chat_render: C++ has no Engine::chat_render"),
    ("python/src/state.cc", "orlop_state_save(", "state_save(", "orlop_state_save: Python does not call it"),
    ("python/orlop/_engine.py", "def save_state(", "def keep_state(", "orlop_state_save: Python has no Engine.save_state"),
    ("bindings/java/src/main/java/io/orlop/Guide.java", "Native.guideCheck(", "guideCheck(", "orlop_guide_check: Java does not call it"),
    ("bindings/java/src/main/java/io/orlop/Orlop.java", " inspect(", " look(", "orlop_inspect: Java has no Orlop.inspect"),
    ("bindings/rust/orlop/src/state.rs", "orlop_state_load(", "state_load(", "orlop_state_load: Rust does not call it"),
    ("bindings/rust/orlop/src/kinds.rs", "pub fn guide_check(", "pub fn check_guide(", "orlop_guide_check: Rust has no guide_check"),
    ("docs/bindings.md", "Engine.info", "Engine.facts", "is not current"),
])
def test_bindings_notices(bindings, file, old, new, words):
    path = bindings / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    r = run(sys.executable, BINDINGS, bindings, "--check", ok=False)
    assert r.returncode == 1 and words in r.stderr, r.stderr
