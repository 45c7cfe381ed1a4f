#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the distribution's own libunwind as a position-independent static
# library that exports nothing, for linking into libdstrace.so. The packaged
# libunwind.a is not PIC, and the packaged .so would replace the traced
# process's _Unwind_* functions.
#
# usage: tools/build_libunwind.sh [PREFIX]     (default: <repository>/deps/libunwind)
#
# Needs apt's source archives; the system's package lists and sources are left
# as they are. Where they cannot be reached, DSTRACE_LIBUNWIND_SOURCE names a
# source archive to build instead (libunwind_1.6.2.orig.tar.xz). Does nothing
# when PREFIX already holds the library.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
prefix=${1:-$repo/deps/libunwind}
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
stamp=$prefix/lib/libunwind-dstrace.stamp

die() {
  echo "build_libunwind: $*" >&2
  exit 1
}

if [[ -f $stamp && -f $prefix/lib/libunwind.a && $stamp -nt $0 ]]; then
  echo "build_libunwind: already in $prefix"
  exit 0
fi
[[ $(uname -m) == x86_64 ]] || die "only x86_64 is supported, this is $(uname -m)"

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need autoreconf autoconf
need automake automake
need libtoolize libtool
need dpkg-source dpkg-dev
need make make
need objcopy binutils
need cc gcc
need apt-get apt
((${#missing[@]} == 0)) ||
  die "missing: ${missing[*]}; as root: apt-get install -y --no-install-recommends ${missing[*]}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log

# A private apt: its own lists and sources, the system's keys and proxies. Each
# binary entry of the system (one-line or deb822) becomes a source entry.
mkdir -p "$work"/{sources,state/lists/partial,cache/archives/partial,src}
shopt -s nullglob
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [[ -f $list ]] || continue
  sed -nE 's/^[[:space:]]*deb[[:space:]]+/deb-src /p' "$list" >"$work/sources/$(basename "$list")"
done
for list in /etc/apt/sources.list.d/*.sources; do
  sed -E 's/^Types:.*/Types: deb-src/' "$list" >"$work/sources/$(basename "$list")"
done
apt_options=(
  -o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$work/sources"
  -o "Dir::State=$work/state" -o "Dir::State::status=/var/lib/dpkg/status"
  -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User="
  -o "Acquire::Languages=none" -o "Acquire::Retries=3"
)

fetch() {
  if [[ -n ${DSTRACE_LIBUNWIND_SOURCE:-} ]]; then
    tar -xf "$DSTRACE_LIBUNWIND_SOURCE" -C "$work/src"
    return
  fi
  # Third-party archives may have no sources: their errors do not matter as
  # long as libunwind itself arrives.
  apt-get "${apt_options[@]}" update || true
  cd "$work/src"
  apt-get "${apt_options[@]}" source --only-source libunwind ||
    # Mirrors may lack the packaging; the upstream part is all that is built.
    { apt-get "${apt_options[@]}" source --only-source --tar-only libunwind &&
      tar -xf libunwind_*.orig.tar.*z; }
}

# unw_flush_cache() leaves the per-thread cache of traced frames alone, so after
# dlclose a frame laid out by the old code would be applied to the new code at
# the same address and read a wild pointer. Makes a flush reach that cache too.
flush_traced_frames() {
  local file=src/x86_64/Gtrace.c
  sed -i -e 's|^} unw_trace_cache_t;|  uint32_t flushed;\n&|' \
    -e '/Trace the stack upwards, starting from current RIP/i\
  /* dstrace: see unw_flush_cache. */\
  uint32_t generation = unw_local_addr_space->cache_generation;\
  if (unlikely (cache->flushed != generation))\
  {\
    memset (cache->frames, 0, sizeof (unw_tdep_frame_t) << cache->log_size);\
    cache->used = 0;\
    cache->flushed = generation;\
  }\
' "$file"
  [[ $(grep -c 'flushed' "$file") -eq 3 ]] || {
    echo "this version of libunwind keeps its traced frames elsewhere"
    return 1
  }
}

# glibc 2.33 turned stat and fstat into exports of their own; libdstrace.so has
# to load on older ones, so they go through the functions that came before.
write_floor_header() {
  cat >"$1" <<EOF
#include "$repo/cmake/glibc_floor.h"
#ifndef __ASSEMBLER__
#include <sys/stat.h>
int __xstat(int, const char *, struct stat *);
int __fxstat(int, int, struct stat *);
__asm__(".symver __xstat,__xstat@GLIBC_2.2.5");
__asm__(".symver __fxstat,__fxstat@GLIBC_2.2.5");
#define stat(path, out) __xstat(1, path, out)
#define fstat(fd, out) __fxstat(1, fd, out)
#endif
EOF
}

# For sanitizer builds: their run-time library offers the pinned functions
# without a version, and the linker makes a broken executable of the mix.
unpin() {
  nm "$1" | awk '/ [Uw] .*@/ { name = $2; sub(/@.*/, "", name); print $2, name }' |
    sort -u >"$work/unpinned"
  objcopy --redefine-syms="$work/unpinned" "$1" "$2"
}

# For the thread sanitizer: a thread's cache is freed after that library has
# already forgotten the thread, and its mutex then crashes. Leaks the cache by
# calling a function that ignores its arguments in place of the registration.
keep_thread_caches() {
  objcopy --redefine-sym pthread_setspecific=getpid "$1" "$2"
}

# A cache for 16384 addresses costs each thread that unwinds 400 kB and the time
# to fill them; start with 1024, it grows by itself.
start_with_small_caches() {
  sed -i 's/^#define HASH_MIN_BITS .*/#define HASH_MIN_BITS 10/' src/x86_64/Gtrace.c
}

# Up to 1.3 the fast path of unw_backtrace() gives return addresses less one,
# and a walk step by step the return addresses. Makes both the latter.
give_return_addresses() {
  sed -i 's/= (void \*) (rip - d->use_prev_instr);/= (void *) rip;/' src/x86_64/Gtrace.c
}

build() {
  cd "$work"/src/libunwind-*/
  write_floor_header "$work/floor.h"
  flush_traced_frames
  start_with_small_caches
  give_return_addresses
  autoreconf -i
  # Initial-exec TLS: the library is preloaded, and its per-thread cache must
  # not go through __tls_get_addr, which may call the host's malloc. Common
  # symbols: up to 1.3 a variable is defined in two of its files.
  CFLAGS="-O2 -g1 -fPIC -fvisibility=hidden -ftls-model=initial-exec -fcommon \
-ffile-prefix-map=$PWD=libunwind -include $work/floor.h" \
    ./configure --prefix="$prefix" --libdir="$prefix/lib" --with-pic \
    --disable-shared --enable-static --disable-cxx-exceptions \
    --disable-minidebuginfo --disable-zlibdebuginfo --disable-debug-frame \
    --disable-coredump --disable-ptrace --disable-setjmp --disable-tests \
    --disable-documentation
  make -j"$(nproc)"
  make install
  cp COPYING "$prefix/COPYING"
  unpin "$prefix/lib/libunwind.a" "$prefix/lib/libunwind-sanitize.a"
  keep_thread_caches "$prefix/lib/libunwind-sanitize.a" "$prefix/lib/libunwind-thread.a"
}

echo "build_libunwind: building the distribution's libunwind (source package) into $prefix"
(fetch) >"$log" 2>&1 && compgen -G "$work/src/libunwind-*/configure.ac" >/dev/null || {
  tail -n 15 "$log" >&2
  die "could not fetch the libunwind source package; if you have its source archive, DSTRACE_LIBUNWIND_SOURCE=FILE"
}
rm -rf "$prefix"
# Not as the condition of an ||: that would switch errexit off inside build.
set +e
(set -e; build) >>"$log" 2>&1
status=$?
set -e
if ((status != 0)); then
  tail -n 25 "$log" >&2
  die "the build failed"
fi
touch "$stamp"
