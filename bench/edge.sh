#!/usr/bin/env bash
# edge.sh [RUNS]: the static executable's size, time from its start to the first token, and peak memory, with
# the model inside and beside it. "cold": its pages are dropped from the page cache before each run (by the
# kernel's advice, no root needed); "warm": they are there. One JSON line a row, medians of RUNS (5).
#   FULL=1  also the build that leaves nothing out
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
runs=${1:-5}
question='What is the capital of France?'
[ -e "$MODEL" ] || python3 scripts/fetch_model.py

median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
forget() { dd of="$1" oflag=nocache conv=notrunc,fdatasync count=0 2>/dev/null; }

row() { # WHAT EXECUTABLE [MODEL]
  local what=$1 exe=$2 beside=${3:-} cache i lines
  for cache in cold warm; do
    lines=
    for i in $(seq "$runs"); do
      if [ $cache = cold ]; then
        forget "$exe"
        [ -z "$beside" ] || forget "$beside"
      elif [ "$i" = 1 ]; then
        "$exe" ${beside:+-m "$beside"} -n 1 "$question" >/dev/null
      fi
      lines+=$(EDGE_STARTED_US=${EPOCHREALTIME/./} "$exe" ${beside:+-m "$beside"} -n 16 -s "$question" 2>&1 >/dev/null)$'\n'
    done
    printf '{"what": "%s", "cache": "%s", "bytes": %s, "ready_ms": %s, "first_token_ms": %s, "peak_rss_bytes": %s}\n' \
      "$what" $cache "$(stat -c %s "$exe")" "$(field ready_ms <<<"$lines" | median)" \
      "$(field first_token_ms <<<"$lines" | median)" "$(field peak_rss_bytes <<<"$lines" | median)"
  done
}

mkdir -p "$BUILD-edge"
dir=$BUILD-edge
examples/edge/build.sh --minimal --out "$dir/bench-minimal" >&2
examples/edge/build.sh --minimal --embed "$MODEL" --out "$dir/bench-inside" >&2
row "minimal, model inside" "$dir/bench-inside"
row "minimal, model beside" "$dir/bench-minimal" "$MODEL"
if [ -n "${FULL:-}" ]; then
  examples/edge/build.sh --out "$dir/bench-full" >&2
  row "full, model beside" "$dir/bench-full" "$MODEL"
fi
