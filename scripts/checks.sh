# The stages that test.sh and soak.sh are made of. Source it after lib.sh.
#
# stage NAME COMMAND...  runs one, shows its output, and remembers how it ended and what it skipped.
#                        A stage's closing line is 'N passed, N failed' (or pytest's own).
# finish WHAT            prints the table of stages; its status is non-zero if one failed or none ran.
names=() results=() times=() skips=() failures=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

stage() {
  local name=$1 begun=$SECONDS log rc=0 line
  shift
  log=$logs/${#names[@]}
  say "$name"
  # No `||` around the subshell: it would switch off its `set -e`.
  set +e
  (set -euo pipefail; "$@") </dev/null 2>&1 | tee "$log"
  rc=${PIPESTATUS[0]}
  set -e
  while IFS= read -r line; do skips+=("$name: ${line#SKIP }"); done \
    < <(grep -aE '^(SKIP |SKIPPED \[)' "$log" || true)
  names+=("$name") times+=($((SECONDS - begun)))
  if [ $rc = 0 ]; then
    # A stage that only skips counts nothing.
    results+=("$(grep -aoE '[0-9]+ passed.*' "$log" | tail -n 1 | sed 's/ in [0-9.]*s.*//; s/ *=*$//' || true)")
  else
    results+=("FAILED (status $rc)")
    failures=$((failures + 1))
  fi
  return 0
}

finish() {
  local i
  printf '\n%s\n' "$1"
  for i in "${!names[@]}"; do
    printf '  %-28s %5d s  %s\n' "${names[$i]}" "${times[$i]}" "${results[$i]}"
  done
  printf 'skips: %d\n' ${#skips[@]}
  for i in "${skips[@]}"; do printf '  %s\n' "$i"; done
  if [ ${#names[@]} = 0 ]; then
    echo "nothing ran"
    return 1
  fi
  if [ $failures -gt 0 ]; then
    printf '%d of %d stages FAILED\n' $failures ${#names[@]}
    return 1
  fi
  printf 'all %d stages are fine\n' ${#names[@]}
}

# configure FOLDER MESON_ARGUMENT...: sets a build folder up once, again when the arguments change.
configure() {
  local dir=$1 want
  shift
  want="$* CC=${CC:-} CXX=${CXX:-}"
  if [ ! -e "$dir/build.ninja" ] || [ "$(cat "$dir/.orlop-arguments" 2>/dev/null)" != "$want" ]; then
    rm -rf "$dir"
    quietly meson setup "$dir" "$@"
    printf '%s' "$want" >"$dir/.orlop-arguments"
  fi
}

# meson_tests FOLDER MESON_TEST_ARGUMENT...: builds and runs, then prints the plain closing line.
meson_tests() {
  local dir=$1 rc=0
  shift
  quietly ninja -C "$dir" -j "$JOBS"
  rm -f "$dir"/meson-logs/testlog*.json
  meson test -C "$dir" --no-rebuild --print-errorlogs -j "$JOBS" "$@" || rc=$?
  python3 "$ROOT/scripts/meson_summary.py" "$dir"/meson-logs/testlog*.json || rc=1
  return $rc
}

# sanitized NAME SANITIZERS MESON_TEST_ARGUMENT...: the test programs under compiler checks, built with
# clang where it is there (a third of gcc's time). The vector kernels run unchecked, as they were built
# for the other tests: compiling one checked file takes gcc many minutes; valgrind (soak.sh) looks at
# them.
sanitized() {
  local name=$1 which=$2
  shift 2
  scripts/build.sh test
  if have clang++ && [ -z "${CXX:-}" ]; then export CC=clang CXX=clang++; fi
  # The headers of the rooms are read once a room: a quarter of the compiler's time.
  configure "$BUILD-$name" --buildtype=plain -Doptimization=1 -Db_ndebug=false -Dcpp_args=-g1 -Dc_args=-g1 -Db_pch=true \
    -Db_sanitize="$which" -Db_lundef=false -Ddefault_library=static -Dsanitize_kernels=false -Dkernels_from="$BUILD"
  ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
    meson_tests "$BUILD-$name" -t 6 "$@"
}

python_tests() {
  python3 -m pytest -q -rs -p no:cacheprovider "$@"
}

# on_the_guard NAME...: those files of tests/python, with memory that only kernels may touch.
on_the_guard() {
  local files=("${@/#/tests/python/test_}")
  ORLOP_TEST_DEVICE=guard python_tests "${files[@]/%/.py}"
}

# fuzzed SECONDS: every libFuzzer target for that long, starting from its seeds.
fuzzed() {
  local rc=0
  FUZZ_BUILD=$BUILD-fuzz tests/fuzz/run.sh "$1" || rc=$?
  if [ $rc = 77 ]; then
    echo "SKIP fuzz targets: clang with its fuzzer runtime is not installed"
    return 0
  fi
  return $rc
}

# cuda_compiles: the CUDA backend as PTX, where nvcc is, and what it says on a machine without a GPU. Machine code
# takes several times as long. On one with a GPU bench/cuda/run.sh goes on from there.
cuda_compiles() {
  if ! have nvcc; then
    echo "SKIP CUDA: nvcc is not installed"
    return 0
  fi
  local dir=$BUILD-cuda
  configure "$dir" --buildtype=release -Db_ndebug=false -Dcuda=enabled -Dgpu_archs=ptx90a -Dtests=false \
    -Ddefault_library=shared -Dkernels_from="$BUILD"
  quietly ninja -C "$dir" -j "$JOBS"
  # Files whose kernels are for GPUs before Hopper and for it: no instruction of one is left in code for the other.
  local file
  for file in attention_decode attention_coded; do
    quietly nvcc --std=c++20 -Xcicc -O0 -Xptxas -O0 --expt-relaxed-constexpr -Isrc -Iinclude -arch=sm_80 -cubin -o "$dir/$file.cubin" "src/backend/cuda/$file.cu"
  done
  ORLOP_CUDA_BUILD=$dir python_tests tests/build/test_cuda.py
}

# arm_under_qemu: the kernels cross-compiled, each ARM level on an emulated processor that has it. The
# tests of ops run with fewer rounds and shapes (ORLOP_TEST_SHORT, see tests/check.h); what does not
# depend on the level of the products runs once.
arm_under_qemu() {
  if ! have aarch64-linux-gnu-g++ || ! have qemu-aarch64; then
    echo "SKIP ARM: g++-aarch64-linux-gnu and qemu-user are not installed"
    return 0
  fi
  local dir=$BUILD-arm rc=0 n=0 cpu level expect tests
  unset CC CXX
  # Static: qemu 7.2 does not come back from the start of a thread with this libc shared.
  configure "$dir" --cross-file scripts/cross/aarch64.ini --buildtype=release -Db_ndebug=false \
    -Dkernels_only=true -Dcpp_link_args=-static
  quietly ninja -C "$dir" -j "$JOBS"
  rm -f "$dir"/meson-logs/testlog*.json
  # The processor; the level of the products under test; what the backend chooses by itself.
  while read -r cpu level expect tests; do
    # shellcheck disable=SC2086
    QEMU_CPU=$cpu ORLOP_TEST_SHORT=1 ORLOP_TEST_ISA=$level ORLOP_TEST_EXPECT=$expect \
      meson test -C "$dir" --no-rebuild --print-errorlogs -j "$JOBS" -t 3 \
      --logbase "testlog-$((n += 1))-$level" $tests || rc=$?
  done <<'RUNS'
cortex-a53                               neon     neon            attention kv rows sample format matmul grouped isa
neoverse-n1                              neondot  neon+dot        matmul grouped isa
max,sve=off                              i8mm     neon+dot+i8mm   matmul grouped isa
max,sve128=on,sve-default-vector-length=16  sve   neon+dot+i8mm   matmul grouped isa
max,sve256=on,sve-default-vector-length=32  sve   neon+dot+i8mm      matmul grouped isa
a64fx                                    sve      neon+sve        matmul grouped isa
RUNS
  python3 "$ROOT/scripts/meson_summary.py" "$dir"/meson-logs/testlog*.json || rc=1
  return $rc
}
