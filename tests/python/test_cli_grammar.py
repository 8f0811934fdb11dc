"""orlop grammar check: what it accepts, where it stops, and how it says so."""

from __future__ import annotations

import json
import subprocess

from orlop.cli import grammar
from test_cli import command, run

schema = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
dates = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
chess = 'root ::= move (" " move)*\nmove ::= [a-h] [1-8]\n'


def check(*args, **more):
    return run("grammar", "check", *args, **more)


def found(*args, **more):
    return json.loads(check("--json", *args, **more).stdout)


def test_every_kind_of_guide(tmp_path):
    file, gbnf = tmp_path / "schema.json", tmp_path / "chess.gbnf"
    file.write_text(json.dumps(schema))
    gbnf.write_text(chess)
    for guide, good, bad, at in (
        (("--json-schema", file), '{"name": "Ada", "age": 36}', '{"name": "Ada", "age": "x"}', 23),
        (("--json-schema", json.dumps(schema)), '{"name": "", "age": 0}', '{"name": 1}', 9),
        (("--json-object",), '{"a": [1, null]}', "[1]", 0),
        (("--regex", dates), "2024-10-31", "2024-1x-31", 6),
        (("--grammar", gbnf), "e2 e4", "e2 e9", 4),
        (("--grammar", chess), "a1", "i1", 0),
        (("--choice", "yes", "--choice", "no"), "no", "nope", 2),
    ):
        assert check(*guide, good).stdout == f"accepted: {len(good)} bytes\n"
        assert found(*guide, good)["complete"] is True
        said = check(*guide, bad, code=1).stdout
        assert said.startswith(f"not accepted: stops at byte {at} of {len(bad)} (line 1, column {at + 1})")
        answer = found(*guide, bad, code=1)
        assert answer == {
            "complete": False, "accepted_bytes": at, "bytes": len(bad), "line": 1, "column": at + 1,
            "utf8": True,
        }


def test_the_caret(tmp_path):
    text = '{"name": "Ada",\n "age": 3.6}'
    said = check("--json-schema", json.dumps(schema), text, code=1).stdout.splitlines()
    assert said[0] == "not accepted: stops at byte 25 of 28 (line 2, column 10)"
    at = said[2].index("^")
    assert said[1][at] == "."
    assert said[3].startswith("accepted so far: {")


def test_more_must_follow():
    done = check("--regex", dates, "2024-1", code=1).stdout
    assert done.startswith("not complete: 6 bytes can begin an accepted text")
    assert "accepted so far: 2024-1" in done
    answer = found("--regex", dates, "2024-1", code=1)
    assert answer["complete"] is False and answer["accepted_bytes"] == answer["bytes"] == 6


def test_where_the_text_comes_from(tmp_path):
    file = tmp_path / "text"
    file.write_text("2024-10-31")
    for args, stdin in (
        (("2024-10-31",), None), (("-f", file), None), ((), "2024-10-31"), (("-",), "2024-10-31"),
        (("--", "2024-10-31"), None),
    ):
        check("--regex", dates, *args, stdin=stdin)
    gbnf = chess
    check("--grammar", "-", "e2 e4", stdin=gbnf)
    check("--regex=-x", "--", "-x")


def test_line_ends():
    """They are part of the text, and said to be if nothing else is wrong."""
    done = check("--regex", dates, stdin="2024-10-31\n", code=1).stdout
    assert "stops at byte 10 of 11" in done and "--strip leaves it out" in done and "\u240a" in done
    check("--regex", dates, "--strip", stdin="2024-10-31\n")
    check("--regex", dates, "--strip", stdin="2024-10-31\r\n")
    assert "--strip" not in check("--regex", dates, stdin="2024-1x\n", code=1).stdout


def test_quiet_says_nothing():
    assert check("-q", "--choice", "a", "a").stdout == ""
    assert check("-q", "--choice", "a", "b", code=1).stdout == ""


def test_bytes_that_are_no_text(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"ab\xffcd")
    answer = found("--regex", ".*", "-f", file, code=1)
    assert (answer["accepted_bytes"], answer["utf8"]) == (2, False)
    assert "not UTF-8 from there on" in check("--regex", ".*", "-f", file, code=1).stdout
    answer = found("--regex", "b*", "-f", file, code=1)  # stops before that
    assert (answer["accepted_bytes"], answer["utf8"]) == (0, True)
    done = subprocess.run([*command, "grammar", "check", "--regex", ".*", b"a\xff"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "byte 1 of 2" in done.stdout
    done = subprocess.run([*command, "grammar", "check", "--regex", b"\xff", "a"],
                          capture_output=True, text=True)
    assert done.returncode == 2 and "not UTF-8" in done.stderr and "Traceback" not in done.stderr


def test_refused_sources_are_named(tmp_path):
    for option, source, word in (
        ("--json-schema", '{"type": "object", "uniqueItems": true, "not": {}}', "not"),
        ("--json-schema", "{", ""),
        ("--regex", "(a", ""),
        ("--grammar", "root ::= nothing", "nothing"),
    ):
        done = check(option, source, "text", code=2)
        assert done.stderr.startswith(f"orlop grammar check: {option} is refused: ")
        assert done.stderr.count("\n") == 1 and word in done.stderr and done.stdout == ""


def test_wrong_usage(tmp_path):
    for args, words in (
        (("x",), "exactly one guide is needed"),
        (("--regex", "a", "--choice", "b", "x"), "got --regex and --choice"),
        (("--regex", "a", "x", "-f", "y"), "not both"),
        (("--grammar", "-"), "not both"),
        (("--json-schema", tmp_path / "none.json", "x"), "none.json: No such file"),
        (("--regex", "a", "-f", tmp_path), "directory"),
        (("--regex",), "expected one argument"),
    ):
        done = check(*args, code=2, stdin="")
        assert words in done.stderr and "usage: orlop grammar check" in done.stderr
    assert "FORM" in run("grammar", code=2).stderr
    assert "schema" in run("grammar", "--help").stdout and "stdin" in check("--help").stdout


# -- the report, for verdicts of any kind --------------------------------------------------------


def report(text, accepted, monkeypatch):
    import orlop

    monkeypatch.setattr(orlop, "guide_check", lambda guide, data: (accepted, False), raising=False)
    data = text if isinstance(text, bytes) else text.encode()
    return grammar.report(grammar.check({}, data), data)


def test_wide_and_combining_characters(monkeypatch):
    said = report("日本e\u0301x!", 6 + 3 + 1, monkeypatch)
    assert said[0] == "not accepted: stops at byte 10 of 11 (line 1, column 6)"
    assert said[1] == "  日本e\u0301x!" and said[2] == "  " + " " * (4 + 1 + 1) + "^"
    said = report("日本", 4, monkeypatch)  # inside a character: the caret stands below it
    assert "(line 1, column 2)" in said[0] and said[2] == "    ^" and said[3].endswith(": 日")


def test_long_lines_are_cut(monkeypatch):
    said = report("a" * 500 + "\x1b" + "b" * 500, 500, monkeypatch)
    assert len(said[1]) < 90 and said[1][said[2].index("^")] == "\u241b"
    assert said[1].startswith("  \u2026a") and said[1].endswith("b\u2026")
    said = report("one\ntwo\nthree", 4, monkeypatch)
    assert said[1:] == ["  two", "  ^", "accepted so far: one\u240a"]
    said = report("x", 0, monkeypatch)
    assert said[1:] == ["  x", "  ^", "accepted so far: (nothing)"]
    assert report("", 0, monkeypatch) == ["not complete: the text is empty"]
