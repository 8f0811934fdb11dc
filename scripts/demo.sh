#!/usr/bin/env bash
# demo.sh: SmolLM2 answers a question, streamed: from the command line, from C and from C++.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
question=${QUESTION:-What is the tallest mountain on Earth, and where is it?}

scripts/setup.sh
scripts/build.sh
python3 scripts/fetch_model.py >/dev/null

say "orlop chat"
orlop chat --temperature 0 "$MODEL" "$question"

# An installed orlop needs only $(pkg-config --cflags --libs orlop).
flags="-I$ROOT/include -L$BUILD -lorlop -Wl,-rpath,$BUILD"
say "examples/generate.c"
cc -std=c99 examples/generate.c -o "$BUILD/generate-c" $flags
"$BUILD/generate-c" "$MODEL" "$question"

say "examples/generate.cc"
c++ -std=c++17 examples/generate.cc -o "$BUILD/generate-cc" $flags
"$BUILD/generate-cc" "$MODEL" "$question"
