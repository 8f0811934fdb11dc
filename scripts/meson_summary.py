#!/usr/bin/env python3
"""meson_summary.py TESTLOG.json...: one plain line 'N passed, N failed' for meson test runs.

A test program's own cases count (its last line says 'N passed, N failed'); a program that says nothing
counts as one, passed or failed by its exit code; one that fails without a failed case adds a failure.
"""
import json
import pathlib
import re
import sys

CLOSING = re.compile(r"^(\d+) passed, (\d+) failed\s*$", re.M)
GOOD = {"OK", "EXPECTEDFAIL"}


def count(test):
    """(passed, failed, skipped) of one program's record."""
    if test["result"] == "SKIP":
        return 0, 0, 1
    said = CLOSING.findall(test.get("stdout") or "")
    passed, failed = (sum(int(n) for n in column) for column in zip(*said)) if said else (0, 0)
    if test["result"] not in GOOD:
        return passed, max(failed, 1), 0
    return (passed, failed, 0) if said else (1, 0, 0)


def main():
    passed = failed = programs = 0
    for log in sys.argv[1:]:
        for line in pathlib.Path(log).read_text().splitlines():
            test = json.loads(line)
            p, f, s = count(test)
            passed, failed, programs = passed + p, failed + f, programs + 1
            if s:
                reason = ((test.get("stdout") or "").strip().splitlines() or ["no reason given"])[-1]
                print(f"SKIP {test['name']}: {reason}")
            elif f:
                print(f"FAILED {test['name']} ({test['result']}, exit code {test['returncode']})")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
