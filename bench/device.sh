#!/bin/bash
# Tests, then times, a folder of programs built elsewhere (tests/ops/test_*, bench_ops_amx) on a machine
# with AMX. Prints the failures, then the tables; logs go to OUT.
#   bench/device.sh FOLDER OUT [threads] [prefill|decode|host|all]
#
# What bounds a layer of k -> n at m rows there (16 threads on 8 cores, tiles at 35 TOP/s int8 and 17 bf16):
#   operations   2 m k n / peak
#   bytes        packed weights / bandwidth of memory (m small)
#   a8, one scale a row       a tile of 16 x 16 x 64 takes 16 cycles; two by two tiles load 64 B a cycle
#   a8, scale per 128 k       per tile of sums 32 vector operations and 32 stores beside 32 cycles of products
#   int8 (scales per 32 k)    half of a tile's depth is unused: 16 cycles of products for 32 k, and 48 vector
#                             operations (convert, scale, add: 24 cycles) and 16 stores: at most 1/3 of the peak
# Seen there, ns a product and thread (16 threads, two a core; a thread alone on its core in brackets):
#   products alone 14 to 16 [6 to 7], a tile load 8.5 to 9 [3], a store 9, beside products free;
#   two by two tiles in the first-level cache 22 to 25 [7], rows and weights from the second 28.6;
#   with sums stored and loaded every 8 steps 33 (hence stretches of 32); prefetching rows gains nothing.
#   products of 32 k and their scaling 44 to 47 (vpdpbusd: 32 and 16), so int8 gains little over AVX-512.
# A thread alone on its core loads tiles beside products; with two, the times of loads and products add up.
set -u
folder=$1 out=$2 threads=${3:-$(nproc)} what=${4:-all}
lscpu | grep -E 'Model name|Thread|L1d|L2|L3|NUMA node\(s\)'
grep -o -w -E 'amx_tile|amx_int8|amx_bf16|avx512_bf16|avx512_vnni' /proc/cpuinfo | sort | uniq -c
cat /sys/kernel/mm/transparent_hugepage/enabled
for t in "$folder"/test_*; do
  [ -x "$t" ] || continue
  if "$t" >"$out/$(basename "$t").log" 2>&1; then echo "$(basename "$t"): $(tail -1 "$out/$(basename "$t").log")"
  else echo "$(basename "$t") FAILED"; tail -15 "$out/$(basename "$t").log"; fi
done
for b in "$folder"/bench_ops_amx*; do
  echo "== $(basename "$b")"
  "$b" "$threads" "$what" 2>&1 | tee "$out/$(basename "$b").log"
done
