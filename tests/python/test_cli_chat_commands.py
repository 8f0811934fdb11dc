"""The commands of orlop chat: parameters, files, completion, mistakes."""

from __future__ import annotations

import json

import pytest

from orlop.cli import common
from orlop.cli.chat_commands import Commands
from orlop.cli.chat_session import Session
from test_cli_chat import ask, chat_on, leave, saved, say


@pytest.fixture
def commands(engine):
    params = dict.fromkeys(common._sampling) | {"temperature": 0.0, "max_tokens": 12}
    return Commands(Session(engine, "Be brief.", params, show_stats=False))


def complaint(commands, text):
    with pytest.raises(common.CommandError) as caught:
        commands.run(text)
    return str(caught.value)


def test_set(commands, capsys):
    params = commands.session.params
    for text, name, value in (
        ("/set temperature 0.25", "temperature", 0.25),
        ("/set top-k 40", "top_k", 40),
        ("/set  stop  a b ", "stop", ["a b"]),
        ("/set ignore_eos true", "ignore_eos", True),
        ("/set seed 18446744073709551615", "seed", 2**64 - 1),
        ("/set presence_penalty -1", "presence_penalty", -1.0),
        ("/set top_k default", "top_k", None),
        ("/SET min_p 0.5", "min_p", 0.5),
    ):
        assert commands.run(text) is True
        assert params[name] == value
    assert "top_k default" in capsys.readouterr().err
    commands.run("/set")
    listed = capsys.readouterr().err
    assert all(name in listed for name in params) and "0.25" in listed
    commands.run("/set temperature")
    assert capsys.readouterr().err == "temperature 0.25\n"
    assert "temperature, top_k" in complaint(commands, "/set heat 1")
    assert "must be 0 to 1, got 7" in complaint(commands, "/set top_p 7")
    assert "must be an integer" in complaint(commands, "/set top_k 1.5")
    assert "true or false" in complaint(commands, "/set ignore_eos 1")
    assert "at most max_tokens, got 13 and 12" in complaint(commands, "/set min_tokens 13")
    assert params["top_p"] is None and params["min_tokens"] is None


def test_save_and_load(commands, tmp_path, capsys):
    session = commands.session
    assert session.turn(ask)
    file = tmp_path / "talk.json"
    assert "needs FILE" in complaint(commands, "/save")
    commands.run(f"/save {file}")
    found = saved(file)
    assert [m["role"] for m in found] == ["system", "user", "assistant"]
    assert found[0]["content"] == "Be brief." and "Paris" in found[2]["content"]
    assert [path.name for path in tmp_path.iterdir()] == ["talk.json"]
    commands.run("/reset")
    assert session.messages == [] and session.system == "Be brief."
    commands.run(f"/load {file}")
    assert session.whole == found
    assert "3 messages from" in capsys.readouterr().err
    session.turn("And of Italy?")
    commands.run("/save")  # the file of this conversation
    assert len(saved(file)) == 5
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"model": "x", "messages": found[1:]}))
    commands.run(f"/load {body}")
    assert session.system is None and session.messages == found[1:]


def test_files_that_are_no_conversations(commands, tmp_path):
    other = tmp_path / "notes"
    for content in ("my notes", "{}", "[1]", '[{"role": "user"}]', '[{"role": 1, "content": ""}]',
                    "[" * 100_000):
        other.write_text(content)
        assert "no conversation" in complaint(commands, f"/load {other}")
        assert "not overwritten" in complaint(commands, f"/save {other}")
        assert other.read_text() == content
    other.write_bytes(b"\xff")
    assert "no conversation" in complaint(commands, f"/load {other}")
    with pytest.raises(FileNotFoundError):
        commands.run(f"/load {tmp_path / 'none'}")
    with pytest.raises(FileNotFoundError):
        commands.run(f"/save {tmp_path / 'no' / 'folder'}")


def test_system_and_stats(commands, capsys):
    commands.run("/system")
    assert capsys.readouterr().err == "system: Be brief.\n"
    commands.run("/system You are a pirate.\nSay arr.")
    assert commands.session.system == "You are a pirate.\nSay arr."
    capsys.readouterr()
    commands.session.turn(ask)
    commands.session.turn("And of Italy?")
    commands.run("/stats")
    shown = capsys.readouterr().err
    assert "5 messages, " in shown and "a context of 2048" in shown and "answers      2, " in shown
    assert commands.session.cached_tokens > 0  # the second prompt begins with the first
    commands.run('/system ""')
    assert commands.session.system is None
    assert [m["role"] for m in commands.session.whole][0] == "user"


def test_what_is_a_command(commands):
    for text in ("/help", "  /stats ", "/set x 1", "/Reset", "/exit"):
        assert commands.knows(text) and commands.looks_like_one(text)
    for text in ("/rest", "/h"):
        assert not commands.knows(text) and commands.looks_like_one(text)
    for text in ("/etc/hosts is what?", "hello", "/ x", "/2", "", "/help\nand more"):
        assert not commands.looks_like_one(text)
    assert commands.run("/exit") is False and commands.run("/quit") is False
    assert "/help lists them" in complaint(commands, "/rest")
    assert "takes no argument" in complaint(commands, "/reset all")
    assert "needs FILE" in complaint(commands, "/load")


def test_completion(commands, tmp_path, monkeypatch):
    assert commands.completions("/s") == ["/system ", "/set ", "/save ", "/stats "]
    assert commands.completions("/set top") == ["top_k ", "top_p "]
    assert commands.completions("hello /s") == [] and commands.completions("") == []
    (tmp_path / "talk.json").write_text("[]")
    (tmp_path / "tales").mkdir()
    assert commands.completions(f"/load {tmp_path}/ta") == [f"{tmp_path}/tales/", f"{tmp_path}/talk.json "]
    monkeypatch.chdir(tmp_path)
    assert commands.completions("/save tal") == ["tales/", "talk.json "]
    assert commands.completions("/load /no/such/x") == []


def test_mistakes_on_a_terminal_do_not_end_it(model_path):
    show = chat_on(model_path)
    assert "there is no command /rest" in say(show, "/rest", until="/help lists")
    assert "no such file" in say(show, "/load /no/such/file", until="file'").lower()
    assert "/etc/hosts" in say(show, "/etc/hosts is what?")  # a turn
    leave(show)


def test_completion_on_a_terminal(model_path):
    pytest.importorskip("readline")
    show = chat_on(model_path)
    show.send("/he\t\n")
    assert "/help" in show.read("/reset")
    show.read("> ")
    leave(show)
