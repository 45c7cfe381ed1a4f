#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ZeRO-3 of a current DeepSpeed (0.19) under the tracer, on one GPU: plain, with the optimizer on the host, and with
# the weights there as well. Under $OUT: NAME.pb and NAME.json (the configuration) for each row, and log.txt.
#
#   tests/gpu/deepspeed_current.sh [ROW...]   rows: none optimizer both cpu_adam (default: the first three)
#
# Environment:
#   PRELOAD   path of libdstrace.so (default: the newest one under build/ or .gpu/lib/)
#   PACKAGES  folder made by fetch_packages.sh (default .gpu)
#   OUT       folder for the results (default build/gpu-out)
#   MODEL     more arguments for train.py, e.g. "--hidden 1024 --layers 8" (default: 0.94e9 parameters)
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
packages=${PACKAGES:-$root/.gpu}/site19
out=${OUT:-$root/build/gpu-out}
[ -d "$packages/deepspeed" ] || { echo "no $packages: run tests/gpu/fetch_packages.sh" >&2; exit 1; }
preload=${PRELOAD:-$(find build .gpu/lib -name libdstrace.so -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2)}
[ -f "$preload" ] || { echo "no libdstrace.so: build it, or set PRELOAD" >&2; exit 1; }
preload=$(realpath "$preload")
mkdir -p "$out"
read -r -a model <<<"${MODEL:-}"
# cpu_adam compiles DeepSpeed's own kernels, which asks for ninja.
export PATH="$packages/bin:$PATH" PYTHONPATH="$packages${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export NCCL_NVLS_ENABLE=0
ulimit -c 0

run_row() {
  local row=$1 offload=$1 optimizer=torch status=0 work traces
  if [ "$row" = cpu_adam ]; then offload=optimizer optimizer=deepspeed; fi
  local name=zero3_current_$row
  work=$(mktemp -d)
  echo "=== $name"
  LD_PRELOAD=$preload DSTRACE_OUTPUT=$work/%p.pb timeout -k 10 115 python3 examples/deepspeed_current/train.py \
    --offload "$offload" --optimizer "$optimizer" --config "$out/$name.json" ${model[@]+"${model[@]}"} || status=$?
  # The largest trace is the training's: compilers and the like may leave others.
  traces=$(find "$work" -name '*.pb' -printf '%s %p\n' | sort -rn | head -n 1 | cut -d' ' -f2)
  if [ -n "$traces" ]; then cp "$traces" "$out/$name.pb"; else status=${status/#0/no trace}; fi
  rm -rf "$work"
  echo "=== $name: status $status, $(stat -c %s "$out/$name.pb" 2>/dev/null || echo 0) bytes of trace"
  [ "$status" = 0 ]
}

rows=("$@")
[ ${#rows[@]} -gt 0 ] || rows=(none optimizer both)
failed=0
: >"$out/log.txt"
for row in "${rows[@]}"; do
  begun=$SECONDS
  if ! run_row "$row" >>"$out/log.txt" 2>&1; then failed=$((failed + 1)); fi
  echo "=== $row took $((SECONDS - begun)) s" >>"$out/log.txt"
done
grep -E '^(===|CHECKPOINT|NOTE)|Error' "$out/log.txt" | cut -c1-400
echo "$((${#rows[@]} - failed)) passed, $failed failed"
[ "$failed" = 0 ]
