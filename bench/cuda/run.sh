#!/usr/bin/env bash
# The CUDA backend on a machine with a GPU: checks, then times.
#   bench/cuda/run.sh BUILD PART...
# BUILD is a build folder made with -Dcuda=enabled, or a copy of its programs in the same places. Parts:
#   ops       every op against the reference on the CPU
#   memcheck  the same under compute-sanitizer (memcheck and racecheck)
#   golden    the tiny models' golden logits; the same bits alone, batched, in chunks
#   bits      random requests through the engine, alone and together
#   api       the C API on the GPU
#   time      tokens a second of models of real shape with random weights (make_llama.py), and what the card could do
# What bounds a decode step of batch 1 is reading the weights (bytes / 4.4 TB/s on an H200); of a prefill the
# products (2 * parameters * tokens / 793 TFLOP/s in bf16).
set -u
build=$1
shift
here=$(dirname "$(readlink -f "$0")")
export ORLOP_CUDA_LIBRARY ORLOP_TEST_DEVICE=cuda
ORLOP_CUDA_LIBRARY=$(readlink -f "$build/src/backend/liborlop_cuda.so")
failed=0
try() {  # try SECONDS COMMAND...: its last lines, or more where it failed
  local log rc=0
  log=$(mktemp)
  timeout "$@" >"$log" 2>&1 || rc=$?
  if [ $rc = 0 ]; then tail -n 1 "$log"; else
    tail -n 25 "$log"
    echo "FAILED with $rc: ${*:2}"
    failed=1
  fi
}
for part in "$@"; do
  echo "== $part"
  case $part in
    ops) try 300 "$build/tests/ops/test_cuda" ;;
    memcheck)
      for tool in memcheck racecheck; do
        ORLOP_TEST_SHORT=1 try 400 compute-sanitizer --tool $tool --error-exitcode 9 "$build/tests/ops/test_cuda"
      done
      ;;
    golden)
      for t in golden pages quant; do try 300 "$build/tests/model/test_model_$t"; done
      ;;
    bits) try 300 "$build/tests/stress/test_same_bits" ;;
    api)
      for t in tiny sharing; do try 300 "$build/tests/api/test_api_${t}_shared"; done
      ;;
    time)
      nvidia-smi --query-gpu=name,clocks.sm,clocks.mem,clocks.max.sm,power.draw --format=csv,noheader
      for kind in 1b 8b; do
        model=${TMPDIR:-/tmp}/orlop-llama-$kind
        [ -e "$model/model.safetensors" ] || python3 "$here/make_llama.py" "$kind" "$model"
        for more in '' ',"quant":"iq","quant_bits":4,"quant_group_size":128'; do
          echo "$kind bf16${more:+ as int4 g128}:"
          try 200 "$build/tests/api/bench_throughput" "$model" 8 "\"device\":\"cuda\"$more"
        done
      done
      ;;
    *)
      echo "$part is no part"
      exit 2
      ;;
  esac
done
exit $failed
