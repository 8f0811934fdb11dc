"""Guides of regular expressions beside Python's re: generated expressions, and texts that hypothesis
draws from them or at random. Where the two dialects differ on purpose (regex.h), re.ASCII and the
alphabet leave the difference out."""

import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import orlop

ALPHABET = "ab1_ -.é\u4e2d\U0001f600"
SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))

literals = st.sampled_from(["a", "b", "1", "_", " ", "-", r"\.", r"\-", "é", "\u4e2d", "\U0001f600", r"\x61",
                            r"\u00e9", r"\x2e"])
classes = st.one_of(
    st.sampled_from([".", r"\d", r"\D", r"\w", r"\W", r"\S"]),
    st.builds(lambda no, parts: f"[{no}{''.join(parts)}]", st.sampled_from(["", "^"]),
              st.lists(st.sampled_from(["a", "a-b", "0-9", "é", r"\d", r"\w", r"\W", r"\S", ".", "_", r"\-", r"\]",
                                        "\u4e00-\u9fff", r"\u00e0-\u00ff"]), min_size=1, max_size=4)))
counts = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,2}?", "{0}"])


def grown(anchors):
    anchor = st.sampled_from(["^", "$"])

    def grow(inner):
        group = st.builds(lambda kind, x: f"({kind}{x})", st.sampled_from(["", "?:"]), inner)
        counted = st.builds(lambda x, n: x + n, st.one_of(literals, classes, group), counts)
        item = st.one_of(counted, counted, counted, anchor) if anchors else counted
        sequence = st.lists(item, max_size=4).map("".join)
        return st.lists(sequence, min_size=1, max_size=3).map("|".join)

    return st.recursive(st.just(""), grow, max_leaves=6)


texts = st.text(ALPHABET, max_size=6)


def check(pattern, text):
    """(bytes taken, complete); None for an expression whose anchors leave nothing to match."""
    try:
        return orlop.guide_check({"regex": pattern}, text)
    except orlop.InvalidArgumentError as error:
        if "anchors leave no text" in str(error) or "matches no text" in str(error):
            return 0, False
        raise


def compare(pattern, text):
    taken, complete = check(pattern, text)
    size = len(text.encode())
    assert complete == bool(re.fullmatch(pattern, text, re.ASCII)), (pattern, text)
    assert 0 <= taken <= size and (not complete or taken == size)
    return taken


@SETTINGS
@given(grown(False), texts)
@example(r"(a+)+b", "aaab")
@example(r"", "")
def test_agrees_with_re(pattern, text):
    compare(pattern, text)


@SETTINGS
@given(grown(True), texts)
@example("(^|a)b", "b")
@example("a?(^|b)*$", "ab")
def test_anchors_agree_with_re(pattern, text):
    compare(pattern, text)


def counted(draw, depth):
    """An expression and a text that it matches."""
    kind = draw(st.sampled_from(["literal", "class", "group"] if depth else ["literal", "class"]))
    if kind == "group":
        pattern, one = choice(draw, depth - 1)
        pattern = f"({pattern})"
    else:
        pattern = draw(literals if kind == "literal" else classes)
        members = [c for c in ALPHABET if re.fullmatch(pattern, c, re.ASCII)]
        if not members:
            return "", ""
        one = draw(st.sampled_from(members))
    count, least, most = draw(st.sampled_from([("", 1, 1), ("", 1, 1), ("*", 0, 2), ("+?", 1, 2), ("?", 0, 1),
                                               ("{2}", 2, 2), ("{1,2}", 1, 2), ("{0,}", 0, 2)]))
    return pattern + count, one * draw(st.integers(least, most))


def choice(draw, depth):
    ways = [[counted(draw, depth) for _ in range(draw(st.integers(0, 3)))]
            for _ in range(draw(st.integers(1, 2)))]
    texts = ["".join(text for _, text in way) for way in ways]
    return "|".join("".join(p for p, _ in way) for way in ways), draw(st.sampled_from(texts))


@st.composite
def matches(draw):
    return choice(draw, 2)


@SETTINGS
@given(matches())
def test_beginnings_of_matches_are_taken(pair):
    """Every beginning of a text that matches can be taken."""
    pattern, text = pair
    assert orlop.guide_check({"regex": pattern}, text)[1], pair
    for end in range(len(text) + 1):
        size = len(text[:end].encode())
        assert orlop.guide_check({"regex": pattern}, text[:end])[0] == size, (pair, end)


@SETTINGS
@given(st.text("ab()[]{}|*+?^$\\,.-<>=!:P12dwux", max_size=10), texts)
def test_accepted_expressions_mean_what_re_means(pattern, text):
    """Any characters at all: what both take, they take for the same. What is refused names its byte."""
    try:
        taken, complete = orlop.guide_check({"regex": pattern}, text)
    except orlop.InvalidArgumentError as error:
        assert re.search(r"regular expression: (byte \d+|its anchors)|matches no text", str(error)), error
        return
    try:
        theirs = re.compile(pattern, re.ASCII)
    except re.error:
        return  # ECMA-262 alone takes it: \u{61}, \cA
    assert complete == bool(theirs.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize("name", ["L", "Lu", "Ll", "N", "Nd", "P", "S", "Sc", "Z", "M", "Cc"])
def test_categories(name):
    import unicodedata

    for code in [*range(0x250), *range(0x250, 0x3000, 17), 0x4E2D, 0xAC00, 0x1F600, 0x10FFFF]:
        if 0x378 <= code and unicodedata.category(chr(code)) == "Cn":
            continue  # a later version of Unicode may know it
        member = unicodedata.category(chr(code)).startswith(name)
        assert orlop.guide_check({"regex": rf"\p{{{name}}}"}, chr(code))[1] == member, hex(code)
