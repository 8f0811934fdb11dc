#!/usr/bin/env bash
# part.sh fuzz | sanitize: one stage of the tests alone.
#   FUZZ_SECONDS  how long each fuzz target runs (default 60)
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source scripts/checks.sh
scripts/setup.sh test
case ${1:-} in
  fuzz) stage "fuzz" fuzzed "${FUZZ_SECONDS:-60}" ;;
  sanitize) stage "address and undefined" sanitized asan address,undefined
            stage "threads" sanitized tsan thread ;;
  *) die "part.sh fuzz | sanitize" ;;
esac
finish "$1, $SECONDS s:"
