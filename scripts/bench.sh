#!/usr/bin/env bash
# bench.sh: speed of this checkout on the demo model beside the machine's limits, and beside llama.cpp
# where LLAMA names the folder of its tools.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
python3 scripts/fetch_model.py >/dev/null
args=()
[ -n "${LLAMA:-}" ] && args+=(--llama "$LLAMA")
python3 bench/cpu_peers.py --gguf "$MODEL" --batches 1,8 "${args[@]}"
