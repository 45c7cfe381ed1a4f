#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sets up, builds and tests everything; needs no GPU. Prints a line per step,
# and at the end ctest's count.
#
# usage: tools/test.sh [--preset dev|asan|ubsan|tsan|fuzz] [--tidy] [--no-setup] [-R REGEX]
set -euo pipefail
source "$(dirname "$0")/lib.sh"

preset=dev
tidy=0
setup=1
ctest_options=()
while (($#)); do
  case $1 in
    --preset) preset=${2:?--preset needs a name}; shift ;;
    --tidy) tidy=1 ;;
    --no-setup) setup=0 ;;
    -R) ctest_options+=(-R "${2:?-R needs a regular expression}"); shift ;;
    -h | --help) sed -n '3,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
case $preset in dev | asan | ubsan | tsan | fuzz) ;; *)
  echo "test: no preset '$preset': dev, asan, ubsan, tsan or fuzz" >&2
  exit 2
  ;;
esac

extra=()
[[ $preset == fuzz ]] && extra+=(clang-14 libclang-rt-14-dev)
((tidy)) && extra+=(clang-tidy-14)
# What an event costs and how a file is formatted is held against the compiler
# and the tools of Debian 12; elsewhere those tests are skipped, and say so.
if [[ $preset == dev ]] && grep -q '^VERSION_CODENAME=bookworm' /etc/os-release; then
  extra+=(valgrind clang-format-14)
fi
cd "$repo"
((setup)) && tools/setup.sh "${extra[@]}"

build=$repo/build/$preset
logs=$build/test-logs
step "layering" "$logs/layering.log" tools/check_layering.py
step "configure ($preset)" "$logs/configure.log" cmake --preset "$preset"
step "build" "$logs/build.log" cmake --build "$build" -j "$jobs"
((tidy)) && step "clang-tidy" "$logs/tidy.log" tools/tidy.sh "$build"

start=$SECONDS
printf '%-28s ' ctest
if ! ctest --test-dir "$build" -j 2 --timeout 300 --output-on-failure --no-tests=error \
  "${ctest_options[@]}" >"$logs/ctest.log" 2>&1; then
  echo "FAILED, from $logs/ctest.log:"
  # What each failed test said, the end of it, and which they were.
  awk '/\*\*\*(Failed|Timeout|Exception|Not Run)|Subprocess/ { failed = 1; lines = 0 }
       /^ +Start +[0-9]+: /  { failed = 0 }
       failed && ++lines <= 60 { print substr($0, 1, 400) }' "$logs/ctest.log" | head -n 300
  sed -n '/tests passed, .* tests failed/,$p' "$logs/ctest.log"
  exit 1
fi
printf 'ok  %4d s\n' $((SECONDS - start))
# A skipped test says why on a line that starts with "SKIP".
sed -n '/^The following tests did not run/,$p' "$logs/ctest.log" | grep '(Skipped)' |
  sed -E 's/^[[:space:]]*[0-9]+ - (.*) \(Skipped\)/skipped: \1/' | head -n 15 || true
grep -E '^100% tests passed' "$logs/ctest.log"
