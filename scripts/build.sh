#!/usr/bin/env bash
# build.sh [test]: builds the library (static and shared) and the Python package in $BUILD and
# installs the package into .venv; `test` builds the test programs too. One build folder serves
# all, so nothing is compiled twice. Assertions stay on in it; a wheel made by plain pip has none.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mode=${1:-build}
stamp=$BUILD/.orlop-$mode
tests=false
[ "$mode" = test ] && tests=true

inputs=(src include meson.build meson.options pyproject.toml python scripts/build.sh)
[ "$mode" = test ] && inputs+=(tests)
if [ -e "$stamp" ] && "$VENV/bin/python" -c 'import orlop' 2>/dev/null &&
  [ -z "$(find "${inputs[@]}" -newer "$stamp" ! -name '*.pyc' ! -name __pycache__ -print -quit)" ]; then
  exit 0
fi
say "building ($JOBS jobs); the first time takes a few minutes"
mkdir -p "$BUILD"
started=$(mktemp)
# Where a build folder exists, ninja speaks first: its errors are shorter than pip's.
if [ -e "$BUILD/build.ninja" ] && [ "$mode" = build -o -e "$BUILD/.orlop-test" ]; then
  ninja -C "$BUILD" -j "$JOBS" >&2
fi
quietly "$VENV/bin/python" -m pip install --no-build-isolation --no-deps --force-reinstall \
  -Cbuild-dir="$BUILD" -Ccompile-args="-j$JOBS" \
  -Csetup-args=-Ddefault_library=both -Csetup-args=-Db_ndebug=false \
  -Csetup-args=-Dtests=$tests . || die "the build failed (see above)"
touch -r "$started" "$stamp"
[ "$mode" = test ] && touch -r "$started" "$BUILD/.orlop-build" || rm -f "$BUILD/.orlop-test"
rm -f "$started"
