"""orlop chat as people use it: on a pseudo-terminal, with history, files and long conversations."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from conftest import tiny
from orlop.cli import chat_input
from orlop.cli.chat_input import Abandoned, Input, join_lines
from orlop.cli.chat_session import Session
from test_cli import Terminal, command, few, run

ask = "What is the capital of France?"
once = ("-t", 0, "-n", 12)


def chat_on(model_path, *options, **env):
    show = Terminal("chat", model_path, *once, *few, *options, **env)
    show.read("ready in")
    show.read("> ")
    return show


def say(show, text, until="tokens/s"):
    """Types a message or command, and waits for the prompt after what it brings."""
    show.send(text + "\n")
    seen = show.read(until)
    return seen + show.read("> ")


def save(show, file):
    say(show, f"/save {file}", until=f" in {file}")  # more than the echo of the command has


def leave(show):
    show.send("\x04")
    assert show.end() == 0


def saved(path):
    return json.loads(path.read_text())


# -- Ctrl-C and Ctrl-D ---------------------------------------------------------------------------


def test_ctrl_c_stops_the_answer_only(model_path, tmp_path):
    file = tmp_path / "talk.json"
    show = chat_on(model_path, "-n", 900, "--ignore-eos")
    show.send("Write a very long story about a ship.\n")
    show.read("\n")
    time.sleep(0.7)
    before = time.monotonic()
    show.send("\x03")
    show.read("ended by cancelled")
    assert time.monotonic() - before < 5
    show.read("> ")
    save(show, file)
    user, answer = saved(file)
    assert user["role"] == "user" and answer["role"] == "assistant"
    assert 0 < len(answer["content"]) < 4000  # what was said until then
    assert answer["content"].split()[0] in show.seen
    leave(show)


def test_ctrl_c_at_the_prompt(model_path):
    show = chat_on(model_path)
    time.sleep(0.5)  # Python looks for signals only once input() sleeps
    show.send("half a mess")
    time.sleep(0.3)
    show.send("\x03")  # gives the line up
    show.read("> ")
    time.sleep(0.3)
    show.send("\x03")  # nothing there: how to leave
    assert "mess" not in show.read("leaves)")
    show.read("> ")
    say(show, "/help", until="/exit")
    time.sleep(0.3)
    show.send("\x03")  # something came between: a hint again
    show.read("leaves)")
    show.read("> ")
    time.sleep(0.3)
    show.send("\x03")
    assert show.end() == 0
    assert "half a mess" in show.seen and "ended by" not in show.seen


def test_ctrl_d_leaves_and_gives_a_block_up(model_path):
    show = chat_on(model_path)
    show.send('"""\nfirst\n')
    show.read("... ")
    show.read("... ")
    show.send("\x04")
    show.read("> ")
    assert "ended by" not in show.seen
    leave(show)


# -- messages of several lines -------------------------------------------------------------------


def lines_of(*given):
    left = list(given)

    def ask(more):
        assert more == (len(left) < len(given))
        return left.pop(0)

    message = join_lines(ask)
    assert not left
    return message


@pytest.mark.parametrize("given, text, verbatim", [
    (("one",), "one", False),
    (("one \\", "two"), "one \ntwo", False),
    (("one\\", "two\\", "three"), "one\ntwo\nthree", False),
    (("ends with two \\\\",), "ends with two \\\\", False),
    (("pasted\nlines\\\nwith one inside",), "pasted\nlines\\\nwith one inside", False),
    (('"""one"""',), "one", True),
    (('"""', "one", "", "two", '"""'), "one\n\ntwo", True),
    (('  """one', 'two"""  '), "one\ntwo", True),
    (('"""', "/reset", '"""'), "/reset", True),
    (('"""', "back\\", '"""'), "back\\", True),
    (('"""pasted\nblock"""',), "pasted\nblock", True),
    (("a \"\"\" b",), 'a """ b', False),
    (("",), "", False),
])
def test_lines_become_messages(given, text, verbatim):
    assert lines_of(*given) == Input(text, verbatim)


def test_several_lines_on_a_terminal(model_path, tmp_path):
    file = tmp_path / "talk.json"
    show = chat_on(model_path)
    show.send('"""\n')
    show.read("... ")
    show.send("/exit is a word\n")
    show.read("... ")
    show.send('and so is quit"""\n')
    show.read("tokens/s")
    show.read("> ")
    show.send("one \\\n")
    show.read("... ")
    say(show, "two")
    save(show, file)
    found = [message["content"] for message in saved(file) if message["role"] == "user"]
    assert found == ["/exit is a word\nand so is quit", "one \ntwo"]
    leave(show)


