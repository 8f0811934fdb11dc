# Shared by the scripts beside it: where things lie and how to speak. Source it, do not run it.
#
# ORLOP_CACHE  folder of downloaded files (default .cache); several checkouts may share one
# BUILD        the build folder (default build); its variants are named after it
# JOBS         how many compilers at once (default: the processors this process may use)
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
export ORLOP_CACHE=${ORLOP_CACHE:-$ROOT/.cache}
mkdir -p "$ORLOP_CACHE"
ORLOP_CACHE=$(cd "$ORLOP_CACHE" && pwd)
# Test programs look in .cache: a cache elsewhere is linked there.
[ -e "$ROOT/.cache" ] || ln -s "$ORLOP_CACHE" "$ROOT/.cache"
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
VENV=$ROOT/.venv
MODEL=$ORLOP_CACHE/SmolLM2-135M-Instruct.Q4_1.gguf
export ORLOP_TEST_MODEL=${ORLOP_TEST_MODEL:-$MODEL}
export ORLOP_BUILD=$BUILD
export PATH=$VENV/bin:$PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "== $*" >&2; }
die() { printf '%s\n' "error: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command quietly; its output is shown only when it fails.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" </dev/null >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
