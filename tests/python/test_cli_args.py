"""The command line: order and spelling of options, errors before loading, conversations by pipe."""

from __future__ import annotations

import json

import pytest

from conftest import tiny
from orlop.cli import _parser, common
from test_cli import few, run


def parse(*words):
    return _parser().parse_args(words)


def test_options_stand_anywhere():
    for words in (
        ("--system", "x", "M", "hi", "you"),
        ("M", "--system", "x", "hi", "you"),
        ("M", "hi", "--system", "x", "you"),
        ("M", "hi", "you", "--system=x"),
    ):
        args = parse("chat", *words)
        assert (args.model, args.question, args.system) == ("M", ["hi", "you"], "x")
    args = parse("eval", "M", "--tokens", "20", "FILE", "--json")
    assert (args.model, args.file, args.tokens, args.json) == ("M", "FILE", 20, True)
    args = parse("run", "M", "hi", "-q", "there", "-n5")
    assert (args.prompt, args.quiet, args.max_tokens) == (["hi", "there"], True, 5)
    assert parse("run", "M", "hi").max_tokens == 256
    assert parse("chat", "-q", "M").question == []
    assert parse("bench", "--gen", "4", "M", "--prompt", "16").model == "M"


def test_what_looks_like_an_option():
    assert parse("run", "M", "hi", "-q", "--", "-q", "--top_k").prompt == ["hi", "-q", "--top_k"]
    assert parse("run", "M", "-5", "-q", "+", "--", "3").prompt == ["-5", "+", "3"]
    assert parse("run", "M", "-", "-q").prompt == ["-"]
    assert parse("run", "M", "--a_b or c", "-q").prompt == ["--a_b or c"]
    assert parse("run", "M", "x", "--stop=a_b").stop == ["a_b"]
    assert parse("run", "M", "x", "--stop", "a_b").stop == ["a_b"]


def test_options_stand_anywhere_when_run(model_path):
    alone = run("run", model_path, "hi there", "-n", 3, "-t", 0, "-q", *few)
    mixed = run("run", model_path, "hi", "-n", 3, "-t", 0, "-q", *few, "there")
    assert mixed.stdout == alone.stdout


def test_mistakes_are_still_seen():
    for words, text in (
        (("run", "M", "x", "--bogus"), "unrecognized arguments: --bogus"),
        (("run", "M", "-q"), "required: prompt"),
        (("run", "M", "x", "-n"), "expected one argument"),
        (("inspect", "M", "N"), "unrecognized arguments: N"),
        (("eval", "M", "A", "--json", "B"), "unrecognized arguments: B"),
    ):
        assert text in run(*words, code=2).stderr
    assert "usage: orlop run " in run("run", "M", "x", "-n", code=2).stderr
    assert "--top-k" in run("run", "--help").stdout


def test_configuration_keys_are_options():
    """Both spellings, for every key that docs/configuration.md gives an option."""
    for key, value in (
        ("device", "cpu"), ("compute", "bf16"), ("quant", "none"), ("kv_dtype", "fp32"),
        ("quant_bits", 4), ("quant_granularity", "group"), ("quant_group_size", 64),
        ("kv_bytes", 4096), ("block_size", 16), ("threads", 2), ("max_context", 64),
        ("max_running_seqs", 3), ("max_waiting", 5), ("step_tokens", 7), ("load", "read"),
        ("itl_target_ms", 50.0), ("scheduling", "fcfs"), ("cpu_prefix_bytes", 4096),
        ("output_bytes", 4096), ("kv_fraction", 0.5), ("n_gpu_layers", 0),
    ):
        for name in (key, key.replace("_", "-")):
            assert getattr(parse("chat", "M", f"--{name}", str(value)), key) == value
            assert getattr(parse("bench", f"--{name}={value}", "M"), key) == value
    for key in ("enable_prefix_cache", "enable_guided_decoding", "enable_cpu_prefix_swap",
                "chunked_prefill", "quant_symmetric"):
        for word, value in (("true", True), ("false", False)):
            assert getattr(parse("run", "M", "x", f"--{key}", word), key) is value
        assert "true or false" in run("run", "M", "x", f"--{key}=1", code=2).stderr
        args = parse("run", "M", f"--{key}", "x")  # alone it means true
        assert getattr(args, key) is True and args.prompt == ["x"]
    for key in ("enable_prefix_cache", "enable_guided_decoding", "enable_cpu_prefix_swap"):
        assert getattr(parse("chat", "M", f"--{key}", "-q"), key) is True
    assert "unrecognized" in run("chat", "M", "--debug_poison", "true", code=2).stderr