def test_pasting(model_path, tmp_path):
    """A terminal brackets what is pasted; it arrives as one message."""
    readline = pytest.importorskip("readline")
    if "libedit" in readline.__doc__:
        pytest.skip("libedit takes pasted lines one by one")
    file = tmp_path / "talk.json"
    show = chat_on(model_path, TERM="xterm")
    assert "\x1b[?2004h" in show.seen
    show.send("\x1b[200~def f(x):\n\treturn x\nWhat is this?\x1b[201~")
    show.send("\n")
    show.read("tokens/s")
    save(show, file)
    assert saved(file)[0]["content"] == "def f(x):\n\treturn x\nWhat is this?"
    leave(show)


# -- history -------------------------------------------------------------------------------------


def test_history_survives(model_path, tmp_path):
    pytest.importorskip("readline")
    state, file = tmp_path / "state", tmp_path / "talk.json"
    show = chat_on(model_path, XDG_STATE_HOME=str(state))
    show.send("one \\\n")
    show.read("... ")
    say(show, "two")
    leave(show)
    history = state / "orlop" / "chat_history"
    assert history.read_text() == json.dumps("one \\\ntwo") + "\n"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    history.write_text(history.read_text() + 'no JSON\n[1]\n"\\u001b[31mred"\n')
    show = chat_on(model_path, XDG_STATE_HOME=str(state))
    show.send("\x10\x10")  # Ctrl-P twice: past the red one
    show.send("\n")  # the recalled message ends in its second line, and goes as it was
    show.read("tokens/s")
    save(show, file)
    assert saved(file)[0]["content"] == "one \\\ntwo"
    leave(show)
    assert "\x1b[31m" not in show.seen


def test_no_history(model_path, tmp_path):
    show = chat_on(model_path, "--no-history", XDG_STATE_HOME=str(tmp_path))
    say(show, "/help", until="/exit")
    leave(show)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    show = chat_on(model_path, XDG_STATE_HOME=str(tmp_path / "file"))
    assert "(no history: " in show.seen
    leave(show)


