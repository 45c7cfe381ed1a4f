#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sets up, builds, traces a training program and shows the first screen of its
# report. Uses the GPU where there is one with PyTorch, and a simulated one
# where there is not. Then the report of a trace from a real GPU, in samples/.
#
# usage: tools/demo.sh [--no-setup]
set -euo pipefail
source "$(dirname "$0")/lib.sh"

setup=1
case ${1:-} in
  '') ;;
  --no-setup) setup=0 ;;
  -h | --help) sed -n '4,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "demo: unknown option $1" >&2; exit 2 ;;
esac

cd "$repo"
((setup)) && tools/setup.sh
build=$repo/build/demo
logs=$build/logs
runs=$build/runs
configure() {
  cmake -S "$repo" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDSTRACE_BUILD_TESTS=ON
}
# Only what is run here: the two products, and the fakes that stand in for CUDA.
step "configure" "$logs/configure.log" configure
step "build" "$logs/build.log" cmake --build "$build" -j "$jobs" --target \
  dstrace dstrace-report dstrace_fakes

library=$build/lib/libdstrace.so
report=$(find "$build" -name dstrace-report -type f -perm -u+x -print -quit)
fakes=$build/tests/fakes

has_gpu() {
  command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 &&
    timeout 120 python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null
}

# show FILE [LINES OF HOLDERS]: who, how it went and the verdict; then who
# holds most.
show() {
  "$report" "$1" "${rules[@]}" >"$logs/report.txt" || die "no report of $1"
  sed '/^Where the device/,$d' "$logs/report.txt" | grep -v '^$'
  # To the end, unlike head, which would end the script by SIGPIPE.
  [[ -z ${2:-} ]] || awk -v n="$2" '/^Who holds it/ { on = 1 } on && n-- > 0' "$logs/report.txt"
}

rm -rf "$runs" && mkdir -p "$runs"
trace=$runs/run.pb
rules=()
if has_gpu; then
  program=examples/torch_training/train.py
  what="a training program on this machine's GPU"
  env LD_PRELOAD="$library" DSTRACE_OUTPUT="$trace" python3 "$program" >"$logs/run.log" 2>&1 ||
    { tail -n 20 "$logs/run.log"; die "$program failed"; }
else
  program=examples/simulated_training/train.py
  rules=(--rules examples/simulated_training/rules.json)  # names its own allocator
  what="a training program on a simulated GPU (this machine has none with PyTorch)"
  env LD_PRELOAD="$library" DSTRACE_OUTPUT="$trace" LD_LIBRARY_PATH="$fakes" \
    python3 "$program" >"$logs/run.log" 2>&1 ||
    { tail -n 20 "$logs/run.log"; die "$program failed"; }
fi
[[ -s $trace ]] || die "$program left no trace"

echo
echo "== $what: LD_PRELOAD=libdstrace.so python3 $program"
show "$trace" 8

for sample in samples/zero3_mics_load.pb samples/torch_training.pb; do
  [[ -f $sample ]] || continue
  echo
  echo "== recorded on a real GPU: $sample"
  show "$sample"
  break
done
echo
echo "All of it:   ${report#"$repo"/} ${trace#"$repo"/} ${rules[*]}"
echo "Flame graph: the same with --format svg -o memory.svg"
