#!/usr/bin/env bash
# setup.sh [test]: system packages and the virtual environment .venv; `test` adds what tests need.
# Looks first and installs only what is missing, so the second run takes well under a second.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mode=${1:-build}

# ---- system packages ----
missing=()   # Debian names of what the build cannot do without
wanted=()    # of what makes more tests run
look() {
  missing=() wanted=()
  have g++ || have clang++ || missing+=(g++)
  have cc || have gcc || have clang || missing+=(gcc)
  if have pkg-config; then
    pkg-config --exists libpcre2-8 || missing+=(libpcre2-dev)
    pkg-config --exists libutf8proc || missing+=(libutf8proc-dev)
    pkg-config --exists nlohmann_json || missing+=(nlohmann-json3-dev)
    pkg-config --exists libsodium || missing+=(libsodium-dev)
  else
    missing+=(pkg-config libpcre2-dev libutf8proc-dev nlohmann-json3-dev libsodium-dev)
  fi
  find_python || missing+=(python3 python3-venv python3-dev)
  if [ "$mode" = test ]; then
    # With its runtime libraries, a package of their own on newer systems.
    have_fuzzer || wanted+=(clang libclang-rt-dev)
    have npm || wanted+=(npm)
    # Other processors, emulated: the cross compiler brings its C library.
    have aarch64-linux-gnu-g++ || wanted+=(g++-aarch64-linux-gnu)
    # The live page's tests.
    have chromium || have chromium-browser || have google-chrome || wanted+=(chromium)
    have qemu-aarch64 && have qemu-x86_64 || wanted+=(qemu-user)
    # The ABI's description; a host with another allocator.
    have abidiff || wanted+=(abigail-tools)
    compgen -G '/usr/lib*/*/libjemalloc.so.2' >/dev/null || wanted+=(libjemalloc2)
  fi
}

have_fuzzer() {
  [ -e "$VENV/.orlop-fuzzer" ] && have clang++ && return
  have clang++ && echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }' |
    clang++ -x c++ - -fsanitize=fuzzer,address -o /dev/null 2>/dev/null || return 1
  [ ! -d "$VENV" ] || : >"$VENV/.orlop-fuzzer"
}

# The newest Python >= 3.10 on PATH that really runs (a version manager's shim may not), makes
# virtual environments and has its C headers.
PYTHON=
find_python() {
  local name
  for name in python3.{20..10} python3; do
    have "$name" || continue
    if "$name" - >/dev/null 2>&1 <<'PY'
import os, sys, sysconfig, venv, ensurepip
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(not (sys.version_info >= (3, 10) and os.path.exists(header)))
PY
    then
      PYTHON=$name
      return 0
    fi
  done
  return 1
}

install_packages() {
  have apt-get || return 1
  local root=()
  if [ "$(id -u)" != 0 ]; then
    have sudo && sudo -n true 2>/dev/null || { [ -t 0 ] && have sudo; } || return 1
    root=(sudo)
  fi
  say "installing system packages: $*"
  if [ ! -e "${TMPDIR:-/tmp}/.orlop-apt-updated.$(id -u)" ]; then
    quietly "${root[@]}" apt-get update || return 1
    : >"${TMPDIR:-/tmp}/.orlop-apt-updated.$(id -u)"
  fi
  quietly "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "$@"
}

look
if [ ${#missing[@]} -gt 0 ]; then
  install_packages "${missing[@]}" || true
  look
  if [ ${#missing[@]} -gt 0 ]; then
    # Libraries may come as meson subprojects instead (subprojects/*.wrap); tools may not.
    hard=()
    for p in "${missing[@]}"; do
      case $p in libpcre2-dev | libutf8proc-dev | nlohmann-json3-dev | libsodium-dev) ;; *) hard+=("$p") ;; esac
    done
    if [ ${#hard[@]} -gt 0 ]; then
      die "missing on this machine, and they could not be installed: ${missing[*]}
       On Debian or Ubuntu: apt-get install ${missing[*]}
       Elsewhere: a C++20 compiler (g++ >= 12 or clang >= 14), pkg-config, PCRE2 (8 bit), utf8proc,
       nlohmann-json, libsodium, and Python >= 3.10 with venv and its C headers."
    fi
    say "no development files of: ${missing[*]}; meson will fetch their sources (subprojects/)"
  fi
fi
for p in "${wanted[@]}"; do # one by one: not every system has all
  install_packages "$p" || say "not available: $p; what needs it is skipped and said so"
done

# ---- the virtual environment ----
reqs=(scripts/requirements.txt)
[ "$mode" = test ] && reqs+=(scripts/requirements-test.txt)
stamp=$VENV/.orlop-$mode
state="$(cat "${reqs[@]}" | cksum) $("$PYTHON" -c 'import sys; print(sys.version)')"
if [ ! -x "$VENV/bin/python" ]; then
  say "making a virtual environment with $("$PYTHON" --version)"
  "$PYTHON" -m venv "$VENV"
  rm -f "$VENV"/.orlop-*
fi
if [ ! -e "$stamp" ] || [ "$(cat "$stamp")" != "$state" ]; then
  say "installing Python packages into .venv"
  args=()
  for r in "${reqs[@]}"; do args+=(-r "$r"); done
  quietly "$VENV/bin/python" -m pip install "${args[@]}" || die "pip could not install ${reqs[*]}"
  printf '%s' "$state" >"$stamp"
fi