def test_long_history_is_cut(tmp_path):
    pytest.importorskip("readline")
    path = tmp_path / "orlop" / "chat_history"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(f"message {i}") + "\n" for i in range(5000)))
    script = "from orlop.cli.chat_input import Reader; Reader(lambda line: [], True)"
    subprocess.run([sys.executable, "-c", script], check=True,
                   env=os.environ | {"XDG_STATE_HOME": str(tmp_path)})
    lines = path.read_text().splitlines()
    assert lines == [json.dumps(f"message {i}") for i in range(3000, 5000)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_state_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("", "relative"):  # the specification has relative paths ignored
        monkeypatch.setenv("XDG_STATE_HOME", given)
        assert chat_input.state_folder() == tmp_path / ".local" / "state" / "orlop"
    monkeypatch.setenv("XDG_STATE_HOME", "/var/x")
    assert str(chat_input.state_folder()) == "/var/x/orlop"


# -- the line after an answer, long conversations ------------------------------------------------


def test_the_line_of_counts(model_path):
    """On a terminal, or when asked for."""
    assert "tokens/s" not in run("chat", model_path, ask, *once, *few).stderr
    for quiet in ((), ("-q",)):
        stats = run("chat", model_path, ask, *once, "--stats", *quiet, *few).stderr
        assert "tokens/s" in stats and "ended by" in stats
    show = Terminal("chat", model_path, ask, *once, *few)
    assert show.end() == 0 and "tokens/s" in show.seen
    show = Terminal("chat", model_path, ask, *once, *few, "-q")
    assert show.end() == 0 and "tokens/s" not in show.seen


def test_prompts_are_prefixes(engine, capsys):
    """Each prompt finds nearly all of the one before, and its answer, in the cache."""
    params = {"temperature": 0.0, "max_tokens": 40}
    session = Session(engine, "You are the purser of a sailing ship.", params, show_stats=True)
    session.turn("Name three decks of a ship, and say what each of them is for.")
    for question in ("Which one is the lowest?", "And which one is the highest?"):
        known = session.count()
        capsys.readouterr()
        before = session.cached_tokens
        session.turn(question)
        assert session.cached_tokens - before >= known - 2 * 16  # pages of 16 tokens
        assert "cached)" in capsys.readouterr().err


def test_a_full_context_loses_old_turns_at_once(engine, capsys):
    """Down to three quarters, so that not every turn changes the beginning of the prompt."""
    params = {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True}
    session = Session(engine, "Be brief.", params, show_stats=False)
    losses = 0
    for _ in range(18):
        session.turn("Tell me about ships. " * 40)
        said = capsys.readouterr().err
        losses += "forgetting its oldest turn" in said
        if said:
            assert "/reset starts over" in said
        if "forgetting" in said:
            assert session.count() <= 2048 * 3 // 4 + 16
        assert session.messages[0]["role"] == "user" and session.system == "Be brief."
    assert 1 <= losses <= 6, losses


def test_a_message_that_never_fits(model_path):
    huge = "word " * 3000
    show = chat_on(model_path, "--max-context", 512)
    say(show, ask)
    show.send('"""\n')
    show.read("... ")
    for begin in range(0, len(huge), 1000):  # a terminal line holds 4096 bytes
        show.send(huge[begin : begin + 1000] + "\n")
        show.read("... ")
    show.send('"""\n')
    assert "max-context" in show.read("larger --max-context")
    show.read("> ")
    assert "2 messages" in say(show, "/stats", until="each)")
    leave(show)
    piped = run("chat", model_path, "-q", "--max-context", 512, "--threads", 2, stdin=huge, code=1)
    assert piped.stderr.startswith("orlop: error: ")


def test_an_answer_that_fills_the_context(model_path):
    show = Terminal("chat", model_path, "-t", 0, "--max-context", 96, "--ignore-eos")
    show.read("> ")
    say(show, "Tell me a story.", until="the context of 96 tokens is full")
    assert "ended by length" in show.seen
    leave(show)


# -- output --------------------------------------------------------------------------------------


def test_answers_do_not_steer_the_terminal(capsys):
    from orlop.cli.chat_session import shown

    class Screen:
        def __init__(self, tty):
            self.isatty = lambda: tty

    text = "a\x1b[31mb\x07\tc\n\x9b2Jd\x7f"
    assert shown(text, Screen(True)) == "a\u241b[31mb\u2407\tc\n\ufffd2Jd\u2421"
    assert shown(text, Screen(False)) == text


def test_pipes_are_as_before(model_path):
    """A line is a turn or a known command; nothing else of a terminal holds there."""
    lines = "/rest\none \\\n"
    done = run("chat", model_path, *once, *few, stdin=lines)
    assert ">" not in done.stdout.splitlines()[0][:2] and "no command" not in done.stderr
    stats = run("chat", model_path, *once, "-q", *few, stdin=lines + "/stats\n").stderr
    assert "conversation 4 messages" in stats
    failed = run("chat", model_path, "-q", *few, stdin="/load /no/such/file\n", code=1)
    assert "/no/such/file" in failed.stderr


def test_ctrl_c_ends_an_answer_in_a_pipe(model_path):
    process = subprocess.Popen(
        [*command, "chat", model_path, "Tell a story", "-n", "900", "--ignore-eos", *few],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in err


def test_answers_to_a_file_prompts_to_the_terminal(model_path, tmp_path):
    out = tmp_path / "answers"
    script = f"exec {sys.executable} -m orlop chat '{model_path}' -t 0 -n 12 {' '.join(few)} >'{out}'"
    show = Terminal.__new__(Terminal)
    import pty

    pid, show.fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "dumb"
        os.execv("/bin/sh", ["sh", "-c", script])
    show.pid, show.seen, show.taken = pid, "", 0
    show.read("> ")
    say(show, ask)
    leave(show)
    assert "Paris" in out.read_text() and ">" not in out.read_text() and "Paris" not in show.seen


def test_abandoned_messages(monkeypatch, tmp_path):
    """Ctrl-C inside a block gives all of it up."""
    answers = iter(['"""', "a", KeyboardInterrupt, KeyboardInterrupt, '"""', EOFError, EOFError])

    def fake(prompt=""):
        answer = next(answers)
        if isinstance(answer, str):
            return answer
        raise answer

    monkeypatch.setattr("builtins.input", fake)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    reader = chat_input.Reader(lambda line: [], keep_history=False)
    for empty in (False, True, False):
        with pytest.raises(Abandoned) as caught:
            reader.read()
        assert caught.value.empty is empty
    with pytest.raises(EOFError):
        reader.read()


def test_a_model_without_a_template_says_so(tmp_path):
    done = run("chat", tiny / "llama", "hello", "-q", code=1)
    assert done.stderr.count("\n") == 1
