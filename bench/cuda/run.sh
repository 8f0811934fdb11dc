#!/usr/bin/env bash
# The CUDA backend on a machine with a GPU: checks, then times.
#   bench/cuda/run.sh BUILD PART...
# BUILD is a build folder made with -Dcuda=enabled, or a copy of its programs in the same places. Parts:
#   ops        every op against the reference on the CPU, memory, and what is checked beside them
#   memcheck   the same in short under compute-sanitizer's memcheck
#   racecheck  and under racecheck
#   initcheck  and under initcheck
#   golden     the tiny models' golden logits; the same bits alone, batched, in chunks; models split between
#              processor and GPU; SmolLM2 (in .cache, as make fetches it), through the C API too
#   bits       random requests through the engine, alone and together: the same bits (deterministic). In fast mode,
#              equal batches twice
#   traffic    clients that submit, cancel, read slowly or leave, for SECONDS (60); no page is lost
#   lost       a GPU that is lost under an engine
#   api        the C API on the GPU
#   load       what the parts of loading take alone (load.cu), then an 8B model to its first token, and to the same once more in that process
#   pages      what pages of the host tier cost the steps beside them
#   idle       how much of the time the GPU has no step: an 8B model, 450 short requests at once
#   time       tokens a second of models of real shape with random weights (make_llama.py): fast, then deterministic
# What bounds a decode step of batch 1 is reading the weights (bytes / 4.4 TB/s on an H200); of a prefill the
# products (2 * parameters * tokens / 793 TFLOP/s in bf16). TIME_KINDS chooses of "1b 8b", TIME_FORMATS of "bf16 int4 fp8"
# (fp8: e4m3 weights and activations in the layers' products).
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
  if [ $rc = 0 ]; then tail -n "${SHOWN:-1}" "$log"; elif [ $rc = 77 ]; then tail -n 1 "$log"; else
    tail -n 25 "$log"
    echo "FAILED with $rc: ${*:2}"
    failed=1
  fi
  rm -f "$log"
}
sanitized() {  # of a program that fails none but the sanitizer's checks, what it found is the end of its output
  for t in "$build"/tests/ops/test_cuda*; do
    [ -x "$t" ] || continue
    echo "$1 $(basename "$t"):"
    SHOWN=2 ORLOP_TEST_SHORT=1 try 500 compute-sanitizer --tool "$1" --error-exitcode 9 "$t"
  done
}
model_of() {  # model_of 1b|8b [fp8]: makes it once
  local model=${TMPDIR:-/tmp}/orlop-llama-$1${2:+-$2}
  [ -e "$model/model.safetensors" ] || python3 "$here/make_llama.py" "$1" "$model" "${2:-bf16}" >&2
  echo "$model"
}
for part in "$@"; do
  echo "== $part"
  case $part in
    ops)
      for t in "$build"/tests/ops/test_cuda*; do
        [ -x "$t" ] && { echo -n "$(basename "$t"): "; try 300 "$t"; }
      done
      ;;
    memcheck | racecheck | initcheck) sanitized "$part" ;;
    golden)
      for t in golden pages quant warm_up split; do echo -n "$t: "; try 300 "$build/tests/model/test_model_$t"; done
      for t in golden pages; do
        echo -n "$t, all layers but one on the processor: "
        ORLOP_TEST_GPU_LAYERS=1 try 300 "$build/tests/model/test_model_$t"
      done
      echo -n "smollm2: "
      try 300 "$build/tests/api/test_api_smollm2_shared"
      ;;
    bits)
      try 300 "$build/tests/stress/test_same_bits" "${SECONDS_OF_BITS:-120}"
      try 300 "$build/tests/model/test_model_repeat" "$(model_of 1b)"
      ;;
    traffic) try 900 "$build/tests/stress/test_stress" "${TRAFFIC_SECONDS:-60}" ;;
    lost) ORLOP_TEST_REAL_CUDA=$ORLOP_CUDA_LIBRARY ORLOP_CUDA_LIBRARY=$(readlink -f "$build/tests/api/libbroken_cuda.so") \
      try 120 "$build/tests/api/test_cuda_lost" "$here/../../tests/data/tiny/llama" ;;
    api)
      for t in tiny sharing state; do
        echo -n "$t: "
        try 300 "$build/tests/api/test_api_${t}_shared"
        echo -n "$t, all layers but one on the processor: "
        ORLOP_TEST_GPU_LAYERS=1 try 300 "$build/tests/api/test_api_${t}_shared"
      done
      ;;
    load)
      SHOWN=60 try 120 "$build/tests/ops/bench_cuda_load" "$(model_of 8b)/model.safetensors" 8
      for more in '' ',"quant":"iq","quant_bits":4,"quant_group_size":128'; do
        echo "8b ${more:+as int4 g128}:"
        for process in 1 2; do
          try 200 "$build/tests/api/bench_throughput" "$(model_of 8b)" 0 "\"device\":\"cuda\",\"deterministic\":false$more" prefill=0 batches= again=1
        done
      done
      ;;
    pages) SHOWN=10 try 60 "$build/tests/ops/bench_cuda_pages" ;;
    idle) try 120 "$build/tests/stress/bench_gpu_idle" "$(model_of 8b)" ;;
    time)
      nvidia-smi --query-gpu=name,clocks.max.sm,clocks.mem,power.limit --format=csv,noheader
      watched=$(mktemp)
      for fixed in false true; do
        for kind in ${TIME_KINDS:-1b 8b}; do
          for format in ${TIME_FORMATS:-bf16 int4 fp8}; do
            model=$(model_of "$kind" "$([ $format = fp8 ] && echo fp8)")
            more="\"device\":\"cuda\",\"deterministic\":$fixed,\"max_running_seqs\":512,\"step_tokens\":4096,\"kv_bytes\":40000000000"
            [ $format = int4 ] && more="$more,\"quant\":\"iq\",\"quant_bits\":4,\"quant_group_size\":128,\"quant_symmetric\":true"
            [ $format = fp8 ] && more="$more,\"compute\":\"a8\""
            echo "$kind $format, deterministic $fixed:"
            nvidia-smi --query-gpu=clocks.sm,power.draw,power.limit,clocks_event_reasons.sw_power_cap --format=csv,noheader,nounits -lms 100 > "$watched" 2>&1 &
            watch=$!
            try 300 "$build/tests/api/bench_throughput" "$model" 0 "$more" prefill=4096 prefix=4000 batches=1,16,32,64,128,256 prompt=128 tokens=124 rounds=5
            kill $watch; wait $watch 2>/dev/null
            sort -n "$watched" | awk -F', ' '$2 > $3 / 2 { mhz[n++] = $1; capped += $4 == "Active" }
              END { if (n) printf "  above half its power limit: multiprocessors at %d to %d MHz, median %d; held back by it %d%% of the time\n", mhz[0], mhz[n - 1], mhz[int(n / 2)], 100 * capped / n }'
          done
        done
      done
      rm -f "$watched"
      ;;
    *)
      echo "$part is no part"
      exit 2
      ;;
  esac
done
exit $failed
