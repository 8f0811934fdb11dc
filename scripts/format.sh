#!/usr/bin/env bash
# format.sh [--check]: clang-format over the C and C++ files that git knows.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
have clang-format || die "clang-format is not installed"
args=(-i)
[ "${1:-}" = --check ] && args=(--dry-run --Werror)
git ls-files -z -- '*.h' '*.hpp' '*.c' '*.cc' '*.cu' | xargs -0 -r clang-format "${args[@]}"
