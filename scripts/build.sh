#!/usr/bin/env bash
# build.sh [test]: builds the library (static and shared) and the Python package in $BUILD and
# installs the package into .venv; `test` builds the test programs too. One build folder serves
# all, so nothing is compiled twice. Assertions stay on in it; a wheel made by plain pip has none.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mode=${1:-build}
# Once it has the test programs it keeps them: taking them out would delete them.
[ -e "$BUILD/.orlop-test" ] && mode=test
stamp=$BUILD/.orlop-$mode
tests=false
inputs=(src include meson.build meson.options pyproject.toml python scripts/build.sh)
if [ "$mode" = test ]; then
  tests=true
  inputs+=(tests)
fi
if [ -e "$stamp" ] && "$VENV/bin/python" -c 'import orlop' 2>/dev/null &&
  [ -z "$(find "${inputs[@]}" -type f -newer "$stamp" ! -name '*.pyc' -print -quit)" ]; then
  exit 0
fi
say "building ($JOBS jobs); the first time takes a few minutes"
mkdir -p "$BUILD"
started=$BUILD/.orlop-started
touch "$started"
# Where a build folder exists, ninja speaks first: its errors are shorter than pip's.
if [ -e "$stamp" ]; then ninja -C "$BUILD" -j "$JOBS" --quiet >&2; fi
quietly "$VENV/bin/python" -m pip install --no-build-isolation --no-deps --force-reinstall \
  -Cbuild-dir="$BUILD" -Ccompile-args="-j$JOBS" \
  -Csetup-args=-Ddefault_library=both -Csetup-args=-Db_ndebug=false \
  -Csetup-args=-Dtests=$tests . || die "the build failed (see above)"
mv "$started" "$stamp"
