#!/usr/bin/env bash
# wheel_test.sh WHEEL [PYTHON]: the wheel by itself, in an empty virtual environment outside of this checkout:
# installed without an index, it answers from the demo model; its needs are glibc's, none above 2.35.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[ $# -ge 1 ] || die "usage: wheel_test.sh WHEEL [PYTHON]"
wheel=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
python=${2:-$VENV/bin/python}
[ -f "$wheel" ] || die "$1 is not there: run scripts/wheel.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
check() { # check WHAT COMMAND...
  local what=$1
  shift
  if "$@" >"$work/log" 2>&1; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAILED $what" && tail -n 20 "$work/log"
  fi
}

case $(basename "$wheel") in *-manylinux_2_*) passed=1 ;; *) failed=1 && echo "FAILED: no manylinux tag" ;; esac
"$python" -m zipfile -e "$wheel" "$work/files"
extension=$(echo "$work"/files/orlop/_native*.so)
check "the extension and its stub are there" test -f "$extension" -a -f "$work/files/orlop/_native.pyi"
only_libc() {
  readelf -d "$extension" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    { ! grep -Ev '^(libc|libm|libpthread|libdl|librt|libgcc_s|ld-linux[a-z0-9_-]*)\.so'; }
}
check "it needs glibc and libgcc_s alone" only_libc
newest() {
  local v
  v=$(readelf --dyn-syms -W "$extension" | grep -o 'GLIBC_2[0-9.]*' | sort -V | tail -n 1)
  echo "newest symbol version: $v" >&2
  [ "$(printf '%s\nGLIBC_2.35\n' "$v" | sort -V | tail -n 1)" = GLIBC_2.35 ]
}
check "it runs on glibc 2.35" newest
licences() { # of what is linked in: what meson names as a fallback, the Python binding, the C++ library
  local name
  for name in $(basename -s .wrap "$ROOT"/subprojects/*.wrap) nanobind robin_map libstdc++; do
    grep -qiE 'copyright' "$work/files"/orlop-*.dist-info/licenses/python/licenses/"$name.txt" || { echo "none of $name"; return 1; }
  done
  test -s "$(echo "$work/files"/orlop-*.dist-info/licenses/LICENSE)"
}
check "it brings the licences of what it links in" licences
shows_one() {
  [ "$(readelf --dyn-syms -W "$extension" | awk '$7 ~ /^[0-9]+$/ && $5 ~ /GLOBAL|WEAK|UNIQUE/ {print $8}')" = PyInit__native ]
}
check "it shows PyInit__native alone" shows_one

"$python" -m venv "$work/venv"
check "pip installs it without an index" "$work/venv/bin/python" -m pip install --no-index "$wheel"
cd "$work"
unset PYTHONPATH LD_LIBRARY_PATH
check "it is imported from there" "$work/venv/bin/python" -c '
import orlop, sys
assert orlop.__file__.startswith(sys.prefix), orlop.__file__
assert "numpy" not in sys.modules'
check "the command runs" "$work/venv/bin/orlop" --version
if [ -f "$ORLOP_TEST_MODEL" ]; then
  check "it answers" "$work/venv/bin/python" - "$ORLOP_TEST_MODEL" <<'PY'
import sys, orlop
with orlop.Engine(sys.argv[1], max_context=512, threads=2) as engine:
    text = engine.generate("The capital of France is", max_tokens=4, temperature=0).text
    assert "Paris" in text, text
    assert engine.chat([{"role": "user", "content": "Hi"}], max_tokens=4).tokens
PY
else
  echo "SKIP it answers: the demo model is not at $ORLOP_TEST_MODEL"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
