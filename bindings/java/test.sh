#!/bin/bash
# Builds the Java binding and runs its tests. ORLOP_BUILD: the folder with liborlop.so.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jdk.sh"
: "${ORLOP_BUILD:?give the folder that holds liborlop.so}"
export ORLOP_TEST_DATA=${ORLOP_TEST_DATA:-$here/../../tests/data}
export ORLOP_TEST_MODEL=${ORLOP_TEST_MODEL:-$here/../../.cache/SmolLM2-135M-Instruct.Q4_1.gguf}
if ! jdk=$(find_jdk); then
  echo "SKIP java: no JDK of version 22 or later"
  echo "0 passed, 0 failed"
  exit 0
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
compile_java "$jdk" "$out/classes" "$here"/src/main/java/io/orlop/*.java
"$jdk/bin/javadoc" -quiet --release 22 -Xdoclint:all -Werror -d "$out/javadoc" -sourcepath "$here/src/main/java" io.orlop
mkdir -p "$out/test"
"$jdk/bin/javac" --release 22 -Xlint:all -Werror -cp "$out/classes" -d "$out/test" \
  "$here"/src/test/java/io/orlop/test/*.java "$here"/samples/*.java "$here"/bench/*.java
run() {
  "$jdk/bin/java" -Xmx1g -XX:+UseSerialGC --enable-native-access=ALL-UNNAMED \
    -Djdk.virtualThreadScheduler.parallelism=1 -Djdk.virtualThreadScheduler.maxPoolSize=1 \
    -Dorlop.library="$ORLOP_BUILD/liborlop.so" -cp "$out/classes:$out/test" "$@"
}
broken=()
if command -v cc >/dev/null; then
  cc -std=gnu11 -Wall -Wextra -Werror -shared -fPIC -I"$here/../../include" "$here/src/test/java/io/orlop/test/broken_queue.c" \
    -o "$out/libbroken_queue.so" -Wl,--no-as-needed -L"$ORLOP_BUILD" -lorlop -Wl,-rpath,"$(cd "$ORLOP_BUILD" && pwd)"
  broken=(-Dorlop.broken_queue="$out/libbroken_queue.so")
fi
run "${broken[@]}" -Dorlop.header="$here/../../include/orlop/orlop.h" io.orlop.test.AllTests
