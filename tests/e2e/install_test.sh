#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the build into an empty prefix and uses it from there: every file in
# its place, the launcher, the report, and the bare name in LD_PRELOAD.
#
# usage: install_test.sh BUILD_DIRECTORY WORKLOAD FAKES_DIRECTORY
set -euo pipefail
build=$1 workload=$2 fakes=$3
unset LD_PRELOAD "${!DSTRACE_@}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
fail() {
  echo "FAIL: $*"
  exit 1
}

cmake --install "$build" --prefix "$prefix" >"$work/install.log" || fail "cmake --install"
library=$(find "$prefix"/lib* -name libdstrace.so)
[[ -n $library ]] || fail "no libdstrace.so"
doc=$(find "$prefix/share/doc" -maxdepth 1 -name 'dstrace*')
for file in bin/dstrace-report bin/dstrace include/dstrace/dstrace.h include/dstrace/version.h \
  include/dstrace/trace.proto share/dstrace/python/dstrace/__init__.py; do
  [[ -f $prefix/$file ]] || fail "$file was not installed"
done
for file in LICENSE README.md THIRD_PARTY.md licenses/libunwind.txt; do
  [[ -s $doc/$file ]] || fail "$doc/$file was not installed"
done
# Nothing in it may lead back to the build tree.
if readelf -d "$library" "$prefix/bin/dstrace-report" | grep -E 'RPATH|RUNPATH'; then
  fail "an installed file has a run path"
fi

[[ -f $(dirname "$library")/libdstrace_cupti.so ]] || fail "no libdstrace_cupti.so beside libdstrace.so"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$prefix/share/dstrace/python python3 -c 'import dstrace; dstrace.mark("x")' ||
  fail "the Python module"

# As a user's file system: the launcher finds its library beside itself.
mkdir "$work/run" && cd "$work/run"
export LD_LIBRARY_PATH=$fakes
"$prefix/bin/dstrace" run -o launched.pb -- "$workload" pairs 20 >/dev/null || fail "dstrace run"
[[ -s launched.pb ]] || fail "dstrace run left no log"
"$prefix/bin/dstrace" report launched.pb >report.txt || fail "dstrace report"
"$prefix/bin/dstrace-report" launched.pb | cmp - report.txt || fail "dstrace report differs from dstrace-report"

"$prefix/bin/dstrace" compact launched.pb >/dev/null || fail "dstrace compact"
"$prefix/bin/dstrace-report" launched.pb.zst | cmp - report.txt || fail "the report of the compacted log differs"

# The bare name, through the loader's cache as after ldconfig. Its file is
# bound over in a private mount namespace; where that is not allowed, the
# search path says the same.
bare=(env LD_PRELOAD=libdstrace.so DSTRACE_OUTPUT=bare.pb "$workload" pairs 20)
how="ldconfig"
private=()
for flags in -m -rm; do
  unshare $flags mount --bind /etc/ld.so.cache /etc/ld.so.cache 2>/dev/null && private=(unshare $flags) && break
done
if ((${#private[@]})); then
  { cat /etc/ld.so.conf 2>/dev/null || true; dirname "$library"; } >"$work/ld.so.conf"
  /sbin/ldconfig -C "$work/ld.so.cache" -f "$work/ld.so.conf" 2>/dev/null || fail "ldconfig"
  "${private[@]}" sh -c 'mount --bind "$1" /etc/ld.so.cache; shift; exec "$@"' sh \
    "$work/ld.so.cache" "${bare[@]}" >out 2>err || fail "the program under the bare name"
else
  how="LD_LIBRARY_PATH"
  LD_LIBRARY_PATH=$fakes:$(dirname "$library") "${bare[@]}" >out 2>err || fail "the program under the bare name"
fi
[[ ! -s err ]] || fail "stderr: $(cat err)"
[[ -s bare.pb ]] || fail "LD_PRELOAD=libdstrace.so was not loaded ($how)"
echo "installed, launched, and loaded by its bare name ($how)"
