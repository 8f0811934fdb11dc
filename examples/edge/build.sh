#!/usr/bin/env bash
# build.sh: one static executable that answers a prompt. No Python, no shared object beside it.
#
#   examples/edge/build.sh [--embed MODEL.gguf] [--target x86_64|aarch64] [--minimal] [--out FILE] [--kernels FOLDER]
#
#   --embed    the model inside the executable, read in place
#   --target   what it runs on (default: this machine)
#   --minimal  without what it does not use: guides, folders of safetensors, saved states, the debugging
#              device, AVX-512 kernels (docs/edge.md); the size saved is printed where both kinds are built
#   --out      default: BUILD-edge/edge[-minimal]-TARGET[-MODEL]
#   --kernels  takes the vector kernels, the slowest files to compile, from a build folder that is current
#
# glibc, not musl: Debian's libstdc++ and the three libraries beneath orlop come as archives for glibc, so
# that one compiler package is all it takes; orlop needs nothing of what glibc cannot do statically (name
# service, iconv, dlopen).
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
embed= target=$(uname -m) minimal= out= kernels=
while [ $# -gt 0 ]; do
  case $1 in
    --embed) embed=${2:?--embed needs a file}; shift ;;
    --target) target=${2:?--target needs a name}; shift ;;
    --minimal) minimal=1 ;;
    --kernels) kernels=$(realpath "${2:?--kernels needs a folder}"); shift ;;
    --out) out=${2:?--out needs a file}; shift ;;
    *) sed -n '2,14p' "$0" | cut -c3- >&2; exit 2 ;;
  esac
  shift
done
have meson || scripts/setup.sh
have ninja || die "ninja is missing: scripts/setup.sh installs it"

kind=full
without=
if [ -n "$minimal" ]; then
  kind=minimal
  without=guard,guides,chat_output,states,inspect,folders,avx512
fi
cc=${CC:-gcc} cxx=${CXX:-g++} strip=strip pkg=pkg-config
setup=()
if [ "$target" != "$(uname -m)" ]; then
  [ "$target" = aarch64 ] || die "--target $target: there is a cross file for aarch64 (scripts/cross/)"
  have aarch64-linux-gnu-g++ || die "aarch64-linux-gnu-g++ is missing: apt-get install g++-aarch64-linux-gnu"
  setup+=(--cross-file scripts/cross/aarch64.ini)
  cc=aarch64-linux-gnu-gcc cxx=aarch64-linux-gnu-g++ strip=aarch64-linux-gnu-strip
  export PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig
fi

# One section a function, so that the linker takes what is used; small code, but for the kernels (-O3). Compiled
# at link time where gcc does it: that is 3 % smaller.
work=$BUILD-edge
mkdir -p "$work"
dir=$work-$target-$kind
[ -z "$kernels" ] || setup+=("-Dkernels_from=$kernels")
sections='-ffunction-sections -fdata-sections'
# A room as one file: its headers are read once. The guides do not permit it.
[ -z "$minimal" ] || setup+=(-Dunity_rooms=true --unity-size=1000)
lto=()
if "$cxx" --version | grep -q 'Free Software Foundation'; then
  lto=(-Os "-flto=$JOBS")
  setup+=(-Db_lto=true)
fi
want="${setup[*]} $without 1"
if [ ! -e "$dir/build.ninja" ] || [ "$(cat "$dir/.orlop-arguments" 2>/dev/null)" != "$want" ]; then
  rm -rf "$dir"
  quietly meson setup "$dir" "${setup[@]}" -Doptimization=s -Ddebug=false -Db_ndebug=true -Ddefault_library=static \
    -Dtests=false -Dcpp_args="$sections" -Dc_args="$sections" -Dwithout="$without" || die "meson setup failed"
  printf '%s' "$want" >"$dir/.orlop-arguments"
fi
quietly ninja -C "$dir" -j "$JOBS" liborlop.a || die "the library was not built (see above)"

# The libraries beneath: archives of the system, or what meson built of their sources (subprojects/).
libs=()
for lib in pcre2-8:libpcre2-8 utf8proc:libutf8proc sodium:libsodium; do
  [ -n "$minimal" ] && [ "${lib%%:*}" = sodium ] && continue
  built=$(find "$dir/subprojects" -name "lib${lib%%:*}.a" 2>/dev/null | head -n 1 || true)
  if [ -n "$built" ]; then libs+=("$built"); else libs+=("-l${lib%%:*}"); fi
done

model=() name=
if [ -n "$embed" ]; then
  [ -f "$embed" ] || die "$embed: no such file"
  embed=$(realpath "$embed")
  # Code reaches 2 GiB on x86-64.
  [ "$(stat -c %s "$embed")" -lt 1900000000 ] || die "$embed: models of up to 1.9 GB can be embedded; pass others with -m"
  model=("-DMODEL=\"$embed\"")
  name=-$(basename "$embed" .gguf)
fi
out=${out:-$work/edge${minimal:+-minimal}-$target$name}
"$cc" -std=c99 -Os "${lto[@]:1}" -Wall -Wextra -DORLOP_STATIC -Iinclude -c examples/edge/edge.c -o "$dir/edge.o"
"$cc" "${model[@]}" -c examples/edge/model.S -o "$dir/model$name.o"
"$cxx" -static "${lto[@]}" -Wl,--gc-sections -Wl,-z,noexecstack "$dir/edge.o" "$dir/model$name.o" "$dir/liborlop.a" "${libs[@]}" -o "$out"
"$strip" "$out"

size=$(stat -c %s "$out") inside=0
[ -z "$embed" ] || inside=$(stat -c %s "$embed")
printf '%s: %s bytes' "$out" "$size"
[ "$inside" = 0 ] || printf ', %s of them the model' "$inside"
printf '\n'
full=$work/edge-$target small=$work/edge-minimal-$target
if [ -z "$embed" ] && [ -e "$full" ] && [ -e "$small" ]; then
  printf 'minimal saves %s of %s bytes\n' $(($(stat -c %s "$full") - $(stat -c %s "$small"))) "$(stat -c %s "$full")"
fi
