#!/usr/bin/env bash
# test.sh: everything that must hold before a change lands. `make test` and .ci/run call it.
#   FUZZ_SECONDS  how long each fuzz target runs (default: they are not built)
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/checks.sh

scripts/setup.sh test
stage "layering" python3 tests/layering.py
scripts/build.sh test || die "nothing was tested: the build failed"

fetch() {
  python3 scripts/fetch_model.py
  if [ -e scripts/fetch_tokenizers.py ]; then
    python3 scripts/fetch_tokenizers.py
  elif [ -e scripts/fetch_tokenizers.sh ]; then
    bash scripts/fetch_tokenizers.sh
  fi
}
fetch >/dev/null || say "a file could not be fetched; the tests that need it say so"

stage "C and C++ tests" meson_tests "$BUILD"
stage "build checks" python_tests tests/build
stage "Java" bindings/java/test.sh
stage "Rust" bindings/rust/test.sh
stage "Python tests" python_tests tests/python
stage "server" python_tests tests/server
stage "live page" python_tests tests/page
stage "Python on the guard" on_the_guard embed sharing state tiny
ORLOP_TEMPLATE_TOOL=$BUILD/tests/text/template_tool stage "templates and schemas" python_tests tests/text
# Kernels of an ISA are not built with the checks: on what else runs, one kind of them tells all. The
# guard's memory is checked by itself (`make soak` runs all of them).
ORLOP_TEST_SHORT=1 stage "address and undefined" sanitized asan address,undefined \
  --no-suite isa --no-suite guard --no-suite ops
stage "CUDA" cuda_compiles
stage "ARM under qemu" arm_under_qemu
# After it: takes its kernels.
stage "edge" examples/edge/test.sh
# Compiling the targets takes minutes: by hand (`make fuzz`), before a release (`make soak`), or here on
# demand.
short_fuzz() {
  if [ -n "${FUZZ_SECONDS:-}" ]; then fuzzed "$FUZZ_SECONDS"; else echo "SKIP fuzz targets: FUZZ_SECONDS is not set"; fi
}
stage "short fuzz" short_fuzz
finish "make test, $SECONDS s:"
