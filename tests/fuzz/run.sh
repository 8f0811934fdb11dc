#!/bin/sh
# run.sh SECONDS [TARGET...]: builds the fuzz targets (clang) and runs each for that long. Findings
# and grown corpora stay in the build folder (FUZZ_BUILD, by default build-fuzz).
set -eu
seconds=${1:?"usage: run.sh SECONDS [TARGET...]"}
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${FUZZ_BUILD:-$root/build-fuzz}
if [ -x "$root/.venv/bin/meson" ]; then PATH=$root/.venv/bin:$PATH; fi
if ! command -v clang++ >/dev/null; then
  echo "skipped: fuzzing needs clang (Debian: clang, libclang-rt-dev)"
  exit 77
fi
if [ ! -f "$build/build.ninja" ]; then
  CC=clang CXX=clang++ meson setup "$build" "$root" --buildtype=debugoptimized -Dfuzz=true \
    -Db_sanitize=address,undefined -Db_lundef=false -Dtests=false -Ddefault_library=static
fi
# Targets are declared when their source is there: look again.
meson setup --reconfigure "$build" "$root" >"$build/reconfigure.log" 2>&1 || {
  cat "$build/reconfigure.log"
  exit 1
}
[ $# -gt 0 ] || set -- $(cd "$root/tests/fuzz" && ls fuzz_*.cc | sed 's/^fuzz_//; s/\.cc$//')
for target in "$@"; do wanted="${wanted:-} tests/fuzz/fuzz_$target"; done
ninja -C "$build" $wanted
corpus=$build/corpus
python3 "$root/tests/fuzz/make_corpus.py" "$corpus"

passed=0
failed=0
for target in "$@"; do
  findings=$build/findings/$target/
  log=$build/fuzz_$target.log
  mkdir -p "$findings" "$corpus/$target"
  dict=
  [ ! -f "$corpus/$target.dict" ] || dict=-dict=$corpus/$target.dict
  code=0
  # Undefined behaviour ends the run as a bad access does.
  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$build/tests/fuzz/fuzz_$target" \
    -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 $dict \
    -artifact_prefix="$findings" -print_final_stats=1 "$corpus/$target" >"$log" 2>&1 || code=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if [ $code -eq 0 ]; then
    passed=$((passed + 1))
    echo "$target: ${runs:-0} runs in $seconds s, no finding"
  else
    failed=$((failed + 1))
    echo "$target: exit code $code after ${runs:-?} runs, see $log and $findings"
    tail -40 "$log"
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
