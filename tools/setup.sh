#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes a bare Debian 12, Ubuntu 22.04 or Ubuntu 24.04 able to build and test
# dstrace: packages of the distribution, and libunwind built from the
# distribution's source package into deps/. Needs no GPU. Safe to run twice.
#
# usage: tools/setup.sh [EXTRA_PACKAGE...]      as root, or with sudo
#
# Says what it installs; the details are in build/setup.log.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
log=$repo/build/setup.log
mkdir -p "$repo/build"

packages=(
  g++ make cmake ninja-build ccache                         # build
  autoconf automake libtool dpkg-dev                        # libunwind from source
  protobuf-compiler libprotobuf-dev zlib1g-dev              # analyzer
  libabsl-dev nlohmann-json3-dev libdw-dev libzstd-dev
  libgtest-dev libgmock-dev libbenchmark-dev                # tests
  binutils python3
  "$@"
)

die() {
  echo "setup: $*" >&2
  exit 1
}

# as_root COMMAND...: stdout and stderr go to the log.
as_root() {
  if ((EUID == 0)); then
    env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >>"$log" 2>&1
  else
    sudo env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >>"$log" 2>&1
  fi
}

missing_of() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      echo "$package"
  done
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_of "$@")
  ((${#missing[@]} > 0)) || return 0
  ((EUID == 0)) || command -v sudo >/dev/null ||
    die "needs root to install: ${missing[*]}"
  echo "setup: installing ${#missing[@]} packages (${missing[0]} ... ${missing[-1]}; see build/setup.log)"
  echo "installing: ${missing[*]}" >>"$log"
  # The lists may be fresh enough already: an update that fails is not the end.
  as_root apt-get update || true
  as_root apt-get install -y --no-install-recommends "${missing[@]}" || {
    tail -n 15 "$log" >&2
    die "apt-get install failed (all of it: $log)"
  }
}

say_where_cuda_is() {
  local dir
  for dir in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include; do
    [[ -f $dir/cuda.h ]] && return
  done
  echo "setup: no CUDA headers, only needed to check the hooks against them: package nvidia-cuda-dev"
  echo "       (Debian: non-free, Ubuntu: multiverse), or NVIDIA's CUDA toolkit"
}

: >"$log"
[[ $(uname -m) == x86_64 ]] || die "only x86-64 Linux is supported, this is $(uname -m)"
command -v apt-get >/dev/null ||
  die "no apt-get: on this system install the equivalents of: ${packages[*]}"
install_packages "${packages[@]}"
[[ -f $repo/deps/libunwind/lib/libunwind.a ]] ||
  echo "setup: building libunwind from the distribution's source (about 30 s)"
"$repo/tools/build_libunwind.sh" >>"$log" 2>&1 || {
  tail -n 15 "$log" >&2
  die "tools/build_libunwind.sh failed"
}
say_where_cuda_is
echo "setup: ready"
