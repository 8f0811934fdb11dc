#!/usr/bin/env bash
# The tests of the Rust binding: its own and those of its documentation with the shared library, its own
# with the static one, then rustdoc, clippy and rustfmt without a warning.
# ORLOP_BUILD: the build folder that holds liborlop.so and liborlop.a. Nothing is written to the sources.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${ORLOP_BUILD:-$here/../../build}
if ! command -v cargo >/dev/null; then
  echo "SKIP rust: no cargo"
  echo "0 passed, 0 failed"
  exit 0
fi
build=$(cd "$build" && pwd) || exit 1
export ORLOP_LIB_DIR=$build
export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export ORLOP_TEST_MODEL=${ORLOP_TEST_MODEL:-$here/../../.cache/SmolLM2-135M-Instruct.Q4_1.gguf}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ -n "${CARGO_TARGET_DIR:-}" ]; then :
elif [ -w "$build" ]; then export CARGO_TARGET_DIR=$build/rust
else export CARGO_TARGET_DIR=$scratch/target
fi
passed=0 failed=0
cd "$here" || exit 1

# Sums what cargo test says and the behaviours' own last line; a run that breaks off is a failure too.
tests() {
  local name=$1 p f status
  shift
  cargo test --quiet --offline "$@" >"$scratch/log" 2>&1
  status=$?
  p=$(grep -oE '[0-9]+ passed' "$scratch/log" | awk '{n += $1} END {print n + 0}')
  f=$(grep -oE '[0-9]+ failed' "$scratch/log" | awk '{n += $1} END {print n + 0}')
  [ "$status" -ne 0 ] && [ "$f" -eq 0 ] && f=1
  [ "$f" -ne 0 ] && cat "$scratch/log"
  grep '^SKIP' "$scratch/log"
  echo "rust, $name: $p passed, $f failed"
  passed=$((passed + p)) failed=$((failed + f))
}

check() {
  local name=$1
  shift
  if "$@" >"$scratch/log" 2>&1; then
    passed=$((passed + 1))
  else
    cat "$scratch/log"
    echo "rust, $name: failed"
    failed=$((failed + 1))
  fi
}

[ -f "$ORLOP_TEST_MODEL" ] || echo "SKIP rust, tests of text: no file $ORLOP_TEST_MODEL"
tests "shared" --workspace --no-fail-fast
if [ -f "$build/liborlop.a" ]; then
  # Without the shared library's path: it must not be needed.
  LD_LIBRARY_PATH='' CARGO_TARGET_DIR=$CARGO_TARGET_DIR/static tests "static" --features static --tests --no-fail-fast
else
  echo "SKIP rust, static: no $build/liborlop.a"
fi
# What an installed orlop gives: pkg-config's answer in place of ORLOP_LIB_DIR, for both kinds of library.
fails_with() { # WORDS COMMAND...
  local words=$1 said
  shift
  if said=$("$@" 2>&1); then echo "it did not fail"; return 1; fi
  grep -qF -- "$words" <<<"$said" || { echo "it said: $said"; return 1; }
}
one() { # one test program of the crate, against what pkg-config says
  env -u ORLOP_LIB_DIR CARGO_TARGET_DIR="$CARGO_TARGET_DIR/pkg" PKG_CONFIG_PATH="$pc" PKG_CONFIG_SYSROOT_DIR="$root" \
    "$@"
}
if command -v meson >/dev/null && command -v pkg-config >/dev/null &&
  meson install -C "$build" --no-rebuild --tags runtime,devel --destdir "$scratch/dest" >"$scratch/log" 2>&1; then
  pc=$(dirname "$(find "$scratch/dest" -name orlop.pc)")
  lib=$(dirname "$(find "$scratch/dest" -name liborlop.so)")
  prefix=$(sed -n 's/^prefix=//p' "$pc/orlop.pc")
  root=${pc%%"$prefix"/*}
  check "pkg-config" one env LD_LIBRARY_PATH="$lib" cargo test --quiet --offline -p orlop-sys
  # -rpath is the caller's: the program says which library it was linked with.
  bare() { one env -u LD_LIBRARY_PATH "$@"; }
  if [ -f "$lib/liborlop.a" ]; then
    # The sysroot would be put before the system's own folders too: what is linked with is named fully.
    sed "s|^prefix=.*|prefix=$scratch/dest$prefix|" "$pc/orlop.pc" >"$scratch/orlop.pc"
    pc=$scratch root=
    check "pkg-config, static" bare cargo test --quiet --offline -p orlop-sys --features static
  fi
  pc=$scratch/none
  check "pkg-config finds nothing" fails_with "set ORLOP_LIB_DIR" bare env PKG_CONFIG_LIBDIR="$scratch/none" cargo check --quiet --offline -p orlop-sys
else
  echo "SKIP rust, pkg-config: meson or pkg-config is missing, or meson install failed"
fi

# The feature cuda: a library without the backend is refused by the build, and one with it by the engine,
# where there is no GPU.
if [ ! -e "$build/liborlop_cuda.so" ]; then
  check "cuda, a library without" fails_with "feature cuda: liborlop_cuda.so is not in $build" \
    env CARGO_TARGET_DIR="$CARGO_TARGET_DIR/cuda" cargo check --quiet --offline --features cuda
fi
mkdir "$scratch/cuda"
ln -s "$build"/liborlop.* "$scratch/cuda"
[ -e "$scratch/cuda/liborlop_cuda.so" ] || : >"$scratch/cuda/liborlop_cuda.so"
ORLOP_LIB_DIR=$scratch/cuda CARGO_TARGET_DIR=$CARGO_TARGET_DIR/cuda \
  tests "cuda" --features cuda -p orlop --test api cuda
RUSTDOCFLAGS='-D warnings' check "rustdoc" cargo doc --quiet --offline --no-deps --workspace
if cargo clippy --version >/dev/null 2>&1; then
  check "clippy" cargo clippy --quiet --offline --workspace --all-targets -- -D warnings
else
  echo "SKIP rust, clippy: not installed"
fi
if cargo fmt --version >/dev/null 2>&1; then
  check "rustfmt" cargo fmt --all --check
else
  echo "SKIP rust, rustfmt: not installed"
fi
if [ -f "$ORLOP_TEST_MODEL" ]; then
  check "example chat" cargo run --quiet --offline -p orlop --example chat -- "$ORLOP_TEST_MODEL" "Name three colours."
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
