#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the GPU workloads under libdstrace.so and prints one table.
#
#   tests/gpu/run.sh [NAME...]      all workloads that fit the GPUs present, or those named; groups: see README.md
#
# Environment:
#   PRELOAD  path of libdstrace.so; "none": run bare (default: the newest one under build/ or .gpu/lib/)
#   OUT      folder for the results (default build/gpu-out); at most 7 files, each under 16 MiB
#   BUDGET   seconds for everything (default 540): what does not fit is skipped and said
set -euo pipefail
cd "$(dirname "$0")/../.."

# NVLink multicast stays off in everything that uses several GPUs.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export PYTHONUNBUFFERED=1
ulimit -c 0

exec python3 tests/gpu/run.py "$@"
