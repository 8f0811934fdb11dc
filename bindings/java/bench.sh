#!/bin/bash
# bench.sh TINY_MODEL_DIR REQUESTS TOKENS POLLS: one line of JSON. ORLOP_BUILD: the folder with liborlop.so.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jdk.sh"
: "${ORLOP_BUILD:?give the folder that holds liborlop.so}"
jdk=$(find_jdk) || { echo "SKIP java bench: no JDK of version 22 or later" >&2; exit 0; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
compile_java "$jdk" "$out" "$here"/src/main/java/io/orlop/*.java "$here/bench/Bench.java"
"$jdk/bin/java" -Xmx512m -XX:+UseSerialGC --enable-native-access=ALL-UNNAMED -Dorlop.library="$ORLOP_BUILD/liborlop.so" \
  -cp "$out" Bench "$@"
