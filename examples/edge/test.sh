#!/usr/bin/env bash
# test.sh: the static executables do what docs/edge.md says. Ends with 'N passed, N failed'; SKIP lines say
# what a missing tool left out.
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
model=$ORLOP_TEST_MODEL
work=$BUILD-edge
limit=6000000 # bytes, stripped, without the model
question='What is the capital of France?'
passed=0 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

check() { # WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; fi
}
is() { [ "$1" = "$2" ] || { printf '  got    %s\n  wanted %s\n' "$1" "$2"; return 1; }; }
alone() { # a static executable: no interpreter, no library
  local heads
  heads=$("${2:-}readelf" -lWd "$1") || return 1
  ! grep -qE 'INTERP|NEEDED' <<<"$heads"
}
small() { [ "$(stat -c %s "$1")" -le "$2" ] || { echo "  $1 has $(stat -c %s "$1") bytes, at most $2 are wanted"; return 1; }; }
fails_with() { # WORDS COMMAND...
  local words=$1 said
  shift
  if said=$("$@" 2>&1); then echo "  it did not fail"; return 1; fi
  grep -qF -- "$words" <<<"$said" || { echo "  it said: $said"; return 1; }
}

if [ ! -e "$model" ]; then
  echo "SKIP edge: the demo model is not there (scripts/fetch_model.py)"
  echo "0 passed, 0 failed"
  exit 0
fi

arch=$(uname -m)
# The vector kernels, minutes to compile, are those of the builds that the other tests are of.
kernels=() arm_kernels=()
[ ! -e "$BUILD/src/backend/liborlop_backend_avx2.a.p/cpu_matmul_avx2.cc.o" ] || kernels=(--kernels "$BUILD")
[ ! -e "$BUILD-arm/src/backend/liborlop_backend_sve.a.p/cpu_matmul_sve.cc.o" ] || arm_kernels=(--kernels "$BUILD-arm")
begun=$SECONDS
examples/edge/build.sh --minimal "${kernels[@]}"
examples/edge/build.sh --minimal "${kernels[@]}" --embed "$model" --out "$work/edge-inside"
echo "edge: built in $((SECONDS - begun)) s"
edge=$work/edge-minimal-$arch
check "static" alone "$edge"
check "static with the model" alone "$work/edge-inside"
check "size" small "$edge" $limit
check "size with the model" small "$work/edge-inside" $((limit + $(stat -c %s "$model")))
if have ldd; then check "ldd" grep -q "not a dynamic executable" <<<"$(ldd "$edge" 2>&1)"; fi

answer=$("$edge" -m "$model" -n 24 "$question")
check "an answer" grep -q Paris <<<"$answer"
# Nothing beside it: another folder, no environment, the executable under another name.
cp "$work/edge-inside" "$scratch/alone"
check "the model inside gives the same" is "$(cd / && env -i "$scratch/alone" -n 24 "$question")" "$answer"
stats=$("$work/edge-inside" -n 4 -s "$question" 2>&1 >/dev/null)
check "statistics" grep -q '"first_token_ms": [0-9.]*.*"model_inside_bytes": 98362432' <<<"$stats"
echo "edge: $stats"
# The same bits as the library of everything else.
prompt=$(cat tests/behaviours/golden_prompt.txt)
if [ -e "$BUILD/liborlop.so" ] && have cc; then
  cc -std=c99 -O1 -Iinclude -c examples/edge/edge.c -o "$scratch/edge.o"
  cc -c examples/edge/model.S -o "$scratch/none.o"
  cc "$scratch/edge.o" "$scratch/none.o" -L"$BUILD" -lorlop -Wl,-rpath,"$BUILD" -o "$scratch/shared"
  for isa in avx2 neon; do
    full=$(ORLOP_ISA=$isa "$scratch/shared" -m "$model" -n 12 -p "$prompt" 2>/dev/null) || continue
    check "$isa: the same as the shared library" is "$(ORLOP_ISA=$isa "$edge" -m "$model" -n 12 -p "$prompt")" "$full"
  done
else
  echo "SKIP edge beside the shared library: $BUILD has none"
fi

check "no question" fails_with usage "$edge" -m "$model"
check "no model" fails_with usage "$edge" "$question"
check "a model that is none" fails_with "magic" "$edge" -m "$edge" "$question"
check "a model that is absent" fails_with "/nowhere.gguf" "$edge" -m /nowhere.gguf "$question"
check "a folder" fails_with "-Dwithout=folders" "$edge" -m tests/data/tiny/llama "$question"
check "an isa that was left out" fails_with "this build" env ORLOP_ISA=avx512 "$edge" -m "$model" "$question"
check "a question longer than the context" fails_with "context" "$edge" -m "$model" -c 16 "$question"

# What is left out, and parts of files, through the ABI.
head -c 65536 /dev/zero >"$scratch/parts"
cat "$model" >>"$scratch/parts"
head -c 100 /dev/zero >>"$scratch/parts"
libs=(-lpcre2-8 -lutf8proc)
for lib in pcre2-8 utf8proc; do
  built=$(find "$work-$arch-minimal/subprojects" -name "lib$lib.a" 2>/dev/null | head -n 1 || true)
  [ -z "$built" ] || libs+=("$built")
done
gcc -std=c99 -O1 -Wall -Wextra -DORLOP_STATIC -Iinclude -c examples/edge/check.c -o "$scratch/check.o"
g++ -static "$scratch/check.o" "$work-$arch-minimal/liborlop.a" "${libs[@]}" -o "$scratch/check"
if said=$("$scratch/check" "$model" tests/data/tiny/llama "$scratch/parts"); then rc=0; else rc=1; fi
echo "$said"
counts=$(tail -n 1 <<<"$said")
passed=$((passed + $(sed -n 's/^\([0-9]*\) passed.*/\1/p' <<<"$counts")))
check "parts" [ $rc = 0 ]

# ARM, emulated.
begun=$SECONDS
if [ "$arch" = aarch64 ]; then
  :
elif ! have aarch64-linux-gnu-g++; then
  echo "SKIP edge on ARM: g++-aarch64-linux-gnu is not installed"
elif ! have qemu-aarch64; then
  echo "SKIP edge on ARM: qemu-user is not installed"
elif ! examples/edge/build.sh --minimal "${arm_kernels[@]}" --target aarch64 --embed "$model" --out "$work/edge-arm-inside" >"$scratch/log" 2>&1; then
  if [ -e "$work-aarch64-minimal/build.ninja" ]; then
    check "the ARM build" false
    tail -n 20 "$scratch/log"
  else
    echo "SKIP edge on ARM: PCRE2 and utf8proc for arm64 are neither installed nor to be fetched"
  fi
else
  examples/edge/build.sh --minimal "${arm_kernels[@]}" --target aarch64
  echo "edge: built for ARM in $((SECONDS - begun)) s"
  check "ARM: static" alone "$work/edge-arm-inside" aarch64-linux-gnu-
  check "ARM: size" small "$work/edge-minimal-aarch64" $limit
  begun=$SECONDS
  said=$(QEMU_CPU=neoverse-n1 qemu-aarch64 "$work/edge-arm-inside" -t 2 -n 2 -p "The capital of France is")
  check "ARM: an answer" is "$said" "$("$edge" -m "$model" -n 2 -p "The capital of France is")"
  echo "edge on ARM under qemu: \"$said\" in $((SECONDS - begun)) s"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
