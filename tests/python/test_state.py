"""Saved states: between engines, as bytes and as files; what is refused and why."""

from __future__ import annotations

import os
import random
import stat
import threading

import pytest

import orlop
from conftest import tiny

key = b"a secret of the host's own"
text = "The history of the lighthouse is long, and its keepers were many. " * 6


def tiny_engine_of(**config):
    return orlop.Engine(tiny / "llama", **{"kv_bytes": 8_000_000, "threads": 1} | config)


@pytest.fixture(scope="module")
def saved():
    with tiny_engine_of() as engine:
        return engine.save_state(tokens=[5, 6, 7] * 40)


@pytest.fixture(scope="module")
def signed():
    with tiny_engine_of() as engine:
        return engine.save_state(tokens=[5, 6, 7] * 40, key=key)


def test_a_prompt_is_not_computed_again(model_path, tmp_path):
    """The demo model: text and messages, to bytes and to a file."""
    config = {"compute": "bf16", "max_context": 1024, "threads": 2}
    chat = [{"role": "system", "content": text}, {"role": "user", "content": "Why?"}]
    path = tmp_path / "chat.state"
    with orlop.Engine(model_path, **config) as engine:
        want = engine.generate(text, max_tokens=8, temperature=0, logprobs=0)
        data = engine.save_state(text)
        answer = engine.chat(chat, max_tokens=8, temperature=0)
        assert engine.save_state(messages=chat, key=key, path=path) is None
    with orlop.Engine(model_path, **config) as engine:
        info = engine.load_state(data, cache_salt="mine")
        whole = want.status.prompt_tokens // 16 * 16
        assert (info.tokens, info.shared, info.pages, info.pages_added) == (
            whole, False, whole // 16, whole // 16)
        prompt_before = engine.stats["prompt_tokens"]
        got = engine.generate(text, max_tokens=8, temperature=0, logprobs=0, cache_salt="mine")
        assert got.status.cached_tokens == (want.status.prompt_tokens - 1) // 16 * 16
        assert engine.stats["prompt_tokens"] - prompt_before == (
            want.status.prompt_tokens - got.status.cached_tokens)
        assert (got.tokens, got.logprobs) == (want.tokens, want.logprobs)
        assert engine.generate(text, max_tokens=1).status.cached_tokens == 0
        info = engine.load_state(path=path, key=key)
        assert info.shared
        result = engine.chat(chat, max_tokens=8, temperature=0)
        assert result.status.cached_tokens > 0 and result.tokens == answer.tokens


def test_kinds_of_bytes(saved):
    with tiny_engine_of() as engine:
        for data in (bytearray(saved), memoryview(saved), saved):
            assert engine.load_state(data, cache_salt="x").tokens == 112
        with pytest.raises(TypeError, match="data must be bytes"):
            engine.load_state("text", cache_salt="x")
        with pytest.raises(TypeError, match="key must be bytes"):
            engine.load_state(saved, key="a text of enough bytes")


def test_truncations(saved):
    cuts = sorted({*range(1, 200), *range(200, len(saved), len(saved) // 150)})
    assert len(cuts) > 300
    with tiny_engine_of() as engine:
        for cut in cuts:
            with pytest.raises(orlop.BadFormatError):
                engine.load_state(saved[:cut], cache_salt="x")
        with pytest.raises(orlop.BadFormatError):
            engine.load_state(saved + b"x", cache_salt="x")
        assert engine.stats["pages_cached"] == 0


def test_flipped_bits(signed):
    chance = random.Random(5)
    places = [*range(120), *(chance.randrange(len(signed)) for _ in range(300))]
    places += range(len(signed) - 64, len(signed))
    with tiny_engine_of() as engine:
        for place in places:
            data = bytearray(signed)
            data[place] ^= 1 << chance.randrange(8)
            refusals = (orlop.BadFormatError, orlop.UnsupportedError, orlop.InvalidArgumentError)
            with pytest.raises(refusals):
                engine.load_state(data, key=key)
        assert engine.stats["pages_cached"] == 0


def test_keys(saved, signed):
    with tiny_engine_of() as engine:
        with pytest.raises(orlop.InvalidArgumentError, match="does not hold"):
            engine.load_state(signed, key=b"another secret of the host")
        with pytest.raises(orlop.InvalidArgumentError, match="no signature"):
            engine.load_state(saved, key=key)
        with pytest.raises(orlop.InvalidArgumentError, match="16 to 1024 bytes"):
            engine.load_state(signed, key=b"")
        with pytest.raises(orlop.InvalidArgumentError, match="cache_salt"):
            engine.load_state(saved)
        assert engine.stats["pages_cached"] == 0
        assert engine.load_state(signed, key=key).shared
        status = engine.generate(tokens=[5, 6, 7] * 41, max_tokens=1, cache_salt="any").status
        assert status.cached_tokens == 112


@pytest.mark.parametrize("config, words", [
    ({"kv_dtype": "int8"}, "kv_dtype is bf16, the engine's is int8"),
    ({"block_size": 32}, "block_size is 16, the engine's is 32"),
    ({"compute": "fp32", "kv_dtype": "bf16"}, "compute is "),
    ({"quant": "iq"}, "quant is "),
])
def test_other_engines(saved, config, words):
    with tiny_engine_of(**config) as engine:
        with pytest.raises(orlop.UnsupportedError, match=words):
            engine.load_state(saved, cache_salt="x")


def test_other_models(saved):
    with orlop.Engine(tiny / "qwen2", kv_bytes=8_000_000, threads=1) as engine:
        with pytest.raises(orlop.UnsupportedError, match="model is "):
            engine.load_state(saved, cache_salt="x")


def test_other_machines(run_python, tmp_path):
    """A state of other kernels is refused: their pages may be laid out in another way."""
    path = str(tmp_path / "state")
    script = """
import os, orlop
with orlop.Engine(os.environ["TINY"], kv_bytes=8_000_000, compute="fp32") as engine:
    if os.environ["ORLOP_ISA"] == "ref":
        engine.save_state(tokens=[1, 2] * 20, path=os.environ["STATE"])
    else:
        try:
            engine.load_state(path=os.environ["STATE"], cache_salt="x")
        except orlop.UnsupportedError as error:
            print(error)
"""
    assert run_python(script, ORLOP_ISA="ref", STATE=path).returncode == 0
    done = run_python(script, ORLOP_ISA="avx2", STATE=path)
    assert "layout is cpu/ref" in done.stdout, done.stderr


def test_files(saved, tmp_path):
    path = tmp_path / "state"
    with tiny_engine_of() as engine:
        engine.save_state(tokens=[5, 6, 7] * 40, path=path)
        assert path.read_bytes() == saved
        path.write_bytes(b"something else")
        engine.save_state(tokens=[5, 6, 7] * 40, path=str(path))
        assert path.read_bytes() == saved
        assert [p.name for p in tmp_path.iterdir()] == ["state"]
        with pytest.raises(orlop.InvalidArgumentError, match="exactly one"):
            engine.load_state(cache_salt="x")
        with pytest.raises(orlop.NotFoundError, match="nowhere"):
            engine.load_state(path=tmp_path / "nowhere", cache_salt="x")
        with pytest.raises(orlop.NotFoundError, match="nowhere"):
            engine.save_state(tokens=[5, 6, 7] * 40, path=tmp_path / "nowhere" / "state")


def test_changed_model(tmp_path):
    """A state is tied to what was loaded: files that changed since are an error, not a wrong tie."""
    for file in (tiny / "llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with orlop.Engine(tmp_path, load="read", kv_bytes=8_000_000, threads=1) as engine:
        weights = tmp_path / "model.safetensors"
        weights.write_bytes(weights.read_bytes())
        with pytest.raises(orlop.IoError, match="changed since"):
            engine.save_state(tokens=[1, 2] * 20)


def test_under_traffic():
    """Saving and loading between the steps of others changes nobody's answer."""
    prompts = [[(i * 7 + k) % 100 for k in range(60 + 9 * i)] for i in range(4)]
    with tiny_engine_of(kv_bytes=600_000, debug_poison=True) as engine:
        want = [
            engine.generate(tokens=p, max_tokens=60, ignore_eos=True, seed=1, logprobs=0)
            for p in prompts
        ]
        data = [engine.save_state(tokens=p, key=key) for p in prompts]
        wrong: list[object] = []
        stop = threading.Event()

        def generate(i):
            while not stop.is_set():
                got = engine.generate(
                    tokens=prompts[i], max_tokens=60, ignore_eos=True, seed=1, logprobs=0,
                    cache_salt=f"{i}",
                )
                if (got.tokens, got.logprobs) != (want[i].tokens, want[i].logprobs):
                    wrong.append(i)

        threads = [threading.Thread(target=generate, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        full = 0
        try:
            for turn in range(60):
                i = turn % 4
                try:
                    engine.load_state(data[i], key=key)
                    assert engine.save_state(tokens=prompts[i], key=key) == data[i]
                except orlop.OutOfMemoryError:  # so few pages that there may be no room
                    full += 1
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not wrong and full < 60
        assert engine.stats["pages_used"] == 0


def test_arguments(saved):
    with tiny_engine_of() as engine:
        with pytest.raises(TypeError, match="exactly one of prompt, tokens and messages"):
            engine.save_state()
        with pytest.raises(orlop.InvalidArgumentError, match="fill no page"):
            engine.save_state(tokens=[1, 2, 3])
        with pytest.raises(orlop.DeadlineError):
            engine.save_state(tokens=[1, 2] * 100, deadline=1e-6)
    with tiny_engine_of(enable_prefix_cache=False) as engine:
        with pytest.raises(orlop.UnsupportedError, match="enable_prefix_cache"):
            engine.save_state(tokens=[1, 2] * 100)
        with pytest.raises(orlop.UnsupportedError, match="enable_prefix_cache"):
            engine.load_state(saved, cache_salt="x")
    with pytest.raises(orlop.ShutdownError):
        engine.save_state(tokens=[1, 2] * 100)


def test_a_prefix_of_which_a_part_went_to_the_host_is_saved(signed):
    """Its last shared page has been evicted to the second tier; the pages computed anew count."""
    prompt = [5, 6, 7] * 40
    with tiny_engine_of(enable_cpu_prefix_swap=True, kv_bytes=6144 * 12) as engine:
        engine.load_state(signed, key=key)
        engine.generate(prompt[::-1], max_tokens=1)
        assert engine.stats["host_pages_used"] > 0
        assert engine.save_state(tokens=prompt)


def test_saving_replaces_files_only(tmp_path):
    with tiny_engine_of() as engine:
        pipe, file, link = (tmp_path / n for n in ("pipe", "file", "link"))
        os.mkfifo(pipe)
        with pytest.raises(orlop.InvalidArgumentError, match="no regular file"):
            engine.save_state(tokens=[5, 6, 7] * 40, path=pipe)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        file.write_bytes(b"old")
        file.chmod(0o640)
        link.symlink_to(file)
        engine.save_state(tokens=[5, 6, 7] * 40, path=link)
        assert link.is_symlink() and file.stat().st_mode & 0o777 == 0o640
        engine.load_state(path=file, cache_salt="s")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link", "pipe"]


def test_a_second_tier_that_holds_no_page_is_refused():
    with pytest.raises(orlop.InvalidArgumentError, match="cpu_prefix_bytes: 100 is less than"):
        tiny_engine_of(enable_cpu_prefix_swap=True, cpu_prefix_bytes=100)
