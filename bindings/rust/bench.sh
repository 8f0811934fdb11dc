#!/usr/bin/env bash
# bench.sh TINY_MODEL_DIR REQUESTS TOKENS POLLS: what the Rust binding costs, one line of JSON.
# ORLOP_BUILD: the build folder that holds liborlop.so.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export ORLOP_LIB_DIR=${ORLOP_BUILD:-$here/../../build}
ORLOP_LIB_DIR=$(cd "$ORLOP_LIB_DIR" && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$ORLOP_LIB_DIR/rust}
export LD_LIBRARY_PATH=$ORLOP_LIB_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cargo build --quiet --offline --release --manifest-path "$here/Cargo.toml" --example bench >&2
exec "$CARGO_TARGET_DIR/release/examples/bench" "$@"
