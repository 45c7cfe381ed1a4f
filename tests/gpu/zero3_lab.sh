#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The ZeRO-3/MiCS case under the tracer, on two GPUs: every row of the case study's table, then the one-GPU
# out-of-memory pair and from_pretrained. Same environment as run.sh; more:
#   PACKAGES                 folder made by fetch_packages.sh (default .gpu)
#   VOCAB, HIDDEN, LAYERS    a smaller model for a quick look (default BLOOM-7b1: 20 to 40 s a row)
#   ROWS                     workloads or groups instead of "zero3 zero3_oom pretrained"
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=${PACKAGES:-.gpu}
[ -d "$packages/site/deepspeed" ] || { echo "no $packages/site: run tests/gpu/fetch_packages.sh" >&2; exit 1; }
read -r -a rows <<<"${ROWS:-zero3 zero3_oom pretrained}"
exec tests/gpu/run.sh "${rows[@]}"