@pytest.mark.parametrize("option, value, words", [
    ("--top-p", "7", "must be 0 to 1, got 7"),
    ("--top-p", "nan", "must be 0 to 1, got nan"),
    ("--min-p", "-0.1", "must be 0 to 1"),
    ("--temperature", "-1", "must be 0 to 1000000"),
    ("--temperature", "inf", "must be 0 to 1000000"),
    ("--top-k", "-1", "must be 0 to 2147483647"),
    ("--repetition-penalty", "0", "must be above 0"),
    ("--presence-penalty", "2.5", "must be -2 to 2"),
    ("--frequency-penalty", "-3", "must be -2 to 2"),
    ("--seed", "-1", "must be 0 to 18446744073709551615"),
    ("--max-tokens", "-1", "must be 0 to"),
    ("--min-tokens", "999", "must be at most --max-tokens"),
    ("--stop", "", "must have 1 to 4096 bytes"),
    ("--top-k", "1.5", "must be an integer"),
    ("--top-p", "much", "must be a number"),
])
def test_sampling_errors_come_before_the_model(tmp_path, option, value, words):
    for command in (["run", tmp_path / "none.gguf", "x"], ["chat", tmp_path / "none.gguf", "x"]):
        done = run(*command, "-n", 300, f"{option}={value}", code=2)
        assert option in done.stderr and words in done.stderr, done.stderr
        assert "none.gguf" not in done.stderr


def test_the_ranges_are_the_library_s(tiny_engine):
    """What the options let through at their ends the library takes as well."""
    args = parse(
        "run", "M", "x", "-n", "0", "--min-tokens", "0", "-t", "1e6", "--top-k", "2147483647",
        "--top-p", "0", "--min-p", "1", "--repetition-penalty", "1e-6", "--presence-penalty", "-2",
        "--frequency-penalty", "2", "--seed", str(2**64 - 1),
    )
    params = common.sampling(args)
    tiny_engine.async_generate(tokens=[5], **params).result()
    args.max_tokens = 2**32 - 2
    tiny_engine.async_generate(tokens=[5], **common.sampling(args)).close()


def test_eval_reads_its_files_before_the_model(tmp_path):
    model, bad = tmp_path / "none.gguf", tmp_path / "bad.json"
    bad.write_text("[")
    for words in ((tmp_path / "no.txt",), ("--reference", tmp_path / "no.txt")):
        done = run("eval", model, *words, code=1)
        assert "no.txt" in done.stderr and "none.gguf" not in done.stderr
    assert "bad.json: not JSON" in run("eval", model, "--reference", bad, code=1).stderr


def test_commands_in_a_piped_conversation(model_path):
    options = ("-t", 0, "-n", 8, "-q", *few)
    ask = "What is the capital of France?"
    one = run("chat", model_path, ask, *options).stdout
    done = run("chat", model_path, *options, stdin=f"{ask}\n/reset\n{ask}\n/exit\n{ask}\n")
    assert done.stdout == one + one  # forgotten in between, left before the third
    done = run("chat", model_path, *options, stdin=f"  /help \n\n{ask}\n/quit\n")
    assert done.stdout == one and "forgets the conversation" in done.stderr
    assert "a turn or a command" in " ".join(run("chat", "--help").stdout.split())


def test_bench_of_a_model_too_fast_to_time():
    """Its whole output may arrive in one piece, or not: both have a row."""
    options = (tiny / "llama", "--prompt", 16, "--gen", 4, "--threads", 1)
    found = json.loads(run("bench", *options, "--json", "-q").stdout)
    runs = found["results"][0]["decode_tokens_per_second_runs"]
    assert len(runs) == 3 and all(value is None or value > 0 for value in runs)
    assert len(run("bench", *options, "-q").stdout.splitlines()) == 3


def test_bench_reports_what_it_could_not_time(capsys, monkeypatch):
    """A clock that stands still: every duration is zero."""
    from orlop.cli import bench, main

    monkeypatch.setattr(bench.time, "perf_counter", lambda: 1.0)
    options = ["bench", str(tiny / "llama"), "--prompt", "16", "--gen", "4", "-q", "--threads", "1"]
    assert main([*options, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["results"][0]
    assert row["decode_tokens_per_second"] is None and row["prefill_tokens_per_second"] is None
    assert row["decode_tokens_per_second_runs"] == [None] * 3
    assert main(options) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["1", "-", "-", "0.000"]
