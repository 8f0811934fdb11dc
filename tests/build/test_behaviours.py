"""The behaviours of tests/behaviours/behaviours.txt are tested by name in every language, and nothing else is."""
import re

import pytest

from conftest import ROOT

LIST = (ROOT / "tests/behaviours/behaviours.txt").read_text()
NAMES = [line.split()[0] for line in LIST.splitlines() if line.strip() and not line.startswith("#")]
COMMENT = {"c": r"/\*.*?\*/", "python": r'#[^\n]*|""".*?"""', "other": r"/\*.*?\*/|//[^\n]*"}

# Language: the files, what a comment is, and how a test of a name is written ({} the name, {camel} the same in Java's way).
LANGUAGES = {
    "c": ("tests/behaviours/behaviours.c", "c", [r"\bTEST\({}\)"]),
    "cpp": ("tests/behaviours/behaviours.cc", "other", [r"\bTEST\({}\)"]),
    "python": ("tests/python/test_behaviours.py", "python", [r"\bdef test_{}\("]),
    "java": ("bindings/java/**/BehavioursTest.java", "other", [r'"{}"', r"\bvoid {camel}\("]),
    "rust": ("bindings/rust/**/behaviours.rs", "other", [r"\bfn {}\("]),
}


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def source(language):
    pattern, comment, _ = LANGUAGES[language]
    files = [p for p in ROOT.glob(pattern) if "target" not in p.parts]
    assert files, f"{language}: there is no {pattern}"
    return "\n".join(re.sub(COMMENT[comment], "", p.read_text(), flags=re.S) for p in files)


def test_the_list():
    assert len(NAMES) == len(set(NAMES)) == 12
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", n) for n in NAMES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_behaviour_has_its_test(language):
    text = source(language)
    forms = LANGUAGES[language][2]
    missing = [n for n in NAMES if not any(re.search(f.replace("{camel}", camel(n)).replace("{}", n), text) for f in forms)]
    assert missing == [], f"{language}: no test of {', '.join(missing)}"


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_every_test_is_on_the_list(language):
    assert sorted(re.findall(r"\bTEST\((\w+)\)", source(language).replace("TEST(f)", ""))) == sorted(NAMES)


def test_a_missing_name_is_seen():
    """The search itself: a name in a comment, or as a part of another, is none."""
    text = re.sub(COMMENT["other"], "", "// fn cancel()\n/* fn timeout() */ fn cancel_twice() {}", flags=re.S)
    assert not re.search(r"\bfn cancel\(", text) and not re.search(r"\bfn timeout\(", text)
