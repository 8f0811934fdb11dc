#!/usr/bin/env bash
# soak.sh: the long runs, by hand and before a release: ten minutes of stress and of random histories,
# plain, under each sanitizer and under valgrind, with every other test; fuzzing.
#   FUZZ_SECONDS  how long each fuzz target runs (default 600)
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/checks.sh

scripts/setup.sh test
scripts/build.sh test || die "nothing was tested: the build failed"
python3 scripts/fetch_model.py >/dev/null

under_valgrind() {
  if ! have valgrind; then
    echo "SKIP valgrind: it is not installed"
    return 0
  fi
  # valgrind knows no AVX-512, so the AVX2 kernels run under it.
  ORLOP_ISA=avx2 meson_tests "$BUILD" -t 40 --wrapper \
    "valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --track-fds=no"
}
export ORLOP_SOAK=1
stage "stress" meson_tests "$BUILD" --suite stress
stage "Python on the guard" on_the_guard asyncio embed errors generate params sharing state tiny
stage "address and undefined" sanitized asan address,undefined
stage "threads" sanitized tsan thread
stage "valgrind" under_valgrind
stage "long fuzz" fuzzed "${FUZZ_SECONDS:-600}"
finish "make soak, $SECONDS s:"
