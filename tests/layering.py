#!/usr/bin/env python3
"""layering.py [ROOT]: which room of src/ may include which; fails on an upward include.

The rooms and the direction are in docs/architecture.md ("Who may include whom"). Also kept here:
the only header of backend/ that api sees is backend/backend.h; a backend is named in the preprocessor
in backend/select.cc alone; public headers include nothing of src/; and files stay under 500 lines.
Prints one line a fault and 'N passed, N failed' (one check a file and rule).
"""
import pathlib
import re
import sys

MAY = {
    "base": set(),
    "text": {"base"},
    "format": {"base"},
    "ops": {"base"},
    "backend": {"ops", "base"},
    "model": {"ops", "format", "base"},
    "engine": {"model", "text", "ops", "base"},
    "api": {"engine", "model", "backend", "ops", "format", "text", "base"},
}
SOURCES = {".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".cuh", ".inc"}
BACKEND_SWITCH = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*\b\w*(?:CUDA|HIP|METAL|VULKAN|WITH_CPU)\w*", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)
LINES = 500


def strip_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def room_of(included, file, src):
    """The room an include names, or None for a system, third-party or public header."""
    first = included.split("/")[0]
    if first in MAY and "/" in included:
        return first
    if included.startswith("orlop/"):
        return None
    if included.startswith(".") or (file.parent / included).exists():
        there = (file.parent / included).resolve()
        if src in there.parents:
            return there.relative_to(src).parts[0]
    return None


def check_includes(file, src):
    room = file.relative_to(src).parts[0]
    if room not in MAY:
        yield f"{file}: src/{room}/ is no room; the rooms are {', '.join(MAY)}"
        return
    for quote, included in INCLUDE.findall(strip_comments(file.read_text(errors="replace"))):
        target = room_of(included, file, src.resolve())
        if target is None:
            if included.startswith("orlop/") and room != "api":
                yield f"{file}: includes {included}, which is for api alone"
            elif quote == '"' and not included.startswith("orlop/") and "/" in included:
                yield f"{file}: includes \"{included}\", which is in no room"
        elif target != room and target not in MAY[room]:
            yield f"{file}: {room} may not include {target} ({included})"
        elif room == "api" and target == "backend" and included != "backend/backend.h":
            yield f"{file}: api sees backend/backend.h alone, not {included}"


def check_switches(file, src):
    if file.relative_to(src).as_posix() == "backend/select.cc" or file.suffix in {".cu", ".cuh"}:
        return
    for m in BACKEND_SWITCH.finditer(strip_comments(file.read_text(errors="replace"))):
        yield f"{file}: backend named in the preprocessor outside backend/select.cc: {m.group().strip()}"


def check_public(file):
    for _, included in INCLUDE.findall(strip_comments(file.read_text(errors="replace"))):
        if "/" in included and not included.startswith("orlop/"):
            yield f"{file}: a public header includes {included}"


def check_length(file):
    n = file.read_text(errors="replace").count("\n")
    if n > LINES:
        yield f"{file}: {n} lines (split it by topic; {LINES} at most)"


def files_of(folder):
    if not folder.is_dir():
        return []
    return sorted(f for f in folder.rglob("*") if f.is_file() and f.suffix in SOURCES)


def run(root):
    """Yields (check, faults) pairs: the list of faults of each check."""
    src = root / "src"
    for file in files_of(src):
        yield file, list(check_includes(file, src))
        yield file, list(check_switches(file, src))
    for file in files_of(root / "include"):
        yield file, list(check_public(file))
    for folder in ("src", "include", "tests", "examples", "bench", "python"):
        scripts = sorted((root / folder).rglob("*.py")) if (root / folder).is_dir() else []
        for file in files_of(root / folder) + scripts:
            yield file, list(check_length(file))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    passed = failed = 0
    for _, faults in run(root):
        for fault in faults:
            print(fault.replace(str(root) + "/", ""))
        passed, failed = (passed, failed + 1) if faults else (passed + 1, failed)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
